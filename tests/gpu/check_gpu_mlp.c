/* MLPs on edges on a GPU: both passes against an evaluation in double, and the
 * same bits in every run. */
#include "tests/gpu/gpu.h"

#include "kernels/mlp/cuda/plan.h"
#include "tests/common/edge_mlps.h"
#include "tests/common/programs.h"

/* ---- graphs -------------------------------------------------------------- */

enum { MOST_EDGES = 8000, SOURCES = 29 };

typedef struct fixture {
  dfgnn_context *gpu;
  dfgnn_graph *graph;
  int rows, edges;
  int32_t dst[MOST_EDGES], src[MOST_EDGES]; /* of the list */
  int32_t
      listed[MOST_EDGES]; /* of edge e of the graph: its place in the list */
} fixture;

/* An edge list in no order: row 7 has `hub` edges and every fifth row none;
 * source 3 has a quarter of the edges and the last few none. */
static fixture *graph_with(int rows, int hub) {
  fixture *f = zeros_of(1, sizeof *f);
  uint64_t state = 11;
  f->gpu = gpu_context();
  f->rows = rows;
  for (int i = 0; i < rows; i++)
    for (int k = 0; k < (i == 7 ? hub : i % 5 ? i % 9 : 0); k++) {
      ck_assert_int_lt(f->edges, MOST_EDGES);
      f->dst[f->edges] = i;
      f->src[f->edges++] = k % 4 ? (int)((uniform(&state) + 1) * 13) : 3;
    }
  for (int e = f->edges - 1; e > 0; e--) {
    const int other = (int)((uniform(&state) + 1) / 2 * e);
    const int32_t d = f->dst[e], s = f->src[e];
    f->dst[e] = f->dst[other], f->src[e] = f->src[other];
    f->dst[other] = d, f->src[other] = s;
  }
  for (int i = 0, at = 0; i < rows; i++) /* edges of a row keep their order */
    for (int e = 0; e < f->edges; e++)
      if (f->dst[e] == i)
        f->listed[at++] = e;
  dfgnn_coo coo =
      INIT(dfgnn_coo, .destinations = rows, .sources = SOURCES,
           .edges = f->edges, .destination = f->dst, .source = f->src);
  f->graph = listed_on(f->gpu, &coo);
  return f;
}

/* ---- tensors ------------------------------------------------------------- */

/* By member of dfgnn_edge_mlp_args: its memory on the device, a copy on the
 * host, and what it should be. */
typedef struct tensor {
  const char *name;
  size_t offset;
  int rows, width, is_gradient_of_parameter;
  double scale; /* 0: an output */
  char *device, *host;
  double *want;
} tensor;

enum { TENSORS = 40 };

typedef struct mlp_case {
  const dfgnn_edge_mlp *mlp;
  const fixture *f;
  int count;
  tensor at[TENSORS];
} mlp_case;

static size_t bytes_of_tensor(const mlp_case *c, const tensor *t) {
  return (size_t)t->rows * (size_t)t->width *
         (t->is_gradient_of_parameter ? sizeof(float)
                                      : dfgnn_dtype_size(c->mlp->dtype));
}

static dfgnn_dtype type_of(const mlp_case *c, const tensor *t) {
  return t->is_gradient_of_parameter ? DFGNN_F32 : c->mlp->dtype;
}

static void add(mlp_case *c, const char *name, size_t offset, int64_t rows,
                int64_t width, double scale, int real) {
  ck_assert_int_lt(c->count, TENSORS);
  if (rows && width)
    c->at[c->count++] = (tensor){.name = name,
                                 .offset = offset,
                                 .rows = (int)rows,
                                 .width = (int)width,
                                 .scale = scale,
                                 .is_gradient_of_parameter = real};
}
#define ADD(member, rows, width, scale, real)                                  \
  add(c, #member, offsetof(dfgnn_edge_mlp_args, member), rows, width, scale,   \
      real)

