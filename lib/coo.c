/* coo.c - graphs of edge lists */
#include "lib/coo.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/graph.h"
#include "lib/handle.h"

static int64_t node_at(const dfgnn_coo *coo, const void *array, int64_t e) {
  return coo->index_type == DFGNN_INDEX_I64 ? ((const int64_t *)array)[e]
                                            : ((const int32_t *)array)[e];
}

/* ---- on the host --------------------------------------------------------- */

static dfgnn_status check_edges(const dfgnn_coo *coo, int *unsorted) {
  int64_t previous = 0;
  *unsorted = 0;
  for (int64_t e = 0; e < coo->edges; e++) {
    int64_t i = node_at(coo, coo->dst, e), j = node_at(coo, coo->src, e);
    int dst = i < 0 || i >= coo->destinations;
    if (dst || j < 0 || j >= coo->sources)
      return dfgnn__fail(
          DFGNN_ERROR_INVALID,
          "%s[%lld] = %lld is out of range, expected 0..%lld",
          dst ? "dst" : "src", (long long)e, (long long)(dst ? i : j),
          (long long)(dst ? coo->destinations : coo->sources) - 1);
    *unsorted |= i < previous;
    previous = i;
  }
  return DFGNN_OK;
}

static void set_wide(void *array, int wide, int64_t k, int64_t x) {
  if (wide)
    ((int64_t *)array)[k] = x;
  else
    ((int32_t *)array)[k] = (int32_t)x;
}

dfgnn_status dfgnn__sort_edges(dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo) {
  int wide = coo->edges > INT32_MAX, unsorted;
  size_t width = wide ? sizeof(int64_t) : sizeof(int32_t);
  size_t rows = (size_t)coo->destinations + 1, edges = (size_t)coo->edges;
  int64_t *next = NULL;
  memset(sorted, 0, sizeof *sorted);
  dfgnn_status status = check_edges(coo, &unsorted);
  if (status)
    return status;
  next = calloc(rows + 1, sizeof *next);
  sorted->offsets = malloc(rows * width);
  sorted->indices = malloc(edges * sizeof(int32_t) + 1);
  if (unsorted)
    sorted->order = malloc(edges * width);
  if (!next || !sorted->offsets || !sorted->indices ||
      (unsorted && !sorted->order)) {
    free(sorted->offsets);
    free(sorted->indices);
    free(sorted->order);
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for %lld edges",
                         (long long)coo->edges);
    goto out;
  }
  for (int64_t e = 0; e < coo->edges; e++)
    next[node_at(coo, coo->dst, e) + 1]++;
  for (size_t i = 0; i < rows; i++) {
    next[i + 1] += next[i];
    set_wide(sorted->offsets, wide, (int64_t)i, next[i]);
  }
  for (int64_t e = 0; e < coo->edges; e++) {
    int64_t k = next[node_at(coo, coo->dst, e)]++;
    ((int32_t *)sorted->indices)[k] = (int32_t)node_at(coo, coo->src, e);
    if (unsorted)
      set_wide(sorted->order, wide, k, e);
  }
out:
  free(next);
  return status;
}

/* ---- graphs -------------------------------------------------------------- */

static dfgnn_status check_coo(const dfgnn_coo *coo) {
  if (!coo)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "coo is NULL");
  if (coo->struct_size != sizeof *coo)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "coo.struct_size is %zu, expected %zu: use "
                       "DFGNN_COO_INIT",
                       coo->struct_size, sizeof *coo);
  const int64_t extents[] = {coo->destinations, coo->sources, coo->edges};
  static const char *const names[] = {"destinations", "sources", "edges"};
  for (int i = 0; i < 3; i++)
    if (extents[i] < 0 || (i < 2 && extents[i] > INT32_MAX))
      return dfgnn__fail(DFGNN_ERROR_INVALID, "coo.%s is %lld, expected 0..%s",
                         names[i], (long long)extents[i],
                         i < 2 ? "2147483647" : "2^63 - 1");
  if (coo->edges && (!coo->dst || !coo->src))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "coo.%s is NULL, but coo.edges is %lld",
                       coo->dst ? "src" : "dst", (long long)coo->edges);
  if ((unsigned)coo->index_type > DFGNN_INDEX_I64)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "coo.index_type is out of range");
  if (coo->graphs < 0 || (coo->graph_ptr && !coo->graphs))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "coo.graphs is %lld, expected > 0 with a graph_ptr",
                       (long long)coo->graphs);
  return DFGNN_OK;
}

