/* backend_cuda.c - NVIDIA GPUs through the CUDA runtime, linked statically: a
 * machine needs the driver only, and one without it has no device */
#include "lib/backend_cuda.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/device_graph.h"

dfgnn_status dfgnn__cuda_fail(cudaError_t error, const char *call) {
  (void)cudaGetLastError();
  return dfgnn__fail(error == cudaErrorMemoryAllocation ? DFGNN_ERROR_MEMORY
                                                        : DFGNN_ERROR_DEVICE,
                     "%.*s: %s", (int)strcspn(call, "("), call,
                     cudaGetErrorString(error));
}

int dfgnn__cuda_enter(const dfgnn_device *device) {
  int previous = -1;
  if (cudaGetDevice(&previous) != cudaSuccess)
    previous = -1;
  if (previous == device->ordinal)
    return -1;
  (void)cudaSetDevice(device->ordinal);
  return previous;
}

void dfgnn__cuda_leave(int previous) {
  if (previous >= 0)
    (void)cudaSetDevice(previous);
}

static int device_count(void) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess)
    return count;
  (void)cudaGetLastError();
  return 0;
}

static int attribute(const dfgnn_device *device, enum cudaDeviceAttr what) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, what, device->ordinal) != cudaSuccess)
    (void)cudaGetLastError();
  return value;
}

static void cuda_close(dfgnn_device *device) {
  if (!device)
    return;
  int previous = dfgnn__cuda_enter(device);
  dfgnn__nvml_close(device->nvml);
  dfgnn__cuda_close_memory(device);
  (void)cudaFree(device->flush);
  if (device->end)
    (void)cudaEventDestroy(device->end);
  if (device->begin)
    (void)cudaEventDestroy(device->begin);
  if (device->timer)
    (void)cudaStreamDestroy(device->timer);
  if (device->stream)
    (void)cudaStreamDestroy(device->stream);
  (void)cudaGetLastError();
  pthread_mutex_destroy(&device->answer_lock);
  pthread_mutex_destroy(&device->lock);
  dfgnn__cuda_leave(previous);
  free(device);
}

static dfgnn_status cuda_open(dfgnn_device **device, int ordinal, int threads) {
  dfgnn_status status = DFGNN_OK;
  char bus[32] = "";
  (void)threads;
  int count = device_count();
  if (ordinal < 0 || ordinal >= count)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "CUDA device %d does not exist, found %d device%s",
                       ordinal, count, count == 1 ? "" : "s");
  dfgnn_device *d = calloc(1, sizeof *d);
  if (!d)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  d->ordinal = ordinal;
  pthread_mutex_init(&d->lock, NULL);
  pthread_mutex_init(&d->answer_lock, NULL);
  int previous = dfgnn__cuda_enter(d);
  DFGNN_CUDA_GO(cudaSetDevice(ordinal));
  DFGNN_CUDA_GO(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
  DFGNN_CUDA_GO(cudaStreamCreateWithFlags(&d->timer, cudaStreamNonBlocking));
  DFGNN_CUDA_GO(cudaEventCreate(&d->begin));
  DFGNN_CUDA_GO(cudaEventCreate(&d->end));
  status = dfgnn__cuda_open_memory(d);
  if (status)
    goto out;
  d->units = attribute(d, cudaDevAttrMultiProcessorCount);
  d->cache_bytes = attribute(d, cudaDevAttrL2CacheSize);
  DFGNN_CUDA_GO(cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal));
  d->nvml = dfgnn__nvml_open(bus);
out:
  dfgnn__cuda_leave(previous);
  if (status)
    cuda_close(d);
  else
    *device = d;
  return status;
}

static void version_text(char *text, size_t size, int version) {
  snprintf(text, size, "%d.%d", version / 1000, version % 1000 / 10);
}

