/* graph_relations.c - the relations of a graph's edges: a view by relation */
#include <limits.h>

#include "dfgnn_program.h"
#include "lib/base/error.h"
#include "lib/graph.h"
#include "lib/handle.h"

static const dfgnn_view_request wanted = {.kind = DFGNN_VIEW_RELATIONS};

static dfgnn_status check(const dfgnn_graph *graph, int64_t count,
                          const int32_t *of_edge, int on_device) {
  const int64_t edges = dfgnn__graph_matrix(graph)->edges;
  if (count < 1 || count > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "count is %lld, expected 1 to %d relations",
                       (long long)count, INT32_MAX);
  if (graph->matrix.relations)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "the graph has %lld relations already",
                       (long long)graph->matrix.relations);
  if (graph->matrix.refilled)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "the graph's arrays are refilled, and relations of "
                       "them would not be");
  if (!of_edge && edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "of_edge is NULL");
  for (int64_t e = 0; !on_device && e < edges; e++)
    if (of_edge[e] < 0 || of_edge[e] >= count)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "of_edge[%lld] is %d, expected 0 to %lld",
                         (long long)e, of_edge[e], (long long)(count - 1));
  return DFGNN_OK;
}

/* A copy on the device, in the order of its own stream. */
static dfgnn_status copy_relations(void **copy, dfgnn_graph *graph,
                                   const int32_t *of_edge, int on_device,
                                   void *stream) {
  const dfgnn_backend *backend = graph->ctx->backend;
  const size_t bytes =
      (size_t)dfgnn__graph_matrix(graph)->edges * sizeof *of_edge;
  if (on_device && backend->follow)
    DFGNN_TRY(backend->follow(graph->ctx->device, stream));
  DFGNN_TRY(backend->allocate(graph->ctx->device, copy, bytes));
  if (bytes)
    DFGNN_TRY(backend->copy(graph->ctx->device, *copy, of_edge, bytes));
  return DFGNN_OK;
}

dfgnn_matrix dfgnn__graph_by_relation(const dfgnn_matrix *matrix,
                                      const int32_t *relation, int64_t count) {
  dfgnn_matrix m = *matrix;
  m.indices = relation;
  /* an empty relation more, so that it is not tried for symmetry */
  m.sources = count + (count == m.destinations);
  return m;
}

static dfgnn_status sort(dfgnn_view *view, dfgnn_graph *graph, int64_t count,
                         const int32_t *relation) {
  const dfgnn_matrix m =
      dfgnn__graph_by_relation(dfgnn__graph_matrix(graph), relation, count);
  *view = (dfgnn_view){.request = {.kind = DFGNN_VIEW_TRANSPOSE}};
  dfgnn_status status = dfgnn__graph_follow(graph, DFGNN_OWN_STREAM);
  if (!status)
    status = graph->ctx->backend->build_view(graph->ctx->device, view, &m,
                                             &graph->guess);
  view->request = wanted;
  view->count = count;
  return status;
}

dfgnn_status dfgnn_graph_set_relations(dfgnn_graph *graph, int64_t count,
                                       const int32_t *of_edge, int on_device,
                                       void *stream) {
  dfgnn_view view;
  void *copy = NULL;
  DFGNN_TRY(dfgnn__check_graph(graph));
  DFGNN_TRY(dfgnn__graph_count(graph));
  pthread_mutex_lock(&graph->lock);
  dfgnn_status status = check(graph, count, of_edge, on_device);
  if (!status)
    status = copy_relations(&copy, graph, of_edge, on_device, stream);
  if (!status)
    status = sort(&view, graph, count, copy);
  if (!status) {
    view.array[3] = copy;
    view.bytes += (size_t)dfgnn__graph_matrix(graph)->edges * sizeof *of_edge;
    copy = NULL;
    dfgnn__graph_mark(graph, DFGNN_OWN_STREAM);
    status = dfgnn__graph_add_view(graph, &view, 0);
  }
  if (!status)
    graph->matrix.relations = graph->exact.relations = count;
  if (copy)
    graph->ctx->backend->release(graph->ctx->device, copy);
  pthread_mutex_unlock(&graph->lock);
  return status;
}
