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
  dfgnn_status status = DFGNN_OK;
  if (l->wide)
    DFGNN_CUDA_GO(cudaMemcpy(&number, at, sizeof number, cudaMemcpyDefault));
  else
    DFGNN_CUDA_GO(cudaMemcpy(&narrow, at, sizeof narrow, cudaMemcpyDefault));
  return dfgnn__fail(
      DFGNN_ERROR_INVALID, "%s[%llu] = %lld is out of range, expected 0..%lld",
      name, (unsigned long long)edge, (long long)(l->wide ? number : narrow),
      (long long)nodes - 1);
out:
  return status;
}

/* Analyzes the matrix and waits for what was found since analyze_start. */
static dfgnn_status find_out(edge_list *l, const dfgnn_matrix *matrix) {
  dfgnn_device *device = l->device;
  const dfgnn_edge_counts *found = &l->counts.list;
  dfgnn_status status = DFGNN_OK;
  DFGNN_CUDA_GO(dfgnn__cuda_analyze(matrix, l->graphs, l->coo->graph_ptr,
                                    device->units, l->analysis,
                                    device->stream));
  status =
      dfgnn__cuda_answer(device, &l->counts, l->analysis, sizeof l->counts);
  if (!status && found->bad_dst)
    status =
        refuse_edge(l, "dst", l->dst, ~found->bad_dst, l->coo->destinations);
  else if (!status && found->bad_src)
    status = refuse_edge(l, "src", l->src, ~found->bad_src, l->coo->sources);
out:
  return status;
}

static dfgnn_status take_as_sorted(edge_list *l, dfgnn_sorted_edges *sorted,
                                   const dfgnn_matrix *matrix) {
  const dfgnn_coo *coo = l->coo;
  cudaStream_t stream = l->device->stream;
  dfgnn_graph_counts *counts = l->analysis;
  dfgnn_status status = DFGNN_OK;
  DFGNN_CUDA_GO(dfgnn__cuda_analyze_start(l->analysis, stream));
  DFGNN_CUDA_GO(dfgnn__cuda_read_edges(
      sorted->indices, NULL, NULL, l->dst, l->src, l->wide, coo->edges,
      coo->destinations, coo->sources, &counts->list, stream));
  DFGNN_CUDA_GO(dfgnn__cuda_list_offsets(
      sorted->offsets, l->dst, l->wide, coo->edges, coo->destinations, stream));
  status = find_out(l, matrix);
out:
  return status;
}

static dfgnn_status sort(edge_list *l, dfgnn_sorted_edges *sorted,
                         const dfgnn_matrix *matrix) {
  const dfgnn_coo *coo = l->coo;
  const size_t width = matrix->offsets64 ? 8 : 4, edges = (size_t)coo->edges;
  const size_t narrow = aligned(edges * sizeof(int32_t));
  cudaStream_t stream = l->device->stream;
  dfgnn_graph_counts *counts = l->analysis;
  void *memory = NULL;
  dfgnn_status status =
      dfgnn__cuda_take(l->device, &sorted->order, edges * width);
  if (!status)
    status = dfgnn__cuda_take(
        l->device, &memory,
        2 * narrow + aligned(edges * width) +
            dfgnn__cuda_sort_edges_bytes(coo->edges, coo->destinations));
  if (status)
    goto out;
  char *dst = memory, *src = dst + narrow, *number = src + narrow;
  DFGNN_CUDA_GO(dfgnn__cuda_analyze_start(l->analysis, stream));
  DFGNN_CUDA_GO(dfgnn__cuda_read_edges(
      (int32_t *)src, (int32_t *)dst, number, l->dst, l->src, l->wide,
      coo->edges, coo->destinations, coo->sources, &counts->list, stream));
  DFGNN_CUDA_GO(dfgnn__cuda_sort_edges(
      sorted->offsets, sorted->indices, sorted->order, (int32_t *)dst,
      (int32_t *)src, number, coo->edges, coo->destinations,
      number + aligned(edges * width), stream));
  status = find_out(l, matrix);
  if (!status && !l->counts.list.was_unsorted) {
    dfgnn__cuda_drop(l->device, sorted->order);
    sorted->order = NULL;
  }
out:
  dfgnn__cuda_drop(l->device, memory);
  return status;
}

static dfgnn_status bring(dfgnn_device *device, void **copy, const void **array,
                          size_t bytes) {
  dfgnn_status status = dfgnn__cuda_take(device, copy, bytes);
  if (status)
    return status;
  DFGNN_CUDA_GO(cudaMemcpyAsync(*copy, *array, bytes, cudaMemcpyHostToDevice,
                                device->stream));
  *array = *copy;
out:
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
  int previous = dfgnn__cuda_enter(device);
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
  dfgnn__cuda_leave(previous);
  return status;
}
