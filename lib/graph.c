#include "lib/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/handle.h"
#include "lib/reorder.h"

typedef struct dfgnn_view_node {
  dfgnn_view view;
  struct dfgnn_view_node *next;
} dfgnn_view_node;

static dfgnn_status check_csr(const dfgnn_csr *csr) {
  if (!csr)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "csr is NULL");
  if (csr->struct_size != sizeof *csr)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.struct_size is %zu, expected %zu: use "
                       "DFGNN_CSR_INIT",
                       csr->struct_size, sizeof *csr);
  const int64_t extents[] = {csr->destinations, csr->sources, csr->edges};
  static const char *const names[] = {"destinations", "sources", "edges"};
  for (int i = 0; i < 3; i++)
    if (extents[i] < 0 || (i < 2 && extents[i] > INT32_MAX))
      return dfgnn__fail(DFGNN_ERROR_INVALID, "csr.%s is %lld, expected 0..%s",
                         names[i], (long long)extents[i],
                         i < 2 ? "2147483647" : "2^63 - 1");
  if (!csr->offsets)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "csr.offsets is NULL");
  if (!csr->indices && csr->edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.indices is NULL, but csr.edges is %lld",
                       (long long)csr->edges);
  if ((unsigned)csr->offset_type > DFGNN_INDEX_I64 ||
      (unsigned)csr->index_type > DFGNN_INDEX_I64)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.offset_type or csr.index_type is out of range");
  if (csr->offset_type == DFGNN_INDEX_I32 && csr->edges > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.edges is %lld, which needs 64-bit offsets",
                       (long long)csr->edges);
  if (csr->graphs < 0 || (csr->graph_ptr && !csr->graphs))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.graphs is %lld, expected > 0 with a graph_ptr",
                       (long long)csr->graphs);
  return DFGNN_OK;
}

/* Brings an array to the device unless the device can read it where it is. */
static dfgnn_status place(const void **placed, void **owned, dfgnn_graph *g,
                          const void *array, size_t bytes, int on_device) {
  const dfgnn_backend *backend = g->ctx->backend;
  if (on_device || !strcmp(backend->name, "cpu")) {
    *placed = array;
    return DFGNN_OK;
  }
  dfgnn_status status = backend->allocate(g->ctx->device, owned, bytes);
  if (!status)
    status = backend->copy(g->ctx->device, *owned, array, bytes);
  *placed = *owned;
  if (!status)
    g->owned_bytes += bytes;
  return status;
}

static dfgnn_status place_indices(dfgnn_graph *g, const dfgnn_csr *csr) {
  const dfgnn_backend *backend = g->ctx->backend;
  size_t edges = (size_t)csr->edges;
  const void *placed;
  if (csr->index_type == DFGNN_INDEX_I32) {
    dfgnn_status status = place(&placed, &g->owned_indices, g, csr->indices,
                                edges * sizeof(int32_t), csr->on_device);
    g->matrix.indices = placed;
    return status;
  }
  void *wide = NULL, *narrow = NULL;
  dfgnn_status status = place(&placed, &wide, g, csr->indices,
                              edges * sizeof(int64_t), csr->on_device);
  if (!status)
    status =
        backend->allocate(g->ctx->device, &narrow, edges * sizeof(int32_t));
  if (!status)
    status = backend->narrow(g->ctx->device, narrow, placed, csr->edges);
  if (wide) {
    backend->release(g->ctx->device, wide);
    g->owned_bytes -= edges * sizeof(int64_t);
  }
  g->owned_indices = narrow;
  g->matrix.indices = narrow;
  g->owned_bytes += edges * sizeof(int32_t);
  return status;
}

dfgnn_status dfgnn__graph_make(dfgnn_graph **graph, dfgnn_context *ctx,
                               const dfgnn_csr *csr,
                               const dfgnn_signature *signature) {
  dfgnn_status status = DFGNN_OK;
  dfgnn_graph *g = calloc(1, sizeof *g);
  if (!g)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  g->kind = DFGNN_HANDLE_GRAPH;
  pthread_mutex_init(&g->lock, NULL);
  pthread_rwlock_init(&g->plans_lock, NULL);
  g->ctx = ctx;
  dfgnn__context_hold(ctx);
  g->family = strdup(csr->family ? csr->family : "");
  g->name = strdup(csr->name ? csr->name : "");
  g->matrix.destinations = csr->destinations;
  g->matrix.sources = csr->sources;
  g->matrix.edges = csr->edges;
  g->matrix.offsets64 = csr->offset_type == DFGNN_INDEX_I64;
  size_t offset_size = g->matrix.offsets64 ? 8 : 4;
  if (!g->family || !g->name)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!status)
    status =
        place(&g->matrix.offsets, &g->owned_offsets, g, csr->offsets,
              ((size_t)csr->destinations + 1) * offset_size, csr->on_device);
  if (!status)
    status = place_indices(g, csr);
  if (!status && signature) {
    g->signature = *signature;
    g->matrix.max_degree = signature->max_degree;
  } else if (!status) {
    status = ctx->backend->analyze(ctx->device, &g->matrix, &g->signature,
                                   csr->graphs, csr->graph_ptr);
  }
  if (status) {
    dfgnn_graph_destroy(g);
    return status;
  }
  *graph = g;
  return DFGNN_OK;
}