dfgnn_status dfgnn_graph_create_coo(dfgnn_graph **graph, dfgnn_context *ctx,
                                    const dfgnn_coo *coo, void *stream) {
  dfgnn_sorted_edges sorted;
  dfgnn_matrix matrix;
  dfgnn_signature signature;
  if (!graph)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "graph is NULL");
  dfgnn_status status = dfgnn__check_context(ctx);
  if (!status)
    status = check_coo(coo);
  if (!status)
    status = ctx->backend->sort_edges(ctx->device, &sorted, &matrix, &signature,
                                      coo, stream);
  if (status)
    return status;
  int wide = coo->edges > INT32_MAX;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = coo->destinations;
  csr.sources = coo->sources;
  csr.edges = coo->edges;
  csr.offsets = sorted.offsets;
  csr.indices = sorted.indices;
  csr.offset_type = wide ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  csr.on_device = 1;
  csr.graphs = coo->graphs;
  csr.graph_ptr = coo->graph_ptr;
  csr.family = coo->family;
  csr.name = coo->name;
  status = dfgnn__graph_make(graph, ctx, &csr, &signature);
  if (status) {
    ctx->backend->release(ctx->device, sorted.offsets);
    ctx->backend->release(ctx->device, sorted.indices);
    if (sorted.order)
      ctx->backend->release(ctx->device, sorted.order);
    return status;
  }
  size_t width = wide ? sizeof(int64_t) : sizeof(int32_t);
  (*graph)->owned_offsets = sorted.offsets;
  (*graph)->owned_indices = sorted.indices;
  (*graph)->edge_order = sorted.order;
  (*graph)->owned_bytes += ((size_t)coo->destinations + 1) * width +
                           (size_t)coo->edges * sizeof(int32_t) +
                           (sorted.order ? (size_t)coo->edges * width : 0);
  return DFGNN_OK;
}

const void *dfgnn_graph_edge_order(const dfgnn_graph *graph,
                                   dfgnn_index_type *type) {
  if (!dfgnn__is_graph(graph))
    graph = NULL;
  if (type)
    *type = graph && graph->matrix.edges > INT32_MAX ? DFGNN_INDEX_I64
                                                     : DFGNN_INDEX_I32;
  return graph ? graph->edge_order : NULL;
}

dfgnn_status dfgnn_graph_csr(dfgnn_csr *csr, const dfgnn_graph *graph) {
  dfgnn_status status = dfgnn__check_graph(graph);
  if (status)
    return status;
  if (!csr || csr->struct_size != sizeof *csr)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr is NULL, or csr.struct_size is wrong: use "
                       "DFGNN_CSR_INIT");
  *csr = (dfgnn_csr){.struct_size = sizeof *csr,
                     .destinations = graph->matrix.destinations,
                     .sources = graph->matrix.sources,
                     .edges = graph->matrix.edges,
                     .offsets = graph->matrix.offsets,
                     .indices = graph->matrix.indices,
                     .offset_type = graph->matrix.offsets64 ? DFGNN_INDEX_I64
                                                            : DFGNN_INDEX_I32,
                     .on_device = 1,
                     .family = *graph->family ? graph->family : NULL,
                     .name = *graph->name ? graph->name : NULL};
  return DFGNN_OK;
}
