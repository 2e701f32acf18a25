/* Reductions beyond the loops over the registry: ties, digits, and whose the
 * gradient is. */
#include <math.h>

#include "tests/common/aggregate.h"

static dfgnn_context *ctx;

static void open_context(void) { ctx = cpu_context(""); }

/* Row 0 has `degree` edges, to the columns 0 .. degree - 1 in order, row 1 has
 * none, and row 2 one to column 1. */
static dfgnn_graph *star_of(int degree) {
  int32_t *indices = zeros_of(degree + 1, sizeof *indices);
  int32_t *offsets = zeros_of(4, sizeof *offsets);
  offsets[1] = offsets[2] = degree;
  offsets[3] = degree + 1;
  for (int e = 0; e < degree; e++)
    indices[e] = e;
  indices[degree] = 1;
  const dfgnn_csr csr = csr32(3, degree, offsets, indices);
  return graph_on(ctx, &csr);
}

/* The results of an operator for one feature, of row 0; rows 1 and 2 are those
 * of no number and of x[1]. */
typedef struct expected {
  dfgnn_op op;
  double out, low, high, std, tolerance;
  int32_t arg_low, arg_high;
  int without_arg; /* 1: nobody asks for the edges of extremes */
} expected;

typedef struct results {
  float out[3], low[3], high[3], std[3];
  int32_t arg_low[3], arg_high[3];
  const expected *wanted;
  const float *x;
} results;

static int alike(double found, double wanted, double tolerance) {
  return found == wanted || (isnan(found) && isnan(wanted)) ||
         fabs(found - wanted) <= tolerance;
}

static void row_is(const char *variant, const char *name, const float *found,
                   double wanted, double last, double tolerance) {
  ck_assert_msg(alike(found[0], wanted, tolerance) && found[1] == 0 &&
                    alike(found[2], last, 0),
                "%s: %s is %.9g, %g, %g, expected %.9g, 0, %g", variant, name,
                found[0], found[1], found[2], wanted, last);
}

static void arg_is(const char *variant, const int32_t *found, int32_t wanted) {
  ck_assert_msg(found[0] == wanted && found[1] == -1 && found[2] == 0,
                "%s: edges %d %d %d, expected %d -1 0", variant, found[0],
                found[1], found[2], wanted);
}

static void are_expected(const void *data, const char *variant) {
  const results *r = data;
  const expected *e = r->wanted;
  const int all = e->op == DFGNN_OP_REDUCE_PNA;
  const int low = all || e->op == DFGNN_OP_REDUCE_MIN;
  const int high = all || e->op == DFGNN_OP_REDUCE_MAX;
  row_is(variant, "out", r->out, e->out, low || high ? r->x[1] : 0,
         e->tolerance);
  if (all) {
    row_is(variant, "out_min", r->low, e->low, r->x[1], 0);
    row_is(variant, "out_max", r->high, e->high, r->x[1], 0);
    row_is(variant, "out_std", r->std, e->std, 0, e->tolerance);
  }
  if (low && !e->without_arg)
    arg_is(variant, r->arg_low, e->arg_low);
  if (high && !e->without_arg)
    arg_is(variant, r->arg_high, e->arg_high);
}

static void check(const expected *wanted, const float *x, int degree) {
  results r = {.wanted = wanted, .x = x};
  const dfgnn_problem problem = PROBLEM(.op = wanted->op, .dim = 1);
  dfgnn_args args =
      ARGS(.value = x, .out = r.out, .out_min = r.low, .out_max = r.high,
           .out_std = r.std, .arg_min = wanted->without_arg ? NULL : r.arg_low,
           .arg_max = wanted->without_arg ? NULL : r.arg_high);
  each_variant(ctx, star_of(degree), &problem, &args, are_expected, &r);
}

/* ---- extremes ------------------------------------------------------------ */

enum { LONG = 3000 };

static float *zeros(void) { return zeros_of(LONG, sizeof(float)); }

static void check_extremes(const float *low, const float *high, int degree,
                           const expected *wanted) {
  expected e = *wanted;
  for (e.without_arg = 0; e.without_arg < 2; e.without_arg++) {
    e.op = DFGNN_OP_REDUCE_MIN;
    e.out = e.low;
    check(&e, low, degree);
    e.op = DFGNN_OP_REDUCE_MAX;
    e.out = e.high;
    check(&e, high, degree);
  }
}

TEST(the_lowest_edge_of_equals_is_named) {
  float *x = zeros();
  check_extremes(x, x, LONG, &(expected){.low = 0});
  x[700] = x[1900] = 2; /* in different items and parts */
  x[701] = x[1200] = -2;
  check_extremes(
      x, x, LONG,
      &(expected){.low = -2, .high = 2, .arg_low = 701, .arg_high = 700});
}

TEST(a_nan_is_before_all_numbers) {
  float *x = zeros();
  x[5] = -INFINITY;
  x[6] = INFINITY;
  x[1500] = x[1501] = x[2990] = NAN;
  check_extremes(
      x, x, LONG,
      &(expected){.low = NAN, .high = NAN, .arg_low = 1500, .arg_high = 1500});
}

