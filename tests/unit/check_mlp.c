/* MLPs on edges on the CPU: every kind against the evaluation in double. */
#include "kernels/common/cpu_simd.h"
#include "kernels/common/number.h"
#include "kernels/mlp/cpu/table.h"
#include "lib/edge_mlp.h"
#include "lib/graph.h"
#include "tests/common/mlps.h"

/* ---- graphs -------------------------------------------------------------- */

typedef struct fixture {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  int64_t destinations, sources, edges;
  int floats; /* products are of floats, whatever the machine has */
} fixture;

/* An edge list in no order: 37 destinations, of which row 7 has `hub` edges and
 * every fifth none; 29 sources, of which source 3 has many and the last few
 * none; duplicates and self loops. */
static fixture graph_with(int threads, int hub) {
  fixture f = {context_on("cpu", "", threads), NULL, 37, 29, 0, 0};
  int32_t dst[20000], src[20000];
  uint64_t state = 11;
  int count = 0;
  for (int i = 0; i < 37; i++)
    for (int k = 0; k < (i == 7 ? hub : i % 5 ? i % 9 : 0); k++) {
      const int source = (int)((uniform(&state) + 1) * 13);
      dst[count] = i;
      src[count++] = k % 4 ? source : 3;
    }
  for (int e = count - 1; e > 0; e--) {
    const int other = (int)((uniform(&state) + 1) / 2 * e);
    const int32_t d = dst[e], s = src[e];
    dst[e] = dst[other], src[e] = src[other];
    dst[other] = d, src[other] = s;
  }
  dfgnn_coo coo = DFGNN_COO_INIT;
  coo.destinations = f.destinations;
  coo.sources = f.sources;
  coo.edges = f.edges = count;
  coo.destination = dst;
  coo.source = src;
  coo.index_type = DFGNN_INDEX_I32;
  ck_ok(dfgnn_graph_create_coo(&f.graph, f.ctx, &coo, NULL));
  ck_assert_ptr_nonnull(dfgnn_graph_edge_order(f.graph, NULL));
  return f;
}

static void free_fixture(fixture *f) {
  dfgnn_graph_destroy(f->graph);
  dfgnn_context_destroy(f->ctx);
}

static dfgnn_edge_mlp mlp_of(int layers, int64_t edge_dim, int64_t width) {
  dfgnn_edge_mlp mlp = DFGNN_EDGE_MLP_INIT;
  mlp.layers = layers;
  mlp.edge_dim = edge_dim;
  for (int l = 0; l < layers; l++)
    mlp.width[l] = width;
  mlp.activation = DFGNN_ACTIVATION_SILU;
  mlp.slope = 0.3;
  mlp.epsilon = 1e-5;
  mlp.reduce_dst = DFGNN_REDUCE_SUM;
  mlp.edge_list = 1;
  return mlp;
}

/* ---- checks -------------------------------------------------------------- */

static double worst_of(const fixture *f, const mlp_case *c, dfgnn_pass pass,
                       const char **where) {
  double worst = -1;
  ck_ok(dfgnn__edge_mlp_compare(
      &worst, where, &c->mlp, f->graph,
      pass == DFGNN_PASS_FORWARD ? &c->forward : &c->backward, pass,
      f->floats || dfgnn__mlp_amx_missing(c->mlp.dtype)));
  return worst;
}

static void is_right(const fixture *f, const mlp_case *c, const char *what) {
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
    const char *where = "";
    const double worst = worst_of(f, c, (dfgnn_pass)pass, &where);
    ck_assert_msg(worst <= 1, "%s, pass %d: %s is %g times its bound off", what,
                  pass, where, worst);
  }
}

static void run_floats(const fixture *f, const mlp_case *c, dfgnn_pass pass) {
  dfgnn_mlp_job job;
  ck_ok(dfgnn__edge_mlp_prepare(
      &job, &c->mlp, f->graph,
      pass == DFGNN_PASS_FORWARD ? &c->forward : &c->backward, pass));
  ck_ok(dfgnn__mlp_cpu(&job));
}

