/* The harness tells right kernels from wrong ones: each fake family below makes
 * one mistake. */
#include <math.h>

#include "lib/operator.h"
#include "lib/registry.h"
#include "lib/views.h"
#include "tests/common/answer.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"
#include "tuner/sample.h"

enum { WORKSPACE = 64 };

typedef enum mistake {
  RIGHT,
  NOTHING_WRITTEN,
  ONE_NUMBER_OFF,
  LSE_OFF,
  ISOLATED_ROW_LEFT,
  BEYOND_OUT,
  BEFORE_OUT,
  BEYOND_WORKSPACE,
  BETWEEN_FEATURES,
  MISTAKES
} mistake;

static const struct {
  const char *label, *message;
} mistakes[MISTAKES] = {
    [RIGHT] = {"none", NULL},
    [NOTHING_WRITTEN] = {"nothing-written", "out of row 0"},
    [ONE_NUMBER_OFF] = {"one-number-off", "out of row 3"},
    [LSE_OFF] = {"lse-off", "lse of row 3"},
    [ISOLATED_ROW_LEFT] = {"isolated-row-left", "out of row 1"},
    [BEYOND_OUT] = {"beyond-out", "wrote beyond out"},
    [BEFORE_OUT] = {"before-out", "wrote before out"},
    [BEYOND_WORKSPACE] = {"beyond-workspace", "wrote beyond the workspace"},
    [BETWEEN_FEATURES] = {"between-features", "of out, which is between"},
};

static float off = 0.01f;       /* what one number is off by */
static dfgnn_accuracy accuracy; /* of the last check */

static void spoil(const dfgnn_launch *launch, float *out, float *lse) {
  int64_t numbers =
      launch->setting.matrix->destinations * launch->setting.problem->dim;
  size_t row = (size_t)launch->setting.problem->dim;
  switch ((mistake)launch->setting.parameter[0]) {
  case ONE_NUMBER_OFF:
    out[3 * row + 1] += off;
    break;
  case LSE_OFF:
    lse[3] += off;
    break;
  case ISOLATED_ROW_LEFT:
    memset(out + row, 0xff, row * sizeof *out);
    break;
  case BEYOND_OUT:
    out[numbers] = 0;
    break;
  case BEFORE_OUT:
    out[-1] = 0;
    break;
  case BEYOND_WORKSPACE:
    ((char *)launch->workspace)[256] = 0;
    break;
  case BETWEEN_FEATURES: /* rows have gaps */
    out[row] = 0;
    break;
  default:
    break;
  }
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  if (launch->setting.parameter[0] == NOTHING_WRITTEN)
    return DFGNN_OK;
  ck_ok(answer(launch->setting.problem, launch->setting.matrix, launch->args));
  spoil(launch, launch->args->out, launch->args->lse);
  return DFGNN_OK;
}

static size_t workspace(const dfgnn_setting *setting) {
  (void)setting;
  return WORKSPACE;
}

static const dfgnn_family families[] = {
    FAKE_FAMILY(
        "test.harness", "test", .paper = 1, .workspace = workspace,
        .launch = launch,
        .parameters = {{"mistake",
                        MISTAKES,
                        {RIGHT, NOTHING_WRITTEN, ONE_NUMBER_OFF, LSE_OFF,
                         ISOLATED_ROW_LEFT, BEYOND_OUT, BEFORE_OUT,
                         BEYOND_WORKSPACE, BETWEEN_FEATURES}}}),
    DFGNN_FAMILIES_END,
};

/* "many isolated rows": row 1 and 2 have no edges, rows 0 and 3 have some. */
enum { ISOLATED = 3 };

static dfgnn_status check(mistake m, double *error) {
  dfgnn_harness *harness;
  char name[100];

  dfgnn__registry_add(families);
  dfgnn_problem problem = PROBLEM(.dim = 5);
  const int64_t node = m == BETWEEN_FEATURES ? 8 : 5;
  const dfgnn_strides strides = {node, node, 1};
  shape s = shape_make(ISOLATED, shape_seed());
  dfgnn_context *ctx = context_on("cpu", "", 0);
  dfgnn_graph *graph = graph_on(ctx, &s.csr);
  ck_ok(dfgnn__harness_create_strided(&harness, ctx, graph, &problem, 1,
                                      &strides, 0));
  snprintf(name, sizeof name, "test.harness/mistake=%d", (int)m);
  dfgnn_plan *plan = forced_on(ctx, graph, &problem, name);
  dfgnn_status status = dfgnn__harness_check(error, harness, plan);
  accuracy = dfgnn__harness_accuracy(harness);
  dfgnn__harness_destroy(harness);
  return status;
}

TEST(a_right_kernel_passes_with_its_error) {
  double error = -1;
  ck_ok(check(RIGHT, &error));
  ck_assert(error >= 0 && error < 1e-6);
}

