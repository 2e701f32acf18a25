/* accuracy.h - how far a right result may be from the exact one
 *
 * Every rounding of a kernel multiplies an intermediate result by 1 + delta,
 * |delta| <= u, the unit roundoff of what it computes in (2^-24 in float).  To
 * first order the error of an output is the sum of delta_k g_k, where g_k is
 * how much the output changes with that intermediate result.  Roundings are
 * taken for independent and of mean zero (Higham and Mary 2019), so that
 *
 *     |x - r| <= DFGNN_BOUND u sqrt(sum of g_k^2) + rounding of the output
 *
 * but for one output in 10^5 if each delta were +-u (Hoeffding's inequality);
 * they are nearer to uniform, of which 5 u is 8.7 standard deviations.  The
 * float64 reference computes the sum of squares in two parts:
 *
 *   fixed^2   what does not depend on the order of summation: the errors of the
 *             terms (of a score of D products, its exponential, factors), and
 *             one rounding that all terms share, of the sum of magnitudes.
 *   summed^2  what a level of a tree of additions contributes: the squares of
 *             its partial sums.  A sum of height h is sum^2 times h.
 *
 * Of up to 256 terms the partial sums of every order are bounded by the
 * magnitudes of the terms.  A longer row is summed in 32 cells (its quarters,
 * each by the position modulo 8), of which partial sums are taken to be unions:
 * the magnitudes of 10^6 terms that cancel would hide an edge that is missing,
 * and orders that interleave eight strands or cut the row are covered, so that
 * alternating signs are no surprise.  Equal terms round alike: where a column
 * stands in a row several times, squares are multiplied by how often. */
#ifndef DFGNN_KERNELS_ACCURACY_H
#define DFGNN_KERNELS_ACCURACY_H

#include "kernels/common/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DFGNN_BOUND 5

/* What has to be known of a plan's arithmetic. */
typedef struct dfgnn_arithmetic {
  double unit;   /* of what it computes in */
  int64_t block; /* of dfgnn_family; 0: one after the other */
  int exact;     /* the reference is no more exact: its own error counts */
} dfgnn_arithmetic;

dfgnn_arithmetic dfgnn__arithmetic(const dfgnn_problem *problem,
                                   const dfgnn_family *family);

/* The bound of one output, stored as dtype (DFGNN_DTYPE_COUNT: an index, which
 * is exact, or off by `fixed` at most), that is `expected` and a sum of so many
 * terms. */
double dfgnn__bound(const dfgnn_arithmetic *arithmetic, dfgnn_dtype dtype,
                    double expected, double fixed, double summed,
                    int64_t terms);

/* The square of the roundoff of what a kernel of attention may round terms to
 * (16 bits, TF32) in units of that of its sums; 0 if they are the same. */
double dfgnn__term_roundoff(const dfgnn_problem *problem);

#ifdef __cplusplus
}
#endif
#endif
