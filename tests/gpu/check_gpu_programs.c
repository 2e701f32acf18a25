/* Edge programs as generated kernels: values and gradients against the
 * evaluation in double with its bound. */
#include "tests/gpu/gpu.h"

#include "lib/edge_program.h"
#include "tests/common/program_texts.h"
#include "tests/common/programs.h"
#include "tests/common/random_program.h"

typedef struct fixture {
  dfgnn_context *cpu, *gpu;
  dfgnn_graph *host, *device;
  dfgnn_csr csr;
  shape_of_graph shape;
} fixture;

static fixture fixture_of(dfgnn_csr csr) {
  fixture f = {.cpu = context_on("cpu", "", 1), .gpu = gpu_context()};
  f.csr = csr;
  f.shape =
      (shape_of_graph){csr.destinations, csr.sources, csr.edges, RELATIONS};
  f.host = graph_on(f.cpu, &f.csr);
  f.device = graph_on(f.gpu, &f.csr);
  relate(f.host, f.csr.edges);
  relate(f.device, f.csr.edges);
  return f;
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

/* Runs a program on the device twice, into `out`: the bits are the same. */
static void run(const dfgnn_edge_program *program, const fixture *f,
                const tensors *in, const tensors *out,
                const dfgnn_program_tuning *tuning) {
  dfgnn_edge_tensor inputs[MOST], outputs[MOST];
  void *first[MOST] = {NULL};
  copy_to_device(inputs, in);
  for (int again = 0; again < 2; again++) {
    copy_to_device(outputs, out);
    ck_ok(dfgnn__edge_program_execute_tuned(program, f->device, inputs,
                                            in->count, outputs, out->count, 42,
                                            tuning, NULL));
    take_from_device(out, outputs);
    for (int i = 0; i < out->count; i++) {
      size_t bytes = (size_t)out->elements[i] * bytes_of(out->at[i].dtype);
      if (!again) {
        first[i] = zeros_of((int64_t)bytes, 1);
        memcpy(first[i], out->at[i].data, bytes);
      } else {
        ck_assert_int_eq(memcmp(first[i], out->at[i].data, bytes), 0);
      }
    }
  }
}

/* A program and its gradients of all orders are within their bounds. */
static void check_orders(const char *text, const fixture *f, dfgnn_dtype dtype,
                         int orders, const dfgnn_program_tuning *tuning) {
  dfgnn_edge_program *forward = made(text);
  tensors in, out, next;
  uint64_t state = 17;
  inputs_of(&in, forward, NULL, NULL, &f->shape, dtype, &state);
  for (int order = 0; order <= orders; order++) {
    dfgnn_edge_program *kept;
    double worst = -1;
    int where = -1;
    kept = kept_of(forward);
    outputs_of(&out, kept, &f->shape, dtype);
    run(kept, f, &in, &out, tuning);
    ck_ok(dfgnn__edge_program_compare(&worst, &where, kept, f->host, in.at,
                                      in.count, out.at, out.count, 42, 1));
    ck_assert_msg(worst <= 1, "order %d, output %s is %g bounds off:\n%s",
                  order, out.value[where].name, worst,
                  dfgnn_edge_program_text(kept));
    forward = gradient_of(kept);
    inputs_of(&next, forward, &in, &out, &f->shape, dtype, &state);
    in = next;
  }
}

IN_CASE("programs")

TEST_LOOP(programs_and_their_gradients_are_within_their_bound, 0, PROGRAMS) {
  const dfgnn_program_tuning by_rule = {.long_row = 30}; /* pieces of 120 */
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, 300);
  check_orders(programs[_i], &f, DFGNN_F32, quick() ? 1 : 2, &by_rule);
  if (!quick()) {
    check_orders(programs[_i], &f, DFGNN_F64, 1, &by_rule);
    check_orders(programs[_i], &f, DFGNN_BF16, 1, &by_rule);
    check_orders(programs[_i], &f, DFGNN_F16, 0, &by_rule);
  }
}

TEST_LOOP(a_graph_without_edges_has_values, 0, PROGRAMS) {
  const dfgnn_program_tuning by_rule = {0};
  if (!in_part(_i))
    return;
  fixture f = graph_with(3, -1);
  check_orders(programs[_i], &f, DFGNN_F32, 1, &by_rule);
}

