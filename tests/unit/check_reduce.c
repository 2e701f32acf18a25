/* Reductions beyond the loops over the registry: ties, digits, and whose the
 * gradient is. */
#include <math.h>

#include "tests/common/aggregate.h"

typedef struct star {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_csr csr;
} star;

/* Row 0 has `degree` edges, to the columns 0 .. degree - 1 in order, row 1 has
 * none, and row 2 one to column 1. */
static star star_make(int degree) {
  star s = {.ctx = cpu_context("")};
  int32_t *offsets = malloc(4 * sizeof *offsets);
  int32_t *indices = malloc((size_t)(degree + 1) * sizeof *indices);
  const int32_t begins[] = {0, degree, degree, degree + 1};
  memcpy(offsets, begins, sizeof begins);
  for (int e = 0; e < degree; e++)
    indices[e] = e;
  indices[degree] = 1;
  s.csr = csr32(3, degree, offsets, indices);
  s.graph = graph_on(s.ctx, &s.csr);
  return s;
}

static void star_free(star *s) {
  free((void *)s->csr.offsets);
  free((void *)s->csr.indices);
}

/* Results of one feature; row 0 is looked at, rows 1 and 2 are known. */
typedef struct results {
  float out[3], low[3], high[3], std[3];
  int32_t arg_low[3], arg_high[3];
} results;

static dfgnn_args args_of(results *r, const float *x) {
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = x;
  args.out = r->out;
  args.out_min = r->low;
  args.out_max = r->high;
  args.out_std = r->std;
  args.arg_min = r->arg_low;
  args.arg_max = r->arg_high;
  return args;
}

typedef struct wanted {
  dfgnn_op op;
  const results *found;
  const float *x;
  float best;
  int32_t arg;
  int with_arg;
} wanted;

static void best_is(const void *data, const char *variant) {
  const wanted *w = data;
  int low = w->op == DFGNN_OP_REDUCE_MIN;
  const int32_t *arg = low ? w->found->arg_low : w->found->arg_high;
  float best = w->found->out[0];
  ck_assert_msg(best == w->best || (isnan(best) && isnan(w->best)),
                "%s found %g, expected %g", variant, best, w->best);
  ck_assert_msg(w->found->out[1] == 0 && w->found->out[2] == w->x[1],
                "%s: rows 1, 2: %g, %g", variant, w->found->out[1],
                w->found->out[2]);
  if (w->with_arg)
    ck_assert_msg(arg[0] == w->arg && arg[1] == -1 && arg[2] == 0,
                  "%s: arg %d %d %d, expected %d -1 0", variant, arg[0], arg[1],
                  arg[2], w->arg);
}

static void check_best(dfgnn_op op, const float *x, int degree, float best,
                       int32_t arg, int with_arg) {
  star s = star_make(degree);
  results r;
  wanted w = {op, &r, x, best, arg, with_arg};
  dfgnn_problem problem =
      aggregate_problem(op, DFGNN_PASS_FORWARD, DFGNN_F32, 1, 1);
  dfgnn_args args = args_of(&r, x);
  if (!with_arg)
    args.arg_min = args.arg_max = NULL;
  each_variant(s.ctx, s.graph, &problem, &args, best_is, &w);
  star_free(&s);
}

enum { LONG = 3000 };

static float *zeros(void) { return calloc(LONG, sizeof(float)); }

TEST(the_lowest_edge_of_equals_is_named) {
  float *x = zeros();
  check_best(DFGNN_OP_REDUCE_MIN, x, LONG, 0, 0, 1);
  check_best(DFGNN_OP_REDUCE_MAX, x, LONG, 0, 0, 1);
  x[700] = x[1900] = 2; /* in different items and parts */
  x[701] = x[1200] = -2;
  check_best(DFGNN_OP_REDUCE_MIN, x, LONG, -2, 701, 1);
  check_best(DFGNN_OP_REDUCE_MAX, x, LONG, 2, 700, 1);
  free(x);
}