static void identify(const dfgnn_device *device, dfgnn_device_info *info) {
  struct cudaDeviceProp properties;
  int version = 0;
  memset(info, 0, sizeof *info);
  info->struct_size = sizeof *info;
  snprintf(info->backend, sizeof info->backend, "cuda");
  snprintf(info->arch, sizeof info->arch, "sm_%d%d",
           attribute(device, cudaDevAttrComputeCapabilityMajor),
           attribute(device, cudaDevAttrComputeCapabilityMinor));
  info->ordinal = device->ordinal;
  info->units = device->units;
  info->cache_bytes = device->cache_bytes;
  info->shared_bytes =
      attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (cudaGetDeviceProperties(&properties, device->ordinal) == cudaSuccess) {
    snprintf(info->model, sizeof info->model, "%.*s",
             (int)sizeof info->model - 1, properties.name);
    info->memory_bytes = (int64_t)properties.totalGlobalMem;
  }
  if (cudaDriverGetVersion(&version) == cudaSuccess)
    version_text(info->driver, sizeof info->driver, version);
  if (cudaRuntimeGetVersion(&version) == cudaSuccess)
    version_text(info->runtime, sizeof info->runtime, version);
  (void)cudaGetLastError();
}

static dfgnn_status copy(dfgnn_device *device, void *to, const void *from,
                         size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  if (!bytes)
    return DFGNN_OK;
  int previous = dfgnn__cuda_enter(device);
  status = dfgnn__cuda_follow(device, NULL);
  if (status)
    goto out;
  DFGNN_CUDA_GO(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device->stream));
  DFGNN_CUDA_GO(cudaStreamSynchronize(device->stream));
out:
  dfgnn__cuda_leave(previous);
  return status;
}

static dfgnn_status synchronize(dfgnn_device *device, void *stream) {
  dfgnn_status status = DFGNN_OK;
  int previous = dfgnn__cuda_enter(device);
  DFGNN_CUDA_GO(cudaStreamSynchronize((cudaStream_t)stream));
out:
  dfgnn__cuda_leave(previous);
  return status;
}

static int capturing(dfgnn_device *device, void *stream) {
  enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  int previous = dfgnn__cuda_enter(device);
  cudaError_t error = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
  /* The legacy stream cannot be asked while another stream captures. */
  int yes = error == cudaErrorStreamCaptureImplicit ||
            (error == cudaSuccess && capture != cudaStreamCaptureStatusNone);
  if (error != cudaSuccess)
    (void)cudaGetLastError();
  dfgnn__cuda_leave(previous);
  return yes;
}

/* ---- graphs ------------------------------------------------------------- */

static int64_t device_offset(const dfgnn_matrix *m, int64_t i) {
  int64_t wide = -1;
  int32_t small = -1;
  if (m->offsets64)
    (void)cudaMemcpy(&wide, (const int64_t *)m->offsets + i, sizeof wide,
                     cudaMemcpyDeviceToHost);
  else if (cudaMemcpy(&small, (const int32_t *)m->offsets + i, sizeof small,
                      cudaMemcpyDeviceToHost) == cudaSuccess)
    wide = small;
  return wide;
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
  (void)cudaMemcpy(&index, m->indices + edge, sizeof index,
                   cudaMemcpyDeviceToHost);
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

dfgnn_status dfgnn__cuda_check_graph_ptr(const dfgnn_matrix *m, int64_t graphs,
                                         const int64_t *ptr) {
  if (!graphs)
    return DFGNN_OK;
  if (m->destinations != m->sources)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "graph_ptr needs a square matrix, found %lld x %lld",
                       (long long)m->destinations, (long long)m->sources);
  if (ptr[0] != 0 || ptr[graphs] != m->destinations)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "graph_ptr goes from %lld to %lld, expected 0 to %lld",
                       (long long)ptr[0], (long long)ptr[graphs],
                       (long long)m->destinations);
  for (int64_t g = 0; g < graphs; g++)
    if (ptr[g + 1] < ptr[g])
      return dfgnn__fail(DFGNN_ERROR_INVALID, "graph_ptr falls at graph %lld",
                         (long long)g);
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
}