static void run_both(const fixture *f, const mlp_case *c) {
  for (int pass = 0; f->floats && pass < DFGNN_PASS_COUNT; pass++)
    run_floats(f, c, (dfgnn_pass)pass);
  if (f->floats)
    return;
  ck_ok(dfgnn_edge_mlp_execute(&c->mlp, f->graph, &c->forward,
                               DFGNN_PASS_FORWARD, NULL));
  ck_ok(dfgnn_edge_mlp_execute(&c->mlp, f->graph, &c->backward,
                               DFGNN_PASS_BACKWARD, NULL));
}

static void check_on(const fixture *f, const dfgnn_edge_mlp *mlp, int factors,
                     const char *what) {
  mlp_case c;
  mlp_make(&c, mlp, f->destinations, f->sources, f->edges, factors, 17);
  run_both(f, &c);
  is_right(f, &c, what);
  mlp_free(&c);
}

static void check(const dfgnn_edge_mlp *mlp, int factors, const char *what) {
  fixture f = graph_with(2, 400);
  check_on(&f, mlp, factors, what);
  free_fixture(&f);
}

/* ---- every kind ---------------------------------------------------------- */

START_TEST(every_activation_is_right_in_every_type) {
  for (int kind = 0; kind < DFGNN_ACTIVATION_COUNT; kind++) {
    dfgnn_edge_mlp mlp = mlp_of(2, 5, 18);
    char what[64];
    mlp.dtype = (dfgnn_dtype)_i;
    mlp.activation = (dfgnn_activation)kind;
    snprintf(what, sizeof what, "activation %d of type %d", kind, _i);
    check(&mlp, 0, what);
    mlp.activation = DFGNN_ACTIVATION_TANH;
    mlp.last = (dfgnn_activation)kind;
    snprintf(what, sizeof what, "last activation %d of type %d", kind, _i);
    check(&mlp, 0, what);
    mlp.gate = 1;
    snprintf(what, sizeof what, "gated activation %d of type %d", kind, _i);
    check(&mlp, 0, what);
  }
}
END_TEST

START_TEST(every_norm_and_residual_is_right) {
  for (int norm = 0; norm < DFGNN_NORM_COUNT; norm++)
    for (int gate = 0; gate < 2; gate++)
      for (int residual = 0; residual < 2; residual++) {
        dfgnn_edge_mlp mlp = mlp_of(3, 21, 21);
        char what[64];
        mlp.dtype = (dfgnn_dtype)_i;
        mlp.norm = (dfgnn_norm)norm;
        mlp.gate = gate;
        mlp.width[2] = gate ? 42 : 21;
        mlp.residual = residual;
        snprintf(what, sizeof what, "norm %d, gate %d, residual %d, type %d",
                 norm, gate, residual, _i);
        check(&mlp, 0, what);
      }
}
END_TEST

START_TEST(every_reduction_is_right_on_both_sides) {
  for (int dst = 0; dst < DFGNN_REDUCE_COUNT; dst++)
    for (int src = 0; src < DFGNN_REDUCE_COUNT; src++)
      for (int factors = 0; factors < 2; factors++) {
        dfgnn_edge_mlp mlp = mlp_of(2, 3, 19);
        char what[64];
        mlp.dtype = (dfgnn_dtype)_i;
        mlp.reduce_dst = (dfgnn_reduce)dst;
        mlp.reduce_src = (dfgnn_reduce)src;
        snprintf(what, sizeof what, "reductions %d and %d, factors %d, type %d",
                 dst, src, factors, _i);
        check(&mlp, factors, what);
      }
}
END_TEST

