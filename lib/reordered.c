/* reordered.c - the order and the inner graph that a reordered graph keeps */
#include <stdlib.h>

#include "dfgnn_graph.h"
#include "lib/base/error.h"
#include "lib/handle.h"
#include "lib/reorder.h"

void dfgnn__reordered_free(dfgnn_context *ctx, dfgnn_reordered *r) {
  if (!r)
    return;
  if (r->device_rows)
    ctx->backend->release(ctx->device, r->device_rows);
  if (r->device_columns)
    ctx->backend->release(ctx->device, r->device_columns);
  free(r->rows);
  free(r->columns);
  free(r);
}

dfgnn_graph *dfgnn__graph_inner(dfgnn_graph *graph) {
  return graph->reordered && graph->reordered->inner ? graph->reordered->inner
                                                     : graph;
}

dfgnn_status dfgnn_graph_order(int64_t *rows, int64_t *columns,
                               const dfgnn_graph *graph) {
  dfgnn_status status = dfgnn__check_graph(graph);
  if (status)
    return status;
  const dfgnn_reordered *r = graph->reordered;
  for (int64_t i = 0; rows && i < graph->matrix.destinations; i++)
    rows[i] = r && r->rows ? r->rows[i] : i;
  for (int64_t j = 0; columns && j < graph->matrix.sources; j++)
    columns[j] = r && r->columns ? r->columns[j] : j;
  return DFGNN_OK;
}
