/* make_inside.h - what the files that make values share */
#ifndef DFGNN_PROGRAM_MAKE_INSIDE_H
#define DFGNN_PROGRAM_MAKE_INSIDE_H

#include "kernels/program/make.h"

#define AXES DFGNN_DAG_AXES

static inline const dfgnn_node *at(const dfgnn_dag *dag, int32_t n) {
  return &dag->nodes[n];
}

static inline int32_t arg(const dfgnn_dag *dag, int32_t n, int i) {
  return dfgnn__dag_argument(dag, n, i);
}

static inline int is_op(const dfgnn_dag *dag, int32_t n, int op) {
  return dag->nodes[n].op == op;
}

/* Is a value of size 1 along an axis? */
static inline int thin(const dfgnn_dag *dag, int32_t n, int axis) {
  return dfgnn__size_is(at(dag, n)->shape[axis], 1);
}

static inline void set_numbers(dfgnn_node *node) {
  for (int i = 0; i < AXES; i++)
    node->shape[i] = dfgnn__size(1);
}

/* Gives a node the place and shape where all arguments meet; 0 if they do not.
 */
int dfgnn__make_join(dfgnn_dag *dag, dfgnn_node *node, int count,
                     const int32_t *arguments);

/* Splits a product: factors for which leaves() is true come out of the sum,
 * and the others stay inside.  Returns how many of them left. */
typedef int (*dfgnn_leaves)(const dfgnn_dag *dag, int32_t n, int which);
int dfgnn__make_split(dfgnn_dag *dag, int32_t n, dfgnn_leaves leaves, int which,
                      int32_t *outside, int32_t *inside);

#endif