START_TEST(every_width_and_number_of_layers_is_right) {
  static const int64_t widths[] = {1, 3, 16, 33, 128, 200};
  const int count = sizeof widths / sizeof *widths;
  fixture f = graph_with(2, 150);
  for (int layers = 1; layers <= DFGNN_MLP_LAYERS; layers++)
    for (int i = 0; i < count; i++) {
      dfgnn_edge_mlp mlp = mlp_of(layers, widths[(i + 1) % count], widths[i]);
      char what[64];
      for (int l = 0; l < layers; l++)
        mlp.width[l] = widths[(i + l) % count];
      mlp.norm = i % 2 ? DFGNN_NORM_LAYER : DFGNN_NORM_NONE;
      mlp.dtype = _i ? DFGNN_F64 : DFGNN_F32;
      snprintf(what, sizeof what, "%d layers from width %d, type %d", layers,
               (int)widths[i], (int)mlp.dtype);
      check_on(&f, &mlp, 0, what);
      mlp.edge_dim = 0;
      check_on(&f, &mlp, 0, "no features of edges");
    }
  free_fixture(&f);
}
END_TEST

/* ---- graphs of other shapes ---------------------------------------------- */

START_TEST(a_graph_without_edges_gives_zeros) {
  fixture f = {context_on("cpu", "", 2), NULL, 3, 2, 0, 0};
  const int32_t offsets[4] = {0}, indices[1] = {0};
  const dfgnn_csr csr = csr32(3, 2, offsets, indices);
  ck_ok(dfgnn_graph_create_csr(&f.graph, f.ctx, &csr, NULL));
  dfgnn_edge_mlp mlp = mlp_of(2, 4, 9);
  mlp.reduce_dst = (dfgnn_reduce)(_i + 1);
  mlp.reduce_src = (dfgnn_reduce)(_i + 1);
  mlp_case c;
  mlp_make(&c, &mlp, 3, 2, 0, 0, 5);
  run_both(&f, &c);
  is_right(&f, &c, "no edges");
  for (int i = 0; i < 9; i++) {
    ck_assert(((float *)c.forward.out_dst)[i] == 0);
    ck_assert(((float *)c.backward.grad_weight[1])[i] == 0);
    if (c.forward.arg_src)
      ck_assert_int_eq(c.forward.arg_src[i], -1);
  }
  mlp_free(&c);
  free_fixture(&f);
}
END_TEST

START_TEST(a_matrix_with_wide_offsets_is_right) {
  fixture f = {context_on("cpu", "", 2), NULL, 3, 4, 5, 0};
  const int64_t offsets[4] = {0, 3, 3, 5};
  const int32_t indices[5] = {1, 0, 1, 3, 3};
  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = 3;
  csr.sources = 4;
  csr.edges = 5;
  csr.offsets = offsets;
  csr.offset_type = DFGNN_INDEX_I64;
  csr.indices = indices;
  ck_ok(dfgnn_graph_create_csr(&f.graph, f.ctx, &csr, NULL));
  dfgnn_edge_mlp mlp = mlp_of(2, 4, 9);
  mlp.reduce_src = DFGNN_REDUCE_MAX;
  check_on(&f, &mlp, 1, "wide offsets");
  free_fixture(&f);
}
END_TEST

/* The same rows of edges in two orders give the same. */
START_TEST(tensors_by_edge_may_be_in_the_graph_s_order) {
  fixture f = graph_with(2, 100);
  dfgnn_edge_mlp mlp = mlp_of(2, 4, 9);
  mlp_case list, own;
  mlp_make(&list, &mlp, f.destinations, f.sources, f.edges, 0, 5);
  mlp.edge_list = 0;
  mlp_make(&own, &mlp, f.destinations, f.sources, f.edges, 0, 5);
  const int32_t *order = dfgnn_graph_edge_order(f.graph, NULL);
  int moved = 0;
  for (int64_t e = 0; e < f.edges; e++) {
    moved += order[e] != e;
    memcpy((float *)own.forward.edge + e * 4,
           (const float *)list.forward.edge + order[e] * 4, 4 * sizeof(float));
  }
  ck_assert_int_gt(moved, 0);
  run_both(&f, &list);
  run_both(&f, &own);
  is_right(&f, &own, "the graph's order");
  ck_assert(!memcmp(list.forward.out_dst, own.forward.out_dst,
                    (size_t)(f.destinations * 9) * sizeof(float)));
  for (int64_t e = 0; e < f.edges; e++)
    ck_assert(!memcmp((float *)own.forward.edge_out + e * 9,
                      (float *)list.forward.edge_out + order[e] * 9,
                      9 * sizeof(float)));
  mlp_free(&list);
  mlp_free(&own);
  free_fixture(&f);
}
END_TEST