static void make_case(mlp_case *c, const dfgnn_edge_mlp *mlp,
                      const fixture *f) {
  const int64_t n = f->rows, m = SOURCES, e = f->edges, first = mlp->width[0];
  const int64_t out = mlp->width[mlp->layers - 1];
  const int norm = mlp->norm != DFGNN_NORM_NONE;
  const int shift = mlp->norm == DFGNN_NORM_LAYER;
  uint64_t state = 17;
  *c = (mlp_case){.mlp = mlp, .f = f};
  ADD(edge, e, mlp->edge_dim, 1, 0);
  ADD(dst_part, n, first, 1, 0);
  ADD(src_part, m, first, 1, 0);
  for (int l = 0; l < mlp->layers; l++) {
    const int64_t in = dfgnn__mlp_width(mlp, l - 1);
    ADD(weight[l], mlp->width[l], in, 1.7 / sqrt((double)in), 0);
    ADD(bias[l], 1, mlp->width[l], .5, 0);
    ADD(grad_weight[l], mlp->width[l], in, 0, 1);
    ADD(grad_bias[l], 1, mlp->width[l], 0, 1);
    ADD(kept[l], e, dfgnn_edge_mlp_kept_width(mlp, l), 0, 0);
  }
  ADD(norm_weight, norm, out, 1, 0);
  ADD(norm_bias, shift, out, 1, 0);
  ADD(edge_out, e, out, 0, 0);
  ADD(out_dst, mlp->reduce_dst ? n : 0, out, 0, 0);
  ADD(grad_edge_out, e, out, 1, 0);
  ADD(grad_out_dst, mlp->reduce_dst ? n : 0, out, 1, 0);
  ADD(grad_edge, e, mlp->edge_dim, 0, 0);
  ADD(grad_dst_part, n, first, 0, 0);
  ADD(grad_src_part, m, first, 0, 0);
  ADD(grad_norm_weight, norm, out, 0, 1);
  ADD(grad_norm_bias, shift, out, 0, 1);
  for (int i = 0; i < c->count; i++) {
    tensor *t = &c->at[i];
    const size_t bytes = bytes_of_tensor(c, t);
    t->host = zeros_of((int64_t)bytes, 1);
    memset(t->host, 0xa5, bytes);
    for (int k = 0; t->scale != 0 && k < t->rows * t->width; k++)
      dfgnn__set_number(type_of(c, t), t->host, k, t->scale * uniform(&state));
    t->want = zeros_of(t->rows * t->width, sizeof *t->want);
    for (int k = 0; t->scale != 0 && k < t->rows * t->width; k++)
      t->want[k] = dfgnn__number_at(type_of(c, t), t->host, k);
    t->device = device_memory(bytes);
  }
}

/* Those of one layer have the same name. */
static tensor *find(mlp_case *c, size_t offset) {
  for (int i = 0; i < c->count; i++)
    if (c->at[i].offset == offset)
      return &c->at[i];
  return NULL;
}
static double *want_at(mlp_case *c, size_t offset, int64_t row) {
  tensor *t = find(c, offset);
  return t ? t->want + row * t->width : NULL;
}
#define WANT(member, row) want_at(c, offsetof(dfgnn_edge_mlp_args, member), row)

static dfgnn_edge_mlp_args args_of(const mlp_case *c, dfgnn_pass pass) {
  dfgnn_edge_mlp_args args = DFGNN_EDGE_MLP_ARGS_INIT;
  for (int i = 0; i < c->count; i++) {
    const tensor *t = &c->at[i];
    if (!strncmp(t->name, "grad_", 5) && pass == DFGNN_PASS_FORWARD)
      continue;
    if (pass == DFGNN_PASS_BACKWARD &&
        (!strcmp(t->name, "edge_out") || !strcmp(t->name, "out_dst")))
      continue;
    memcpy((char *)&args + t->offset, &t->device, sizeof t->device);
  }
  return args;
}

/* ---- the evaluation in double -------------------------------------------- */

