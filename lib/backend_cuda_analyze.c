/* backend_cuda_analyze.c - signatures of matrices that are on the device, and
 * the errors found in them */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/device_graph.h"
#include "lib/backend_cuda.h"
#include "lib/base/error.h"
#include "lib/signature.h"

/* Reads a number that a message quotes; `to` stays as it is if the device does
 * not answer. */
static void peek(void *to, const void *from, size_t bytes) {
  (void)dfgnn__driver()->Memcpy(cu_address(to), cu_address(from), bytes);
}

static int64_t device_offset(const dfgnn_matrix *m, int64_t i) {
  int64_t wide = -1;
  int32_t small = -1;
  if (m->offsets64) {
    peek(&wide, (const int64_t *)m->offsets + i, sizeof wide);
    return wide;
  }
  peek(&small, (const int32_t *)m->offsets + i, sizeof small);
  return small;
}

static dfgnn_status bad_offset(const dfgnn_matrix *m, int64_t row) {
  long long begin = device_offset(m, row), end = device_offset(m, row + 1);
  if (row == 0 && begin != 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "offsets[0] is %lld, expected 0: row 0 is wrong", begin);
  if (end < begin)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "offsets fall at row %lld: %lld after %lld",
                       (long long)row, end, begin);
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "offsets reach %lld at row %lld, expected to end at "
                     "edges = %lld: row %lld is wrong",
                     end, (long long)row, (long long)m->edges, (long long)row);
}

static dfgnn_status bad_index(const dfgnn_matrix *m, uint64_t row,
                              uint64_t edge) {
  int32_t index = -1;
  peek(&index, m->indices + edge, sizeof index);
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "indices[%lld] = %d in row %lld is out of range, expected "
                     "0..%lld",
                     (long long)edge, index, (long long)row,
                     (long long)m->sources - 1);
}

static dfgnn_status bad_block(int64_t row, int64_t graphs,
                              const int64_t *graph_ptr) {
  int64_t g = 0;
  while (g + 1 < graphs && graph_ptr[g + 1] <= row)
    g++;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "an edge in row %lld leaves graph %lld, whose nodes are "
                     "%lld..%lld",
                     (long long)row, (long long)g, (long long)graph_ptr[g],
                     (long long)graph_ptr[g + 1] - 1);
}

static dfgnn_status check_counts(const dfgnn_matrix *m,
                                 const dfgnn_graph_counts *c, int64_t graphs,
                                 const int64_t *graph_ptr) {
  if (m->destinations == 0 && m->edges != 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%lld edges without rows, expected 0",
                       (long long)m->edges);
  if (c->bad_offset_row)
    return bad_offset(m, (int64_t)~c->bad_offset_row);
  if (c->bad_index_row)
    return bad_index(m, ~c->bad_index_row, ~c->bad_index_edge);
  if (c->bad_block_row)
    return bad_block((int64_t)~c->bad_block_row, graphs, graph_ptr);
  return DFGNN_OK;
}

static void fill_blocks(dfgnn_signature *s, const dfgnn_matrix *m,
                        const dfgnn_graph_counts *c, int64_t graphs,
                        const int64_t *ptr) {
  double squares = (double)m->destinations * (double)m->sources;
  s->graphs = 1;
  s->largest_graph = m->destinations;
  if (graphs > 0) {
    squares = 0;
    s->graphs = graphs;
    s->largest_graph = 0;
    for (int64_t g = 0; g < graphs; g++) {
      int64_t size = ptr[g + 1] - ptr[g];
      squares += (double)size * (double)size;
      s->largest_graph = size > s->largest_graph ? size : s->largest_graph;
    }
  } else if (c->blocks > 0) {
    s->graphs = (int64_t)c->blocks;
    s->largest_graph = (int64_t)c->largest_block;
    squares = (double)c->squared_blocks;
  }
  s->density = squares > 0 ? (double)m->edges / squares : 0;
}

