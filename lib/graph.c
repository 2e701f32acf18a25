/* graph.c - graphs are created and destroyed */
#include "lib/graph.h"

#include <stdlib.h>
#include <string.h>

#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "lib/handle.h"
#include "lib/signature.h"

dfgnn_status dfgnn__check_sizes(const char *what, int64_t destinations,
                                int64_t sources, int64_t edges, int64_t graphs,
                                const int64_t *graph_ptr) {
  const int64_t extents[] = {destinations, sources, edges};
  static const char *const names[] = {"destinations", "sources", "edges"};
  for (int i = 0; i < 3; i++)
    if (extents[i] < 0 || (i < 2 && extents[i] > INT32_MAX))
      return dfgnn__fail(DFGNN_ERROR_INVALID, "%s.%s is %lld, expected 0..%s",
                         what, names[i], (long long)extents[i],
                         i < 2 ? "2147483647" : "2^63 - 1");
  if (graphs < 0 || (graph_ptr && !graphs))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s.graphs is %lld, expected > 0 with a graph_ptr", what,
                       (long long)graphs);
  return DFGNN_OK;
}

static dfgnn_status check_csr(const dfgnn_csr *csr) {
  DFGNN_TRY(dfgnn__check_sizes("csr", csr->destinations, csr->sources,
                               csr->edges, csr->graphs, csr->graph_ptr));
  if (!csr->offsets)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "csr.offsets is NULL");
  if (!csr->indices && csr->edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.indices is NULL, but csr.edges is %lld",
                       (long long)csr->edges);
  DFGNN_TRY(dfgnn__check_range("csr.offset_type", csr->offset_type, 0,
                               DFGNN_INDEX_I64));
  DFGNN_TRY(dfgnn__check_range("csr.index_type", csr->index_type, 0,
                               DFGNN_INDEX_I64));
  if (csr->offset_type == DFGNN_INDEX_I32 && csr->edges > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.edges is %lld, which needs 64-bit offsets",
                       (long long)csr->edges);
  if (csr->column_offsets &&
      ((!csr->column_rows || !csr->column_edges) && csr->edges))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.%s is NULL, but csr.column_offsets is not",
                       csr->column_rows ? "column_edges" : "column_rows");
  if (csr->refilled && (!csr->trusted || !csr->column_offsets ||
                        csr->index_type != DFGNN_INDEX_I32))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "csr.refilled is 1, which needs %s",
                       !csr->trusted          ? "csr.trusted"
                       : !csr->column_offsets ? "csr.column_offsets"
                                              : "32-bit indices");
  return DFGNN_OK;
}

/* Notes what is known of the matrix, and begins the analysis of the rest, which
 * the host does not wait for. */
static dfgnn_status look_at(dfgnn_graph *g, const dfgnn_csr *csr,
                            const dfgnn_sorted_edges *sorted) {
  const dfgnn_backend *backend = g->ctx->backend;
  dfgnn_matrix *m = &g->matrix;
  if (sorted) {
    m->max_degree = sorted->matrix.max_degree;
    g->pending = sorted->pending;
    g->checked = !g->pending;
  } else if (csr->trusted || (csr->on_device && backend->analyze_begin)) {
    m->max_degree = backend->max_degree && !csr->refilled
                        ? backend->max_degree(m)
                        : m->edges;
    g->checked = csr->trusted;
  } else {
    dfgnn_signature signature;
    dfgnn_status status = backend->analyze(g->ctx->device, m, &signature,
                                           csr->graphs, csr->graph_ptr);
    if (!status)
      dfgnn__graph_set_known(g, &signature);
    return status;
  }
  dfgnn__graph_guess(g, csr->graphs, csr->graph_ptr);
  if (m->refilled) {
    dfgnn__graph_set_known(g, &g->guess);
    return DFGNN_OK;
  }
  if (sorted && sorted->known) {
    dfgnn__graph_set_known(g, &sorted->signature);
    return DFGNN_OK;
  }
  if (csr->graph_ptr && csr->graphs > 0) {
    const size_t bytes = ((size_t)csr->graphs + 1) * sizeof *g->graph_ptr;
    g->graphs = csr->graphs;
    g->graph_ptr = malloc(bytes);
    if (!g->graph_ptr)
      return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    memcpy(g->graph_ptr, csr->graph_ptr, bytes);
  }
  if (sorted || csr->trusted)
    return DFGNN_OK;
  return backend->analyze_begin(g->ctx->device, &g->pending, m, g->graphs,
                                g->graph_ptr);
}

/* A graph with its locks and names, and nothing else yet.  If it fails *graph
 * is NULL or is to be destroyed. */
static dfgnn_status graph_start(dfgnn_graph **graph, dfgnn_context *ctx,
                                const char *family, const char *name) {
  dfgnn_graph *g = calloc(1, sizeof *g);
  *graph = g;
  if (!g)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  g->kind = DFGNN_HANDLE_GRAPH;
  pthread_mutex_init(&g->lock, NULL);
  pthread_mutex_init(&g->order_lock, NULL);
  pthread_rwlock_init(&g->plans_lock, NULL);
  g->ctx = ctx;
  dfgnn__context_hold(ctx);
  g->family = strdup(family ? family : "");
  g->name = strdup(name ? name : "");
  return g->family && g->name
             ? DFGNN_OK
             : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
}