static double activate(dfgnn_activation a, double x, double *slope) {
  const double s = 1 / (1 + exp(-x)), normal = .5 * erfc(-x / sqrt(2));
  const double u = 1.5957691216057308, v = .044715;
  const double g = 1 / (1 + exp(-u * (x + v * x * x * x)));
  switch (a) {
  case DFGNN_ACTIVATION_RELU:
    *slope = x > 0;
    return x > 0 ? x : 0;
  case DFGNN_ACTIVATION_SILU:
    *slope = s * (1 + x * (1 - s));
    return x * s;
  case DFGNN_ACTIVATION_GELU:
    *slope = normal + x * .3989422804014327 * exp(-.5 * x * x);
    return x * normal;
  case DFGNN_ACTIVATION_GELU_TANH:
    *slope = g + x * g * (1 - g) * u * (1 + 3 * v * x * x);
    return x * g;
  default:
    *slope = 1;
    return x;
  }
}

enum { WIDEST = 128 };

/* What an edge's values are on the way: z, what layers read, slopes. */
typedef struct edge_values {
  double z[DFGNN_MLP_LAYERS][WIDEST], x[DFGNN_MLP_LAYERS + 1][WIDEST],
      slope[DFGNN_MLP_LAYERS][WIDEST];
  double normed[WIDEST], scale;
} edge_values;

/* Divides sums at destinations by this. */
static double divisor(const mlp_case *c, int row) {
  int degree = 0;
  for (int e = 0; e < c->f->edges; e++)
    degree += c->f->dst[e] == row;
  return c->mlp->reduce_dst == DFGNN_REDUCE_MEAN ? degree : 1;
}

static void norm_of_last(edge_values *v, const dfgnn_edge_mlp *mlp) {
  const int last = mlp->layers - 1, out = (int)mlp->width[last];
  double mean = 0, squares = 0;
  for (int o = 0; o < out; o++)
    mean += mlp->norm == DFGNN_NORM_LAYER ? v->z[last][o] / out : 0;
  for (int o = 0; o < out; o++)
    squares += (v->z[last][o] - mean) * (v->z[last][o] - mean) / out;
  v->scale = 1 / sqrt(squares + mlp->epsilon);
  for (int o = 0; o < out; o++)
    v->normed[o] = (v->z[last][o] - mean) * v->scale;
}

/* e: an edge of the list; row: its row in tensors by edge. */
static void edge_forward(edge_values *v, mlp_case *c, int e, int row) {
  const dfgnn_edge_mlp *mlp = c->mlp;
  memcpy(v->x[0], WANT(edge, row), sizeof(double) * (size_t)mlp->edge_dim);
  for (int l = 0; l < mlp->layers; l++)
    for (int o = 0; o < mlp->width[l]; o++) {
      double z = WANT(bias[l], 0)[o];
      const double *w = WANT(weight[l], o);
      for (int i = 0; i < dfgnn__mlp_width(mlp, l - 1); i++)
        z += w[i] * v->x[l][i];
      if (!l)
        z += WANT(dst_part, c->f->dst[e])[o] + WANT(src_part, c->f->src[e])[o];
      v->z[l][o] = z;
      v->x[l + 1][o] = activate(mlp->activation, z, &v->slope[l][o]);
    }
  norm_of_last(v, mlp);
}

/* Gradients are those at the values that the forward pass kept: a value that
 * was rounded over the bend of a ReLU has the slope of the other side. */
static void take_kept(edge_values *v, mlp_case *c, int k) {
  const dfgnn_edge_mlp *mlp = c->mlp;
  for (int l = 0; l < mlp->layers; l++) {
    const tensor *kept = find(c, offsetof(dfgnn_edge_mlp_args, kept[l]));
    for (int o = 0; kept && o < mlp->width[l]; o++) {
      v->z[l][o] = dfgnn__number_at(mlp->dtype, kept->host,
                                    (int64_t)k * kept->width + o);
      v->x[l + 1][o] = activate(mlp->activation, v->z[l][o], &v->slope[l][o]);
    }
  }
  norm_of_last(v, mlp);
}

