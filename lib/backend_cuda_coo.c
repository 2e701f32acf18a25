/* backend_cuda_coo.c - matrices of edge lists, made on the device */
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "lib/backend_cuda_coo.h"
#include "lib/coo.h"
#include "lib/signature.h"

typedef dfgnn_edge_list edge_list;

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

static dfgnn_status take(const edge_list *l, void **memory, size_t bytes) {
  return dfgnn__cuda_take_on(l->device, memory, bytes, l->queue.stream);
}

static void drop(const edge_list *l, void *memory) {
  dfgnn__cuda_retire(l->device, memory, l->queue.stream);
}

/* ---- launches ------------------------------------------------------------ */

static dfgnn_status enqueue_start(const dfgnn_queue *queue,
                                  const edge_list *l) {
  if (l->analyzed)
    return dfgnn__cuda_analyze_start(queue, l->found);
  return l->found ? dfgnn__fill(queue, l->found, 0, sizeof(dfgnn_edge_counts))
                  : DFGNN_OK;
}

static dfgnn_status enqueue_read(const dfgnn_queue *queue, const edge_list *l,
                                 int32_t *src, int32_t *dst) {
  const dfgnn_graph_counts *counts = l->found; /* `list` is their first field */
  const dfgnn_read_edges read = {
      .src = src,
      .dst = dst,
      .dst_from = l->dst,
      .src_from = l->src,
      .edges = l->coo->edges,
      .destinations = l->coo->destinations,
      .sources = l->coo->sources,
      .loops = l->loops,
      .counts = counts ? (dfgnn_edge_counts *)&counts->list : NULL};
  return dfgnn__cuda_read_edges(queue, &read, l->wide);
}

static dfgnn_status enqueue_analysis(const dfgnn_queue *queue,
                                     const edge_list *l,
                                     const dfgnn_matrix *matrix) {
  return l->analyzed
             ? dfgnn__cuda_analyze(queue, matrix, l->graphs, l->coo->graph_ptr,
                                   l->device->units, l->found)
             : DFGNN_OK;
}

/* Takes the list as sorted. */
static dfgnn_status enqueue_sorted(const dfgnn_queue *queue, const edge_list *l,
                                   const dfgnn_sorted_edges *sorted) {
  const dfgnn_coo *coo = l->coo;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(enqueue_start(queue, l));
  DFGNN_GO(enqueue_read(queue, l, sorted->indices, NULL));
  DFGNN_GO(dfgnn__cuda_list_offsets(queue, sorted->offsets, l->dst, l->wide,
                                    coo->edges, coo->destinations));
  status = enqueue_analysis(queue, l, &sorted->matrix);
out:
  return status;
}

static dfgnn_status enqueue_sort(const dfgnn_queue *queue, const edge_list *l,
                                 const dfgnn_sorted_edges *sorted,
                                 void *memory) {
  const int64_t keys = l->coo->edges + l->loops;
  const size_t part = aligned((size_t)keys * sizeof(int32_t));
  char *base = memory;
  int32_t *dst = memory, *src = (int32_t *)(base ? base + part : NULL);
  void *rest = base ? base + 2 * part : NULL;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(enqueue_start(queue, l));
  DFGNN_GO(enqueue_read(queue, l, src, dst));
  DFGNN_GO(dfgnn__cuda_sort_edges(queue, sorted->offsets, sorted->indices,
                                  sorted->order, dst, src, keys,
                                  l->coo->destinations, rest));
  status = enqueue_analysis(queue, l, &sorted->matrix);
out:
  return status;
}

static dfgnn_status enqueue_both(const dfgnn_queue *queue, const void *data) {
  edge_list l = *(const edge_list *)data;
  const dfgnn_sorted_edges nowhere = {
      .matrix = {.destinations = l.coo->destinations,
                 .sources = l.coo->sources,
                 .edges = l.coo->edges,
                 .offsets64 = l.coo->edges > INT32_MAX}};
  l.analyzed = 1;
  dfgnn_status status = enqueue_sorted(queue, &l, &nowhere);
  return status ? status : enqueue_sort(queue, &l, &nowhere, NULL);
}

/* ---- results ------------------------------------------------------------- */

static dfgnn_status take_as_sorted(edge_list *l, dfgnn_sorted_edges *sorted) {
  dfgnn_status status = enqueue_sorted(&l->queue, l, sorted);
  return status ? status : dfgnn__cuda_list_found(l);
}

static dfgnn_status sort(edge_list *l, dfgnn_sorted_edges *sorted) {
  const int64_t keys = l->coo->edges + l->loops;
  const size_t edges = (size_t)keys;
  void *memory = NULL;
  dfgnn_status status =
      take(l, &sorted->order, edges * (sorted->matrix.offsets64 ? 8 : 4));
  if (!status)
    status = take(l, &memory,
                  2 * aligned(edges * sizeof(int32_t)) +
                      dfgnn__cuda_sort_edges_bytes(keys, l->coo->destinations));
  if (!status)
    status = enqueue_sort(&l->queue, l, sorted, memory);
  if (!status)
    status = dfgnn__cuda_list_found(l);
  sorted->matrix.edges = keys - (int64_t)l->counts.list.left_out;
  if (!status && l->found && !l->loops && !l->counts.list.was_unsorted) {
    drop(l, sorted->order);
    sorted->order = NULL;
  }
  drop(l, memory);
  return status;
}

/* Takes a list that is said to be sorted.  Nobody waits: errors come back with
 * the signature. */