dfgnn_status dfgnn_graph_create(dfgnn_graph **graph, dfgnn_context *ctx,
                                const dfgnn_csr *csr) {
  if (!graph)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "graph is NULL");
  dfgnn_status status = dfgnn__check_context(ctx);
  if (!status)
    status = check_csr(csr);
  return status ? status : dfgnn__graph_make(graph, ctx, csr, NULL);
}

/* Memory goes back in the order of a stream, or once its use is over. */
typedef struct leave {
  dfgnn_context *ctx;
  int ordered;
  void *stream;
} leave;

static void give_back(const leave *l, const void *memory) {
  dfgnn_context *ctx = l->ctx;
  if (memory && l->ordered && ctx->backend->retire)
    ctx->backend->retire(ctx->device, (void *)memory, l->stream);
  else if (memory)
    ctx->backend->release(ctx->device, (void *)memory);
}

static void destroy(dfgnn_graph *graph, int ordered, void *stream) {
  dfgnn_context *ctx = graph->ctx;
  const leave l = {ctx, ordered && !graph->reordered, stream};
  if (!l.ordered && atomic_load(&graph->elsewhere) && ctx->backend->settle)
    ctx->backend->settle(ctx->device);
  graph->kind = DFGNN_HANDLE_NONE;
  dfgnn__graph_forget_plans(graph);
  int left = dfgnn__graph_orphan_plans(graph);
  if (left)
    dfgnn__log(ctx, DFGNN_LOG_DEBUG,
               "graph %s destroyed before %d of its plans", graph->name, left);
  dfgnn__reordered_free(graph);
  for (dfgnn_view_node *node = graph->views, *next; node; node = next) {
    next = node->next;
    for (int k = 0; k < 4; k++)
      give_back(&l, node->view.array[k]);
    free(node);
  }
  give_back(&l, graph->owned_offsets);
  give_back(&l, graph->owned_indices);
  give_back(&l, graph->edge_order);
  pthread_rwlock_destroy(&graph->plans_lock);
  pthread_mutex_destroy(&graph->lock);
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

dfgnn_status dfgnn_graph_signature(dfgnn_signature *signature,
                                   const dfgnn_graph *graph) {
  dfgnn_status status = dfgnn__check_graph(graph);
  if (status)
    return status;
  if (!signature || signature->struct_size != sizeof *signature)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "signature is NULL, or "
                                            "signature.struct_size is wrong");
  *signature = graph->signature;
  return DFGNN_OK;
}

size_t dfgnn_graph_bytes(const dfgnn_graph *graph) {
  if (!dfgnn__is_graph(graph))
    return 0;
  size_t bytes = graph->owned_bytes + graph->view_bytes;
  if (graph->reordered)
    bytes +=
        graph->reordered->bytes + dfgnn_graph_bytes(graph->reordered->inner);
  return bytes;
}

static dfgnn_view *find_view(const dfgnn_graph *graph,
                             const dfgnn_view_request *request) {
  dfgnn_view_node *node = graph->views;
  while (node && (node->view.request.kind != request->kind ||
                  node->view.request.parameter != request->parameter ||
                  node->view.request.transposed != request->transposed))
    node = node->next;
  return node ? &node->view : NULL;
}

/* With the graph's lock held. */
static dfgnn_status get_view(const dfgnn_view **view, dfgnn_graph *graph,
                             const dfgnn_view_request *request) {
  static const dfgnn_view_request transpose = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  dfgnn_context *ctx = graph->ctx;
  dfgnn_matrix matrix = graph->matrix;
  dfgnn_status status = DFGNN_OK;
  if ((*view = find_view(graph, request)))
    return DFGNN_OK;
  if (request->transposed) {
    const dfgnn_view *columns;
    status = get_view(&columns, graph, &transpose);
    if (status)
      return status;
    matrix = dfgnn__transposed(&graph->matrix, columns);
  }
  dfgnn_view_node *node = calloc(1, sizeof *node);
  if (!node)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  node->view.request = *request;
  status = ctx->backend->build_view(ctx->device, &node->view, &matrix,
                                    &graph->signature);
  if (status) {
    free(node);
    return status;
  }
  node->next = graph->views;
  graph->views = node;
  graph->view_bytes += node->view.bytes;
  *view = &node->view;
  return DFGNN_OK;
}

dfgnn_status dfgnn__graph_view(const dfgnn_view **view, dfgnn_graph *graph,
                               const dfgnn_view_request *request) {
  pthread_mutex_lock(&graph->lock);
  dfgnn_status status = get_view(view, graph, request);
  pthread_mutex_unlock(&graph->lock);
  return status;
}