static void finish_forward(const edge_values *v, mlp_case *c, int e, int row) {
  const int last = c->mlp->layers - 1;
  for (int o = 0; o < c->mlp->width[last]; o++) {
    double y = v->z[last][o];
    if (c->mlp->norm) {
      y = v->normed[o] * WANT(norm_weight, 0)[o];
      if (c->mlp->norm == DFGNN_NORM_LAYER)
        y += WANT(norm_bias, 0)[o];
    }
    if (c->mlp->residual)
      y += WANT(edge, row)[o];
    WANT(edge_out, row)[o] = y;
    if (c->mlp->reduce_dst)
      WANT(out_dst, c->f->dst[e])[o] += y / divisor(c, c->f->dst[e]);
  }
}

static void edge_backward(const edge_values *v, mlp_case *c, int e, int row) {
  const dfgnn_edge_mlp *mlp = c->mlp;
  const int last = mlp->layers - 1, out = (int)mlp->width[last];
  double g[WIDEST], before[WIDEST], mean = 0, along = 0;
  for (int o = 0; o < out; o++) {
    g[o] = WANT(grad_edge_out, row)[o];
    if (mlp->reduce_dst)
      g[o] += WANT(grad_out_dst, c->f->dst[e])[o] / divisor(c, c->f->dst[e]);
    if (mlp->residual)
      WANT(grad_edge, row)[o] += g[o];
    if (!mlp->norm)
      continue;
    WANT(grad_norm_weight, 0)[o] += g[o] * v->normed[o];
    if (mlp->norm == DFGNN_NORM_LAYER)
      WANT(grad_norm_bias, 0)[o] += g[o];
    g[o] *= WANT(norm_weight, 0)[o];
    mean += mlp->norm == DFGNN_NORM_LAYER ? g[o] / out : 0;
    along += g[o] * v->normed[o] / out;
  }
  for (int o = 0; mlp->norm && o < out; o++)
    g[o] = v->scale * (g[o] - mean - v->normed[o] * along);
  for (int l = last; l >= 0; l--) {
    const int in = dfgnn__mlp_width(mlp, l - 1);
    memset(before, 0, sizeof before);
    for (int o = 0; o < mlp->width[l]; o++) {
      double *w = WANT(weight[l], o), *grad = WANT(grad_weight[l], o);
      WANT(grad_bias[l], 0)[o] += g[o];
      for (int i = 0; i < in; i++) {
        grad[i] += g[o] * v->x[l][i];
        before[i] += g[o] * w[i];
      }
    }
    for (int o = 0; !l && o < mlp->width[0]; o++) {
      WANT(grad_dst_part, c->f->dst[e])[o] += g[o];
      WANT(grad_src_part, c->f->src[e])[o] += g[o];
    }
    for (int i = 0; i < in; i++) {
      if (l)
        g[i] = before[i] * v->slope[l - 1][i];
      else
        WANT(grad_edge, row)[i] += before[i];
    }
  }
}

static void evaluate(mlp_case *c) {
  edge_values *v = malloc(sizeof *v);
  for (int k = 0; k < c->f->edges; k++) {
    const int e = c->f->listed[k], row = c->mlp->edge_list ? e : k;
    edge_forward(v, c, e, row);
    finish_forward(v, c, e, row);
    for (int l = 0; l < c->mlp->layers; l++)
      if (dfgnn_edge_mlp_kept_width(c->mlp, l))
        memcpy(WANT(kept[l], k), v->z[l],
               sizeof(double) * (size_t)c->mlp->width[l]);
    take_kept(v, c, k);
    edge_backward(v, c, e, row);
  }
  free(v);
}

/* ---- comparing ----------------------------------------------------------- */

/* The numbers of a row are off by at most a part of the row's norm, and of what
 * its terms were: operands of products are rounded to the type once a layer. */
static double tolerance(const mlp_case *c) {
  return c->mlp->layers * (c->mlp->dtype == DFGNN_BF16 ? 0.01 : 0.0014);
}

