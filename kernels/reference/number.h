/* number.h - numbers with their errors, so that a formula reads as the formula
 *
 * A number is a value with the variance of a kernel's result for it, in squares
 * of the unit roundoff, in the two parts of kernels/common/accuracy.h: `summed`
 * is there for results of sums alone.  Sums and products of numbers carry the
 * variances of their operands on, to first order; their own roundings are said
 * where a kernel has them, by num_round. */
#ifndef DFGNN_KERNELS_REFERENCE_NUMBER_H
#define DFGNN_KERNELS_REFERENCE_NUMBER_H

#include <math.h>

#include "kernels/reference/reference.h"

/* A step that rounding may take the other way errs by its whole height.  Other
 * roundings add to that error, where variances would only add their squares. */
#define DFGNN_REF_FLIP 1.25

static inline double square(double x) { return x * x; }

typedef dfgnn_ref_number number;

static inline number *dfgnn__ref_numbers(dfgnn_ref_memory *memory,
                                         int64_t count) {
  return (number *)dfgnn__ref_take(memory, 4 * count);
}

static inline number num(double value, double variance) {
  return (number){value, variance, 0, 0};
}
static inline number num_of(double exact) { return num(exact, 0); }
/* The number with an error of another source. */
static inline number num_err(number a, double variance) {
  a.fixed += variance;
  return a;
}
/* The number, rounded n times. */
static inline number num_round(number a, double n) {
  return num_err(a, n * square(a.value));
}
static inline number num_add(number a, number b) {
  return (number){a.value + b.value, a.fixed + b.fixed, a.summed + b.summed,
                  a.shared + b.shared};
}
/* The product of two that are no sums. */
static inline number num_mul(number a, number b) {
  return (number){a.value * b.value,
                  square(b.value) * a.fixed + square(a.value) * b.fixed, 0,
                  b.value * a.shared + a.value * b.shared};
}
/* The number times one without an error. */
static inline number num_scale(number a, double exact) {
  return (number){exact * a.value, square(exact) * a.fixed,
                  a.summed == 0 ? 0 : square(exact) * a.summed,
                  exact * a.shared};
}
/* The number times one, of value 1. */
static inline number num_times(number a, number one) {
  a.fixed += one.fixed * square(a.value);
  a.summed += one.summed * square(a.value);
  return a;
}
/* f(a), of the given value and slope. */
static inline number num_map(number a, double value, double slope) {
  return (number){value, square(slope) * a.fixed, 0, slope * a.shared};
}
/* Counts the shared error, of this variance, among the number's own. */
static inline number num_settle(number a, double variance) {
  return num(a.value, a.fixed + square(a.shared) * variance);
}
/* exp(a - shift), computed as exp, exp2 or a fast exponential of a rounded
 * argument, and rounded n times more. */
static inline number num_exp(number a, double shift, double n) {
  double x = a.value - shift, p = exp(x);
  if (p == 0)
    return num_of(0);
  return num_map(num_err(a, square(2 * a.value) + square(2 * shift) +
                                square(2 * x) + 64 + n),
                 p, p);
}
/* <a, b>, summed in any order, of products that are rounded n times more. */
number num_dot(const double *a, const double *b, int64_t count, double n);

/* A term of a sum and how often it stands there: equal terms round alike. */
static inline number num_repeat(number a, double repeats) {
  a.fixed *= repeats;
  return a;
}
/* Adds a times x[], the k-th term of a sum. */
static inline void sum_add(const dfgnn_ref_sum *sum, int64_t k, number a,
                           const double *x) {
  dfgnn__ref_sum_add(sum, 0, sum->width, k, a, x);
}
/* Adds a to number `at` of the sum alone. */
static inline void sum_add_one(const dfgnn_ref_sum *sum, int64_t at, int64_t k,
                               number a) {
  const double one = 1;
  dfgnn__ref_sum_add(sum, at, 1, k, a, &one);
}

#endif
