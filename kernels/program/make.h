/* make.h - the values of a program, in normal form
 *
 *   - equal values are one; numbers fold; x * 1 and x + 0 vanish; x - x is
 *     0 * x, which is NaN where x is not finite;
 *   - products are flat and sorted, with equal factors as a power; sums of two
 *     are sorted;
 *   - a factor that is constant along a sum leaves it, over edges as over
 *     features: sum_in(a[dst] f) = a sum_in(f), and sum_in(w dot(a[dst], f)) =
 *     dot(a, sum_in(w f)).  The second finds by itself that
 *     sum_j P_ij <dO_i, v_j> is <dO_i, out_i>.  A node without edges has the
 *     sum 0 whatever a is: what left the sum is 0 there, unless it is finite
 *     for all inputs (dfgnn__make_present);
 *   - reshapes that move axes of size 1 alone are done to what a value is made
 *     of, so that sums which drop their axis make the same program;
 *   - sums are not distributed over +, which would hide a sum that is there;
 *   - a sum over edges of what does not vary along them is a multiple by the
 *     degree.
 *
 * Where shapes do not fit, dag->status says so and 0 is returned. */
#ifndef DFGNN_PROGRAM_MAKE_H
#define DFGNN_PROGRAM_MAKE_H

#include "kernels/program/dag.h"

/* Sorts factors or terms. */
void dfgnn__make_sort(const dfgnn_dag *dag, int32_t *list, int count);
int32_t dfgnn__make_number(dfgnn_dag *dag, double x);
int32_t dfgnn__make_size(dfgnn_dag *dag, dfgnn_size size);
int32_t dfgnn__make_count(dfgnn_dag *dag, dfgnn_place place);
/* The degree of a destination, source or relation, as a number. */
int32_t dfgnn__make_degree(dfgnn_dag *dag, dfgnn_place place);
/* The mask of a dropout of probability p. */
int32_t dfgnn__make_keep(dfgnn_dag *dag, int index, double p, dfgnn_place place,
                         const dfgnn_size *shape);

int32_t dfgnn__make_add(dfgnn_dag *dag, int32_t a, int32_t b);
int32_t dfgnn__make_mul(dfgnn_dag *dag, int32_t a, int32_t b);
int32_t dfgnn__make_neg(dfgnn_dag *dag, int32_t a);
int32_t dfgnn__make_sub(dfgnn_dag *dag, int32_t a, int32_t b);
int32_t dfgnn__make_div(dfgnn_dag *dag, int32_t a, int32_t b);
int32_t dfgnn__make_pow(dfgnn_dag *dag, int32_t a, double exponent);
/* presence.c: does a node of a place have edges; at PARAM: is there any of the
 * place `of`? */
int32_t dfgnn__make_presence(dfgnn_dag *dag, dfgnn_place place, dfgnn_place of);
/* a, or 0 where that is not so and a is not finite for all inputs. */
int32_t dfgnn__make_present(dfgnn_dag *dag, int32_t a, dfgnn_place place,
                            dfgnn_place of);
/* Is a node 0 < degree()? */
int dfgnn__is_presence(const dfgnn_dag *dag, int32_t n);
/* finish.c: a compact copy, without conditions on the presence of edges that
 * nobody sees.  NULL: out of memory, or too many values. */
dfgnn_dag *dfgnn__dag_finish(const dfgnn_dag *dag);
/* What POW to DETACH make of a number; x: the exponent, or the slope of LEAKY.
 */
double dfgnn__unary_number(int op, double a, double x);
/* EXP to DETACH; x: the slope of LEAKY, else 0. */
int32_t dfgnn__make_unary(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                          double x);
/* ATAN2, MAX, LT, LE, EQ. */
int32_t dfgnn__make_binary(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                           int32_t b);
int32_t dfgnn__make_where(dfgnn_dag *dag, int32_t c, int32_t a, int32_t b);

/* FSUM and FMAX; axis 0 to 2. */
int32_t dfgnn__make_fold(dfgnn_dag *dag, dfgnn_node_op op, int32_t a, int axis);
int32_t dfgnn__make_slice(dfgnn_dag *dag, int32_t a, int axis, dfgnn_size at,
                          dfgnn_size size);
int32_t dfgnn__make_cat(dfgnn_dag *dag, int count, const int32_t *parts);
int32_t dfgnn__make_reshape(dfgnn_dag *dag, int32_t a, const dfgnn_size *to);
int32_t dfgnn__make_expand(dfgnn_dag *dag, int32_t a, const dfgnn_size *shape);
/* Where each axis of `to` comes from if all that a reshape does is to move axes
 * of size 1; 0 if it does more. */
int dfgnn__make_squeeze(int8_t where[DFGNN_DAG_AXES], const dfgnn_size *from,
                        const dfgnn_size *to);
/* Exchanges two axes. */
int32_t dfgnn__make_swap(dfgnn_dag *dag, int32_t a, int first, int second);
/* a where it has lost axes of the arguments that it was made of: x - x is the
 * number 0, and is spread to the axes of x again. */
int32_t dfgnn__make_whole(dfgnn_dag *dag, int32_t a, int count,
                          const int32_t *arguments);
int32_t dfgnn__make_matmul(dfgnn_dag *dag, int32_t a, int32_t b, int flags);

/* The sum over the edges of each node of a place: dst, src or rel. */
int32_t dfgnn__make_sum(dfgnn_dag *dag, int32_t a, dfgnn_place to);
/* MAX_EDGES and LSE. */
int32_t dfgnn__make_extreme(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                            dfgnn_place to);
/* The sum over all of the place `from`, as which a is taken if its own is
 * lower. */
int32_t dfgnn__make_sum_all(dfgnn_dag *dag, int32_t a, dfgnn_place from);

/* The same function as that of a node, ADD to WHERE or over edges. */
int32_t dfgnn__make_alike(dfgnn_dag *dag, const dfgnn_node *node,
                          const int32_t *arguments);

int dfgnn__is_number(const dfgnn_dag *dag, int32_t n, double x);
/* The place where values of two places meet. */
int dfgnn__place_join(int a, int b);
static inline int dfgnn__place_rank(int place) {
  static const int rank[] = {0, 1, 2, 2, 3, 2};
  return rank[place];
}

/* derive.c: the gradients of sum(<output, cotangent>) with respect to `wanted`
 * nodes, from cotangents (-1: none) of the outputs; gradients of those of which
 * nothing depends are the number 0. */
void dfgnn__dag_gradients(dfgnn_dag *dag, const int32_t *cotangents,
                          const int32_t *wanted, int count, int32_t *gradients);
/* gradient.c: the program of the gradient of `forward`.  Its inputs are the
 * forward's, then those of its outputs that spare a computation (reductions
 * over edges), then grad_NAME for each output NAME with cotangent[i]; its
 * outputs are grad_NAME for each input NAME with wanted[i].  Inputs that it
 * does not need are left out, and a name that is taken gets a "_". */
dfgnn_status dfgnn__dag_gradient(dfgnn_dag **gradient, const dfgnn_dag *forward,
                                 const uint8_t *cotangent,
                                 const uint8_t *wanted);
/* The same program with further outputs kept_0, ...: the reductions over edges
 * that its gradient would compute again. */
dfgnn_status dfgnn__dag_kept(dfgnn_dag **kept, const dfgnn_dag *forward,
                             const uint8_t *cotangent, const uint8_t *wanted);

/* rebuild.c: makes a node of another program in normal form. */
int32_t dfgnn__make_again(dfgnn_dag *to, const dfgnn_dag *from, int32_t n,
                          int32_t *arguments, const void *data);

#endif
