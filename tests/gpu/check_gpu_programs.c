/* Edge programs as generated kernels: values and gradients against the
 * evaluation in double with its bound. */
#include "tests/gpu/gpu.h"

#include "lib/edge_program.h"
#include "tests/common/program_texts.h"
#include "tests/common/programs.h"
#include "tests/common/random_program.h"

/* A graph on both. */
typedef struct fixture {
  program_graph host, device;
} fixture;

static fixture fixture_of(dfgnn_csr csr) {
  return (fixture){.host = program_graph_on(context_on("cpu", "", 1), csr),
                   .device = program_graph_on(gpu_context(), csr)};
}

static fixture graph_with(int rows, int hub) {
  return fixture_of(program_csr(rows, hub));
}

/* Tensors of host memory, with copies on the device. */
static void copy_to_device(dfgnn_edge_tensor *to, const tensors *from) {
  for (int i = 0; i < from->count; i++) {
    size_t bytes = (size_t)from->elements[i] * bytes_of(from->at[i].dtype);
    to[i] = from->at[i];
    to[i].data = device_memory(bytes);
    copy_memory(to[i].data, from->at[i].data, bytes);
  }
}

static void take_from_device(const tensors *to, dfgnn_edge_tensor *from) {
  for (int i = 0; i < to->count; i++) {
    copy_memory(to->at[i].data, from[i].data,
                (size_t)to->elements[i] * bytes_of(to->at[i].dtype));
  }
}

/* Which variant runs a program. */
typedef struct way {
  int is_long; /* 1: one whose blocks take rows of more than 64 edges, if there
                * are any; 0: one whose blocks take none */
  int which, of; /* the which-th of so many, spread over those that serve it */
} way;

/* NULL: no variant of that kind serves the program. */
static const char *variant_of(dfgnn_graph *graph, const dfgnn_problem *given,
                              const way *w) {
  enum { LONG = 4 }; /* the parameter */
  const char **names = zeros_of((int64_t)dfgnn__variant_count(), sizeof *names);
  dfgnn_problem problem;
  int count = 0;
  ck_ok(dfgnn__problem_complete(&problem, given));
  ck_ok(dfgnn__graph_know(graph));
  const dfgnn_setting setting = dfgnn__setting(graph, &problem);
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!dfgnn__variant_refusal(v, &setting) &&
        (v->parameter[LONG] > 0) == w->is_long)
      names[count++] = v->name;
  }
  /* one on for each, so that the last parameter has all of its values */
  return count ? names[(w->which * count / w->of + w->which) % count] : NULL;
}

/* Runs a program on the device twice, into `out`: the bits are the same.  w:
 * NULL is the choice of a plan. */
static void run(const dfgnn_edge_program *program, const fixture *f,
                const tensors *in, const tensors *out, const way *w) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_edge_tensor inputs[MOST], outputs[MOST];
  void *first[MOST] = {NULL};
  dfgnn_args args = ARGS(.seed_value = 42);
  copy_to_device(inputs, in);
  copy_to_device(outputs, out);
  ck_ok(dfgnn_edge_program_call(&problem, &args, program, f->device.graph,
                                inputs, in->count, outputs, out->count, 1));
  const char *variant = w ? variant_of(f->device.graph, &problem, w) : NULL;
  const dfgnn_plan *plan =
      variant ? forced_on(f->device.ctx, f->device.graph, &problem, variant)
              : plan_on(f->device.ctx, f->device.graph, &problem);
  const size_t bytes = dfgnn_plan_workspace(plan);
  void *workspace = device_memory(bytes);
  for (int again = 0; again < 2; again++) {
    fill_device(workspace, 0xff, bytes);
    for (int i = 0; i < out->count; i++)
      fill_device(outputs[i].data, 0xff,
                  (size_t)out->elements[i] * bytes_of(out->at[i].dtype));
    ck_ok(dfgnn_execute(plan, &args, bytes ? workspace : NULL, NULL));
    take_from_device(out, outputs);
    for (int i = 0; i < out->count; i++) {
      size_t size = (size_t)out->elements[i] * bytes_of(out->at[i].dtype);
      if (!again) {
        first[i] = zeros_of((int64_t)size, 1);
        memcpy(first[i], out->at[i].data, size);
      } else {
        ck_assert_int_eq(memcmp(first[i], out->at[i].data, size), 0);
      }
    }
  }
}

