/* accuracy.h - how far a right result may be from the exact one
 *
 * Every rounding of a kernel multiplies an intermediate result by 1 + delta,
 * |delta| <= u, the unit roundoff of its arithmetic (2^-24 in float).  To
 * first order the error of an output is the sum of delta_k g_k, where g_k is
 * how much the output changes with that intermediate result.  Roundings are
 * taken for independent and of mean zero (Higham and Mary 2019), so that
 *
 *     |x - r| <= DFGNN_BOUND u sqrt(sum of g_k^2) + rounding of the output
 *
 * except for one output in 10^5 if each delta were +-u (Hoeffding's
 * inequality); they are nearer to uniform, of which 5 u is 8.7 standard
 * deviations.  The float64 reference computes the sum of squares in two parts:
 *
 *   fixed^2   the part that does not depend on the order of summation: the
 *             errors of the terms (of a score of D products, its exponential,
 *             factors), and one rounding that all terms share, of the sum of
 *             magnitudes.
 *   summed^2  the part of one level of a tree of additions: the squares of its
 *             partial sums.  A tree of height h contributes h summed^2.
 *
 * The partial sums of up to 256 terms are bounded, in every order, by the
 * magnitudes of the terms.  For a longer row that bound, of 10^6 terms that
 * cancel, would hide a missing edge.  So the row is divided into 32 cells (its
 * quarters, each by the position modulo 8), and every partial sum is taken to
 * be the sum of some cells.  This covers orders that interleave eight strands
 * or cut the row, also where signs alternate.  Equal terms round alike: where a
 * column stands in a row several times, squares are multiplied by that number.
 */
#ifndef DFGNN_KERNELS_ACCURACY_H
#define DFGNN_KERNELS_ACCURACY_H

#include "kernels/common/variant.h"

#define DFGNN_BOUND 5

/* The arithmetic of a plan, as far as bounds depend on it. */
typedef struct dfgnn_arithmetic {
  double unit;   /* roundoff of the type that the plan computes in */
  int64_t block; /* dfgnn_family.block; 0: terms are added one by one */
  int exact;     /* the reference computes in the same type: its error counts */
} dfgnn_arithmetic;

dfgnn_arithmetic dfgnn__arithmetic(const dfgnn_problem *problem,
                                   const dfgnn_family *family);

/* The bound of one output that should be `expected`, is a sum of `terms` terms
 * and is stored as dtype.  DFGNN_DTYPE_COUNT stands for an index, which may be
 * off by `fixed`. */
double dfgnn__bound(const dfgnn_arithmetic *arithmetic, dfgnn_dtype dtype,
                    double expected, double fixed, double summed,
                    int64_t terms);

/* The square of the roundoff of the type that an attention kernel may round
 * terms to (16 bits, TF32), in units of the roundoff of its sums; 0 if terms
 * have the type of sums. */
double dfgnn__term_roundoff(const dfgnn_problem *problem);

#endif
