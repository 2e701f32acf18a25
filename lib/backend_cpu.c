/* backend_cpu.c - the host as a device, with the threads of OpenMP */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/common/host_view.h"
#include "lib/backend.h"
#include "lib/base/error.h"
#include "lib/coo.h"
#include "lib/signature.h"
#include "lib/views.h"

#define MAX_CALLS 1000 /* calls of one sample */
#define BRIEF_CALLS 3  /* of a brief one, the first of which warms up */
#define BRIEF_MS 20.0  /* after which a brief one ends all the same */

struct dfgnn_device {
  int threads;
  int64_t cache_bytes;
  char *flush; /* a buffer larger than the last-level cache, made when needed */
  size_t flush_bytes;
};

static int device_count(void) { return 1; }

static int64_t last_level_cache(void) {
  static const int levels[] = {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
  for (int i = 0; i < 2; i++) {
    long bytes = sysconf(levels[i]);
    if (bytes > 0)
      return bytes;
  }
  return 8 << 20;
}

#define MOST_THREADS 4096

static dfgnn_status cpu_open(dfgnn_device **device, int ordinal, int threads) {
  if (ordinal != 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "CPU device %d does not exist, expected cpu", ordinal);
  DFGNN_TRY(dfgnn__check_range("options.threads", threads, 0, MOST_THREADS));
  dfgnn_device *d = calloc(1, sizeof *d);
  if (!d)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  d->threads = threads > 0 ? threads : omp_get_max_threads();
  if (d->threads > MOST_THREADS)
    d->threads = MOST_THREADS;
  d->cache_bytes = last_level_cache();
  *device = d;
  return DFGNN_OK;
}

static void cpu_close(dfgnn_device *device) {
  free(device->flush);
  free(device);
}

static void read_model(char *model, size_t size) {
  char line[256];
  FILE *file = fopen("/proc/cpuinfo", "r");
  snprintf(model, size, "unknown CPU");
  while (file && fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (colon && !strncmp(line, "model name", 10)) {
      colon[1 + strcspn(colon + 1, "\n")] = 0;
      snprintf(model, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
      break;
    }
  }
  if (file)
    fclose(file);
}

static const char *instruction_set(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return "x86_64-avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return "x86_64-avx2";
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "portable";
#endif
}

static void identify(const dfgnn_device *device, dfgnn_device_info *info) {
  memset(info, 0, sizeof *info);
  info->struct_size = sizeof *info;
  snprintf(info->backend, sizeof info->backend, "cpu");
  snprintf(info->arch, sizeof info->arch, "%s", instruction_set());
  read_model(info->model, sizeof info->model);
  info->units = device->threads;
  info->cache_bytes = device->cache_bytes;
  info->memory_bytes =
      (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGE_SIZE);
  snprintf(info->runtime, sizeof info->runtime, "OpenMP %d", _OPENMP);
}

static dfgnn_status allocate(dfgnn_device *device, void **memory,
                             size_t bytes) {
  (void)device;
  if (posix_memalign(memory, 256, bytes ? bytes : 1))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot allocate %zu bytes", bytes);
  return DFGNN_OK;
}

static void release(dfgnn_device *device, void *memory) {
  (void)device;
  free(memory);
}

static dfgnn_status copy(dfgnn_device *device, void *to, const void *from,
                         size_t bytes) {
  (void)device;
  if (bytes)
    memcpy(to, from, bytes);
  return DFGNN_OK;
}

static dfgnn_status fill(dfgnn_device *device, void *to, int byte,
                         size_t bytes) {
  (void)device;
  if (bytes)
    memset(to, byte, bytes);
  return DFGNN_OK;
}

static dfgnn_status synchronize(dfgnn_device *device, void *stream) {
  (void)device, (void)stream;
  return DFGNN_OK;
}

static int capturing(dfgnn_device *device, void *stream) {
  (void)device, (void)stream;
  return 0;
}

static dfgnn_status analyze(dfgnn_device *device, dfgnn_matrix *matrix,
                            dfgnn_signature *signature, int64_t graphs,
                            const int64_t *graph_ptr) {
  return dfgnn__analyze(matrix, signature, graphs, graph_ptr, device->threads);
}

static dfgnn_status narrow(dfgnn_device *device, int32_t *to,
                           const int64_t *from, int64_t count) {
  (void)device;
  for (int64_t e = 0; e < count; e++) {
    if (from[e] < 0 || from[e] > INT32_MAX)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "indices[%lld] = %lld is out of range, expected "
                         "0..2147483647",
                         (long long)e, (long long)from[e]);
    to[e] = (int32_t)from[e];
  }
  return DFGNN_OK;
}

static dfgnn_status build_view(dfgnn_device *device, dfgnn_view *view,
                               const dfgnn_matrix *matrix,
                               const dfgnn_signature *signature) {
  (void)device, (void)signature;
  return dfgnn__view_build(view, matrix);
}

static double now_ms(void) { return 1e3 * dfgnn__seconds(); }

static dfgnn_status flush_cache(dfgnn_device *device) {
  if (!device->flush) {
    device->flush_bytes = (size_t)device->cache_bytes * 5 / 2;
    device->flush = calloc(1, device->flush_bytes);
    if (!device->flush)
      return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot allocate %zu bytes",
                         device->flush_bytes);
  }
#pragma omp parallel for num_threads(device->threads)
  for (size_t i = 0; i < device->flush_bytes; i += 64)
    device->flush[i]++;
  return DFGNN_OK;
}

/* The number of times the scheduler took a processor away from this process. */
static long preemptions(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) ? 0 : usage.ru_nivcsw;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Is a sample long enough?  It takes a millisecond, and three calls unless they
 * are long, so that one preempted call does not decide the median. */
