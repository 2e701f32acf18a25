/* finish.c - a compact copy, without conditions on the presence of edges that
 * nobody sees */
#include <stdlib.h>

#include "kernels/program/make_inside.h"

/* Is a node where(0 < degree(dst), x, 0)? */
static int is_guarded(const dfgnn_dag *dag, int32_t n) {
  return is_op(dag, n, DFGNN_NODE_WHERE) && arg(dag, n, 2) == 0 &&
         dfgnn__is_presence(dag, arg(dag, n, 0));
}

/* Flags the values that are seen at nodes without edges: by an output, by a sum
 * over all nodes, or by a value of nodes or parameters that is seen. */
static void find_seen(uint8_t *seen, const dfgnn_dag *dag) {
  for (int i = 0; i < dag->output_count; i++)
    seen[dag->outputs[i].node] |= dag->outputs[i].place != DFGNN_PLACE_EDGE;
  for (int32_t n = dag->count - 1; n >= 0; n--) {
    const dfgnn_node *node = at(dag, n);
    const int of_all = node->op == DFGNN_NODE_SUM_ALL;
    const int of_edges = node->place == DFGNN_PLACE_EDGE ||
                         (dfgnn__node_reduces(node->op) && !of_all);
    for (int i = 0; i < node->count && !of_edges && (seen[n] || of_all); i++)
      seen[arg(dag, n, i)] = 1;
  }
}

/* Makes a node again, without a condition that nobody sees. */
static int32_t unguarded(dfgnn_dag *to, const dfgnn_dag *from, int32_t n,
                         int32_t *arguments, const void *data) {
  const uint8_t *seen = data;
  return is_guarded(from, n) && !seen[n]
             ? arguments[1]
             : dfgnn__make_again(to, from, n, arguments, NULL);
}

static dfgnn_dag *without(const dfgnn_dag *dag, const uint8_t *seen,
                          int32_t *number) {
  dfgnn_dag *to = dfgnn__dag_new();
  if (!to)
    return NULL;
  dfgnn__dag_remake(to, dag, number, unguarded, seen);
  dfgnn__dag_take_ports(to, dag, number);
  return to;
}

dfgnn_dag *dfgnn__dag_finish(const dfgnn_dag *dag) {
  dfgnn_dag *compact = dfgnn__dag_compact(dag), *to = NULL, *made = NULL;
  if (!compact || dag->as_written)
    return compact;
  uint8_t *seen = calloc((size_t)compact->count, 1);
  int32_t *number = dfgnn__dag_unnumbered(compact);
  int unseen = 0;
  if (seen && number) {
    find_seen(seen, compact);
    for (int32_t n = 0; n < compact->count; n++)
      unseen |= is_guarded(compact, n) && !seen[n];
    to = unseen ? without(compact, seen, number) : NULL;
  }
  if (to && !to->status)
    made = dfgnn__dag_compact(to);
  free(seen);
  free(number);
  if (!seen || !number || unseen) { /* without memory, there is none */
    dfgnn__dag_free(to);
    dfgnn__dag_free(compact);
    return made;
  }
  return compact;
}
