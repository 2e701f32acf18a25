#include "program/make.h"

int32_t dfgnn__make_again(dfgnn_dag *dag, const dfgnn_node *node,
                          const int32_t *a) {
  int32_t made;
  switch (node->op) {
  case DFGNN_NODE_NUMBER:
    return dfgnn__make_number(dag, node->number);
  case DFGNN_NODE_SIZE:
    return dfgnn__make_size(dag, node->at);
  case DFGNN_NODE_COUNT:
    return dfgnn__make_count(dag, (dfgnn_place)node->index);
  case DFGNN_NODE_DEGREE:
    return dfgnn__make_degree(dag, (dfgnn_place)node->place);
  case DFGNN_NODE_KEEP:
    return dfgnn__make_keep(dag, node->index, node->number,
                            (dfgnn_place)node->place, node->shape);
  case DFGNN_NODE_ADD:
    return dfgnn__make_add(dag, a[0], a[1]);
  case DFGNN_NODE_MUL:
    made = a[0];
    for (int i = 1; i < node->count; i++)
      made = dfgnn__make_mul(dag, made, a[i]);
    return made;
  case DFGNN_NODE_POW:
    return dfgnn__make_pow(dag, a[0], node->number);
  case DFGNN_NODE_MAX:
  case DFGNN_NODE_LT:
  case DFGNN_NODE_LE:
  case DFGNN_NODE_EQ:
    return dfgnn__make_binary(dag, node->op, a[0], a[1]);
  case DFGNN_NODE_WHERE:
    return dfgnn__make_where(dag, a[0], a[1], a[2]);
  case DFGNN_NODE_FSUM:
  case DFGNN_NODE_FMAX:
    return dfgnn__make_fold(dag, node->op, a[0], node->axis);
  case DFGNN_NODE_SLICE:
    return dfgnn__make_slice(dag, a[0], node->at, node->shape[2]);
  case DFGNN_NODE_CAT:
    return dfgnn__make_cat(dag, node->count, a);
  case DFGNN_NODE_RESHAPE:
    return dfgnn__make_reshape(dag, a[0], node->shape);
  case DFGNN_NODE_EXPAND:
    return dfgnn__make_expand(dag, a[0], node->shape);
  case DFGNN_NODE_MATMUL:
    return dfgnn__make_matmul(dag, a[0], a[1], node->flags);
  case DFGNN_NODE_SUM_IN:
  case DFGNN_NODE_SUM_OUT:
    return dfgnn__make_sum(dag, node->op, a[0], DFGNN_PLACE_EDGE);
  case DFGNN_NODE_SUM_ALL:
    return dfgnn__make_sum(dag, node->op, a[0],
                           (dfgnn_place)dag->nodes[a[0]].place);
  case DFGNN_NODE_MAX_IN:
  case DFGNN_NODE_MAX_OUT:
  case DFGNN_NODE_LSE_IN:
  case DFGNN_NODE_LSE_OUT:
    return dfgnn__make_extreme(dag, node->op, a[0]);
  default:
    return dfgnn__make_unary(dag, node->op, a[0], node->number);
  }
}
