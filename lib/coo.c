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

static dfgnn_status refuse(const dfgnn_coo *coo, int64_t e, int dst) {
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s[%lld] = %lld is out of range, expected 0..%lld",
                     dst ? "dst" : "src", (long long)e,
                     (long long)node_at(coo, dst ? coo->dst : coo->src, e),
                     (long long)(dst ? coo->destinations : coo->sources) - 1);
}

static dfgnn_status check_edges(const dfgnn_coo *coo, int *unsorted) {
  int64_t previous = 0;
  *unsorted = 0;
  for (int64_t e = 0; e < coo->edges; e++) {
    int64_t i = node_at(coo, coo->dst, e), j = node_at(coo, coo->src, e);
    if (i < 0 || i >= coo->destinations)
      return refuse(coo, e, 1);
    if (j < 0 || j >= coo->sources)
      return refuse(coo, e, 0);
    if (i < previous && coo->sorted)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "dst[%lld] = %lld comes after %lld, but the list was "
                         "said to be sorted",
                         (long long)e, (long long)i, (long long)previous);
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

static int left_out(const dfgnn_coo *coo, int64_t e) {
  return coo->self_loops &&
         node_at(coo, coo->dst, e) == node_at(coo, coo->src, e);
}

/* next[i + 1] becomes the end of row i; returns the largest degree. */
static int64_t count_rows(int64_t *next, const dfgnn_coo *coo, int64_t loops) {
  int64_t most = 0;
  for (int64_t e = 0; e < coo->edges; e++)
    if (!left_out(coo, e))
      next[node_at(coo, coo->dst, e) + 1]++;
  for (int64_t i = 0; i < coo->destinations; i++) {
    next[i + 1] += i < loops;
    most = next[i + 1] > most ? next[i + 1] : most;
    next[i + 1] += next[i];
  }
  return most;
}

static void narrow_sources(int32_t *to, const dfgnn_coo *coo) {
  const int64_t *from = coo->src;
  if (coo->index_type == DFGNN_INDEX_I32)
    memmove(to, coo->edges ? coo->src : to, (size_t)coo->edges * sizeof *to);
  else
    for (int64_t e = 0; e < coo->edges; e++)
      to[e] = (int32_t)from[e];
}

int64_t dfgnn__coo_loops(const dfgnn_coo *coo) {
  const int64_t nodes =
      coo->destinations < coo->sources ? coo->destinations : coo->sources;
  return coo->self_loops ? nodes : 0;
}

dfgnn_status dfgnn__sort_edges(dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo) {
  const int64_t loops = dfgnn__coo_loops(coo), most = coo->edges + loops;
  int wide = most > INT32_MAX, unsorted = !coo->sorted;
  size_t width = wide ? sizeof(int64_t) : sizeof(int32_t);
  size_t rows = (size_t)coo->destinations + 1, edges = (size_t)most;
  int64_t *next = NULL;
  dfgnn_status status = DFGNN_OK;
  memset(sorted, 0, sizeof *sorted);
  if (!coo->trusted)
    status = check_edges(coo, &unsorted);
  if (status)
    return status;
  unsorted |= coo->self_loops;
  next = calloc(rows + 1, sizeof *next);
  sorted->offsets = malloc(rows * width);
  sorted->indices = malloc(edges * sizeof(int32_t) + 1);
  if (unsorted)
    sorted->order = malloc(edges * width + 1);
  if (!next || !sorted->offsets || !sorted->indices ||
      (unsorted && !sorted->order)) {
    free(sorted->offsets);
    free(sorted->indices);
    free(sorted->order);
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for %lld edges",
                         (long long)most);
    goto out;
  }
  sorted->matrix = (dfgnn_matrix){.destinations = coo->destinations,
                                  .sources = coo->sources,
                                  .offsets64 = wide,
                                  .offsets = sorted->offsets,
                                  .indices = sorted->indices,
                                  .max_degree = count_rows(next, coo, loops)};
  sorted->matrix.edges = next[coo->destinations];
  for (size_t i = 0; i < rows; i++)
    set_wide(sorted->offsets, wide, (int64_t)i, next[i]);
  if (!unsorted)
    narrow_sources(sorted->indices, coo);
  for (int64_t e = 0; unsorted && e < most; e++) {
    const int64_t loop = e - coo->edges;
    if (loop < 0 && left_out(coo, e))
      continue;
    int64_t k = next[loop < 0 ? node_at(coo, coo->dst, e) : loop]++;
    ((int32_t *)sorted->indices)[k] =
        (int32_t)(loop < 0 ? node_at(coo, coo->src, e) : loop);
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
  dfgnn_csr csr = DFGNN_CSR_INIT;
  if (!graph)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "graph is NULL");
  dfgnn_status status = dfgnn__check_context(ctx);
  if (!status)
    status = check_coo(coo);
  if (!status)
    status = ctx->backend->sort_edges(ctx->device, &sorted, coo, stream);
  if (status)
    return status;
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
  status = dfgnn__graph_make(graph, ctx, &csr, &sorted);
  if (status) {
    ctx->backend->release(ctx->device, sorted.offsets);
    ctx->backend->release(ctx->device, sorted.indices);
    if (sorted.order)
      ctx->backend->release(ctx->device, sorted.order);
    return status;
  }
  const size_t width = m->offsets64 ? sizeof(int64_t) : sizeof(int32_t);
  dfgnn_graph *g = *graph;
  g->owned_offsets = sorted.offsets;
  g->owned_indices = sorted.indices;
  g->edge_order = sorted.order;
  g->owned_bytes += ((size_t)coo->destinations + 1) * width +
                    (size_t)m->edges * sizeof(int32_t) +
                    (sorted.order ? (size_t)m->edges * width : 0);
  dfgnn__graph_mark(g, stream);
  return DFGNN_OK;
}

const void *dfgnn_graph_edge_order(const dfgnn_graph *graph,
                                   dfgnn_index_type *type) {
  if (!dfgnn__is_graph(graph))
    graph = NULL;
  if (type)
    *type =
        graph && graph->matrix.offsets64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  if (graph && dfgnn__graph_settle((dfgnn_graph *)graph))
    return NULL;
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
  dfgnn_graph *g = (dfgnn_graph *)graph;
  status = g->checked ? DFGNN_OK : dfgnn__graph_know(g);
  if (!status)
    status = dfgnn__graph_settle(g);
  if (status)
    return status;
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
