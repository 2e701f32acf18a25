/* The harness tells right kernels from wrong ones: each fake family below makes
 * one mistake. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/reference/attention.h"
#include "lib/registry.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

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
  default:
    break;
  }
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  size_t rows = (size_t)matrix->destinations;
  size_t numbers = rows * (size_t)problem->dim;
  double *out = malloc((numbers + rows) * sizeof *out), *lse = out + numbers;
  float *to = launch->args->out, *lse_to = launch->args->lse;
  if (launch->setting.parameter[0] != NOTHING_WRITTEN) {
    dfgnn_expected expected = {.row_count = (int64_t)rows,
                               .to = {.out = out, .lse = lse}};
    ck_ok(dfgnn__attention_reference(problem, matrix, launch->args, &expected));
    for (size_t i = 0; i < numbers; i++)
      to[i] = (float)out[i];
    for (size_t i = 0; i < rows; i++)
      lse_to[i] = (float)lse[i];
    spoil(launch, to, lse_to);
  }
  free(out);
  return DFGNN_OK;
}

static size_t workspace(const dfgnn_setting *setting) {
  (void)setting;
  return WORKSPACE;
}

static const dfgnn_family families[] = {
    {
        .name = "test.harness",
        .algorithm = "test",
        .backend = "cpu",
        .ops = DFGNN_OPS_ATTENTION,
        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
        .dtypes = DFGNN_BIT(DFGNN_F32),
        .revision = 1,
        .deterministic = 1,
        .reference = 1,
        .parameters = {{"mistake",
                        MISTAKES,
                        {RIGHT, NOTHING_WRITTEN, ONE_NUMBER_OFF, LSE_OFF,
                         ISOLATED_ROW_LEFT, BEYOND_OUT, BEFORE_OUT,
                         BEYOND_WORKSPACE}}},
        .workspace = workspace,
        .launch = launch,
    },
    DFGNN_FAMILIES_END,
};

/* "many isolated rows": row 1 and 2 have no edges, rows 0 and 3 have some. */
enum { ISOLATED = 3 };

static dfgnn_status check(mistake m, double *error) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_graph *graph;
  dfgnn_harness *harness;
  dfgnn_plan *plan;
  char name[100];

  dfgnn__registry_add(families);
  problem.dim = 5;
  shape s = shape_make(ISOLATED, shape_seed());
  dfgnn_context *ctx = context_on("cpu", "", 0);
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &s.csr, NULL));
  ck_ok(dfgnn__harness_create(&harness, ctx, graph, &problem, 1));
  snprintf(name, sizeof name, "test.harness/mistake=%d", (int)m);
  ck_ok(dfgnn_plan_create_forced(&plan, ctx, graph, &problem, name));
  dfgnn_status status = dfgnn__harness_check(error, harness, plan);
  accuracy = dfgnn__harness_accuracy(harness);
  dfgnn_plan_destroy(plan);
  dfgnn__harness_destroy(harness);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  shape_free(&s);
  return status;
}

START_TEST(a_right_kernel_passes_with_its_error) {
  double error = -1;
  ck_ok(check(RIGHT, &error));
  ck_assert(error >= 0 && error < 1e-6);
}
END_TEST

START_TEST(each_mistake_is_found_and_named) {
  double error = -1;
  ck_assert_int_eq(check((mistake)_i, &error), DFGNN_ERROR_WRONG);
  ck_assert_msg(strstr(dfgnn_last_error(), mistakes[_i].message) != NULL,
                "%s: %s", mistakes[_i].label, dfgnn_last_error());
}
END_TEST

START_TEST(an_error_of_more_than_the_bound_is_found) {
  double error = -1;
  ck_assert_int_eq(check(ONE_NUMBER_OFF, &error), DFGNN_ERROR_WRONG);
  ck_assert_double_gt(accuracy.of_bound, 1);
  const float bound = off / (float)accuracy.of_bound;
  off = 1.6F * bound;
  ck_assert_int_eq(check(ONE_NUMBER_OFF, &error), DFGNN_ERROR_WRONG);
  off = 0.6F * bound;
  ck_ok(check(ONE_NUMBER_OFF, &error));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("harness");
  TCase *tcase = tcase_create("cpu");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, a_right_kernel_passes_with_its_error);
  tcase_add_loop_test(tcase, each_mistake_is_found_and_named, NOTHING_WRITTEN,
                      MISTAKES);
  tcase_add_test(tcase, an_error_of_more_than_the_bound_is_found);
  suite_add_tcase(suite, tcase);
  return run_tests(suite);
}