dfgnn_status dfgnn__graph_make(dfgnn_graph **graph, dfgnn_context *ctx,
                               const dfgnn_csr *csr, void *stream,
                               const dfgnn_sorted_edges *sorted) {
  const void *indices = NULL;
  dfgnn_graph *g;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(graph_start(&g, ctx, csr->family, csr->name));
  g->matrix.destinations = csr->destinations;
  g->matrix.sources = csr->sources;
  g->matrix.edges = csr->edges;
  g->matrix.offsets64 = csr->offset_type == DFGNN_INDEX_I64;
  g->matrix.refilled = csr->refilled;
  const size_t offsets =
      ((size_t)csr->destinations + 1) * (g->matrix.offsets64 ? 8 : 4);
  g->matrix.offsets = csr->offsets;
  /* The copy below reads as many indices as there are edges, which offsets that
   * were not checked may contradict. */
  if (!sorted && !csr->trusted &&
      (!csr->on_device || !strcmp(ctx->backend->name, "cpu")))
    status = dfgnn__check_offsets(&g->matrix);
  if (!status && !sorted && csr->on_device && ctx->backend->follow)
    status = ctx->backend->follow(ctx->device, stream);
  if (!status)
    status = dfgnn__graph_place(&g->matrix.offsets, &g->owned_offsets, g,
                                csr->offsets, offsets, csr->on_device);
  if (!status)
    status = dfgnn__graph_place_indices(&indices, &g->owned_indices, g,
                                        csr->indices, csr);
  g->matrix.indices = indices;
  if (!status)
    status = look_at(g, csr, sorted);
  if (!status && !sorted)
    status = dfgnn__graph_take_columns(g, csr);
out:
  if (status)
    dfgnn_graph_destroy(g);
  else
    *graph = g;
  return status;
}

dfgnn_status dfgnn_graph_create_csr(dfgnn_graph **graph, dfgnn_context *ctx,
                                    const dfgnn_csr *csr, void *stream) {
  if (!graph)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "graph is NULL");
  DFGNN_TRY(dfgnn__check_context(ctx));
  dfgnn_csr whole = DFGNN_CSR_INIT;
  DFGNN_TRY(dfgnn__take(&whole, csr, &dfgnn__csr_kind));
  DFGNN_TRY(check_csr(&whole));
  if (whole.refilled && !whole.on_device && strcmp(ctx->backend->name, "cpu"))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.refilled is 1, which needs csr.on_device");
  return dfgnn__graph_make(graph, ctx, &whole, stream, NULL);
}

/* How memory is given back: in the order of a stream, or at once. */
typedef struct leave {
  dfgnn_context *ctx;
  int ordered;
  void *stream;
} leave;

static void give_back(const void *data, const void *memory) {
  const leave *l = data;
  dfgnn_context *ctx = l->ctx;
  if (memory && l->ordered && ctx->backend->retire)
    ctx->backend->retire(ctx->device, (void *)memory, l->stream);
  else if (memory)
    ctx->backend->release(ctx->device, (void *)memory);
}

/* Ends an analysis whose result nobody asked for. */
static void forget_analysis(dfgnn_graph *graph) {
  if (graph->pending)
    (void)graph->ctx->backend->analyze_end(graph->ctx->device, graph->pending,
                                           NULL, NULL);
  graph->pending = NULL;
}

static void destroy(dfgnn_graph *graph, int ordered, void *stream) {
  dfgnn_context *ctx = graph->ctx;
  leave l = {ctx, ordered, stream};
  void *used_on = NULL;
  const int several = !dfgnn__graph_stream(graph, &used_on);
  if (l.ordered && stream == DFGNN_STREAM_USED) {
    l.ordered = !several;
    l.stream = used_on;
  }
  if (!l.ordered && (several || used_on) && ctx->backend->settle)
    ctx->backend->settle(ctx->device);
  graph->kind = DFGNN_HANDLE_NONE;
  dfgnn__graph_forget_plans(graph);
  int left = dfgnn__graph_orphan_plans(graph);
  if (left)
    dfgnn__log(ctx, DFGNN_LOG_DEBUG,
               "graph %s destroyed before %d of its plans", graph->name, left);
  forget_analysis(graph);
  (void)dfgnn__graph_follow(graph, l.stream);
  dfgnn__graph_free_views(graph, give_back, &l);
  give_back(&l, graph->owned_offsets);
  give_back(&l, graph->owned_indices);
  give_back(&l, graph->owned_order);
  give_back(&l, graph->owned_memory);
  pthread_rwlock_destroy(&graph->plans_lock);
  pthread_mutex_destroy(&graph->order_lock);
  pthread_mutex_destroy(&graph->lock);
  if (graph->mark)
    ctx->backend->unmark(ctx->device, graph->mark);
  free(graph->complaint);
  free(graph->graph_ptr);
  free(graph->family);
  free(graph->name);
  free(graph);
  dfgnn__context_drop(ctx);
}

void dfgnn_graph_destroy(dfgnn_graph *graph) {
  if (dfgnn__is_graph(graph))
    destroy(graph, 0, NULL);
}

void dfgnn_graph_destroy_on(dfgnn_graph *graph, void *stream) {
  if (dfgnn__is_graph(graph))
    destroy(graph, 1, stream);
}

size_t dfgnn_graph_bytes(const dfgnn_graph *graph) {
  return dfgnn__is_graph(graph) ? graph->owned_bytes + graph->view_bytes : 0;
}
