/* graph_order.c - a graph's arrays in the order of streams
 *
 * What makes the matrix or a view is put on a stream and not waited for.  A
 * mark behind it says when it is done: other streams wait for the mark, each
 * once, and the host does where it hands arrays out. */
#include "base/error.h"
#include "lib/graph.h"

void dfgnn__graph_mark(dfgnn_graph *graph, void *stream) {
  const dfgnn_backend *backend = graph->ctx->backend;
  dfgnn_device *device = graph->ctx->device;
  if (!backend->mark)
    return;
  if (backend->mark(device, &graph->mark, stream)) {
    if (stream != DFGNN_OWN_STREAM)
      (void)backend->synchronize(device, stream);
    else if (backend->settle)
      backend->settle(device);
    return;
  }
  atomic_store(&graph->behind, (uintptr_t)stream);
  atomic_store(&graph->unsettled, 1);
}

dfgnn_status dfgnn__graph_follow(dfgnn_graph *graph, void *stream) {
  if (!atomic_load(&graph->unsettled) ||
      atomic_load(&graph->behind) == (uintptr_t)stream)
    return DFGNN_OK;
  dfgnn_status status =
      graph->ctx->backend->await(graph->ctx->device, graph->mark, stream);
  if (!status)
    atomic_store(&graph->behind, (uintptr_t)stream);
  return status;
}

dfgnn_status dfgnn__graph_settle(dfgnn_graph *graph) {
  if (!atomic_load(&graph->unsettled))
    return DFGNN_OK;
  dfgnn_status status =
      graph->ctx->backend->await_mark(graph->ctx->device, graph->mark);
  if (!status)
    atomic_store(&graph->unsettled, 0);
  return status;
}