/* A program and its gradients of all orders are within their bounds. */
static void check_orders(const char *text, const fixture *f, dfgnn_dtype dtype,
                         int orders, const way *w) {
  dfgnn_edge_program *forward = made(text);
  tensors in, out, next;
  uint64_t state = 17;
  inputs_of(&in, forward, NULL, NULL, &f->host.shape, dtype, &state);
  for (int order = 0; order <= orders; order++) {
    char what[32];
    dfgnn_edge_program *kept = kept_of(forward);
    outputs_of(&out, kept, &f->host.shape, dtype);
    run(kept, f, &in, &out, w);
    snprintf(what, sizeof what, "order %d", order);
    are_within_bounds(kept, f->host.graph, &in, &out, 1, what);
    forward = gradient_of(kept);
    inputs_of(&next, forward, &in, &out, &f->host.shape, dtype, &state);
    in = next;
  }
}

IN_CASE("programs")

TEST_LOOP(programs_and_their_gradients_are_within_their_bound, 0, PROGRAMS) {
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, 300);
  check_orders(programs[_i], &f, DFGNN_F32, quick() ? 1 : 2,
               &(way){.is_long = 1, .which = _i % 3, .of = 3});
  if (!quick()) {
    check_orders(programs[_i], &f, DFGNN_F64, 1, NULL);
    check_orders(programs[_i], &f, DFGNN_BF16, 1, NULL);
    check_orders(programs[_i], &f, DFGNN_F16, 0, NULL);
  }
}

/* The last of the texts, in types that round what is read. */
TEST_LOOP(rows_that_one_walk_writes_are_summed_by_the_next, 0, 2) {
  static const dfgnn_dtype types[] = {DFGNN_BF16, DFGNN_F16};
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, 300);
  check_orders(programs[PROGRAMS - 1], &f, types[_i], 1,
               &(way){.is_long = 1, .which = 1, .of = 3});
}

TEST_LOOP(a_graph_without_edges_has_values, 0, PROGRAMS) {
  if (!in_part(_i))
    return;
  fixture f = graph_with(3, -1);
  check_orders(programs[_i], &f, DFGNN_F32, 1, NULL);
}

IN_CASE("spread")

TEST_LOOP(every_way_to_spread_a_row_is_right, 0, 20) {
  static const int some[] = {0, 3, 5, 7};
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, 90);
  check_orders(programs[some[_i % 4]], &f, DFGNN_F32, 1,
               &(way){.is_long = _i / 4 % 2, .which = _i / 4, .of = 5});
}

IN_CASE("long")

/* Graphs whose rows and columns are long in several ways: those of more than 64
 * edges are, and hubs are cut into pieces of 256. */
static dfgnn_csr long_csr(int which) {
  static const struct {
    int rows, sources, each, hub;
  } shapes[] = {
      {40, 48, 3, 3000}, /* one row is a hub, some columns are long */
      {1, 5, 0, 1500},   /* one row, whose columns are hubs, too */
      {5, 30, 257, 0},   /* all rows are hubs, the last piece has one edge */
      {12, 3, 100, 0},   /* all rows are long, and three columns hubs */
      {400, 1, 1, 0}};   /* no row is long, and the column is a hub */
  const int rows = shapes[which].rows, sources = shapes[which].sources;
  int32_t *offsets = zeros_of(rows + 1, sizeof *offsets);
  for (int i = 0; i < rows; i++)
    offsets[i + 1] =
        offsets[i] + (i == rows / 2 && shapes[which].hub ? shapes[which].hub
                      : i % 4 == 3                       ? 0
                                                         : shapes[which].each);
  int32_t *indices = zeros_of(offsets[rows], sizeof *indices);
  uint64_t state = 3;
  for (int e = 0; e < offsets[rows]; e++)
    indices[e] = (int32_t)((uniform(&state) + 1) * sources / 2);
  return csr32(rows, sources, offsets, indices);
}