TEST_LOOP(each_mistake_is_found_and_named, NOTHING_WRITTEN, MISTAKES) {
  double error = -1;
  ck_assert_int_eq(check((mistake)_i, &error), DFGNN_ERROR_WRONG);
  ck_assert_msg(strstr(dfgnn_last_error(), mistakes[_i].message) != NULL,
                "%s: %s", mistakes[_i].label, dfgnn_last_error());
}

TEST(an_error_of_more_than_the_bound_is_found) {
  double error = -1;
  ck_assert_int_eq(check(ONE_NUMBER_OFF, &error), DFGNN_ERROR_WRONG);
  ck_assert_double_gt(accuracy.of_bound, 1);
  const float bound = off / (float)accuracy.of_bound;
  off = 1.6F * bound;
  ck_assert_int_eq(check(ONE_NUMBER_OFF, &error), DFGNN_ERROR_WRONG);
  off = 0.6F * bound;
  ck_ok(check(ONE_NUMBER_OFF, &error));
}

/* ---- samples --------------------------------------------------------------
 */

enum { NODES = 30000 };

/* Rows of 0 to 6 edges, the first and the last without any, and a hub. */
static int hub_degree(int64_t i) {
  return i == 0 || i == NODES - 1 ? 0 : i == 12345 ? 5000 : (int)(i * 7 % 7);
}

static dfgnn_csr hubs(void) {
  int64_t *offsets = zeros_of(NODES + 1, sizeof *offsets);
  for (int64_t i = 0; i < NODES; i++)
    offsets[i + 1] = offsets[i] + hub_degree(i);
  int32_t *indices = zeros_of(offsets[NODES], sizeof *indices);
  for (int64_t e = 0; e < offsets[NODES]; e++)
    indices[e] = (int32_t)(e * 7919 % NODES);
  return INIT(dfgnn_csr, .destinations = NODES, .sources = NODES,
              .edges = offsets[NODES], .offsets = offsets, .indices = indices,
              .offset_type = DFGNN_INDEX_I64, .index_type = DFGNN_INDEX_I32);
}

TEST(a_sample_has_the_extremes_and_runs_of_neighbours) {
  const dfgnn_csr csr = hubs();
  const dfgnn_matrix matrix = {.destinations = NODES,
                               .sources = NODES,
                               .edges = csr.edges,
                               .offsets = csr.offsets,
                               .offsets64 = 1,
                               .indices = csr.indices};
  dfgnn_checked all, part, again;
  ck_assert(dfgnn__sample_nodes(&all, &matrix, INFINITY));
  ck_assert_ptr_null(all.index);
  ck_assert_int_eq(all.count, NODES);
  ck_assert(dfgnn__sample_nodes(&part, &matrix, 20000));
  ck_assert(dfgnn__sample_nodes(&again, &matrix, 20000));
  ck_assert_int_eq(part.count, again.count);
  ck_assert_mem_eq(part.index, again.index,
                   (size_t)part.count * sizeof *part.index);
  double cost = 0;
  int64_t run = 1, longest = 1, widest = 0;
  int hub = 0;
  for (int64_t k = 0; k < part.count; k++) {
    cost += 1 + hub_degree(part.index[k]);
    hub |= part.index[k] == 12345;
    const int64_t step = k ? part.index[k] - part.index[k - 1] : 1;
    ck_assert_int_gt(step, 0);
    run = step == 1 ? run + 1 : 1;
    longest = run > longest ? run : longest;
    widest = step > widest ? step : widest;
  }
  ck_assert(hub);
  ck_assert_int_eq(part.index[0], 0);
  ck_assert_int_eq(part.index[part.count - 1], NODES - 1);
  ck_assert_int_ge(longest, 64);
  ck_assert_int_le(widest, NODES / 10);
  ck_assert_double_ge(cost, 10000);
  ck_assert_double_le(cost, 22000);
  free(part.index);
  free(again.index);
}

/* ---- gradients of parameters ----------------------------------------------
 */

static float total_off; /* what the first number of grad_att is off by */
static int left_out;    /* 1: the hub's edges do not count in grad_att */