/* A row that lies in many tiles and chunks, beside others. */
START_TEST(bits_do_not_depend_on_the_number_of_threads) {
  dfgnn_edge_mlp mlp = mlp_of(2, 7, 33);
  mlp.reduce_dst = _i ? DFGNN_REDUCE_MAX : DFGNN_REDUCE_MEAN;
  mlp.reduce_src = _i ? DFGNN_REDUCE_MIN : DFGNN_REDUCE_SUM;
  mlp.norm = DFGNN_NORM_LAYER;
  mlp.dtype = DFGNN_BF16;
  fixture one = graph_with(1, 15000);
  mlp_case a;
  mlp_make(&a, &mlp, one.destinations, one.sources, one.edges, 1, 3);
  run_both(&one, &a);
  is_right(&one, &a, "a hub");
  for (int threads = 2; threads <= 7; threads += 5) {
    fixture many = graph_with(threads, 15000);
    mlp_case b;
    mlp_make(&b, &mlp, many.destinations, many.sources, many.edges, 1, 3);
    if (_i) { /* gradients of the same edges */
      memcpy(b.backward.arg_dst, a.forward.arg_dst,
             (size_t)(b.destinations * b.out) * sizeof(int32_t));
    }
    run_both(&many, &b);
    ck_assert_int_eq(a.count, b.count);
    for (int i = 0; i < a.count; i++)
      ck_assert_msg(!memcmp(a.block[i].data, b.block[i].data, a.block[i].bytes),
                    "tensor %d of %d threads differs", i, threads);
    mlp_free(&b);
    free_fixture(&many);
  }
  mlp_free(&a);
  free_fixture(&one);
}
END_TEST

/* ---- instruction sets ---------------------------------------------------- */

START_TEST(every_instruction_set_is_right) {
  fixture f = graph_with(2, 400);
  dfgnn_matrix rows = {.destinations = 5, .sources = 6, .edges = 9};
  const int32_t offsets[] = {0, 4, 4, 5, 9, 9};
  const int32_t indices[] = {5, 0, 5, 2, 1, 3, 3, 0, 4};
  const dfgnn_csr csr = csr32(5, 6, offsets, indices);
  dfgnn_graph *graph = NULL;
  ck_ok(dfgnn_graph_create_csr(&graph, f.ctx, &csr, NULL));
  rows.offsets = offsets;
  rows.indices = indices;
  dfgnn_edge_mlp mlp = mlp_of(3, 11, 37);
  mlp.activation = DFGNN_ACTIVATION_GELU;
  mlp.norm = DFGNN_NORM_RMS;
  for (int dtype = 0; dtype < DFGNN_DTYPE_COUNT; dtype++) {
    mlp_case c;
    mlp.dtype = (dfgnn_dtype)dtype;
    mlp_make(&c, &mlp, 5, 6, 9, 0, 23);
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
      const dfgnn_mlp_job job = {.mlp = mlp,
                                 .args = pass ? c.backward : c.forward,
                                 .pass = (dfgnn_pass)pass,
                                 .rows = rows,
                                 .threads = 2};
      if (!dfgnn__cpu_simd_missing(_i))
        ck_ok(dfgnn__mlp_kernels(_i, mlp.dtype)->run(&job));
    }
    fixture small = {.graph = graph, .floats = 1};
    if (!dfgnn__cpu_simd_missing(_i))
      is_right(&small, &c, "an instruction set");
    mlp_free(&c);
  }
  dfgnn_graph_destroy(graph);
  free_fixture(&f);
}
END_TEST