TEST(a_nan_is_before_all_numbers) {
  float *x = zeros();
  x[5] = -INFINITY;
  x[6] = INFINITY;
  x[1500] = x[1501] = x[2990] = NAN;
  for (int with_arg = 0; with_arg < 2; with_arg++) {
    check_best(DFGNN_OP_REDUCE_MIN, x, LONG, NAN, 1500, with_arg);
    check_best(DFGNN_OP_REDUCE_MAX, x, LONG, NAN, 1500, with_arg);
  }
  free(x);
}

TEST(infinities_are_numbers) {
  const float low[] = {-INFINITY, -INFINITY}, high[] = {INFINITY, INFINITY};
  for (int with_arg = 0; with_arg < 2; with_arg++) {
    check_best(DFGNN_OP_REDUCE_MIN, high, 2, INFINITY, 0, with_arg);
    check_best(DFGNN_OP_REDUCE_MAX, low, 2, -INFINITY, 0, with_arg);
  }
}

/* ---- moments ------------------------------------------------------------- */

typedef struct moments {
  const float *found;
  double number, tolerance;
} moments;

static void moment_is(const void *data, const char *variant) {
  const moments *m = data;
  ck_assert_msg(fabs(m->found[0] - m->number) <= m->tolerance,
                "%s found %.9g, expected %.9g", variant, m->found[0],
                m->number);
  ck_assert_msg(m->found[1] == 0 && m->found[2] == 0, "%s: rows 1, 2: %g, %g",
                variant, m->found[1], m->found[2]);
}

static void check_moment(dfgnn_op op, const float *x, int degree, double number,
                         double tolerance) {
  star s = star_make(degree);
  results r;
  moments m = {r.out, number, tolerance};
  dfgnn_problem problem =
      aggregate_problem(op, DFGNN_PASS_FORWARD, DFGNN_F32, 1, 1);
  dfgnn_args args = args_of(&r, x);
  each_variant(s.ctx, s.graph, &problem, &args, moment_is, &m);
  star_free(&s);
}

static double variance(const float *x, int count) {
  double mean = 0, sum = 0;
  for (int i = 0; i < count; i++)
    mean += x[i] / count;
  for (int i = 0; i < count; i++)
    sum += (x[i] - mean) * (x[i] - mean) / count;
  return sum;
}

TEST(an_offset_common_to_all_costs_no_digits) {
  float *x = zeros();
  uint64_t seed = 11;
  for (int i = 0; i < LONG; i++)
    x[i] = (float)(1e4 + 0.1 * uniform(&seed));
  double var = variance(x, LONG);
  ck_assert_double_gt(var, 1e-3); /* E[x^2] - E[x]^2 would lose all of it */
  check_moment(DFGNN_OP_REDUCE_VAR, x, LONG, var, 2e-5 * var);
  check_moment(DFGNN_OP_REDUCE_STD, x, LONG, sqrt(var), 2e-5 * sqrt(var));
  free(x);
}

TEST(a_first_element_far_away_costs_few_digits) {
  float *x = zeros();
  uint64_t seed = 12;
  for (int i = 1; i < LONG; i++)
    x[i] = (float)uniform(&seed);
  x[0] = 1e3f;
  double var = variance(x, LONG);
  check_moment(DFGNN_OP_REDUCE_VAR, x, LONG, var, 2e-5 * var);
  free(x);
}

TEST(constants_have_no_variance) {
  float *x = zeros();
  for (int i = 0; i < LONG; i++)
    x[i] = 123456.789f;
  check_moment(DFGNN_OP_REDUCE_VAR, x, LONG, 0, 1e-15);
  check_moment(DFGNN_OP_REDUCE_STD, x, LONG, 0, 0);
  free(x);
}

/* PyG 2.6: out = var.clamp(min=1e-5).sqrt(), then 0 where out <= sqrt(1e-5). */
static double pyg_std(double var) {
  double out = sqrt(var < 1e-5 ? 1e-5 : var);
  return out <= sqrt(1e-5) ? 0 : out;
}

