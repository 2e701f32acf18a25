/* presence.c - nodes without edges, at which what left a sum is 0
 *
 * sum_in(a f) is 0 at a node without edges, and a sum_in(f) is NaN there if a
 * is infinite.  So what leaves a sum becomes where(0 < degree(dst), a, 0),
 * which is a again where nobody sees the value of a node without edges. */
#include "kernels/program/make_inside.h"

int32_t dfgnn__make_presence(dfgnn_dag *dag, dfgnn_place place,
                             dfgnn_place of) {
  return dfgnn__make_binary(dag, DFGNN_NODE_LT, 0,
                            place == DFGNN_PLACE_PARAM
                                ? dfgnn__make_count(dag, of)
                                : dfgnn__make_degree(dag, place));
}

int dfgnn__is_presence(const dfgnn_dag *dag, int32_t n) {
  return is_op(dag, n, DFGNN_NODE_LT) && arg(dag, n, 0) == 0 &&
         is_op(dag, arg(dag, n, 1), DFGNN_NODE_DEGREE);
}

static int is_finite(const dfgnn_dag *dag, int32_t n, int which) {
  (void)which;
  return at(dag, n)->finite;
}

int32_t dfgnn__make_present(dfgnn_dag *dag, int32_t a, dfgnn_place place,
                            dfgnn_place of) {
  int32_t finite, other = a;
  if (at(dag, a)->finite)
    return a;
  finite = dfgnn__make_number(dag, 1);
  if (is_op(dag, a, DFGNN_NODE_MUL))
    dfgnn__make_split(dag, a, is_finite, 0, &finite, &other);
  if (at(dag, other)->finite)
    return a;
  int32_t present = dfgnn__make_presence(dag, place, of);
  return dfgnn__make_mul(dag, finite,
                         dfgnn__make_where(dag, present, other, 0));
}