/* Sizes beside those of AMX's tiles, in a tile of edges that is not full. */
START_TEST(products_of_amx_are_right) {
  static const int64_t widths[] = {1, 15, 17, 33, 64, 100};
  fixture f = graph_with(2, 400);
  if (dfgnn__mlp_amx_missing(DFGNN_BF16))
    return free_fixture(&f);
  for (int edge_dim = 0; edge_dim < 40; edge_dim += 13) {
    dfgnn_edge_mlp mlp = mlp_of(3, edge_dim, widths[_i]);
    mlp.width[1] = widths[(_i + 1) % 6];
    mlp.dtype = DFGNN_BF16;
    mlp_case c;
    mlp_make(&c, &mlp, f.destinations, f.sources, f.edges, 0, 17);
    run_both(&f, &c);
    is_right(&f, &c, "AMX");
    /* some number is another than that of products of floats */
    const size_t bytes = (size_t)(f.destinations * widths[_i]) * 2;
    uint16_t *before = malloc(bytes);
    memcpy(before, c.forward.out_dst, bytes);
    run_floats(&f, &c, DFGNN_PASS_FORWARD);
    ck_assert(widths[_i] < 15 || memcmp(before, c.forward.out_dst, bytes));
    free(before);
    mlp_free(&c);
  }
  free_fixture(&f);
}
END_TEST

/* ---- the bound has teeth ------------------------------------------------- */

/* What an edge is worth in an output is beyond the bound. */
START_TEST(a_lost_edge_is_found) {
  static const char *const names[] = {"out_dst",        "out_src",
                                      "grad_dst_part",  "grad_src_part",
                                      "grad_weight[1]", "grad_bias[0]"};
  fixture f = graph_with(2, 400);
  dfgnn_edge_mlp mlp = mlp_of(3, 16, 32);
  mlp.reduce_src = DFGNN_REDUCE_SUM;
  mlp.norm = DFGNN_NORM_LAYER;
  mlp_case c;
  mlp_make(&c, &mlp, f.destinations, f.sources, f.edges, 0, 29);
  run_both(&f, &c);
  is_right(&f, &c, "nothing lost");
  float *const outputs[] = {c.forward.out_dst,         c.forward.out_src,
                            c.backward.grad_dst_part,  c.backward.grad_src_part,
                            c.backward.grad_weight[1], c.backward.grad_bias[0]};
  for (int i = 0; i < 6; i++) {
    /* a hundredth of what an edge adds, to the hub and to the source of most */
    const int at = i == 0 || i == 2 ? 7 * 32 : i == 1 || i == 3 ? 3 * 32 : 0;
    const float before = outputs[i][at];
    const char *where = "";
    outputs[i][at] += 0.01f;
    ck_assert_double_gt(worst_of(&f, &c, i > 1, &where), 1);
    ck_assert_str_eq(where, names[i]);
    outputs[i][at] = before;
  }
  is_right(&f, &c, "as it was");
  mlp_free(&c);
  free_fixture(&f);
}
END_TEST

/* What an edge is worth beside the sum that it is in. */
static double worth(const mlp_case *c, const void *out, int node, int64_t i) {
  const double sum =
      dfgnn__number_at(c->mlp.dtype, out, node * c->out + i % c->out);
  return fabs(dfgnn__number_at(c->mlp.dtype, c->forward.edge_out, i)) /
         (1 + fabs(sum));
}

/* The edge into `node` (out of it, of sources) and the feature that are worth
 * most, as a place in edge_out. */
static int64_t worthiest(const fixture *f, const mlp_case *c, const void *out,
                         int node, int of_source) {
  const dfgnn_matrix *m = &f->graph->exact;
  const int32_t *offsets = m->offsets;
  int64_t most = -1;
  for (int64_t row = 0; row < m->destinations; row++)
    for (int64_t e = offsets[row]; e < offsets[row + 1]; e++)
      for (int64_t i = e * c->out; i < (e + 1) * c->out; i++)
        if ((of_source ? m->indices[e] : row) == node &&
            (most < 0 || worth(c, out, node, i) > worth(c, out, node, most)))
          most = i;
  ck_assert_int_ge(most, 0);
  return most;
}