TEST(std_follows_pyg_about_its_threshold) {
  const float below[] = {0, 6.32e-3f}, above[] = {0, 6.33e-3f};
  ck_assert_double_lt(variance(below, 2), 1e-5);
  ck_assert_double_gt(variance(above, 2), 1e-5);
  ck_assert_double_eq(pyg_std(variance(below, 2)), 0);
  check_moment(DFGNN_OP_REDUCE_STD, below, 2, pyg_std(variance(below, 2)), 0);
  check_moment(DFGNN_OP_REDUCE_STD, above, 2, pyg_std(variance(above, 2)),
               1e-8);
}

/* ---- PNA ----------------------------------------------------------------- */

typedef struct together {
  const results *all;
  float mean, low, high, std;
  int32_t arg_low, arg_high;
} together;

static int alike(float x, float y) {
  return x == y || (isnan(x) && isnan(y)) || fabsf(x - y) <= 1e-6f * fabsf(y);
}

static void all_alike(const void *data, const char *variant) {
  const together *t = data;
  const results *r = t->all;
  ck_assert_msg(alike(r->out[0], t->mean) && r->low[0] == t->low &&
                    r->high[0] == t->high && alike(r->std[0], t->std),
                "%s: %g %g %g %g, expected %g %g %g %g", variant, r->out[0],
                r->low[0], r->high[0], r->std[0], t->mean, t->low, t->high,
                t->std);
  ck_assert_msg(r->arg_low[0] == t->arg_low && r->arg_high[0] == t->arg_high,
                "%s: arg %d %d", variant, r->arg_low[0], r->arg_high[0]);
  ck_assert_msg(r->out[1] == 0 && r->low[1] == 0 && r->high[1] == 0 &&
                    r->std[1] == 0 && r->arg_low[1] == -1 &&
                    r->arg_high[1] == -1,
                "%s: the empty row", variant);
}

static void check_together(const float *x, const together *expected) {
  star s = star_make(LONG);
  results r;
  together t = *expected;
  dfgnn_problem problem = aggregate_problem(
      DFGNN_OP_REDUCE_PNA, DFGNN_PASS_FORWARD, DFGNN_F32, 1, 1);
  dfgnn_args args = args_of(&r, x);
  t.all = &r;
  each_variant(s.ctx, s.graph, &problem, &args, all_alike, &t);
  star_free(&s);
}

TEST(pna_gives_mean_min_max_and_std) {
  float *x = zeros();
  uint64_t seed = 13;
  double mean = 0;
  for (int i = 0; i < LONG; i++) {
    x[i] = (float)(2 + uniform(&seed));
    mean += x[i] / (double)LONG;
  }
  x[1001] = -1;
  x[2222] = 9;
  mean = 0;
  for (int i = 0; i < LONG; i++)
    mean += x[i] / (double)LONG;
  together t = {.mean = (float)mean,
                .low = -1,
                .high = 9,
                .std = (float)sqrt(variance(x, LONG)),
                .arg_low = 1001,
                .arg_high = 2222};
  check_together(x, &t);
  free(x);
}

TEST(a_mean_with_an_infinity_is_infinite) {
  for (int at = 0; at < LONG; at += 1300) {
    float *x = zeros();
    x[at] = INFINITY;
    together t = {.mean = INFINITY,
                  .high = INFINITY,
                  .std = NAN,
                  .arg_low = at == 0,
                  .arg_high = at};
    check_together(x, &t);
    free(x);
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
  float grad[3];
  int32_t arg[] = {0, -1, 0};
  star s = star_make(3);
  dfgnn_problem problem = aggregate_problem(
      DFGNN_OP_REDUCE_MAX, DFGNN_PASS_BACKWARD, DFGNN_F32, 1, 1);
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = x;
  args.grad_out = grad_out;
  args.arg_max = arg;
  args.grad_value = grad;
  each_variant(s.ctx, s.graph, &problem, &args, first_gets_all, grad);
  star_free(&s);
}

TEST_MAIN("reduce", .timeout = 60)