static const char *const of_long_rows[] = {
    /* GT */
    "dst q[2,8]; src k[2,8], v[2,8]\n"
    "out = sum_in(dropout(softmax_in(sum(q * k) * 0.35), 0.4) * v)",
    /* GATv2, whose gradient has totals */
    "dst x[2,5]; src y[2,5]; param a[2,5]\n"
    "out = sum_in(softmax_in(dot(a, leaky_relu(x + y, .2))) * y)",
    /* sums both ways, extremes, weights of edges and their gradients */
    "dst q[5]; src k[5]; edge w\n"
    "return out = sum_in(w * k) + max_in(tanh(k - q)),\n"
    "  back = mean_out(w * q), low = min_out(q * w)",
    /* several stages, and values of other shapes */
    "dst q[3]; src k[3]; edge w; param W[4,3]\n"
    "a = sum_in(w * k); b = sum_out(w * a * q)\n"
    "m = linear(k + q, W)\n"
    "return out = max_in(b + w) - mean_in(w * b), mean = mean_in(m),\n"
    "  share = w * softmax_in(w), all = sum_all(m * w)",
    /* reductions over relations */
    "dst q[5]; src k[5]; rel r[5]; edge w\n"
    "m = tanh(k * r + q) * w\n"
    "return out = sum_in(m - mean_rel(m)),\n"
    "  back = sum_out(softmax_rel(m) * max_rel(m - q)), share = degree(rel)"};
enum {
  LONG_TEXTS = sizeof of_long_rows / sizeof *of_long_rows,
  LONG_GRAPHS = 5
};

TEST_LOOP(long_rows_are_right_whoever_takes_them, 0, LONG_TEXTS *LONG_GRAPHS) {
  static const way ways[] = {{.is_long = 1, .which = 1, .of = 3},
                             {.is_long = 1, .which = 0, .of = 3},
                             {.is_long = 1, .which = 2, .of = 3},
                             {.is_long = 0, .which = 1, .of = 2}};
  if (!in_part(_i))
    return;
  fixture f = fixture_of(long_csr(_i % LONG_GRAPHS));
  for (int t = 0; t < (quick() ? 1 : 4); t++)
    check_orders(of_long_rows[_i / LONG_GRAPHS], &f, DFGNN_F32, 1, &ways[t]);
}

IN_CASE("seed")

/* Runs a program whose seed lies in the device's memory. */
static void run_seeded(const dfgnn_edge_program *program, const fixture *f,
                       const tensors *in, const tensors *out, uint64_t seed) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_edge_tensor inputs[MOST], outputs[MOST];
  uint64_t *memory = device_memory(sizeof seed);
  copy_memory(memory, &seed, sizeof seed);
  dfgnn_args args = ARGS(.seed = memory);
  copy_to_device(inputs, in);
  copy_to_device(outputs, out);
  ck_ok(dfgnn_edge_program_call(&problem, &args, program, f->device.graph,
                                inputs, in->count, outputs, out->count, 0));
  ck_ok(dfgnn_call(f->device.ctx, f->device.graph, &problem, &args, NULL));
  take_from_device(out, outputs);
}

TEST_LOOP(a_seed_in_memory_drops_the_same_in_both_passes, 0, DROPOUTS) {
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, 90);
  dfgnn_edge_program *forward = made(dropouts[_i]), *both[2];
  tensors in[2], out[2];
  uint64_t state = 4;
  both[0] = kept_of(forward);
  both[1] = gradient_of(both[0]);
  for (int pass = 0; pass < 2; pass++) {
    inputs_of(&in[pass], both[pass], &in[0], &out[0], &f.host.shape, DFGNN_F32,
              &state);
    outputs_of(&out[pass], both[pass], &f.host.shape, DFGNN_F32);
    run_seeded(both[pass], &f, &in[pass], &out[pass], 42);
    are_within_bounds(both[pass], f.host.graph, &in[pass], &out[pass], 1,
                      pass ? "backward" : "forward");
  }
}

IN_CASE("random")

TEST(random_programs_are_within_their_bound) {
  const int first = number_of("DFGNN_TEST_SEED", 1);
  fixture f = graph_with(19, 90);
  const int count = number_of("DFGNN_TEST_PROGRAMS", quick() ? 2 : 8);
  for (int i = 0; i < count; i++) {
    random_program p;
    random_text(&p, (uint64_t)(first + i));
    fprintf(stderr, "random program %d\n", first + i);
    check_orders(p.text, &f, i % 4 == 3 ? DFGNN_F64 : DFGNN_F32, 1,
                 &(way){.is_long = i % 4 < 2, .which = i, .of = count});
  }
}

GPU_MAIN("gpu_programs")
