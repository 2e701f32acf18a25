/* backend_cuda_time.c - how long a call takes on a GPU */
#include <stdlib.h>
#include <string.h>

#include "lib/backend_cuda.h"
#include "lib/base/error.h"

enum {
  MAX_GRAPH_CALLS = 64, /* calls captured into one graph */
  MAX_REPLAYS = 1000,
  COLD_CALLS = 5
};
static const double GRAPH_BELOW_MS = 4; /* longer calls hide their launch */
static const double GRAPH_MS = 0.25;    /* time of one replay, about */
static const double SAMPLE_MS = 2;      /* time of one warm sample, about */
static const double BRIEF_MS = 0.12;    /* of a brief one */
static const double IDLE_MS = 200;      /* idle time in which clocks fall */
static const double PREHEAT_MS = 40;
static const double UTILISATION_MS = 1000; /* over which NVML averages */

static double now_ms(void) { return 1e3 * dfgnn__seconds(); }

static dfgnn_status make_flush_buffer(dfgnn_device *device) {
  dfgnn_status status = DFGNN_OK;
  cu_pointer memory;
  size_t bytes = (size_t)device->cache_bytes * 5 / 2;
  if (device->flush)
    return DFGNN_OK;
  bytes = bytes > (8u << 20) ? bytes : (8u << 20);
  DFGNN_CU_GO(MemAlloc, &memory, bytes);
  device->flush = (void *)(uintptr_t)memory;
  device->flush_bytes = bytes;
out:
  return status;
}

static dfgnn_status flush_cache(dfgnn_device *device) {
  dfgnn_status status = DFGNN_OK;
  DFGNN_CU_GO(MemsetD8Async, cu_address(device->flush), 1, device->flush_bytes,
              device->timer);
out:
  return status;
}

/* An idle GPU runs at a fraction of its clock. */
static dfgnn_status preheat(dfgnn_device *device) {
  dfgnn_status status = DFGNN_OK;
  double begin = now_ms();
  if (begin - device->last_busy_ms < IDLE_MS)
    return DFGNN_OK;
  status = make_flush_buffer(device);
  while (!status && now_ms() - begin < PREHEAT_MS) {
    for (int i = 0; !status && i < 16; i++)
      status = flush_cache(device);
    if (!status)
      DFGNN_CU_GO(StreamSynchronize, device->timer);
  }
out:
  return status;
}

static dfgnn_status call_many(dfgnn_timed_function f, void *data, int calls,
                              void *stream) {
  dfgnn_status status = DFGNN_OK;
  for (int i = 0; !status && i < calls; i++)
    status = f(data, stream);
  return status;
}

/* Times, between two events, `replays` replays of the graph, or as many calls
 * of f if the graph is NULL.  The clock is read while the GPU is at work. */
static dfgnn_status timed_run(dfgnn_device *device, double *ms, int replays,
                              cu_graph_exec graph, dfgnn_timed_function f,
                              void *data, dfgnn_sample *sample) {
  dfgnn_status status = DFGNN_OK;
  float elapsed = 0;
  int throttled = 0;
  DFGNN_CU_GO(EventRecord, device->begin, device->timer);
  for (int i = 0; graph && i < replays; i++)
    DFGNN_CU_GO(GraphLaunch, graph, device->timer);
  if (!graph)
    status = call_many(f, data, replays, device->timer);
  if (status)
    goto out;
  DFGNN_CU_GO(EventRecord, device->end, device->timer);
  if (sample) {
    sample->clock_mhz = dfgnn__nvml_clock(device->nvml, &throttled);
    sample->tainted |= throttled;
  }
  DFGNN_CU_GO(EventSynchronize, device->end);
  DFGNN_CU_GO(EventElapsedTime, &elapsed, device->begin, device->end);
  *ms = elapsed;
out:
  return status;
}

/* A graph of the calls; NULL where they cannot be captured. */
static cu_graph_exec capture(dfgnn_device *device, dfgnn_timed_function f,
                             void *data, int calls) {
  const dfgnn_driver *cu = dfgnn__driver();
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  if (cu->StreamBeginCapture(device->timer, CU_CAPTURE_THREAD_LOCAL))
    return NULL;
  dfgnn_status status = call_many(f, data, calls, device->timer);
  cu_result error = cu->StreamEndCapture(device->timer, &graph);
  if (!error && !status && cu->GraphInstantiate(&exec, graph, 0))
    exec = NULL;
  if (graph)
    (void)cu->GraphDestroy(graph);
  return exec;
}

