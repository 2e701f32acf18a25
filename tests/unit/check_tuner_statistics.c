/* check_tuner_statistics.c - medians and intervals bear outliers */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "lib/signature.h"
#include "tests/unit/fixture.h"
#include "tuner/statistics.h"

static uint64_t state;

static double uniform(void) {
  return ((double)(dfgnn__mix(state++) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void) {
  return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

TEST(median_of_even_and_odd_counts) {
  double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2};
  ck_assert_double_eq(dfgnn__median(odd, 3), 3);
  ck_assert_double_eq(dfgnn__median(even, 4), 2.5);
  ck_assert(isnan(dfgnn__median(odd, 0)));
}

TEST(median_interval_of_few_samples_is_their_range) {
  double x[] = {3, 9, 1, 4};
  dfgnn_interval i = dfgnn__median_interval(x, 4);
  ck_assert_double_eq(i.low, 1);
  ck_assert_double_eq(i.center, 3.5);
  ck_assert_double_eq(i.high, 9);
}

/* Share of 2000 draws whose interval holds the true location. */
static double coverage(size_t count, int outliers, int of_median) {
  double x[32], scratch[32 * 33 / 2];
  int held = 0;
  for (int trial = 0; trial < 2000; trial++) {
    for (size_t k = 0; k < count; k++) {
      x[k] = 1 + 0.05 * normal();
      if (outliers && uniform() < 0.05)
        x[k] += (uniform() < 0.5 ? -1 : 1) * 0.7;
    }
    dfgnn_interval i = of_median ? dfgnn__median_interval(x, count)
                                 : dfgnn__location(x, count, 0.05, scratch);
    held += i.low <= 1 && 1 <= i.high;
  }
  return held / 2000.0;
}

TEST(intervals_hold_the_truth_95_times_in_100) {
  static const size_t counts[] = {2, 4, 6, 8, 12, 20, 32};
  state = 11;
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    double clean = coverage(counts[k], 0, 0);
    ck_assert_msg(clean > 0.935, "%zu samples, seed 11: %g", counts[k], clean);
    if (counts[k] < 6)
      continue;
    double dirty = coverage(counts[k], 1, 0);
    ck_assert_msg(dirty > 0.93, "%zu with outliers, seed 11: %g", counts[k],
                  dirty);
    double median = coverage(counts[k], 1, 1);
    ck_assert_msg(median > 0.93, "median of %zu, seed 11: %g", counts[k],
                  median);
  }
}

TEST(the_location_bears_a_quarter_of_outliers) {
  double x[12], scratch[78];
  state = 5;
  for (int k = 0; k < 12; k++)
    x[k] = k % 4 == 0 ? 8 : 0.01 * normal();
  dfgnn_interval i = dfgnn__location(x, 12, 0.01, scratch);
  ck_assert_double_le(fabs(i.center), 0.02);
}

TEST(the_interval_narrows_with_more_samples) {
  double x[32], scratch[32 * 33 / 2];
  state = 3;
  for (int k = 0; k < 32; k++)
    x[k] = normal();
  dfgnn_interval few = dfgnn__location(x, 8, 1, scratch);
  dfgnn_interval many = dfgnn__location(x, 32, 1, scratch);
  ck_assert_double_lt(many.high - many.low, few.high - few.low);
}

/* Fewer than six samples have no rank test: the noise of all arms serves. */
TEST(few_samples_have_the_interval_of_their_noise) {
  double x[] = {2, 2, 2, 2}, scratch[10];
  dfgnn_interval one = dfgnn__location(x, 1, 0.01, scratch);
  dfgnn_interval four = dfgnn__location(x, 4, 0.01, scratch);
  ck_assert_double_eq_tol(one.high - 2, 0.025, 1e-12);
  ck_assert_double_eq_tol(four.high - 2, 0.0125, 1e-12);
  ck_assert_double_eq_tol(2 - four.low, 0.0125, 1e-12);
}

TEST(pooled_noise_moves_from_the_prior_to_the_data) {
  double residual[400];
  state = 17;
  for (int k = 0; k < 400; k++)
    residual[k] = k % 20 == 0 ? 5 : 0.01 * normal();
  ck_assert_double_eq(dfgnn__pooled_noise(residual, 0, 0.03, 8), 0.03);
  double noise = dfgnn__pooled_noise(residual, 400, 0.03, 8);
  ck_assert_msg(noise > 0.008 && noise < 0.014, "seed 17: %g", noise);
}

TEST_MAIN("all")
