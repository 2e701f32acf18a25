#include "lib/cell.h"

#include <stdio.h>

#include "kernels/common/variant.h"

dfgnn_op dfgnn__measured_op(dfgnn_op op) {
  switch (op) {
  case DFGNN_OP_SPMM_MEAN:
    return DFGNN_OP_SPMM_SUM;
  case DFGNN_OP_REDUCE_MIN:
    return DFGNN_OP_REDUCE_MAX;
  case DFGNN_OP_REDUCE_VAR:
  case DFGNN_OP_REDUCE_STD:
    return DFGNN_OP_REDUCE_PNA;
  default:
    return op;
  }
}

/* The classes of edge features: up to 16 are held in registers. */
static const char *edges_of(const dfgnn_problem *p) {
  if (p->edge_dim == DFGNN_EDGE_PROJECTED)
    return ", edges given";
  return p->edge_dim == 0    ? ""
         : p->edge_dim <= 16 ? ", edges<=16"
                             : ", edges>16";
}

/* Sums see the heads as one row of features. */
static const char *heads_of(const dfgnn_problem *p) {
  if (!(DFGNN_OPS_ATTENTION >> p->op & 1))
    return "";
  return p->heads == 1  ? ", one head"
         : p->heads < 8 ? ", few heads"
                        : ", many heads";
}

void dfgnn__cell(char name[DFGNN_CELL_SIZE], const dfgnn_problem *p) {
  const int copies = p->message == DFGNN_MESSAGE_COPY;
  snprintf(name, DFGNN_CELL_SIZE, "%s %s%s%s%s%s, %zu bits",
           dfgnn_name(DFGNN_NAMES_OP, dfgnn__measured_op(p->op)),
           dfgnn_name(DFGNN_NAMES_PASS, p->pass), copies ? "" : ", ",
           copies ? "" : dfgnn_name(DFGNN_NAMES_MESSAGE, p->message),
           edges_of(p), heads_of(p), 8 * dfgnn_dtype_size(p->dtype));
}
