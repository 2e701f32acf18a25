/* backend_cuda.c - NVIDIA GPUs: the driver alone, opened at run time; a machine
 * without it has no device */
#include "lib/backend_cuda.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/compiler.h"
#include "kernels/common/device_graph.h"
#include "lib/signature.h"

int dfgnn__cuda_enter(const dfgnn_device *device) {
  return dfgnn__engine_enter(device->engine);
}

void dfgnn__cuda_leave(int entered) { dfgnn__engine_leave(entered); }

static int device_count(void) {
  const dfgnn_driver *cu = dfgnn__driver();
  int count = 0;
  return cu && !cu->DeviceGetCount(&count) ? count : 0;
}

static dfgnn_engine *cuda_engine(dfgnn_device *device) {
  return device->engine;
}

/* 0 where the driver does not know. */
static int attribute(const dfgnn_device *device, int what) {
  int value = 0;
  if (dfgnn__driver()->DeviceGetAttribute(&value, what, device->number))
    return 0;
  return value;
}

dfgnn_status dfgnn__cuda_prepare(dfgnn_device *device, unsigned kind,
                                 dfgnn_dry_run run, const void *data) {
  dfgnn_programs *list = NULL;
  if (atomic_load_explicit(&device->prepared, memory_order_relaxed) &
      1u << kind)
    return DFGNN_OK;
  dfgnn_status status = dfgnn__programs_create(&list);
  if (status)
    return status;
  const dfgnn_queue dry = {.list = list};
  status = run(&dry, data);
  if (!status)
    status = dfgnn__engine_prepare(device->engine, list, 0, NULL);
  if (!status)
    atomic_fetch_or(&device->prepared, 1u << kind);
  dfgnn__programs_destroy(list);
  return status;
}

static void cuda_close(dfgnn_device *device) {
  const dfgnn_driver *cu = dfgnn__driver();
  if (!device)
    return;
  if (device->engine) {
    int entered = dfgnn__cuda_enter(device);
    dfgnn__nvml_close(device->nvml);
    dfgnn__cuda_close_memory(device);
    if (device->flush)
      (void)cu->MemFree(cu_address(device->flush));
    if (device->end)
      (void)cu->EventDestroy(device->end);
    if (device->begin)
      (void)cu->EventDestroy(device->begin);
    if (device->timer)
      (void)cu->StreamDestroy(device->timer);
    if (device->stream)
      (void)cu->StreamDestroy(device->stream);
    dfgnn__cuda_leave(entered);
    dfgnn__engine_close(device->engine);
  }
  pthread_mutex_destroy(&device->answer_lock);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

static dfgnn_status open_inside(dfgnn_device *d) {
  dfgnn_status status = DFGNN_OK;
  char bus[32] = "";
  DFGNN_CU_GO(StreamCreate, &d->stream, CU_STREAM_NON_BLOCKING);
  DFGNN_CU_GO(StreamCreate, &d->timer, CU_STREAM_NON_BLOCKING);
  DFGNN_CU_GO(EventCreate, &d->begin, 0);
  DFGNN_CU_GO(EventCreate, &d->end, 0);
  DFGNN_GO(dfgnn__cuda_open_memory(d));
  d->queue = (dfgnn_queue){.engine = d->engine, .stream = d->stream};
  d->units = attribute(d, CU_UNITS);
  d->cache_bytes = attribute(d, CU_L2_BYTES);
  DFGNN_CU_GO(DeviceGetPCIBusId, bus, sizeof bus, d->number);
  d->nvml = dfgnn__nvml_open(bus);
out:
  return status;
}

static dfgnn_status cuda_open(dfgnn_device **device, int ordinal, int threads) {
  char why[512];
  (void)threads;
  int count = device_count();
  if (ordinal < 0 || ordinal >= count)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "CUDA device %d does not exist, found %d device%s",
                       ordinal, count, count == 1 ? "" : "s");
  if (!dfgnn__engine_usable(why, sizeof why))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "CUDA device %d: %s", ordinal,
                       why);
  dfgnn_device *d = calloc(1, sizeof *d);
  if (!d)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  d->ordinal = ordinal;
  pthread_mutex_init(&d->lock, NULL);
  pthread_mutex_init(&d->answer_lock, NULL);
  dfgnn_status status = DFGNN_OK;
  DFGNN_CU_GO(DeviceGet, &d->number, ordinal);
  DFGNN_GO(dfgnn__engine_open(&d->engine, ordinal));
  int entered = dfgnn__cuda_enter(d);
  status = open_inside(d);
  dfgnn__cuda_leave(entered);
out:
  if (status)
    cuda_close(d);
  else
    *device = d;
  return status;
}