static void fill_sources(dfgnn_signature *s, const dfgnn_matrix *m,
                         const dfgnn_graph_counts *c) {
  if (!m->edges) {
    s->isolated_sources = m->sources > 0;
    return;
  }
  s->max_source_degree = (int64_t)c->max_source_degree;
  s->p50_source_degree = (int64_t)c->source_percentile[0];
  s->p99_source_degree = (int64_t)c->source_percentile[1];
  s->isolated_sources = (double)c->isolated_sources / (double)m->sources;
  s->source_cv = dfgnn__variation(c->source_squares, m->edges, m->sources);
}

static void fill_signature(dfgnn_signature *s, const dfgnn_matrix *m,
                           const dfgnn_graph_counts *c) {
  double n = (double)m->destinations;
  memset(s, 0, sizeof *s);
  s->struct_size = sizeof *s;
  s->destinations = m->destinations;
  s->sources = m->sources;
  s->edges = m->edges;
  s->max_degree = (int64_t)c->max_degree;
  if (m->destinations > 0) {
    s->mean_degree = (double)m->edges / n;
    s->p50_degree = (int64_t)c->percentile[0];
    s->p90_degree = (int64_t)c->percentile[1];
    s->p99_degree = (int64_t)c->percentile[2];
    for (int b = 0; b < DFGNN_HISTOGRAM_BINS; b++)
      s->histogram[b] = (double)c->histogram[b] / n;
  }
  s->isolated = s->histogram[0];
  if (m->edges) {
    double variance =
        (double)c->sum_squares / n - s->mean_degree * s->mean_degree;
    s->degree_cv = sqrt(variance > 0 ? variance : 0) / s->mean_degree;
  }
  s->reuse =
      c->reuse_edges ? (double)c->reuse_distinct / (double)c->reuse_edges : 1;
  s->locality =
      c->local_samples ? (double)c->local_hits / (double)c->local_samples : 1;
  s->fingerprint = c->fingerprint;
  fill_sources(s, m, c);
}

dfgnn_status dfgnn__cuda_conclude(dfgnn_matrix *matrix,
                                  dfgnn_signature *signature,
                                  const dfgnn_graph_counts *counts,
                                  int64_t graphs, const int64_t *graph_ptr) {
  DFGNN_TRY(check_counts(matrix, counts, graphs, graph_ptr));
  fill_signature(signature, matrix, counts);
  fill_blocks(signature, matrix, counts, graphs, graph_ptr);
  matrix->max_degree = signature->max_degree;
  return DFGNN_OK;
}

typedef struct analysis {
  const dfgnn_matrix *matrix;
  int64_t graphs;
  const int64_t *graph_ptr;
  int units;
  void *workspace;
} analysis;

static dfgnn_status enqueue_analysis(const dfgnn_queue *queue,
                                     const void *data) {
  const analysis *a = data;
  DFGNN_TRY(dfgnn__cuda_analyze_start(queue, a->workspace));
  return dfgnn__cuda_analyze(queue, a->matrix, a->graphs, a->graph_ptr,
                             a->units, a->workspace);
}

dfgnn_status dfgnn__cuda_defer(dfgnn_deferred **deferred,
                               const dfgnn_matrix *matrix, void *workspace,
                               int64_t graphs, const int64_t *graph_ptr) {
  dfgnn_deferred *d = malloc(sizeof *d);
  if (!d)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  *d = (dfgnn_deferred){.matrix = *matrix,
                        .workspace = workspace,
                        .graphs = graphs,
                        .graph_ptr = graph_ptr};
  *deferred = d;
  return DFGNN_OK;
}