static void compare(const mlp_case *c, const tensor *t) {
  double all = 0;
  for (int k = 0; k < t->rows * t->width; k++)
    all += t->want[k] * t->want[k] / t->rows;
  for (int r = 0; r < t->rows; r++) {
    double error = 0, norm = 0;
    for (int i = r * t->width; i < (r + 1) * t->width; i++) {
      const double d = dfgnn__number_at(type_of(c, t), t->host, i) - t->want[i];
      error += d * d;
      norm += t->want[i] * t->want[i];
    }
    error = sqrt(error) / (sqrt(norm) + .3 * sqrt(all));
    ck_assert_msg(error <= tolerance(c), "%s, row %d: %g of its norm off",
                  t->name, r, error);
  }
}

static void copy_in(const mlp_case *c) {
  for (int i = 0; i < c->count; i++)
    copy_memory(c->at[i].device, c->at[i].host, bytes_of_tensor(c, &c->at[i]));
}

/* If `again`, tensors have to have the bits of the host's. */
static void copy_out(const mlp_case *c, int again) {
  for (int i = 0; i < c->count; i++) {
    const tensor *t = &c->at[i];
    const size_t bytes = bytes_of_tensor(c, t);
    char *before = malloc(bytes);
    memcpy(before, t->host, bytes);
    copy_memory(t->host, t->device, bytes);
    ck_assert_msg(!again || !memcmp(before, t->host, bytes),
                  "%s has other bits in the second run", t->name);
    free(before);
  }
}

IN_CASE("mlps")

/* ---- tests --------------------------------------------------------------- */

TEST_LOOP(every_shape_is_right_in_both_passes, 0, EDGE_MLPS) {
  if (!in_part(_i))
    return;
  fixture *f = graph_with(quick() ? 31 : 200, quick() ? 90 : 3000);
  mlp_case c;
  make_case(&c, &edge_mlps[_i], f);
  for (int again = 0; again < 2; again++) {
    copy_in(&c);
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
      const dfgnn_edge_mlp_args args = args_of(&c, (dfgnn_pass)pass);
      ck_ok(dfgnn_edge_mlp_execute(c.mlp, f->graph, &args, (dfgnn_pass)pass,
                                   NULL, NULL));
    }
    ck_cu(CtxSynchronize);
    copy_out(&c, again);
  }
  evaluate(&c);
  for (int i = 0; i < c.count; i++)
    compare(&c, &c.at[i]);
}

IN_CASE("others")

/* Spans that cut rows, and launches that cut spans. */
TEST_LOOP(launches_of_few_edges_are_right, 0, EDGE_MLPS) {
  if (!in_part(_i))
    return;
  fixture *f = graph_with(31, 300);
  mlp_case c;
  make_case(&c, &edge_mlps[_i], f);
  ck_ok(dfgnn__graph_know(f->graph));
  const dfgnn_queue queue = {.engine = dfgnn__context_engine(f->gpu)};
  copy_in(&c);
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
    dfgnn_mlp_job job = {.mlp = *c.mlp,
                         .args = args_of(&c, (dfgnn_pass)pass),
                         .pass = (dfgnn_pass)pass,
                         .rows = f->graph->exact};
    dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
    const dfgnn_view *views[DFGNN_MAX_VIEWS] = {NULL};
    if (!c.mlp->edge_list)
      job.rows.edge_order = NULL;
    const dfgnn_mlp_plan plan = dfgnn__mlp_plan_within(&job, &f->gpu->info, 1);
    const int count = dfgnn__mlp_views(&job, requests);
    for (int i = 0; i < count; i++)
      ck_ok(dfgnn__graph_view(&views[i], f->graph, &requests[i]));
    void *workspace = device_memory(plan.bytes);
    ck_ok(dfgnn__mlp_run(&job, &plan, views, &queue, workspace));
    ck_cu(CtxSynchronize);
  }
  copy_out(&c, 0);
  evaluate(&c);
  for (int i = 0; i < c.count; i++)
    compare(&c, &c.at[i]);
}