static void identify(const dfgnn_device *device, dfgnn_device_info *info) {
  const dfgnn_driver *cu = dfgnn__driver();
  const dfgnn_compiler_info *compiler = dfgnn__compiler();
  char name[sizeof info->model] = "";
  size_t memory = 0;
  int version = 0;
  memset(info, 0, sizeof *info);
  info->struct_size = sizeof *info;
  snprintf(info->backend, sizeof info->backend, "cuda");
  snprintf(info->arch, sizeof info->arch, "sm_%d%d",
           attribute(device, CU_CAPABILITY_MAJOR),
           attribute(device, CU_CAPABILITY_MINOR));
  info->ordinal = device->ordinal;
  info->units = device->units;
  info->cache_bytes = device->cache_bytes;
  info->shared_bytes = attribute(device, CU_SHARED_BYTES_OPT_IN);
  if (!cu->DeviceGetName(name, sizeof name, device->number))
    snprintf(info->model, sizeof info->model, "%s", name);
  if (!cu->DeviceTotalMem(&memory, device->number))
    info->memory_bytes = (int64_t)memory;
  if (!cu->DriverGetVersion(&version))
    snprintf(info->driver, sizeof info->driver, "%d.%d", version / 1000,
             version % 1000 / 10);
  if (*compiler->path)
    snprintf(info->runtime, sizeof info->runtime, "%d.%d", compiler->major,
             compiler->minor);
}

static dfgnn_status copy(dfgnn_device *device, void *to, const void *from,
                         size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  if (!bytes)
    return DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  status = dfgnn__cuda_follow(device, NULL);
  if (status)
    goto out;
  DFGNN_GO(dfgnn__read(&device->queue, to, from, bytes));
out:
  dfgnn__cuda_leave(entered);
  return status;
}

static dfgnn_status synchronize(dfgnn_device *device, void *stream) {
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  DFGNN_CU_GO(StreamSynchronize, stream);
out:
  dfgnn__cuda_leave(entered);
  return status;
}

static int capturing(dfgnn_device *device, void *stream) {
  int capture = 0;
  int entered = dfgnn__cuda_enter(device);
  cu_result error = dfgnn__driver()->StreamIsCapturing(stream, &capture);
  dfgnn__cuda_leave(entered);
  /* The legacy stream cannot be asked while another stream captures. */
  return error == CU_ERROR_CAPTURE_IMPLICIT || (!error && capture);
}

/* ---- graphs ------------------------------------------------------------- */

/* Reads what a message quotes; `to` stays as it is if nothing can be read. */
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
  dfgnn_status status = check_counts(matrix, counts, graphs, graph_ptr);
  if (status)
    return status;
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
  dfgnn_status status = dfgnn__cuda_analyze_start(queue, a->workspace);
  return status ? status
                : dfgnn__cuda_analyze(queue, a->matrix, a->graphs, a->graph_ptr,
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

static dfgnn_status analyze_begin(dfgnn_device *device,
                                  dfgnn_deferred **deferred,
                                  const dfgnn_matrix *matrix, int64_t graphs,
                                  const int64_t *graph_ptr) {
  if (!graph_ptr || graphs < 0)
    graphs = 0;
  analysis a = {.matrix = matrix,
                .graphs = graphs,
                .graph_ptr = graph_ptr,
                .units = device->units};
  dfgnn_status status = dfgnn__check_graph_ptr(matrix, graphs, graph_ptr);
  if (status)
    return status;
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

/* The numbers at wrong ends may be gone: the list was not kept. */
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

static dfgnn_status analyze_end(dfgnn_device *device, dfgnn_deferred *d,
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

static dfgnn_status analyze(dfgnn_device *device, dfgnn_matrix *matrix,
                            dfgnn_signature *signature, int64_t graphs,
                            const int64_t *graph_ptr) {
  dfgnn_deferred *deferred;
  dfgnn_status status =
      analyze_begin(device, &deferred, matrix, graphs, graph_ptr);
  return status ? status : analyze_end(device, deferred, matrix, signature);
}

static dfgnn_status follow(dfgnn_device *device, void *stream) {
  int entered = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_follow(device, stream);
  dfgnn__cuda_leave(entered);
  return status;
}

static dfgnn_status narrow(dfgnn_device *device, int32_t *to,
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

static dfgnn_status move(dfgnn_device *device, const dfgnn_move *move,
                         void *stream) {
  const dfgnn_queue queue = {.engine = device->engine, .stream = stream};
  int entered = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_move(&queue, move);
  dfgnn__cuda_leave(entered);
  return status;
}

const dfgnn_backend dfgnn__backend_cuda = {
    .name = "cuda",
    .device_count = device_count,
    .open = cuda_open,
    .close = cuda_close,
    .identify = identify,
    .engine = cuda_engine,
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
    .analyze_begin = analyze_begin,
    .analyze_end = analyze_end,
    .narrow = narrow,
    .build_view = dfgnn__cuda_build_view,
    .sort_edges = dfgnn__cuda_sort_edge_list,
    .follow = follow,
    .mark = dfgnn__cuda_mark,
    .await = dfgnn__cuda_await,
    .await_mark = dfgnn__cuda_await_mark,
    .unmark = dfgnn__cuda_unmark,
    .move = move,
    .time = dfgnn__cuda_time,
    .watch_create = dfgnn__cuda_watch_create,
    .watch_destroy = dfgnn__cuda_watch_destroy,
    .watch_mark = dfgnn__cuda_watch_mark,
    .watch_read = dfgnn__cuda_watch_read,
    .copy_bandwidth = dfgnn__cuda_copy_bandwidth,
};
