#include <stdlib.h>

#include "kernels/program/lower.h"
#include "kernels/program/make.h"

/* About the cost of a value: an edge is 8 times a node or a relation. */
static double cost(const dfgnn_node *node) {
  static const double times[DFGNN_PLACES] = {[DFGNN_PLACE_DST] = 1,
                                             [DFGNN_PLACE_SRC] = 1,
                                             [DFGNN_PLACE_EDGE] = 8,
                                             [DFGNN_PLACE_REL] = 1};
  double elements = 1;
  for (int i = 0; i < DFGNN_DAG_AXES; i++) {
    dfgnn_size size = node->shape[i];
    elements *= dfgnn__size_named(size) ? 64 : size.constant;
  }
  return times[node->place] * elements + elements * 1e-3;
}

static dfgnn_node pair(const dfgnn_dag *dag, int32_t a, int32_t b) {
  const dfgnn_node *x = &dag->nodes[a], *y = &dag->nodes[b];
  dfgnn_node node = {.op = DFGNN_NODE_MUL, .count = 2};
  node.place = (uint8_t)dfgnn__place_join(x->place, y->place);
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    node.shape[i] = dfgnn__size_is(x->shape[i], 1) ? y->shape[i] : x->shape[i];
  return node;
}

static int32_t multiply(dfgnn_dag *dag, int32_t *factors, int count) {
  dfgnn_node product;
  while (count > 1 && !dag->status) {
    int p = 0, q = 1;
    double least = -1;
    for (int i = 0; i < count; i++)
      for (int k = i + 1; k < count; k++) {
        product = pair(dag, factors[i], factors[k]);
        const double c = cost(&product);
        if (least < 0 || c < least) {
          least = c;
          p = i;
          q = k;
        }
      }
    product = pair(dag, factors[p], factors[q]);
    factors[p] =
        dfgnn__dag_intern(dag, &product, (int32_t[2]){factors[p], factors[q]});
    factors[q] = factors[--count];
  }
  return factors[0];
}

static int32_t in_pairs(dfgnn_dag *to, const dfgnn_dag *from, int32_t n,
                        int32_t *arguments, const void *data) {
  const dfgnn_node *node = &from->nodes[n];
  (void)data;
  return node->op == DFGNN_NODE_MUL ? multiply(to, arguments, node->count)
                                    : dfgnn__dag_intern(to, node, arguments);
}

dfgnn_dag *dfgnn__dag_pairs(const dfgnn_dag *dag) {
  dfgnn_dag *to = dfgnn__dag_new();
  int32_t *number = dfgnn__dag_unnumbered(dag);
  if (to && number) {
    dfgnn__dag_remake(to, dag, number, in_pairs, NULL);
    dfgnn__dag_take_ports(to, dag, number);
  }
  if (!number)
    dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!number || (to && to->status)) {
    dfgnn__dag_free(to);
    to = NULL;
  }
  free(number);
  return to;
}
