#include "kernels/program/make.h"

static int32_t again(dfgnn_dag *dag, const dfgnn_node *node, const int32_t *a) {
  switch (node->op) {
  case DFGNN_NODE_INPUT:
    return dfgnn__dag_intern(dag, node, NULL);
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
  case DFGNN_NODE_FSUM:
  case DFGNN_NODE_FMAX:
    return dfgnn__make_fold(dag, node->op, a[0], node->axis);
  case DFGNN_NODE_SLICE:
    return dfgnn__make_slice(dag, a[0], 2, node->at, node->shape[2]);
  case DFGNN_NODE_CAT:
    return dfgnn__make_cat(dag, node->count, a);
  case DFGNN_NODE_RESHAPE:
    return dfgnn__make_reshape(dag, a[0], node->shape);
  case DFGNN_NODE_EXPAND:
    return dfgnn__make_expand(dag, a[0], node->shape);
  case DFGNN_NODE_SWAP:
    return dfgnn__make_swap(dag, a[0], node->axis, node->flags);
  case DFGNN_NODE_MATMUL:
    return dfgnn__make_matmul(dag, a[0], a[1], node->flags);
  default:
    return dfgnn__make_alike(dag, node, a);
  }
}

int32_t dfgnn__make_again(dfgnn_dag *to, const dfgnn_dag *from, int32_t n,
                          int32_t *arguments, const void *data) {
  const dfgnn_node *node = &from->nodes[n];
  (void)data;
  return dfgnn__make_expand(to, again(to, node, arguments), node->shape);
}
