/* number.h - numbers with their errors, so that a formula reads as the formula
 *
 * A number is a value and the variance of a kernel's result for it, in squares
 * of the unit roundoff (kernels/common/accuracy.h).  Sums and products of
 * numbers carry the variances of their operands on, to first order; their own
 * roundings are said where a kernel has them, by num_round.  A part is the
 * result of a sum, whose variance depends on how a kernel adds up. */
#ifndef DFGNN_KERNELS_REFERENCE_NUMBER_H
#define DFGNN_KERNELS_REFERENCE_NUMBER_H

#include <math.h>

#include "kernels/reference/reference.h"

/* A step that rounding may take the other way errs by its whole height.  Other
 * roundings add to that error, where variances would only add their squares. */
#define DFGNN_REF_FLIP 1.25

static inline double square(double x) { return x * x; }

static inline dfgnn_ref_number *dfgnn__ref_numbers(dfgnn_ref_memory *memory,
                                                   int64_t count) {
  return (dfgnn_ref_number *)dfgnn__ref_take(memory, 3 * count);
}

static inline dfgnn_ref_number num(double value, double variance) {
  return (dfgnn_ref_number){value, variance, 0};
}
static inline dfgnn_ref_number num_of(double exact) { return num(exact, 0); }
/* The number with an error of another source. */
static inline dfgnn_ref_number num_err(dfgnn_ref_number a, double variance) {
  return (dfgnn_ref_number){a.value, a.variance + variance, a.shared};
}
/* The number, rounded n times. */
static inline dfgnn_ref_number num_round(dfgnn_ref_number a, double n) {
  return num_err(a, n * square(a.value));
}
static inline dfgnn_ref_number num_add(dfgnn_ref_number a, dfgnn_ref_number b) {
  return (dfgnn_ref_number){a.value + b.value, a.variance + b.variance,
                            a.shared + b.shared};
}
static inline dfgnn_ref_number num_mul(dfgnn_ref_number a, dfgnn_ref_number b) {
  return (dfgnn_ref_number){a.value * b.value,
                            square(b.value) * a.variance +
                                square(a.value) * b.variance,
                            b.value * a.shared + a.value * b.shared};
}
/* The number times one without an error. */
static inline dfgnn_ref_number num_scale(dfgnn_ref_number a, double exact) {
  return (dfgnn_ref_number){exact * a.value, square(exact) * a.variance,
                            exact * a.shared};
}
/* f(a), of the given value and slope. */
static inline dfgnn_ref_number num_map(dfgnn_ref_number a, double value,
                                       double slope) {
  return (dfgnn_ref_number){value, square(slope) * a.variance,
                            slope * a.shared};
}
/* Counts the shared error, of this variance, among the number's own. */
static inline dfgnn_ref_number num_settle(dfgnn_ref_number a, double variance) {
  return num(a.value, a.variance + square(a.shared) * variance);
}
/* exp(a - shift), computed as exp, exp2 or a fast exponential of a rounded
 * argument, and rounded n times more. */
static inline dfgnn_ref_number num_exp(dfgnn_ref_number a, double shift,
                                       double n) {
  double x = a.value - shift, p = exp(x);
  if (p == 0)
    return num_of(0);
  return num_map(num_err(a, square(2 * a.value) + square(2 * shift) +
                                square(2 * x) + 64 + n),
                 p, p);
}
/* <a, b>, summed in any order, of products that are rounded n times more. */
static inline dfgnn_ref_number num_dot(const double *a, const double *b,
                                       int64_t count, double n) {
  dfgnn_ref_product p = dfgnn__ref_product(a, b, count);
  return num(p.value, p.variance + n * p.square);
}

/* A term of a sum and how often it stands there: equal terms round alike. */
static inline dfgnn_ref_number num_repeat(dfgnn_ref_number a, double repeats) {
  return (dfgnn_ref_number){a.value, repeats * a.variance, a.shared};
}
/* Adds a times x[], the k-th term of a sum. */
static inline void sum_add(const dfgnn_ref_sum *sum, int64_t k,
                           dfgnn_ref_number a, const double *x) {
  dfgnn__ref_sum_add(sum, 0, sum->width, k, a, x);
}
/* Adds a to number `at` of the sum alone. */
static inline void sum_add_one(const dfgnn_ref_sum *sum, int64_t at, int64_t k,
                               dfgnn_ref_number a) {
  const double one = 1;
  dfgnn__ref_sum_add(sum, at, 1, k, a, &one);
}

static inline dfgnn_ref_part part_of(double value, double fixed,
                                     double summed) {
  return (dfgnn_ref_part){value, fixed, summed, 0};
}
static inline dfgnn_ref_part part_add(dfgnn_ref_part a, dfgnn_ref_part b) {
  return (dfgnn_ref_part){a.value + b.value, a.fixed + b.fixed,
                          a.summed + b.summed, a.shared + b.shared};
}
static inline dfgnn_ref_part part_scale(dfgnn_ref_part a, double exact) {
  return (dfgnn_ref_part){exact * a.value, square(exact) * a.fixed,
                          square(exact) * a.summed, exact * a.shared};
}
static inline dfgnn_ref_part part_round(dfgnn_ref_part a, double n) {
  a.fixed += n * square(a.value);
  return a;
}
/* The part times one, a number of value 1. */
static inline dfgnn_ref_part part_times(dfgnn_ref_part a, dfgnn_ref_part one) {
  a.fixed += one.fixed * square(a.value);
  a.summed += one.summed * square(a.value);
  return a;
}
static inline dfgnn_ref_part num_part(dfgnn_ref_number a) {
  return (dfgnn_ref_part){a.value, a.variance, 0, a.shared};
}
/* A number depends on no order of its terms. */
static inline void num_put(const dfgnn_ref_result *to, int64_t i,
                           dfgnn_ref_number a) {
  dfgnn__ref_put(to, i, num_part(a));
}

#endif
