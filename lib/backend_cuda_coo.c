/* backend_cuda_coo.c - matrices of edge lists, made on the device */
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "lib/backend_cuda.h"

typedef struct edge_list {
  dfgnn_device *device;
  const dfgnn_coo *coo;
  const void *dst, *src; /* in device memory */
  int wide;
  int64_t graphs;
  void *analysis; /* workspace */
  dfgnn_graph_counts counts;
} edge_list;

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

static dfgnn_status refuse_edge(const edge_list *l, const char *name,
                                const void *array, uint64_t edge,
                                int64_t nodes) {
  const char *at = (const char *)array + edge * (l->wide ? 8 : 4);
  int64_t number = 0;
  int32_t narrow = 0;
  dfgnn_status status =
      l->wide ? dfgnn__read(&l->device->queue, &number, at, sizeof number)
              : dfgnn__read(&l->device->queue, &narrow, at, sizeof narrow);
  if (status)
    return status;
  return dfgnn__fail(
      DFGNN_ERROR_INVALID, "%s[%llu] = %lld is out of range, expected 0..%lld",
      name, (unsigned long long)edge, (long long)(l->wide ? number : narrow),
      (long long)nodes - 1);
}

/* What is launched for a list taken as sorted, and for one that is not; ends in
 * the analysis. */
static dfgnn_status enqueue_sorted(const dfgnn_queue *queue, const edge_list *l,
                                   const dfgnn_sorted_edges *sorted,
                                   const dfgnn_matrix *matrix) {
  const dfgnn_coo *coo = l->coo;
  dfgnn_graph_counts *counts = l->analysis;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__cuda_analyze_start(queue, l->analysis));
  DFGNN_GO(dfgnn__cuda_read_edges(queue, sorted->indices, NULL, l->dst, l->src,
                                  l->wide, coo->edges, coo->destinations,
                                  coo->sources, counts ? &counts->list : NULL));
  DFGNN_GO(dfgnn__cuda_list_offsets(queue, sorted->offsets, l->dst, l->wide,
                                    coo->edges, coo->destinations));
  status = dfgnn__cuda_analyze(queue, matrix, l->graphs, coo->graph_ptr,
                               l->device->units, l->analysis);
out:
  return status;
}

static dfgnn_status enqueue_sort(const dfgnn_queue *queue, const edge_list *l,
                                 const dfgnn_sorted_edges *sorted,
                                 const dfgnn_matrix *matrix, void *memory) {
  const dfgnn_coo *coo = l->coo;
  const size_t part = aligned((size_t)coo->edges * sizeof(int32_t));
  dfgnn_graph_counts *counts = l->analysis;
  char *base = memory;
  int32_t *dst = memory, *src = (int32_t *)(base ? base + part : NULL);
  void *rest = base ? base + 2 * part : NULL;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__cuda_analyze_start(queue, l->analysis));
  DFGNN_GO(dfgnn__cuda_read_edges(queue, src, dst, l->dst, l->src, l->wide,
                                  coo->edges, coo->destinations, coo->sources,
                                  counts ? &counts->list : NULL));
  DFGNN_GO(dfgnn__cuda_sort_edges(queue, sorted->offsets, sorted->indices,
                                  sorted->order, dst, src, coo->edges,
                                  coo->destinations, rest));
  status = dfgnn__cuda_analyze(queue, matrix, l->graphs, coo->graph_ptr,
                               l->device->units, l->analysis);
out:
  return status;
}

typedef struct dry_list {
  const edge_list *list;
  const dfgnn_matrix *matrix;
} dry_list;

static dfgnn_status enqueue_both(const dfgnn_queue *queue, const void *data) {
  const dry_list *d = data;
  const dfgnn_sorted_edges nowhere = {0};
  dfgnn_status status = enqueue_sorted(queue, d->list, &nowhere, d->matrix);
  return status ? status
                : enqueue_sort(queue, d->list, &nowhere, d->matrix, NULL);
}

/* Waits for what was found since analyze_start. */
static dfgnn_status find_out(edge_list *l) {
  const dfgnn_edge_counts *found = &l->counts.list;
  dfgnn_status status =
      dfgnn__cuda_answer(l->device, &l->counts, l->analysis, sizeof l->counts);
  if (!status && found->bad_dst)
    status =
        refuse_edge(l, "dst", l->dst, ~found->bad_dst, l->coo->destinations);
  else if (!status && found->bad_src)
    status = refuse_edge(l, "src", l->src, ~found->bad_src, l->coo->sources);
  return status;
}

static dfgnn_status take_as_sorted(edge_list *l, dfgnn_sorted_edges *sorted,
                                   const dfgnn_matrix *matrix) {
  dfgnn_status status = enqueue_sorted(&l->device->queue, l, sorted, matrix);
  return status ? status : find_out(l);
}