static int at_least_one(double x, int most) {
  return x < 1 ? 1 : x > most ? most : (int)x;
}

static dfgnn_status time_warm(dfgnn_device *device, dfgnn_sample *sample,
                              dfgnn_timed_function f, void *data, int repeats) {
  cu_graph_exec graph = NULL;
  double one = 0, total = 0;
  int calls = repeats > 0 ? repeats : 1;
  const int brief = repeats == DFGNN_BRIEFLY;
  /* A long call needs no other to warm up, where a rough time will do. */
  DFGNN_TRY(brief ? timed_run(device, &one, 1, NULL, f, data, NULL)
                  : call_many(f, data, 1, device->timer));
  if (!(brief && one >= GRAPH_BELOW_MS))
    DFGNN_TRY(timed_run(device, &one, 1, NULL, f, data, NULL));
  dfgnn_status status = DFGNN_OK;
  if (brief && one >= BRIEF_MS) { /* of which a launch is a few hundredths */
    sample->ms = one;
    return DFGNN_OK;
  }
  if (one < GRAPH_BELOW_MS) {
    int inside = repeats > 0 ? repeats
                             : at_least_one((brief ? BRIEF_MS : GRAPH_MS) /
                                                (one > 0 ? one : 1e-3),
                                            MAX_GRAPH_CALLS);
    graph = capture(device, f, data, inside);
    if (graph)
      status = timed_run(device, &one, 1, graph, NULL, NULL, NULL);
    if (status)
      goto out;
    const double wanted_ms = brief ? BRIEF_MS : SAMPLE_MS;
    int replays =
        repeats > 0
            ? (graph ? 1 : repeats)
            : at_least_one(wanted_ms / (one > 1e-4 ? one : 1e-4), MAX_REPLAYS);
    calls = graph ? inside * replays : replays;
    status = timed_run(device, &total, replays, graph, f, data, sample);
  } else {
    status = timed_run(device, &total, calls, NULL, f, data, sample);
  }
  if (!status)
    sample->ms = total / calls;
out:
  if (graph)
    (void)dfgnn__driver()->GraphExecDestroy(graph);
  return status;
}

/* The median of calls timed by themselves, each after a flush that also hides
 * its launch. */
static dfgnn_status time_cold(dfgnn_device *device, dfgnn_sample *sample,
                              dfgnn_timed_function f, void *data, int repeats) {
  double sorted[64];
  int calls = repeats > 0 ? (repeats < 64 ? repeats : 64) : COLD_CALLS;
  dfgnn_status status = make_flush_buffer(device);
  if (!status)
    status = call_many(f, data, 1, device->timer);
  for (int i = 0; !status && i < calls; i++) {
    double ms = 0;
    status = flush_cache(device);
    if (!status)
      status = timed_run(device, &ms, 1, NULL, f, data, sample);
    int k = i;
    for (; k > 0 && sorted[k - 1] > ms; k--)
      sorted[k] = sorted[k - 1];
    sorted[k] = ms;
  }
  if (!status)
    sample->ms = (sorted[(calls - 1) / 2] + sorted[calls / 2]) / 2;
  return status;
}

dfgnn_status dfgnn__cuda_time(dfgnn_device *device, dfgnn_sample *sample,
                              dfgnn_timed_function f, void *data, int repeats,
                              int cold) {
  dfgnn_sample median;
  memset(&median, 0, sizeof median);
  int entered = dfgnn__cuda_enter(device);
  pthread_mutex_lock(&device->lock);
  dfgnn_status status = preheat(device);
  if (!status)
    status = (cold ? time_cold : time_warm)(device, &median, f, data, repeats);
  device->last_busy_ms = now_ms();
  pthread_mutex_unlock(&device->lock);
  dfgnn__cuda_leave(entered);
  median.waited = DFGNN_UNKNOWN;
  if (!status)
    *sample = median;
  return status;
}

