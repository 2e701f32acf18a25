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

static int32_t pair(dfgnn_dag *dag, int32_t a, int32_t b) {
  const dfgnn_node *x = &dag->nodes[a], *y = &dag->nodes[b];
  dfgnn_node node = {.op = DFGNN_NODE_MUL, .count = 2};
  node.place = (uint8_t)dfgnn__place_join(x->place, y->place);
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    node.shape[i] = dfgnn__size_is(x->shape[i], 1) ? y->shape[i] : x->shape[i];
  return dfgnn__dag_intern(dag, &node, (int32_t[2]){a, b});
}

static double cost_of_pair(const dfgnn_dag *dag, int32_t a, int32_t b) {
  const dfgnn_node *x = &dag->nodes[a], *y = &dag->nodes[b];
  dfgnn_node node = {.place = (uint8_t)dfgnn__place_join(x->place, y->place)};
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    node.shape[i] = dfgnn__size_is(x->shape[i], 1) ? y->shape[i] : x->shape[i];
  return cost(&node);
}

static int32_t multiply(dfgnn_dag *dag, int32_t *factors, int count) {
  while (count > 1 && !dag->status) {
    int p = 0, q = 1;
    double least = -1;
    for (int i = 0; i < count; i++)
      for (int k = i + 1; k < count; k++) {
        double c = cost_of_pair(dag, factors[i], factors[k]);
        if (least < 0 || c < least) {
          least = c;
          p = i;
          q = k;
        }
      }
    factors[p] = pair(dag, factors[p], factors[q]);
    factors[q] = factors[--count];
  }
  return factors[0];
}

dfgnn_dag *dfgnn__dag_pairs(const dfgnn_dag *dag) {
  dfgnn_dag *to = dfgnn__dag_new();
  int32_t *number = calloc((size_t)dag->count, sizeof *number);
  int32_t *arguments =
      malloc(((size_t)dag->argument_count + 1) * sizeof *arguments);
  if (!to || !number || !arguments) {
    dfgnn__dag_free(to);
    to = NULL;
    dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    goto out;
  }
  for (int32_t n = 0; n < dag->count && !to->status; n++) {
    const dfgnn_node *node = &dag->nodes[n];
    for (int i = 0; i < node->count; i++)
      arguments[i] = number[dfgnn__dag_argument(dag, n, i)];
    if (node->op == DFGNN_NODE_MUL)
      number[n] = multiply(to, arguments, node->count);
    else
      number[n] = dfgnn__dag_intern(to, node, arguments);
  }
  dfgnn__dag_take_ports(to, dag, number);
  if (to->status) {
    dfgnn__dag_free(to);
    to = NULL;
  }
out:
  free(number);
  free(arguments);
  return to;
}