IN_CASE("spread")

TEST_LOOP(every_way_to_spread_a_row_is_right, 0, 20) {
  static const dfgnn_program_tuning tunings[] = {
      {.lanes = 1, .group = 1, .unroll = 1, .long_row = 20},
      {.lanes = 1, .group = 32, .unroll = 4},
      {.lanes = 2, .group = 8, .unroll = 1, .vector = 2},
      {.lanes = 4, .group = 4, .unroll = 3, .vector = 1, .long_row = 50},
      {.lanes = 32, .group = 32, .unroll = 2, .vector = 1}};
  static const int some[] = {0, 3, 5, 7};
  if (!in_part(_i))
    return;
  fixture f = graph_with(31, 90);
  check_orders(programs[some[_i % 4]], &f, DFGNN_F32, 1, &tunings[_i / 4]);
}

IN_CASE("long")

/* Graphs whose rows and columns are long in several ways; long_row is 20, and
 * hubs are cut into pieces of 80. */
static dfgnn_csr long_csr(int which) {
  static const struct {
    int rows, sources, each, hub;
  } shapes[] = {
      {40, 400, 3, 3000}, /* one row is a hub, few columns are long */
      {1, 5, 0, 500},     /* one row, whose columns are hubs, too */
      {9, 30, 81, 0},     /* all rows are hubs, the last piece has one edge */
      {12, 3, 40, 0},     /* all rows are long, and three columns hubs */
      {300, 1, 1, 0}};    /* no row is long, and the column is a hub */
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
  static const dfgnn_program_tuning tunings[] = {
      {.long_row = 20},
      {.lanes = 4, .group = 8, .unroll = 4, .long_row = 20},
      {.lanes = 1, .group = 1, .unroll = 1, .long_row = 20},
      {.long_row = -1}};
  if (!in_part(_i))
    return;
  fixture f = fixture_of(long_csr(_i % LONG_GRAPHS));
  for (int t = 0; t < (quick() ? 1 : 4); t++)
    check_orders(of_long_rows[_i / LONG_GRAPHS], &f, DFGNN_F32, 1, &tunings[t]);
}

IN_CASE("seed")

/* Runs a program whose seed lies in the device's memory. */
static void run_seeded(const dfgnn_edge_program *program, const fixture *f,
                       const tensors *in, const tensors *out, uint64_t seed) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_edge_tensor inputs[MOST], outputs[MOST];
  uint64_t *memory = device_memory(sizeof seed);
  copy_memory(memory, &seed, sizeof seed);
  args.seed = memory;
  copy_to_device(inputs, in);
  copy_to_device(outputs, out);
  ck_ok(dfgnn_edge_program_call(&problem, &args, program, f->device, inputs,
                                in->count, outputs, out->count, 0));
  ck_ok(dfgnn_call(f->gpu, f->device, &problem, &args, NULL));
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
    double worst = -1;
    inputs_of(&in[pass], both[pass], &in[0], &out[0], &f.shape, DFGNN_F32,
              &state);
    outputs_of(&out[pass], both[pass], &f.shape, DFGNN_F32);
    run_seeded(both[pass], &f, &in[pass], &out[pass], 42);
    ck_ok(dfgnn__edge_program_compare(&worst, NULL, both[pass], f.host,
                                      in[pass].at, in[pass].count, out[pass].at,
                                      out[pass].count, 42, 1));
    ck_assert_msg(worst <= 1, "pass %d is %g bounds off", pass, worst);
  }
  for (int pass = 0; pass < 2; pass++) {
  }
}

IN_CASE("random")

TEST(random_programs_are_within_their_bound) {
  const dfgnn_program_tuning by_rule = {.long_row = 40};
  const int first = number_of("DFGNN_TEST_SEED", 1);
  fixture f = graph_with(19, 60);
  for (int i = 0; i < number_of("DFGNN_TEST_PROGRAMS", quick() ? 2 : 8); i++) {
    random_program p;
    random_text(&p, (uint64_t)(first + i));
    fprintf(stderr, "random program %d\n", first + i);
    check_orders(p.text, &f, i % 4 == 3 ? DFGNN_F64 : DFGNN_F32, 1, &by_rule);
  }
}

GPU_MAIN("gpu_programs")
