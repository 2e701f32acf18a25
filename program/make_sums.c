/* make_sums.c - reductions over edges, and over everything */
#include "program/make_inside.h"

/* Does a value not vary along the sum that ends at a place: over the edges of
 * a node, or over everything, at PARAM? */
static int stays(const dfgnn_dag *dag, int32_t n, int to) {
  int place = at(dag, n)->place;
  return dfgnn__place_rank(place) < 2 || place == to;
}

static int32_t reduction(dfgnn_dag *dag, int op, int32_t a, int to) {
  dfgnn_node node = {.op = (uint8_t)op};
  if (!dfgnn__make_join(dag, &node, 1, &a))
    return 0;
  node.place = (uint8_t)to;
  return dfgnn__dag_intern(dag, &node, &a);
}

/* sum(w fsum(a f)) = fsum(a sum(w f)) where a leaves the sum: w is what else
 * is in the product, all of size 1 along the axis.  -1: there is no such. */
static int32_t exchange(dfgnn_dag *dag, int32_t n, int to) {
  int product = is_op(dag, n, DFGNN_NODE_MUL);
  int count = product ? at(dag, n)->count : 1;
  for (int i = 0; i < count; i++) {
    int32_t dot = product ? arg(dag, n, i) : n;
    if (!is_op(dag, dot, DFGNN_NODE_FSUM) ||
        !is_op(dag, arg(dag, dot, 0), DFGNN_NODE_MUL))
      continue;
    int axis = at(dag, dot)->axis, fits = 1;
    for (int k = 0; k < count; k++)
      fits &= k == i || thin(dag, arg(dag, n, k), axis);
    int32_t outside, inside;
    if (!fits ||
        !dfgnn__make_split(dag, arg(dag, dot, 0), stays, to, &outside, &inside))
      continue;
    for (int k = 0; k < count; k++)
      if (k != i)
        inside = dfgnn__make_mul(dag, inside, arg(dag, n, k));
    int32_t sum = dfgnn__make_sum(dag, inside, (dfgnn_place)to);
    return dfgnn__make_fold(dag, DFGNN_NODE_FSUM,
                            dfgnn__make_mul(dag, outside, sum), axis);
  }
  return -1;
}

/* A product whose factors that do not vary are outside of the sum; -1: none
 * leaves it. */
static int32_t sum_of_rest(dfgnn_dag *dag, int32_t a, dfgnn_place to,
                           dfgnn_place from) {
  int32_t outside, inside;
  if (!is_op(dag, a, DFGNN_NODE_MUL) ||
      !dfgnn__make_split(dag, a, stays, to, &outside, &inside))
    return -1;
  int32_t sum = to == DFGNN_PLACE_PARAM ? dfgnn__make_sum_all(dag, inside, from)
                                        : dfgnn__make_sum(dag, inside, to);
  return dfgnn__make_mul(dag, outside, sum);
}

int32_t dfgnn__make_sum(dfgnn_dag *dag, int32_t a, dfgnn_place to) {
  if (dfgnn__is_number(dag, a, 0))
    return a;
  if (stays(dag, a, to))
    return dfgnn__make_mul(dag, a, dfgnn__make_degree(dag, to));
  int32_t made = sum_of_rest(dag, a, to, DFGNN_PLACE_EDGE);
  if (made < 0)
    made = exchange(dag, a, to);
  return made >= 0 ? made : reduction(dag, DFGNN_NODE_SUM, a, to);
}

int32_t dfgnn__make_sum_all(dfgnn_dag *dag, int32_t a, dfgnn_place from) {
  const dfgnn_place place = (dfgnn_place)at(dag, a)->place;
  if (dfgnn__is_number(dag, a, 0))
    return a;
  if (from == DFGNN_PLACE_EDGE && dfgnn__place_rank(place) == 2) {
    a = dfgnn__make_mul(dag, a, dfgnn__make_degree(dag, place));
    from = place;
  }
  if (stays(dag, a, DFGNN_PLACE_PARAM))
    return dfgnn__make_mul(dag, a, dfgnn__make_count(dag, from));
  int32_t made = sum_of_rest(dag, a, DFGNN_PLACE_PARAM, from);
  return made >= 0 ? made
                   : reduction(dag, DFGNN_NODE_SUM_ALL, a, DFGNN_PLACE_PARAM);
}

int32_t dfgnn__make_extreme(dfgnn_dag *dag, dfgnn_node_op op, int32_t a,
                            dfgnn_place to) {
  if (!stays(dag, a, to))
    return reduction(dag, op, a, to);
  int32_t degree = dfgnn__make_degree(dag, to);
  if (op == DFGNN_NODE_LSE)
    return dfgnn__make_add(dag, a,
                           dfgnn__make_unary(dag, DFGNN_NODE_LOG, degree, 0));
  int32_t some = dfgnn__make_binary(dag, DFGNN_NODE_LT, 0, degree);
  return dfgnn__make_where(dag, some, a, 0);
}