void dfgnn__cuda_load(dfgnn_device *device, dfgnn_load *load) {
  int throttled = 0;
  *load = dfgnn__load_unknown();
  pthread_mutex_lock(&device->lock);
  const int idle = now_ms() - device->last_busy_ms > UTILISATION_MS;
  /* An idle GPU runs at a low clock, which says nothing. */
  const double mhz = dfgnn__nvml_clock(device->nvml, &throttled);
  load->cores = 1;
  load->use = dfgnn__nvml_others(device->nvml, idle);
  load->slowed = device->nvml ? throttled : DFGNN_UNKNOWN;
  load->top_mhz = dfgnn__nvml_top_clock(device->nvml);
  load->mhz = idle ? 0 : mhz;
  pthread_mutex_unlock(&device->lock);
}

typedef struct copy_call {
  cu_pointer to, from;
  size_t bytes;
} copy_call;

static dfgnn_status copy_once(void *data, void *stream) {
  const copy_call *c = data;
  dfgnn_status status = DFGNN_OK;
  DFGNN_CU_GO(MemcpyAsync, c->to, c->from, c->bytes, stream);
out:
  return status;
}

static dfgnn_status measure_bandwidth(dfgnn_device *device) {
  dfgnn_status status = DFGNN_OK;
  size_t available = 0, total = 0;
  copy_call c = {0};
  double ms = 0, best = 0;
  DFGNN_CU_GO(MemGetInfo, &available, &total);
  c.bytes = available / 8 < (1u << 30) ? available / 8 : (1u << 30);
  DFGNN_CU_GO(MemAlloc, &c.from, c.bytes);
  DFGNN_CU_GO(MemAlloc, &c.to, c.bytes);
  DFGNN_CU_GO(MemsetD8Async, c.from, 0x5a, c.bytes, device->timer);
  status = preheat(device);
  for (int round = 0; !status && round < 5; round++) {
    status = timed_run(device, &ms, 4, NULL, copy_once, &c, NULL);
    double rate = ms > 0 ? 8e3 * (double)c.bytes / ms : 0;
    best = rate > best ? rate : best;
  }
  device->bandwidth = best;
out:
  if (c.to)
    (void)dfgnn__driver()->MemFree(c.to);
  if (c.from)
    (void)dfgnn__driver()->MemFree(c.from);
  return status;
}

dfgnn_status dfgnn__cuda_copy_bandwidth(dfgnn_device *device,
                                        double *bandwidth) {
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  pthread_mutex_lock(&device->lock);
  if (device->bandwidth <= 0)
    status = measure_bandwidth(device);
  if (!status)
    *bandwidth = device->bandwidth;
  device->last_busy_ms = now_ms();
  pthread_mutex_unlock(&device->lock);
  dfgnn__cuda_leave(entered);
  return status;
}

/* ---- calls that nobody waits for ------------------------------------------
 */

typedef struct watch {
  cu_event begin, end;
} watch;

void dfgnn__cuda_watch_destroy(dfgnn_device *device, void *handle) {
  const dfgnn_driver *cu = dfgnn__driver();
  watch *w = handle;
  int entered = dfgnn__cuda_enter(device);
  if (w->begin)
    (void)cu->EventDestroy(w->begin);
  if (w->end)
    (void)cu->EventDestroy(w->end);
  dfgnn__cuda_leave(entered);
  free(w);
}

dfgnn_status dfgnn__cuda_watch_create(dfgnn_device *device, void **handle) {
  dfgnn_status status = DFGNN_OK;
  watch *w = calloc(1, sizeof *w);
  if (!w)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  int entered = dfgnn__cuda_enter(device);
  DFGNN_CU_GO(EventCreate, &w->begin, 0);
  DFGNN_CU_GO(EventCreate, &w->end, 0);
out:
  dfgnn__cuda_leave(entered);
  if (status)
    dfgnn__cuda_watch_destroy(device, w);
  else
    *handle = w;
  return status;
}

dfgnn_status dfgnn__cuda_watch_mark(dfgnn_device *device, void *handle, int end,
                                    void *stream) {
  const watch *w = handle;
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  DFGNN_CU_GO(EventRecord, end ? w->end : w->begin, stream);
out:
  dfgnn__cuda_leave(entered);
  return status;
}

int dfgnn__cuda_watch_read(dfgnn_device *device, void *handle, double *ms) {
  const watch *w = handle;
  float elapsed = 0;
  int entered = dfgnn__cuda_enter(device);
  /* The driver's "not ready" is no error here. */
  const int known =
      !dfgnn__driver()->EventElapsedTime(&elapsed, w->begin, w->end);
  dfgnn__cuda_leave(entered);
  *ms = elapsed;
  return known;
}