static int enough(int calls, double total_ms) {
  return calls == MAX_CALLS || (total_ms >= 1 && (calls >= 3 || total_ms > 6));
}

#define MOST_WAITED 0.1 /* of their time, by threads of a calm sample */

/* The share of the threads' time in which they waited for a processor. */
static double waited_share(double before, double after, double ms,
                           int threads) {
  if (before < 0 || after < 0 || !(ms > 0))
    return DFGNN_UNKNOWN;
  const double share = 1e3 * (after - before) / (ms * threads);
  return share > 0 ? share : 0;
}

/* The median of some calls; tainted if more than a third of them may have been
 * preempted, or if threads waited for processors.  The least call of a tainted
 * sample counts, since disturbances make calls slower. */
static dfgnn_status time_calls(dfgnn_device *device, dfgnn_sample *sample,
                               dfgnn_timed_function f, void *data, int repeats,
                               int cold) {
  double ms[MAX_CALLS], total = 0;
  int calls = 0;
  memset(sample, 0, sizeof *sample);
  const double waited = dfgnn__load_waited(), start = now_ms();
  long before = preemptions();
  do {
    dfgnn_status status = cold ? flush_cache(device) : DFGNN_OK;
    double begin = now_ms();
    if (!status)
      status = f(data, NULL);
    if (status)
      return status;
    ms[calls] = now_ms() - begin;
    total += ms[calls++];
  } while (repeats > 0                ? calls < repeats && calls < MAX_CALLS
           : repeats == DFGNN_BRIEFLY ? calls < BRIEF_CALLS && total < BRIEF_MS
                                      : !enough(calls, total));
  const long lost = preemptions() - before;
  sample->waited = waited_share(waited, dfgnn__load_waited(), now_ms() - start,
                                device->threads);
  sample->tainted = 3 * lost > calls || sample->waited > MOST_WAITED;
  qsort(ms, (size_t)calls, sizeof *ms, ascending);
  sample->ms =
      sample->tainted ? ms[0] : 0.5 * (ms[(calls - 1) / 2] + ms[calls / 2]);
  return DFGNN_OK;
}

typedef struct watch {
  double begin, end;
} watch;

static dfgnn_status watch_create(dfgnn_device *device, void **made) {
  (void)device;
  *made = calloc(1, sizeof(watch));
  return *made ? DFGNN_OK : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
}

static void watch_destroy(dfgnn_device *device, void *made) {
  (void)device;
  free(made);
}

static dfgnn_status watch_mark(dfgnn_device *device, void *made, int end,
                               void *stream) {
  watch *w = made;
  (void)device, (void)stream;
  *(end ? &w->end : &w->begin) = now_ms();
  return DFGNN_OK;
}

static int watch_read(dfgnn_device *device, void *made, double *ms) {
  const watch *w = made;
  (void)device;
  *ms = w->end - w->begin;
  return 1; /* a call is over when it returns */
}

static dfgnn_status sort_edges(dfgnn_device *device, dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo, int deferred,
                               void *stream) {
  (void)deferred, (void)stream;
  dfgnn_status status = dfgnn__sort_edges(sorted, coo);
  const int few = sorted->matrix.edges <= DFGNN_FEW_EDGES;
  if (status || (few && (coo->trusted || !coo->graph_ptr)))
    return status;
  status = analyze(device, &sorted->matrix, &sorted->signature, coo->graphs,
                   coo->graph_ptr);
  sorted->known = !status;
  if (status)
    dfgnn__sorted_edges_free(sorted);
  return status;
}

static int64_t max_degree(const dfgnn_matrix *matrix) {
  int64_t most = 0;
  for (int64_t i = 0; i < matrix->destinations; i++) {
    const int64_t degree =
        dfgnn__offset_at(matrix, i + 1) - dfgnn__offset_at(matrix, i);
    most = degree > most ? degree : most;
  }
  return most;
}

static void read_load(dfgnn_device *device, dfgnn_load *load) {
  (void)device;
  *load = dfgnn__load_read("");
}

static dfgnn_status copy_bandwidth(dfgnn_device *device, double *bandwidth) {
  size_t bytes = (size_t)device->cache_bytes; /* a copy touches twice as many */
  bytes = bytes > (64u << 20) ? bytes : (64u << 20);
  char *from = malloc(bytes), *to = malloc(bytes);
  dfgnn_status status = DFGNN_OK;
  double best = 0;
  if (!from || !to)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot allocate %zu bytes",
                         2 * bytes));
  memset(from, 1, bytes);
  memset(to, 2, bytes);
  for (int round = 0; round < 4; round++) {
    double begin = now_ms();
    size_t part = bytes / (size_t)device->threads;
#pragma omp parallel for num_threads(device->threads)
    for (int t = 0; t < device->threads; t++)
      memcpy(to + (size_t)t * part, from + (size_t)t * part, part);
    double rate =
        2e3 * (double)(part * (size_t)device->threads) / (now_ms() - begin);
    best = rate > best ? rate : best;
  }
  *bandwidth = best;
out:
  free(from);
  free(to);
  return status;
}

const dfgnn_backend dfgnn__backend_cpu = {
    .name = "cpu",
    .survives_fork = 1,
    .alignment = 64, /* that of the widest vectors, and of torch's memory */
    .device_count = device_count,
    .open = cpu_open,
    .close = cpu_close,
    .identify = identify,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .synchronize = synchronize,
    .capturing = capturing,
    .analyze = analyze,
    .watch_create = watch_create,
    .watch_destroy = watch_destroy,
    .watch_mark = watch_mark,
    .watch_read = watch_read,
    .narrow = narrow,
    .build_view = build_view,
    .max_degree = max_degree,
    .sort_edges = sort_edges,
    .time = time_calls,
    .load = read_load,
    .copy_bandwidth = copy_bandwidth,
};
