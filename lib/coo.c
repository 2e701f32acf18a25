/* coo.c - graphs are created of edge lists */
#include "lib/coo.h"

#include "graph/io/io.h"
#include "lib/base/error.h"
#include "lib/graph.h"
#include "lib/handle.h"

static dfgnn_status check_coo(const dfgnn_coo *coo) {
  DFGNN_TRY(dfgnn__check_sizes("coo", coo->destinations, coo->sources,
                               coo->edges, coo->graphs, coo->graph_ptr));
  if (coo->edges && (!coo->destination || !coo->source))
    return dfgnn__fail(
        DFGNN_ERROR_INVALID, "coo.%s is NULL, but coo.edges is %lld",
        coo->destination ? "source" : "destination", (long long)coo->edges);
  return dfgnn__check_range("coo.index_type", coo->index_type, 0,
                            DFGNN_INDEX_I64);
}

static void drop(dfgnn_context *ctx, const dfgnn_sorted_edges *sorted) {
  void *array[] = {sorted->offsets,
                   sorted->indices,
                   sorted->order,
                   (void *)sorted->columns.array[0],
                   (void *)sorted->columns.array[1],
                   (void *)sorted->columns.array[2]};
  if (sorted->memory)
    ctx->backend->release(ctx->device, sorted->memory);
  for (size_t k = 0; !sorted->memory && k < sizeof array / sizeof *array; k++)
    if (array[k])
      ctx->backend->release(ctx->device, array[k]);
}

/* Makes the arrays of the matrix the graph's own. */
static void own(dfgnn_graph *graph, const dfgnn_sorted_edges *sorted) {
  const dfgnn_matrix *m = &sorted->matrix;
  const size_t width = m->offsets64 ? sizeof(int64_t) : sizeof(int32_t);
  if (sorted->memory) {
    graph->owned_memory = sorted->memory;
    graph->owned_bytes += sorted->bytes;
    return;
  }
  graph->owned_offsets = sorted->offsets;
  graph->owned_indices = sorted->indices;
  graph->owned_order = sorted->order;
  graph->owned_bytes += ((size_t)m->destinations + 1) * width +
                        (size_t)m->edges * sizeof(int32_t) +
                        (sorted->order ? (size_t)m->edges * width : 0);
}

static dfgnn_status create(dfgnn_graph **graph, dfgnn_context *ctx,
                           const dfgnn_coo *coo, int deferred, void *stream) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("coo", dfgnn_coo, "DFGNN_COO_INIT");
  dfgnn_sorted_edges sorted;
  dfgnn_coo whole = DFGNN_COO_INIT;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  if (!graph)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "graph is NULL");
  DFGNN_TRY(dfgnn__check_context(ctx));
  DFGNN_TRY(dfgnn__take(&whole, coo, &kind));
  coo = &whole;
  DFGNN_TRY(check_coo(coo));
  if (ctx->backend->late_fault)
    DFGNN_TRY(ctx->backend->late_fault(ctx->device));
  DFGNN_TRY(
      ctx->backend->sort_edges(ctx->device, &sorted, coo, deferred, stream));
  const dfgnn_matrix *m = &sorted.matrix;
  csr.destinations = m->destinations;
  csr.sources = m->sources;
  csr.edges = m->edges;
  csr.offsets = sorted.offsets;
  csr.indices = sorted.indices;
  csr.offset_type = m->offsets64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  csr.on_device = 1;
  csr.graphs = coo->graphs;
  csr.graph_ptr = coo->graph_ptr;
  csr.family = coo->family;
  csr.name = coo->name;
  dfgnn_status status = dfgnn__graph_make(graph, ctx, &csr, stream, &sorted);
  if (status) {
    drop(ctx, &sorted);
    return status;
  }
  dfgnn_graph *g = *graph;
  own(g, &sorted);
  g->fresh = deferred && sorted.memory;
  g->edge_order = sorted.order;
  g->was_unsorted = sorted.was_unsorted;
  g->edges_bound = sorted.edges_bound;
  g->matrix.edge_order = g->exact.edge_order =
      coo->self_loops ? NULL : sorted.order;
  dfgnn__graph_mark(g, stream);
  if (!sorted.columns.array[0])
    return DFGNN_OK;
  status = dfgnn__graph_add_view(g, &sorted.columns, sorted.memory ? 7 : 0);
  if (status) {
    dfgnn_graph_destroy(g);
    *graph = NULL;
  }
  return status;
}

dfgnn_status dfgnn_graph_create_coo(dfgnn_graph **graph, dfgnn_context *ctx,
                                    const dfgnn_coo *coo, void *stream) {
  return create(graph, ctx, coo, 0, stream);
}

dfgnn_status dfgnn_graph_create_deferred(dfgnn_graph **graph,
                                         dfgnn_context *ctx,
                                         const dfgnn_coo *coo, void *stream) {
  return create(graph, ctx, coo, 1, stream);
}

/* Waits for the arrays, and forgets an order that is the list's own. */
static dfgnn_status settle_order(dfgnn_graph *g) {
  uint64_t unsorted = 1;
  dfgnn_status status = dfgnn__graph_settle(g);
  pthread_mutex_lock(&g->lock);
  if (!status && g->was_unsorted)
    status = g->ctx->backend->copy(g->ctx->device, &unsorted, g->was_unsorted,
                                   sizeof unsorted);
  if (!status)
    g->was_unsorted = NULL;
  if (!unsorted)
    g->edge_order = NULL;
  pthread_mutex_unlock(&g->lock);
  return status;
}

const void *dfgnn_graph_edge_order(const dfgnn_graph *graph,
                                   dfgnn_index_type *type) {
  if (!dfgnn__is_graph(graph))
    graph = NULL;
  if (type)
    *type =
        graph && graph->matrix.offsets64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  if (graph && settle_order((dfgnn_graph *)graph))
    return NULL;
  return graph ? graph->edge_order : NULL;
}

dfgnn_status dfgnn_graph_csr(dfgnn_csr *csr, const dfgnn_graph *graph) {
  DFGNN_TRY(dfgnn__check_graph(graph));
  DFGNN_TRY(dfgnn__can_give(csr, &dfgnn__csr_kind));
  dfgnn_graph *g = (dfgnn_graph *)graph;
  DFGNN_TRY(g->checked ? dfgnn__graph_count(g) : dfgnn__graph_know(g));
  DFGNN_TRY(dfgnn__graph_settle(g));
  const dfgnn_matrix *m = dfgnn__graph_matrix(graph);
  const dfgnn_csr whole = {.destinations = m->destinations,
                           .sources = m->sources,
                           .edges = m->edges,
                           .offsets = m->offsets,
                           .indices = m->indices,
                           .offset_type =
                               m->offsets64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32,
                           .on_device = 1,
                           .family = *graph->family ? graph->family : NULL,
                           .name = *graph->name ? graph->name : NULL};
  dfgnn__give(csr, &whole, &dfgnn__csr_kind);
  return DFGNN_OK;
}