static dfgnn_status sort(edge_list *l, dfgnn_sorted_edges *sorted,
                         const dfgnn_matrix *matrix) {
  const dfgnn_coo *coo = l->coo;
  const size_t edges = (size_t)coo->edges;
  void *memory = NULL;
  dfgnn_status status = dfgnn__cuda_take(l->device, &sorted->order,
                                         edges * (matrix->offsets64 ? 8 : 4));
  if (!status)
    status = dfgnn__cuda_take(
        l->device, &memory,
        2 * aligned(edges * sizeof(int32_t)) +
            dfgnn__cuda_sort_edges_bytes(coo->edges, coo->destinations));
  if (!status)
    status = enqueue_sort(&l->device->queue, l, sorted, matrix, memory);
  if (!status)
    status = find_out(l);
  if (!status && !l->counts.list.was_unsorted) {
    dfgnn__cuda_drop(l->device, sorted->order);
    sorted->order = NULL;
  }
  dfgnn__cuda_drop(l->device, memory);
  return status;
}

static dfgnn_status bring(dfgnn_device *device, void **copy, const void **array,
                          size_t bytes) {
  dfgnn_status status = dfgnn__cuda_take(device, copy, bytes);
  if (status)
    return status;
  status = dfgnn__copy(&device->queue, *copy, *array, bytes);
  if (!status)
    *array = *copy;
  return status;
}

/* Lists of a data loader are alike: the next is taken to be sorted, or not, as
 * the last was, and looked at while the work for that is under way. */
dfgnn_status dfgnn__cuda_sort_edge_list(dfgnn_device *device,
                                        dfgnn_sorted_edges *sorted,
                                        dfgnn_matrix *matrix,
                                        dfgnn_signature *signature,
                                        const dfgnn_coo *coo, void *stream) {
  edge_list l = {.device = device,
                 .coo = coo,
                 .dst = coo->dst,
                 .src = coo->src,
                 .wide = coo->index_type == DFGNN_INDEX_I64,
                 .graphs = coo->graph_ptr ? coo->graphs : 0};
  const size_t given = (size_t)coo->edges * (l.wide ? 8 : 4);
  void *copies[2] = {NULL, NULL};
  memset(sorted, 0, sizeof *sorted);
  *matrix = (dfgnn_matrix){.destinations = coo->destinations,
                           .sources = coo->sources,
                           .edges = coo->edges,
                           .offsets64 = coo->edges > INT32_MAX};
  dfgnn_status status =
      dfgnn__cuda_check_graph_ptr(matrix, l.graphs, coo->graph_ptr);
  if (status)
    return status;
  int entered = dfgnn__cuda_enter(device);
  status = dfgnn__cuda_prepare(
      device, l.wide ? DFGNN_PREPARED_EDGES64 : DFGNN_PREPARED_EDGES,
      enqueue_both, &(dry_list){.list = &l, .matrix = matrix});
  if (!status)
    status = dfgnn__cuda_follow(device, stream);
  if (!status && !coo->on_device) {
    status = bring(device, &copies[0], &l.dst, given);
    if (!status)
      status = bring(device, &copies[1], &l.src, given);
  }
  if (!status)
    status = dfgnn__cuda_take(device, &sorted->offsets,
                              ((size_t)coo->destinations + 1) *
                                  (matrix->offsets64 ? 8 : 4));
  if (!status)
    status = dfgnn__cuda_take(device, &sorted->indices,
                              (size_t)coo->edges * sizeof(int32_t));
  if (!status)
    status = dfgnn__cuda_take(device, &l.analysis,
                              dfgnn__cuda_analyze_bytes(matrix, l.graphs));
  if (status)
    goto out;
  matrix->offsets = sorted->offsets;
  matrix->indices = sorted->indices;
  int unsorted = atomic_load(&device->unsorted);
  if (!unsorted) {
    status = take_as_sorted(&l, sorted, matrix);
    unsorted = !status && l.counts.list.unsorted;
  }
  if (!status && unsorted) {
    status = sort(&l, sorted, matrix);
    unsorted = sorted->order != NULL;
  }
  if (!status)
    status = dfgnn__cuda_conclude(matrix, signature, &l.counts, l.graphs,
                                  coo->graph_ptr);
  if (!status)
    atomic_store(&device->unsorted, unsorted);
out:
  dfgnn__cuda_drop(device, l.analysis);
  dfgnn__cuda_drop(device, copies[0]);
  dfgnn__cuda_drop(device, copies[1]);
  if (status) {
    dfgnn__cuda_drop(device, sorted->offsets);
    dfgnn__cuda_drop(device, sorted->indices);
    dfgnn__cuda_drop(device, sorted->order);
  }
  dfgnn__cuda_leave(entered);
  return status;
}
