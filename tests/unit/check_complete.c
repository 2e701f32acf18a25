/* check_complete.c - what the arguments of a call mean: defaults are asked for,
 * and every number that may be given is taken; and which tensors a pass has */
#include <math.h>
#include <stddef.h>

#include "dfgnn_operator.h"
#include "dfgnn_tune.h"
#include "lib/base/descriptor.h"
#include "tests/unit/fixture.h"

enum { ROWS = 40, HEADS = 2, DIM = 8, SIZE = ROWS * HEADS * DIM };

static float feature[SIZE];
static dfgnn_context *ctx;
static dfgnn_graph *graph;
static dfgnn_csr *csr;
static dfgnn_problem problem;

static void set_up(void) {
  csr = generated("powerlaw:nodes=40,edges=300,max-degree=30,seed=3");
  ctx = cpu_context("");
  graph = graph_on(ctx, csr);
  for (int i = 0; i < SIZE; i++)
    feature[i] = (float)((i * 37 + 11) % 101) / 50 - 1;
  problem = PROBLEM(.heads = HEADS, .dim = DIM);
}

static void run(float out[SIZE], const char *variant, double scale) {
  dfgnn_args args = ARGS(.query = feature, .key = feature, .value = feature,
                         .out = out, .scale = scale);
  execute_plan(forced_on(ctx, graph, &problem, variant), &args);
}

/* Calls `each` with the variants that can do the problem; how many there are.
 */
static int for_each_variant(void (*each)(const char *variant)) {
  int count = 0;
  for (size_t i = 0; i < dfgnn_variant_count(); i++) {
    dfgnn_variant_info info = DFGNN_VARIANT_INFO_INIT;
    dfgnn_plan *plan = NULL;
    ck_ok(dfgnn_variant_get(&info, i));
    if (strcmp(info.backend, "cpu") || !(info.ops >> DFGNN_OP_GT & 1) ||
        !(info.passes >> DFGNN_PASS_FORWARD & 1) ||
        dfgnn_plan_create_forced(&plan, ctx, graph, &problem, info.name))
      continue;
    dfgnn_plan_destroy(plan);
    each(info.name);
    count++;
  }
  return count;
}

static void gives_means(const char *variant) {
  const int32_t *offsets = csr->offsets, *indices = csr->indices;
  float out[SIZE];
  run(out, variant, 0);
  for (int i = 0; i < ROWS; i++)
    for (int f = 0; f < HEADS * DIM; f++) {
      double sum = 0;
      for (int e = offsets[i]; e < offsets[i + 1]; e++)
        sum += feature[indices[e] * HEADS * DIM + f];
      int degree = offsets[i + 1] - offsets[i];
      ck_assert_msg(
          fabs(out[i * HEADS * DIM + f] - (degree ? sum / degree : 0)) < 1e-5,
          "%s: row %d", variant, i);
    }
}

TEST(a_scale_of_0_gives_the_mean_of_the_neighbours) {
  ck_assert_int_ge(for_each_variant(gives_means), 5);
}

static void has_a_default(const char *variant) {
  float expected[SIZE], found[SIZE];
  run(expected, variant, 1 / sqrt(DIM));
  run(found, variant, DFGNN_SCALE_DEFAULT);
  ck_assert_msg(!memcmp(expected, found, sizeof found), "%s", variant);
}

TEST(the_default_scale_is_one_over_the_root_of_the_width) {
  const dfgnn_args args = DFGNN_ARGS_INIT;
  ck_assert(args.scale == DFGNN_SCALE_DEFAULT);
  ck_assert_int_ge(for_each_variant(has_a_default), 5);
}

TEST(each_pass_tells_its_tensors) {
  dfgnn_tensor_info info = DFGNN_TENSOR_INFO_INIT;
  int passes = 0;
  for (int op = 0; op < DFGNN_OP_COUNT; op++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++, passes++) {
      int gradients = 0, outputs = 0, i = 0;
      for (;; i++) {
        ck_ok(dfgnn_operator_tensor(&info, (dfgnn_op)op, (dfgnn_pass)pass, i));
        if (!info.name)
          break;
        gradients += info.role == DFGNN_ROLE_GRADIENT;
        outputs += info.role == DFGNN_ROLE_OUTPUT;
      }
      ck_assert_int_ge(i, 2);
      ck_assert_int_eq(gradients > 0, pass == DFGNN_PASS_BACKWARD);
      ck_assert_int_eq(outputs > 0, pass == DFGNN_PASS_FORWARD);
    }
  ck_assert_int_eq(passes, 26);
  ck_ok(dfgnn_operator_tensor(&info, DFGNN_OP_GT, DFGNN_PASS_FORWARD, 4));
  ck_assert_str_eq(info.name, "edge_projection");
  ck_assert_str_eq(info.shape, "HDF");
  ck_assert_int_eq(info.flag, DFGNN_FLAG_PROJECTION);
  ck_assert_int_eq(info.role, DFGNN_ROLE_INPUT);
  ck_assert_int_eq(
      dfgnn_operator_tensor(&info, DFGNN_OP_COUNT, DFGNN_PASS_FORWARD, 0),
      DFGNN_ERROR_UNSUPPORTED);
  ck_assert_int_eq(
      dfgnn_operator_tensor(&info, DFGNN_OP_GT, DFGNN_PASS_FORWARD, -1),
      DFGNN_ERROR_INVALID);
}

TEST(a_struct_that_ends_earlier_leaves_defaults) {
  const dfgnn_descriptor_kind kind = {.name = "options",
                                      .macro = "DFGNN_OPTIONS_INIT",
                                      .size = sizeof(dfgnn_options),
                                      .least =
                                          offsetof(dfgnn_options, log_level)};
  dfgnn_options given = {kind.least, .threads = 3,
                         .log_level = DFGNN_LOG_DEBUG};
  dfgnn_options whole = INIT(dfgnn_options, .log_level = DFGNN_LOG_WARN);
  ck_ok(dfgnn__take(&whole, &given, &kind));
  ck_assert_int_eq(whole.threads, 3);
  ck_assert_int_eq(whole.log_level, DFGNN_LOG_WARN);
  ck_assert_uint_eq(whole.struct_size, sizeof whole);
  given.struct_size = kind.least - 1;
  ck_invalid(dfgnn__take(&whole, &given, &kind), "options.struct_size is");
}

TEST_MAIN("complete", .setup = set_up)