/* One of a hub's edges, where results have 8 or 11 bits. */
START_TEST(an_edge_that_a_sum_of_16_bits_lost_is_found) {
  fixture f = graph_with(2, 300);
  f.floats = 1;
  dfgnn_edge_mlp mlp = mlp_of(3, 16, 32);
  mlp.dtype = _i ? DFGNN_BF16 : DFGNN_F16;
  mlp.reduce_src = DFGNN_REDUCE_SUM;
  mlp.norm = DFGNN_NORM_LAYER;
  mlp.edge_list = 0;
  mlp_case c;
  mlp_make(&c, &mlp, f.destinations, f.sources, f.edges, 0, 29);
  run_both(&f, &c);
  is_right(&f, &c, "nothing lost");
  for (int of_source = 0; of_source < 2; of_source++) {
    const int node = of_source ? 3 : 7;
    void *out = of_source ? c.forward.out_src : c.forward.out_dst;
    const int64_t lost = worthiest(&f, &c, out, node, of_source);
    const int64_t at = node * c.out + lost % c.out;
    const double before = dfgnn__number_at(mlp.dtype, out, at);
    const char *where = "";
    set_element(out, mlp.dtype, at,
                before - dfgnn__number_at(mlp.dtype, c.forward.edge_out, lost));
    ck_assert_double_gt(worst_of(&f, &c, DFGNN_PASS_FORWARD, &where), 1);
    ck_assert_str_eq(where, of_source ? "out_src" : "out_dst");
    set_element(out, mlp.dtype, at, before);
  }
  is_right(&f, &c, "as it was");
  mlp_free(&c);
  free_fixture(&f);
}
END_TEST

START_TEST(a_wrong_edge_of_a_maximum_is_found) {
  fixture f = graph_with(2, 400);
  dfgnn_edge_mlp mlp = mlp_of(2, 4, 16);
  mlp.reduce_dst = DFGNN_REDUCE_MAX;
  mlp_case c;
  const char *where = "";
  mlp_make(&c, &mlp, f.destinations, f.sources, f.edges, 0, 31);
  run_both(&f, &c);
  is_right(&f, &c, "a maximum");
  c.forward.arg_dst[7 * 16] ^= 1;
  ck_assert_double_gt(worst_of(&f, &c, DFGNN_PASS_FORWARD, &where), 1);
  ck_assert_str_eq(where, "arg_dst");
  mlp_free(&c);
  free_fixture(&f);
}
END_TEST

/* ---- input that does not fit --------------------------------------------- */