static dfgnn_status launch_gradient(const dfgnn_launch *l) {
  const dfgnn_problem *p = l->setting.problem;
  const dfgnn_matrix *m = l->setting.matrix;
  const dfgnn_operator *op = dfgnn__operator(p->op, p->pass);
  const size_t numbers = (size_t)(m->destinations * p->heads * p->dim);
  const size_t width = (size_t)(p->heads * p->dim);
  double *query = malloc((2 * numbers + width) * sizeof *query);
  double *value = query + numbers, *att = value + numbers;
  int64_t *others = malloc((size_t)m->destinations * sizeof *others);
  dfgnn_view transpose = {.request = {.kind = DFGNN_VIEW_TRANSPOSE}};
  ck_ok(dfgnn__view_build(&transpose, m));
  dfgnn_expected all = {
      .row_count = m->destinations,
      .column_count = m->sources,
      .transpose = &transpose,
      .to = {.grad_query = query, .grad_value = value, .grad_att = att}};
  ck_ok(op->reference(p, m, l->args, &all));
  if (left_out) {
    dfgnn_expected some = {.rows = others, .to = {.grad_att = att}};
    for (int64_t i = 0; i < m->destinations; i++)
      if (i != 12345)
        others[some.row_count++] = i;
    ck_ok(op->reference(p, m, l->args, &some));
  }
  for (size_t i = 0; i < numbers; i++) {
    ((float *)l->args->grad_query)[i] = (float)query[i];
    ((float *)l->args->grad_value)[i] = (float)value[i];
  }
  for (size_t i = 0; i < width; i++)
    ((float *)l->args->grad_att)[i] = (float)att[i];
  ((float *)l->args->grad_att)[0] += total_off;
  for (int k = 0; k < 4; k++)
    free((void *)transpose.array[k]);
  free(others);
  free(query);
  return DFGNN_OK;
}

static const dfgnn_family gradients[] = {
    FAKE_FAMILY("test.gradient", "test",
                .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD), .paper = 1,
                .launch = launch_gradient),
    DFGNN_FAMILIES_END,
};

/* Rows are sampled, so that the whole sum of a parameter's gradient is not
 * known, and its mistakes are found all the same. */
TEST(gradients_of_parameters_are_compared_where_rows_are_sampled) {
  dfgnn_csr csr = hubs();
  dfgnn_harness *harness;
  double error = -1;
  dfgnn__registry_add(gradients);
  dfgnn_problem problem =
      PROBLEM(.op = DFGNN_OP_GATV2, .pass = DFGNN_PASS_BACKWARD, .dim = 64);
  dfgnn_context *ctx = context_on("cpu", "", 0);
  dfgnn_graph *graph = graph_on(ctx, &csr);
  ck_ok(dfgnn__harness_create(&harness, ctx, graph, &problem, 1));
  dfgnn__harness_spare(harness, 0.01); /* 4 of 8 million */
  dfgnn_plan *plan = forced_on(ctx, graph, &problem, "test.gradient");
  ck_ok(dfgnn__harness_check(&error, harness, plan));
  total_off = 0.01F;
  ck_fails(dfgnn__harness_check(&error, harness, plan), DFGNN_ERROR_WRONG,
           "grad_att");
  total_off = 0;
  left_out = 1;
  ck_fails(dfgnn__harness_check(&error, harness, plan), DFGNN_ERROR_WRONG,
           "grad_att");
  dfgnn__harness_destroy(harness);
}

/* Sums of numbers and of their squares. */
static void moments(double *mean, double *square, const float *x, int64_t n) {
  *mean = *square = 0;
  for (int64_t i = 0; i < n; i++) {
    *mean += x[i] / (double)n;
    *square += (double)x[i] * x[i] / (double)n;
  }
}

TEST(inputs_of_a_pool_are_random_and_differ_and_are_not_checked) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_csr *csr = generated("uniform:nodes=3000,edges=9000");
  dfgnn_harness *harness;
  dfgnn_harness_pool *pool;
  const int64_t numbers = 3000 * 16;
  double mean, square, error;
  dfgnn_problem problem = PROBLEM(.dim = 16, .pass = DFGNN_PASS_BACKWARD);
  dfgnn_graph *graph = graph_on(ctx, csr);
  ck_ok(dfgnn__harness_pool_create(&pool, ctx));
  ck_ok(
      dfgnn__harness_create_unchecked(&harness, ctx, graph, &problem, 1, pool));
  const dfgnn_args *args = dfgnn__harness_args(harness);
  const float *input[] = {args->query, args->key, args->value, args->grad_out};
  for (int i = 0; i < 4; i++) {
    moments(&mean, &square, input[i], numbers);
    ck_assert_double_eq_tol(mean, 0, 0.03);
    ck_assert_double_eq_tol(square, 1, 0.03);
    for (int k = 0; k < i; k++)
      ck_assert(memcmp(input[i], input[k], 64) != 0);
    ck_assert(memcmp(input[i], input[i] + 16, 64) != 0);
  }
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  dfgnn_harness_call call;
  ck_ok(dfgnn__harness_call(&call, harness, plan));
  ck_ok(dfgnn__harness_execute(&call, NULL));
  moments(&mean, &square, args->grad_query, numbers);
  ck_assert(square > 0 && isfinite(square));
  ck_invalid(dfgnn__harness_check(&error, harness, plan), "no copy");
  dfgnn__harness_destroy(harness);
  dfgnn__harness_pool_destroy(pool);
}

TEST_MAIN("cpu", .timeout = 60)