static dfgnn_status believe(edge_list *l, dfgnn_sorted_edges *sorted) {
  dfgnn_status status = enqueue_sorted(&l->queue, l, sorted);
  if (status || !l->found)
    return status;
  status = dfgnn__cuda_follow(l->device, l->queue.stream);
  if (!status)
    status = dfgnn__cuda_defer(&sorted->pending, &sorted->matrix, l->found,
                               l->graphs, l->coo->graph_ptr);
  if (!status)
    l->found = NULL;
  return status;
}

/* Lists of a data loader are alike: the next is taken to be sorted, or not, as
 * the last was, and checked while the work for that is under way. */
static dfgnn_status guess(edge_list *l, dfgnn_sorted_edges *sorted) {
  dfgnn_device *device = l->device;
  dfgnn_status status = DFGNN_OK;
  int unsorted = l->loops || !l->found || atomic_load(&device->unsorted);
  if (!unsorted) {
    status = take_as_sorted(l, sorted);
    unsorted = !status && l->counts.list.unsorted;
  }
  if (!status && unsorted) {
    status = sort(l, sorted);
    unsorted = sorted->order != NULL;
  }
  if (!status && l->found && !l->loops)
    atomic_store(&device->unsorted, unsorted);
  if (status || !l->analyzed)
    return status;
  sorted->known = 1;
  return dfgnn__cuda_conclude(&sorted->matrix, &sorted->signature, &l->counts,
                              l->graphs, l->coo->graph_ptr);
}

/* ---- memory -------------------------------------------------------------- */

static dfgnn_status bring(const edge_list *l, void **copy, const void **array,
                          size_t bytes) {
  DFGNN_TRY(take(l, copy, bytes));
  dfgnn_status status = dfgnn__copy(&l->queue, *copy, *array, bytes);
  if (!status)
    *array = *copy;
  return status;
}

static dfgnn_status take_arrays(edge_list *l, dfgnn_sorted_edges *sorted) {
  const dfgnn_coo *coo = l->coo;
  const size_t width = sorted->matrix.offsets64 ? 8 : 4;
  dfgnn_status status =
      take(l, &sorted->offsets, ((size_t)coo->destinations + 1) * width);
  if (!status)
    status = take(l, &sorted->indices,
                  (size_t)(coo->edges + l->loops) * sizeof(int32_t));
  if (!status && l->analyzed)
    status = take(l, &l->found,
                  dfgnn__cuda_analyze_bytes(&sorted->matrix, l->graphs));
  else if (!status && (!coo->trusted || l->loops))
    status = take(l, &l->found, sizeof(dfgnn_edge_counts));
  sorted->matrix.offsets = sorted->offsets;
  sorted->matrix.indices = sorted->indices;
  return status;
}

/* 1 if the graph is analyzed at once: it is large, or its checks are deferred
 * to the analysis.  Where loops are removed the analysis would have to wait for
 * the number of edges that are left. */
static int is_analyzed(const edge_list *l) {
  const dfgnn_coo *coo = l->coo;
  if (coo->trusted || l->loops)
    return 0;
  return coo->sorted || coo->edges > DFGNN_FEW_EDGES || l->graphs > 0;
}

dfgnn_status dfgnn__cuda_sort_edge_list(dfgnn_device *device,
                                        dfgnn_sorted_edges *sorted,
                                        const dfgnn_coo *coo, int deferred,
                                        void *stream) {
  edge_list l = {.device = device,
                 .coo = coo,
                 .queue = {.engine = device->engine, .stream = stream},
                 .dst = coo->destination,
                 .src = coo->source,
                 .wide = coo->index_type == DFGNN_INDEX_I64,
                 .deferred = deferred,
                 .loops = dfgnn__coo_loops(coo),
                 .graphs = coo->graph_ptr ? coo->graphs : 0};
  const size_t given = (size_t)coo->edges * (l.wide ? 8 : 4);
  void *copies[2] = {NULL, NULL};
  l.analyzed = is_analyzed(&l);
  memset(sorted, 0, sizeof *sorted);
  sorted->matrix =
      (dfgnn_matrix){.destinations = coo->destinations,
                     .sources = coo->sources,
                     .edges = coo->edges,
                     .offsets64 = coo->edges + l.loops > INT32_MAX};
  DFGNN_TRY(dfgnn__check_graph_ptr(&sorted->matrix, l.graphs, coo->graph_ptr));
  int entered = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_prepare(
      device, l.wide ? DFGNN_PREPARED_EDGES64 : DFGNN_PREPARED_EDGES,
      enqueue_both, &l);
  if (!status && !coo->on_device) {
    status = bring(&l, &copies[0], &l.dst, given);
    if (!status)
      status = bring(&l, &copies[1], &l.src, given);
  }
  const int both = !status && dfgnn__cuda_goes_both_ways(&l);
  if (both)
    status = dfgnn__cuda_sort_both_ways(&l, sorted);
  if (!status && !both)
    status = take_arrays(&l, sorted);
  if (!status && !both)
    status = coo->sorted && !l.loops && !l.graphs ? believe(&l, sorted)
                                                  : guess(&l, sorted);
  if (!status && !sorted->known)
    sorted->matrix.max_degree = sorted->matrix.edges;
  if (!both)
    drop(&l, l.found);
  drop(&l, copies[0]);
  drop(&l, copies[1]);
  if (status && !both) {
    drop(&l, sorted->offsets);
    drop(&l, sorted->indices);
    drop(&l, sorted->order);
  }
  dfgnn__cuda_leave(entered);
  return status;
}