START_TEST(what_does_not_fit_is_named) {
  fixture f = graph_with(1, 10);
  const dfgnn_edge_mlp good = mlp_of(2, 4, 16);
  mlp_case c;
  mlp_make(&c, &good, f.destinations, f.sources, f.edges, 0, 37);
#define REFUSES(change, text)                                                  \
  do {                                                                         \
    dfgnn_edge_mlp mlp = good;                                                 \
    dfgnn_edge_mlp_args args = c.forward;                                      \
    change;                                                                    \
    ck_fails(dfgnn_edge_mlp_execute(&mlp, f.graph, &args, DFGNN_PASS_FORWARD,  \
                                    NULL),                                     \
             DFGNN_ERROR_INVALID, text);                                       \
  } while (0)
  REFUSES(mlp.struct_size = 8, "use DFGNN_EDGE_MLP_INIT");
  REFUSES(args.struct_size = 8, "use DFGNN_EDGE_MLP_ARGS_INIT");
  REFUSES(mlp.layers = 5, "mlp.layers is 5, expected 1 to 4");
  REFUSES(mlp.width[1] = 0, "mlp.width[1] is 0, expected 1 to 4096");
  REFUSES(mlp.edge_dim = -1, "mlp.edge_dim is -1");
  REFUSES(mlp.activation = (dfgnn_activation)77, "mlp.activation is 77");
  REFUSES(mlp.norm = (dfgnn_norm)3, "mlp.norm is 3, expected 0 to 2");
  REFUSES(mlp.epsilon = -1, "mlp.epsilon is -1");
  REFUSES(mlp.slope = NAN, "mlp.slope is ");
  REFUSES(mlp.residual = 1, "mlp.edge_dim is 4, expected 16");
  REFUSES((mlp.gate = 1, mlp.width[1] = 15), "expected an even number");
  REFUSES(args.edge = NULL, "args.edge is NULL, but mlp.edge_dim is not 0");
  REFUSES(mlp.edge_dim = 0, "args.edge is given, but mlp.edge_dim is 0");
  REFUSES(args.weight[1] = NULL, "args.weight[1] is NULL");
  REFUSES(args.weight[2] = args.weight[1], "args.weight[2] is given");
  REFUSES(args.norm_weight = args.edge, "args.norm_weight is given");
  REFUSES(args.out_dst = NULL, "args.out_dst is NULL, but mlp.reduce_dst");
  REFUSES(mlp.reduce_dst = DFGNN_REDUCE_NONE, "mlp.reduce_dst is "
                                              "DFGNN_REDUCE_NONE");
  REFUSES((mlp.reduce_dst = DFGNN_REDUCE_MAX, args.dst_factor = args.edge),
          "args.dst_factor is given, but a maximum");
#undef REFUSES
  dfgnn_edge_mlp_args args = c.backward;
  args.dst_part = NULL;
  ck_fails(
      dfgnn_edge_mlp_execute(&good, f.graph, &args, DFGNN_PASS_BACKWARD, NULL),
      DFGNN_ERROR_INVALID, "args.dst_part is NULL, but its gradient");
  dfgnn_edge_mlp max = good;
  max.reduce_dst = DFGNN_REDUCE_MAX;
  ck_fails(dfgnn_edge_mlp_execute(&max, f.graph, &c.backward,
                                  DFGNN_PASS_BACKWARD, NULL),
           DFGNN_ERROR_INVALID, "args.arg_dst is NULL");
  ck_fails(
      dfgnn_edge_mlp_execute(&good, NULL, &c.forward, DFGNN_PASS_FORWARD, NULL),
      DFGNN_ERROR_INVALID, "graph is NULL");
  ck_fails(dfgnn_edge_mlp_execute(NULL, f.graph, &c.forward, DFGNN_PASS_FORWARD,
                                  NULL),
           DFGNN_ERROR_INVALID, "mlp is NULL");
  mlp_free(&c);
  free_fixture(&f);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("mlp");
  TCase *kinds = tcase_create("kinds");
  tcase_set_timeout(kinds, 300);
  tcase_add_loop_test(kinds, every_activation_is_right_in_every_type, 0,
                      DFGNN_DTYPE_COUNT);
  tcase_add_loop_test(kinds, every_norm_and_residual_is_right, 0,
                      DFGNN_DTYPE_COUNT);
  tcase_add_loop_test(kinds, every_reduction_is_right_on_both_sides, 0,
                      DFGNN_DTYPE_COUNT);
  tcase_add_loop_test(kinds, every_width_and_number_of_layers_is_right, 0, 2);
  tcase_add_loop_test(kinds, a_graph_without_edges_gives_zeros, 0, 4);
  tcase_add_test(kinds, a_matrix_with_wide_offsets_is_right);
  tcase_add_test(kinds, tensors_by_edge_may_be_in_the_graph_s_order);
  tcase_add_loop_test(kinds, bits_do_not_depend_on_the_number_of_threads, 0, 2);
  tcase_add_loop_test(kinds, every_instruction_set_is_right, 0, 3);
  tcase_add_loop_test(kinds, products_of_amx_are_right, 0, 6);
  tcase_add_test(kinds, a_lost_edge_is_found);
  tcase_add_loop_test(kinds, an_edge_that_a_sum_of_16_bits_lost_is_found, 0, 2);
  tcase_add_test(kinds, a_wrong_edge_of_a_maximum_is_found);
  tcase_add_test(kinds, what_does_not_fit_is_named);
  suite_add_tcase(suite, kinds);
  return run_tests(suite);
}