TEST(infinities_are_numbers) {
  const float low[] = {-INFINITY, -INFINITY}, high[] = {INFINITY, INFINITY};
  check_extremes(high, low, 2, &(expected){.low = INFINITY, .high = -INFINITY});
}

/* ---- moments ------------------------------------------------------------- */

static double variance(const float *x, int count) {
  double mean = 0, sum = 0;
  for (int i = 0; i < count; i++)
    mean += x[i] / count;
  for (int i = 0; i < count; i++)
    sum += (x[i] - mean) * (x[i] - mean) / count;
  return sum;
}

/* Both are exact to a part of them. */
static void check_moments(const float *x, int degree, double var, double std,
                          double part) {
  check(&(expected){.op = DFGNN_OP_REDUCE_VAR,
                    .out = var,
                    .tolerance = part * var + 1e-15},
        x, degree);
  check(&(expected){.op = DFGNN_OP_REDUCE_STD,
                    .out = std,
                    .tolerance = part * std},
        x, degree);
}

TEST(an_offset_common_to_all_costs_no_digits) {
  float *x = zeros();
  uint64_t seed = 11;
  for (int i = 0; i < LONG; i++)
    x[i] = (float)(1e4 + 0.1 * uniform(&seed));
  const double var = variance(x, LONG);
  ck_assert_double_gt(var, 1e-3); /* E[x^2] - E[x]^2 would lose all of it */
  check_moments(x, LONG, var, sqrt(var), 2e-5);
}

TEST(a_first_element_far_away_costs_few_digits) {
  float *x = zeros();
  uint64_t seed = 12;
  for (int i = 1; i < LONG; i++)
    x[i] = (float)uniform(&seed);
  x[0] = 1e3f;
  check_moments(x, LONG, variance(x, LONG), sqrt(variance(x, LONG)), 2e-5);
}

TEST(constants_have_no_variance) {
  float *x = zeros();
  for (int i = 0; i < LONG; i++)
    x[i] = 123456.789f;
  check_moments(x, LONG, 0, 0, 0);
}

/* PyG 2.6: out = var.clamp(min=1e-5).sqrt(), then 0 where out <= sqrt(1e-5). */
TEST(std_follows_pyg_about_its_threshold) {
  const float below[] = {0, 6.32e-3f}, above[] = {0, 6.33e-3f};
  ck_assert_double_lt(variance(below, 2), 1e-5);
  ck_assert_double_gt(variance(above, 2), 1e-5);
  check_moments(below, 2, variance(below, 2), 0, 3e-6);
  check_moments(above, 2, variance(above, 2), sqrt(variance(above, 2)), 3e-6);
}

/* ---- PNA ----------------------------------------------------------------- */

TEST(pna_gives_mean_min_max_and_std) {
  float *x = zeros();
  uint64_t seed = 13;
  double mean = 0;
  for (int i = 0; i < LONG; i++)
    x[i] = (float)(2 + uniform(&seed));
  x[1001] = -1;
  x[2222] = 9;
  for (int i = 0; i < LONG; i++)
    mean += x[i] / (double)LONG;
  check(&(expected){.op = DFGNN_OP_REDUCE_PNA,
                    .out = mean,
                    .low = -1,
                    .high = 9,
                    .std = sqrt(variance(x, LONG)),
                    .arg_low = 1001,
                    .arg_high = 2222,
                    .tolerance = 2e-6},
        x, LONG);
}

TEST(a_mean_with_an_infinity_is_infinite) {
  for (int at = 0; at < LONG; at += 1300) {
    float *x = zeros();
    x[at] = INFINITY;
    check(&(expected){.op = DFGNN_OP_REDUCE_PNA,
                      .out = INFINITY,
                      .high = INFINITY,
                      .std = NAN,
                      .arg_low = at == 0,
                      .arg_high = at},
          x, LONG);
  }
}

/* ---- gradients ----------------------------------------------------------- */

static void first_gets_all(const void *data, const char *variant) {
  const float *grad = data;
  ck_assert_msg(grad[0] == 5 && grad[1] == 7 && grad[2] == 0,
                "%s: %g %g %g, expected 5 7 0", variant, grad[0], grad[1],
                grad[2]);
}

TEST(of_equal_maxima_the_first_gets_the_gradient) {
  const float x[] = {4, 4, 4}, grad_out[] = {5, 6, 7};
  const int32_t arg[] = {0, -1, 0};
  float grad[3];
  const dfgnn_problem problem =
      PROBLEM(.op = DFGNN_OP_REDUCE_MAX, .pass = DFGNN_PASS_BACKWARD, .dim = 1);
  dfgnn_args args = ARGS(.value = x, .grad_out = grad_out,
                         .arg_max = (int32_t *)arg, .grad_value = grad);
  each_variant(ctx, star_of(3), &problem, &args, first_gets_all, grad);
}

TEST_MAIN("reduce", .setup = open_context, .timeout = 60)
