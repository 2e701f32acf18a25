/* graph_order.c - a graph's arrays in the order of streams
 *
 * The work that makes the matrix or a view is put on a stream and not waited
 * for.  A mark after it says when it is done: other streams wait for the mark,
 * each once, and the host does where it hands arrays out. */
#include <stdint.h>

#include "lib/graph.h"

/* graph->used_on: 0, a stream that all work was put on and 1 more, or SEVERAL.
 */
#define SEVERAL UINTPTR_MAX

void dfgnn__graph_used(dfgnn_graph *graph, void *stream) {
  const uintptr_t mine = (uintptr_t)stream + 1;
  uintptr_t before =
      atomic_load_explicit(&graph->used_on, memory_order_relaxed);
  if (before == mine || before == SEVERAL ||
      (!before &&
       atomic_compare_exchange_strong(&graph->used_on, &before, mine)))
    return;
  if (before != mine) /* another thread was first */
    atomic_store(&graph->used_on, SEVERAL);
}

int dfgnn__graph_stream(const dfgnn_graph *graph, void **stream) {
  const uintptr_t used = atomic_load(&((dfgnn_graph *)graph)->used_on);
  *stream = used && used != SEVERAL ? (void *)(used - 1) : NULL;
  return used != SEVERAL;
}

void dfgnn__graph_mark(dfgnn_graph *graph, void *stream) {
  const dfgnn_backend *backend = graph->ctx->backend;
  dfgnn_device *device = graph->ctx->device;
  if (!backend->mark)
    return;
  pthread_mutex_lock(&graph->order_lock);
  if (!backend->mark(device, &graph->mark, stream)) {
    atomic_store(&graph->behind, (uintptr_t)stream);
    atomic_store(&graph->unsettled, 1);
  } else if (backend->settle) { /* without a mark, wait now */
    backend->settle(device);
  }
  pthread_mutex_unlock(&graph->order_lock);
}

static int is_behind(const dfgnn_graph *graph, void *stream) {
  dfgnn_graph *g = (dfgnn_graph *)graph; /* atomic_load takes no const */
  return !atomic_load(&g->unsettled) ||
         atomic_load(&g->behind) == (uintptr_t)stream;
}

dfgnn_status dfgnn__graph_follow(dfgnn_graph *graph, void *stream) {
  dfgnn_status status = DFGNN_OK;
  if (is_behind(graph, stream))
    return DFGNN_OK;
  /* A mark made meanwhile must not be taken for the one waited for. */
  pthread_mutex_lock(&graph->order_lock);
  if (!is_behind(graph, stream)) {
    status =
        graph->ctx->backend->await(graph->ctx->device, graph->mark, stream);
    if (!status)
      atomic_store(&graph->behind, (uintptr_t)stream);
  }
  pthread_mutex_unlock(&graph->order_lock);
  return status;
}

dfgnn_status dfgnn__graph_settle(dfgnn_graph *graph) {
  if (!atomic_load(&graph->unsettled))
    return DFGNN_OK;
  pthread_mutex_lock(&graph->order_lock);
  dfgnn_status status =
      graph->ctx->backend->await_mark(graph->ctx->device, graph->mark);
  if (!status)
    atomic_store(&graph->unsettled, 0);
  pthread_mutex_unlock(&graph->order_lock);
  if (!status && graph->ctx->backend->late_fault)
    status = graph->ctx->backend->late_fault(graph->ctx->device);
  return status;
}
