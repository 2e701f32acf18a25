/* The functions of the evaluator against those of the C library. */
#include "tests/unit/fixture.h"

#include <float.h>
#include <math.h>

#define REAL double
#define REAL_IS_DOUBLE 1
#include "kernels/program/cpu/functions.h"

typedef struct function {
  const char *name;
  double (*have)(double), (*want)(double);
  double low, high;
} function;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

static const function functions[] = {
    {"exp", real_exp, exp, -700, 700},
    {"exp", real_exp, exp, -1, 1},
    {"expm1", real_expm1, expm1, -3, 3},
    {"tanh", real_tanh, tanh, -20, 20},
    {"tanh", real_tanh, tanh, -0.7, 0.7},
    {"sigmoid", real_sigmoid, sigmoid, -30, 30},
    {"log", real_log, log, 1e-300, 1e-290},
    {"log", real_log, log, 0.4, 2.5},
    {"log", real_log, log, 1, 1e9},
    {"log1p", real_log1p, log1p, -0.9, 4},
    {"log1p", real_log1p, log1p, -1e-5, 1e-5},
    {"softplus", real_softplus, softplus, -30, 30},
    {"sin", real_sin, sin, -7, 7},
    {"cos", real_cos, cos, -7, 7},
    {"sin", real_sin, sin, -4096, 4096},
    {"cos", real_cos, cos, -4096, 4096}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

TEST_LOOP(functions_are_within_some_ulp, 0, FUNCTIONS) {
  const function *f = &functions[_i];
  for (int k = 0; k <= 20000; k++) {
    double x = f->low + (f->high - f->low) * k / 20000;
    double have = f->have(x), want = f->want(x);
    double error = fabs(have - want) / (fabs(want) * DBL_EPSILON + DBL_MIN);
    /* near a zero of sin and cos the argument's reduction is what errs */
    double allowed = fabs(want) < 1e-3 && fabs(x) > 100 ? 1e4 : 4;
    ck_assert_msg(error <= allowed, "%s(%.17g) is %.17g, expected %.17g",
                  f->name, x, have, want);
  }
}

TEST(ends_and_no_numbers_are_the_c_library_s) {
  static const double at[] = {0,      -0.0,   INFINITY, -INFINITY, 1e308,
                              -1e308, 1e-320, 710,      -746};
  for (int i = 0; i < FUNCTIONS; i++) {
    const function *f = &functions[i];
    if (f->have == real_sin || f->have == real_cos)
      continue; /* loop_sin gives large angles to the C library */
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
      double have = f->have(at[k]), want = f->want(at[k]);
      ck_assert_msg((isnan(have) && isnan(want)) ||
                        fabs(have - want) <= 1e-12 * fabs(want) + 1e-300 ||
                        have == want,
                    "%s(%g) is %g, expected %g", f->name, at[k], have, want);
    }
    ck_assert(isnan(f->have(NAN)));
  }
}

TEST_MAIN("program_functions")
