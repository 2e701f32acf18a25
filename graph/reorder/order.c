/* order.c - dfgnn_csr_order: finds the positions of the nodes */
#include "graph/io/io.h"
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

int dfgnn__order_built(dfgnn_order order) {
#ifdef HAVE_METIS
  return dfgnn_name(DFGNN_NAMES_ORDER, order) != NULL;
#else
  return dfgnn_name(DFGNN_NAMES_ORDER, order) && order != DFGNN_ORDER_METIS;
#endif
}

/* Sorts the order of a batch by graph; the nodes of a graph keep their order.
 */
static dfgnn_status keep_graphs(int32_t *order, const dfgnn_csr *csr) {
  int64_t n = csr->destinations;
  int32_t *graph = malloc(((size_t)n + 1) * sizeof *graph);
  int32_t *mixed = malloc(((size_t)n + 1) * sizeof *mixed);
  int64_t *next = malloc(((size_t)csr->graphs + 1) * sizeof *next);
  dfgnn_status status = DFGNN_OK;
  if (!graph || !mixed || !next)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot order %lld nodes",
                         (long long)n));
  for (int64_t g = 0; g < csr->graphs; g++) {
    next[g] = csr->graph_ptr[g];
    for (int64_t i = csr->graph_ptr[g]; i < csr->graph_ptr[g + 1]; i++)
      graph[i] = (int32_t)g;
  }
  memcpy(mixed, order, (size_t)n * sizeof *mixed);
  for (int64_t p = 0; p < n; p++)
    order[next[graph[mixed[p]]]++] = mixed[p];
out:
  free(next);
  free(mixed);
  free(graph);
  return status;
}

static dfgnn_status order_nodes(int32_t *order, const dfgnn_csr *csr,
                                dfgnn_order method) {
  dfgnn__adjacency graph;
  if (method == DFGNN_ORDER_DEGREE)
    return dfgnn__order_degree(order, csr);
  DFGNN_TRY(dfgnn__adjacency_build(&graph, csr));
  dfgnn_status status = DFGNN_OK;
  switch (method) {
  case DFGNN_ORDER_RCM:
    status = dfgnn__order_rcm(order, &graph);
    break;
  case DFGNN_ORDER_METIS:
    status = dfgnn__order_metis(order, &graph);
    break;
  default:
    status = dfgnn__order_community(order, NULL, &graph);
  }
  dfgnn__adjacency_free(&graph);
  return status;
}

dfgnn_status dfgnn_csr_order(int64_t *rows, int64_t *columns,
                             const dfgnn_csr *csr, dfgnn_order method) {
  if (!dfgnn_name(DFGNN_NAMES_ORDER, method))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "order is %d, expected 0..%d",
                       (int)method, DFGNN_ORDER_COUNT - 1);
  dfgnn_csr whole;
  DFGNN_TRY(dfgnn__csr_take(&whole, csr));
  csr = &whole;
  int square = csr->destinations == csr->sources;
  if (!rows || (!columns && !square))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "rows or columns is NULL; a matrix of %lld x %lld needs "
                       "both",
                       (long long)csr->destinations, (long long)csr->sources);
  int64_t n = csr->destinations, nodes = n + (square ? 0 : csr->sources);
  int32_t *order = malloc(((size_t)nodes + 1) * sizeof *order);
  if (!order)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot order %lld nodes",
                       (long long)nodes);
  dfgnn_status status = order_nodes(order, csr, method);
  if (!status && csr->graph_ptr)
    status = keep_graphs(order, csr);
  int64_t row = 0, column = 0;
  for (int64_t p = 0; p < nodes && !status; p++) {
    if (order[p] < n)
      rows[row++] = order[p];
    if (columns && (square || order[p] >= n))
      columns[column++] = square ? order[p] : order[p] - n;
  }
  free(order);
  return status;
}