dfgnn_status dfgnn__cuda_signature_begin(dfgnn_device *device,
                                         dfgnn_deferred **deferred,
                                         const dfgnn_matrix *matrix,
                                         int64_t graphs,
                                         const int64_t *graph_ptr) {
  if (!graph_ptr || graphs < 0)
    graphs = 0;
  analysis a = {.matrix = matrix,
                .graphs = graphs,
                .graph_ptr = graph_ptr,
                .units = device->units};
  DFGNN_TRY(dfgnn__check_graph_ptr(matrix, graphs, graph_ptr));
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  DFGNN_GO(dfgnn__cuda_prepare(device,
                               matrix->offsets64 ? DFGNN_PREPARED_ANALYSIS64
                                                 : DFGNN_PREPARED_ANALYSIS,
                               enqueue_analysis, &a));
  DFGNN_GO(dfgnn__cuda_follow(device, NULL));
  DFGNN_GO(dfgnn__cuda_take(device, &a.workspace,
                            dfgnn__cuda_analyze_bytes(matrix, graphs)));
  DFGNN_GO(enqueue_analysis(&device->queue, &a));
  status = dfgnn__cuda_defer(deferred, matrix, a.workspace, graphs, graph_ptr);
out:
  if (status)
    dfgnn__cuda_drop(device, a.workspace);
  dfgnn__cuda_leave(entered);
  return status;
}

/* The message does not quote the wrong node, as the list was not kept. */
static dfgnn_status refuse_list(const dfgnn_matrix *m,
                                const dfgnn_edge_counts *found) {
  if (found->bad_dst || found->bad_src)
    return dfgnn__fail(
        DFGNN_ERROR_INVALID, "%s[%llu] is out of range, expected 0..%lld",
        found->bad_dst ? "dst" : "src",
        (unsigned long long)~(found->bad_dst ? found->bad_dst : found->bad_src),
        (long long)(found->bad_dst ? m->destinations : m->sources) - 1);
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "dst falls somewhere, but the list was said to be sorted");
}

dfgnn_status dfgnn__cuda_signature_end(dfgnn_device *device, dfgnn_deferred *d,
                                       dfgnn_matrix *matrix,
                                       dfgnn_signature *signature) {
  dfgnn_graph_counts counts;
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  if (!matrix)
    goto out;
  DFGNN_GO(dfgnn__cuda_answer(device, &counts, d->workspace, sizeof counts));
  const dfgnn_edge_counts *found = &counts.list;
  if (found->bad_dst || found->bad_src || found->unsorted)
    status = refuse_list(matrix, found);
  else
    status = dfgnn__cuda_conclude(matrix, signature, &counts, d->graphs,
                                  d->graph_ptr);
out:
  dfgnn__cuda_drop(device, d->workspace);
  free(d);
  dfgnn__cuda_leave(entered);
  return status;
}

dfgnn_status dfgnn__cuda_signature(dfgnn_device *device, dfgnn_matrix *matrix,
                                   dfgnn_signature *signature, int64_t graphs,
                                   const int64_t *graph_ptr) {
  dfgnn_deferred *deferred;
  DFGNN_TRY(dfgnn__cuda_signature_begin(device, &deferred, matrix, graphs,
                                        graph_ptr));
  return dfgnn__cuda_signature_end(device, deferred, matrix, signature);
}

dfgnn_status dfgnn__cuda_narrow_indices(dfgnn_device *device, int32_t *to,
                                        const int64_t *from, int64_t count) {
  uint64_t first = UINT64_MAX;
  void *bad = NULL;
  if (count == 0)
    return DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_follow(device, NULL);
  if (!status)
    status = dfgnn__cuda_take(device, &bad, sizeof first);
  if (status)
    goto out;
  DFGNN_GO(dfgnn__cuda_narrow(&device->queue, to, from, count, bad));
  status = dfgnn__cuda_answer(device, &first, bad, sizeof first);
  if (!status && first != UINT64_MAX) {
    long long index = 0;
    peek(&index, from + first, sizeof index);
    status = dfgnn__fail(DFGNN_ERROR_INVALID,
                         "indices[%llu] = %lld is out of range, expected "
                         "0..2147483647",
                         (unsigned long long)first, index);
  }
out:
  dfgnn__cuda_drop(device, bad);
  dfgnn__cuda_leave(entered);
  return status;
}