dfgnn_status dfgnn__cuda_conclude(dfgnn_matrix *matrix,
                                  dfgnn_signature *signature,
                                  const dfgnn_graph_counts *counts,
                                  int64_t graphs, const int64_t *graph_ptr) {
  dfgnn_status status = check_counts(matrix, counts, graphs, graph_ptr);
  if (status)
    return status;
  fill_signature(signature, matrix, counts);
  fill_blocks(signature, matrix, counts, graphs, graph_ptr);
  matrix->max_degree = signature->max_degree;
  return DFGNN_OK;
}

static dfgnn_status analyze(dfgnn_device *device, dfgnn_matrix *matrix,
                            dfgnn_signature *signature, int64_t graphs,
                            const int64_t *graph_ptr) {
  dfgnn_graph_counts counts;
  void *workspace = NULL;
  if (!graph_ptr || graphs < 0)
    graphs = 0;
  dfgnn_status status = dfgnn__cuda_check_graph_ptr(matrix, graphs, graph_ptr);
  if (status)
    return status;
  int previous = dfgnn__cuda_enter(device);
  status = dfgnn__cuda_follow(device, NULL);
  if (!status)
    status = dfgnn__cuda_take(device, &workspace,
                              dfgnn__cuda_analyze_bytes(matrix, graphs));
  if (status)
    goto out;
  DFGNN_CUDA_GO(dfgnn__cuda_analyze_start(workspace, device->stream));
  DFGNN_CUDA_GO(dfgnn__cuda_analyze(matrix, graphs, graph_ptr, device->units,
                                    workspace, device->stream));
  status = dfgnn__cuda_answer(device, &counts, workspace, sizeof counts);
  if (!status)
    status =
        dfgnn__cuda_conclude(matrix, signature, &counts, graphs, graph_ptr);
out:
  dfgnn__cuda_drop(device, workspace);
  dfgnn__cuda_leave(previous);
  return status;
}

static dfgnn_status narrow(dfgnn_device *device, int32_t *to,
                           const int64_t *from, int64_t count) {
  unsigned long long first = ULLONG_MAX;
  void *bad = NULL;
  if (count == 0)
    return DFGNN_OK;
  int previous = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_follow(device, NULL);
  if (!status)
    status = dfgnn__cuda_take(device, &bad, sizeof first);
  if (status)
    goto out;
  DFGNN_CUDA_GO(dfgnn__cuda_narrow(to, from, count, bad, device->stream));
  status = dfgnn__cuda_answer(device, &first, bad, sizeof first);
  if (!status && first != ULLONG_MAX) {
    long long index = 0;
    DFGNN_CUDA_GO(
        cudaMemcpy(&index, from + first, sizeof index, cudaMemcpyDeviceToHost));
    status = dfgnn__fail(DFGNN_ERROR_INVALID,
                         "indices[%llu] = %lld is out of range, expected "
                         "0..2147483647",
                         first, index);
  }
out:
  dfgnn__cuda_drop(device, bad);
  dfgnn__cuda_leave(previous);
  return status;
}

static dfgnn_status move(dfgnn_device *device, const dfgnn_move *move,
                         void *stream) {
  dfgnn_status status = DFGNN_OK;
  int previous = dfgnn__cuda_enter(device);
  DFGNN_CUDA_GO(dfgnn__cuda_move(move, (cudaStream_t)stream));
out:
  dfgnn__cuda_leave(previous);
  return status;
}

const dfgnn_backend dfgnn__backend_cuda = {
    .name = "cuda",
    .device_count = device_count,
    .open = cuda_open,
    .close = cuda_close,
    .identify = identify,
    .allocate = dfgnn__cuda_allocate,
    .release = dfgnn__cuda_release,
    .retire = dfgnn__cuda_retire,
    .settle = dfgnn__cuda_settle,
    .copy = copy,
    .synchronize = synchronize,
    .capturing = capturing,
    .enter = dfgnn__cuda_enter,
    .leave = dfgnn__cuda_leave,
    .analyze = analyze,
    .narrow = narrow,
    .build_view = dfgnn__cuda_build_view,
    .sort_edges = dfgnn__cuda_sort_edge_list,
    .move = move,
    .time = dfgnn__cuda_time,
    .copy_bandwidth = dfgnn__cuda_copy_bandwidth,
};