/* Both passes recorded into a CUDA graph, in memory of the caller's. */
TEST_LOOP(captured_calls_replay_to_the_same_bits, 0, 2) {
  fixture *f = graph_with(9, 40);
  void *workspace[DFGNN_PASS_COUNT] = {NULL};
  cu_stream stream = make_stream();
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  mlp_case c;
  make_case(&c, &edge_mlps[_i], f);
  for (int run = 0; run < 3; run++) {
    copy_in(&c);
    if (run == 1)
      ck_cu(StreamBeginCapture, stream, CU_CAPTURE_GLOBAL);
    for (int pass = 0; pass < DFGNN_PASS_COUNT && run < 2; pass++) {
      const dfgnn_edge_mlp_args args = args_of(&c, (dfgnn_pass)pass);
      size_t bytes = 0;
      ck_ok(dfgnn_edge_mlp_workspace(&bytes, c.mlp, f->graph, &args,
                                     (dfgnn_pass)pass));
      if (!workspace[pass])
        workspace[pass] = device_memory(bytes);
      ck_ok(dfgnn_edge_mlp_execute(c.mlp, f->graph, &args, (dfgnn_pass)pass,
                                   workspace[pass], stream));
    }
    if (run == 1) {
      ck_cu(StreamEndCapture, stream, &graph);
      ck_cu(GraphInstantiate, &exec, graph, 0);
      ck_cu(GraphDestroy, graph);
    }
    if (run)
      ck_cu(GraphLaunch, exec, stream);
    ck_cu(StreamSynchronize, stream);
    copy_out(&c, run);
  }
  if (exec)
    ck_cu(GraphExecDestroy, exec);
  ck_cu(StreamDestroy, stream);
}

TEST(what_is_not_served_is_said) {
  static const struct {
    dfgnn_dtype dtype;
    int64_t edge, first, last;
    dfgnn_status status;
    const char *says;
  } calls[] = {{DFGNN_BF16, 128, 128, 128, DFGNN_OK, ""},
               {DFGNN_F32, 128, 128, 128, DFGNN_ERROR_UNSUPPORTED, "f16"},
               {DFGNN_F16, 17, 128, 128, DFGNN_ERROR_UNSUPPORTED, "of 32"},
               {DFGNN_F16, 64, 160, 64, DFGNN_ERROR_UNSUPPORTED, "up to 128"},
               {DFGNN_F16, 64, 5000, 64, DFGNN_ERROR_INVALID, "width[0]"}};
  fixture *f = graph_with(9, 3);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    dfgnn_edge_mlp mlp =
        INIT(dfgnn_edge_mlp, .layers = 2, .dtype = calls[i].dtype,
             .edge_dim = calls[i].edge);
    mlp.width[0] = calls[i].first;
    mlp.width[1] = calls[i].last;
    ck_assert_int_eq(dfgnn_edge_mlp_serves(&mlp, f->graph), calls[i].status);
    ck_assert_msg(!calls[i].status ||
                      strstr(dfgnn_last_error(), calls[i].says) != NULL,
                  "%s", dfgnn_last_error());
  }
}

TEST(wrong_tensors_are_named) {
  fixture *f = graph_with(9, 3);
  dfgnn_edge_mlp mlp = edge_mlps[0];
  dfgnn_edge_mlp_args args = DFGNN_EDGE_MLP_ARGS_INIT;
  static _Alignas(16) char here[32];
  size_t bytes;
  const struct {
    const void **member, *value;
    const char *says;
  } steps[] = {{NULL, NULL, "args.edge is NULL"},
               {&args.edge, here, "args.out_dst is NULL"},
               {(const void **)&args.out_dst, here, "args.weight[0] is NULL"},
               {&args.weight[0], here, "args.weight[1] is NULL"},
               {&args.weight[1], here, "args.weight[2] is NULL"},
               {&args.weight[2], here + 2, "multiples of 16"},
               {&args.weight[3], here, "mlp.layers ends before it"}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    if (steps[i].member)
      *steps[i].member = steps[i].value;
    ck_invalid(dfgnn_edge_mlp_workspace(&bytes, &mlp, f->graph, &args,
                                        DFGNN_PASS_FORWARD),
               steps[i].says);
  }
}

GPU_MAIN("gpu_mlp")
