/* stream.c - streams, captures, graphs and events of the emulated driver */
#define _GNU_SOURCE
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"

struct cu_graph_st {
  graph_step **steps;
  size_t count, room;
};
struct cu_graph_exec_st {
  struct cu_graph_st graph;
};
typedef struct capture {
  struct cu_graph_st *graph;
  cu_stream origin;
  int mode, invalid;
  pthread_t owner;
  struct capture *next;
} capture;
struct cu_stream_st {
  unsigned flags;
  capture *capture;
  cu_stream next;
};
struct cu_event_st {
  unsigned flags;
  struct timespec time;
  int recorded;
  capture *capture;
};

static capture *captures;
static cu_stream streams;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int thread_mode; /* begins as CU_CAPTURE_GLOBAL, which is 0 */

/* ---- captures ------------------------------------------------------------ */

static capture *capture_of(cu_stream stream) {
  return stream ? stream->capture : NULL;
}

static int forbids(const capture *c) {
  int mine = pthread_equal(c->owner, pthread_self());
  if (thread_mode == CU_CAPTURE_RELAXED || c->mode == CU_CAPTURE_RELAXED)
    return 0;
  return mine ||
         (thread_mode == CU_CAPTURE_GLOBAL && c->mode == CU_CAPTURE_GLOBAL);
}

cu_result emulated_forbidden(void) {
  cu_result error = emulated_needs_context();
  pthread_mutex_lock(&lock);
  for (capture *c = captures; c; c = c->next)
    if (forbids(c)) {
      c->invalid = 1;
      error = ERROR_UNSUPPORTED_IN_CAPTURE;
    }
  pthread_mutex_unlock(&lock);
  return error;
}

/* The legacy stream waits for streams that were not made non-blocking, so it is
 * refused while one of these captures. */
static cu_result legacy(void) {
  cu_result error = 0;
  pthread_mutex_lock(&lock);
  for (capture *c = captures; c; c = c->next)
    if (!(c->origin->flags & CU_STREAM_NON_BLOCKING) &&
        c->mode != CU_CAPTURE_RELAXED) {
      c->invalid = 1;
      error = ERROR_CAPTURE_IMPLICIT;
    }
  pthread_mutex_unlock(&lock);
  return error;
}

static cu_result usable(cu_stream stream) {
  cu_result error = emulated_needs_context();
  if (!error && (stream == NULL || stream == (cu_stream)1))
    error = legacy();
  return error;
}

cu_result cuThreadExchangeStreamCaptureMode(int *mode) {
  int given = *mode;
  if (given < 0 || given > CU_CAPTURE_RELAXED)
    return ERROR_VALUE;
  *mode = thread_mode;
  thread_mode = given;
  return 0;
}

cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode) {
  capture *c = stream && !stream->capture ? calloc(1, sizeof *c) : NULL;
  if (!c)
    return stream ? ERROR_VALUE : ERROR_UNSUPPORTED_IN_CAPTURE;
  c->graph = calloc(1, sizeof *c->graph);
  c->origin = stream;
  c->mode = mode;
  c->owner = pthread_self();
  pthread_mutex_lock(&lock);
  c->next = captures;
  captures = c;
  stream->capture = c;
  pthread_mutex_unlock(&lock);
  return 0;
}

cu_result cuStreamIsCapturing(cu_stream stream, int *capturing) {
  const capture *c = capture_of(stream);
  cu_result error = usable(stream);
  if (!error)
    *capturing = c ? 1 + c->invalid : 0;
  return error;
}

static void free_steps(struct cu_graph_st *graph) {
  for (size_t i = 0; i < graph->count; i++)
    free(graph->steps[i]);
  free(graph->steps);
}

cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph) {
  capture *c = capture_of(stream);
  *graph = NULL;
  if (!c)
    return ERROR_VALUE;
  if (c->origin != stream)
    return ERROR_CAPTURE_UNMATCHED;
  if (c->mode != CU_CAPTURE_RELAXED && !pthread_equal(c->owner, pthread_self()))
    return ERROR_WRONG_THREAD;
  pthread_mutex_lock(&lock);
  for (capture **at = &captures; *at; at = &(*at)->next)
    if (*at == c) {
      *at = c->next;
      break;
    }
  for (cu_stream s = streams; s; s = s->next)
    if (s->capture == c)
      s->capture = NULL;
  pthread_mutex_unlock(&lock);
  cu_result error = c->invalid ? ERROR_CAPTURE_INVALIDATED : 0;
  if (error) {
    free_steps(c->graph);
    free(c->graph);
  } else {
    *graph = c->graph;
  }
  free(c);
  return error;
}

/* ---- steps and graphs ---------------------------------------------------- */

static cu_result do_now(const graph_step *s) {
  void *arguments[16];
  emulated_launch launch = s->launch;
  switch (s->kind) {
  case STEP_COPY:
    if (!emulated_inside(s->to, s->bytes) ||
        !emulated_inside(s->from, s->bytes))
      return ERROR_VALUE;
    memmove((void *)(uintptr_t)s->to, (void *)(uintptr_t)s->from, s->bytes);
    return 0;
  case STEP_FILL:
    if (!emulated_owned(s->to, s->bytes))
      return ERROR_VALUE;
    memset((void *)(uintptr_t)s->to, s->byte, s->bytes);
    return 0;
  case STEP_CALL:
    s->call(s->values);
    return 0;
  default:
    for (int i = 0; i < launch.kernel->count; i++)
      arguments[i] = (char *)s->values + s->offsets[i];
    launch.arguments = arguments;
    return emulated_run_grid(&launch);
  }
}

static cu_result record(struct cu_graph_st *graph, const graph_step *step) {
  if (graph->count == graph->room) {
    size_t room = graph->room ? 2 * graph->room : 16;
    graph_step **grown = realloc(graph->steps, room * sizeof *grown);
    if (!grown)
      return ERROR_MEMORY;
    graph->steps = grown;
    graph->room = room;
  }
  graph_step *kept = malloc(sizeof *kept);
  if (!kept)
    return ERROR_MEMORY;
  *kept = *step;
  graph->steps[graph->count++] = kept;
  return 0;
}

cu_result emulated_do(cu_stream stream, const graph_step *step) {
  capture *c = capture_of(stream);
  cu_result error = usable(stream);
  if (error)
    return error;
  if (!c)
    return do_now(step);
  if (c->invalid)
    return ERROR_CAPTURE_INVALIDATED;
  return record(c->graph, step);
}

cu_result emulated_call(cu_stream stream, void (*call)(const void *values),
                        const void *values, size_t bytes) {
  graph_step step = {.kind = STEP_CALL, .call = call};
  if (bytes > sizeof step.values)
    return ERROR_VALUE;
  memcpy(step.values, values, bytes);
  return emulated_do(stream, &step);
}

cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph,
                                      unsigned long long flags) {
  cu_graph_exec made = calloc(1, sizeof *made);
  (void)flags;
  if (!made || !graph) {
    free(made);
    return ERROR_VALUE;
  }
  for (size_t i = 0; i < graph->count; i++)
    if (record(&made->graph, graph->steps[i]))
      return ERROR_MEMORY;
  *exec = made;
  return 0;
}

cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream) {
  cu_result error = usable(stream);
  for (size_t i = 0; !error && i < exec->graph.count; i++)
    error = emulated_do(stream, exec->graph.steps[i]);
  return error;
}

cu_result cuGraphDestroy(cu_graph graph) {
  free_steps(graph);
  free(graph);
  return 0;
}

cu_result cuGraphExecDestroy(cu_graph_exec exec) {
  free_steps(&exec->graph);
  free(exec);
  return 0;
}

/* ---- streams ------------------------------------------------------------- */

cu_result cuStreamCreate(cu_stream *stream, unsigned flags) {
  cu_result error = emulated_needs_context();
  cu_stream made = error ? NULL : calloc(1, sizeof *made);
  if (!made)
    return error ? error : ERROR_MEMORY;
  made->flags = flags;
  pthread_mutex_lock(&lock);
  made->next = streams;
  streams = made;
  pthread_mutex_unlock(&lock);
  *stream = made;
  return 0;
}

cu_result cuStreamDestroy_v2(cu_stream stream) {
  if (!stream)
    return ERROR_HANDLE;
  pthread_mutex_lock(&lock);
  for (cu_stream *at = &streams; *at; at = &(*at)->next)
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  free(stream);
  return 0;
}

cu_result cuStreamSynchronize(cu_stream stream) {
  capture *c = capture_of(stream);
  if (!c)
    return usable(stream);
  c->invalid = 1;
  return ERROR_UNSUPPORTED_IN_CAPTURE;
}

cu_result cuCtxSynchronize(void) { return emulated_forbidden(); }

cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags) {
  cu_result error = usable(stream);
  (void)flags;
  if (error || !event->capture)
    return error;
  if (!stream || (stream->capture && stream->capture != event->capture))
    return ERROR_CAPTURE_UNMATCHED;
  stream->capture = event->capture;
  return 0;
}

/* ---- events -------------------------------------------------------------- */

cu_result cuEventCreate(cu_event *event, unsigned flags) {
  cu_result error = emulated_needs_context();
  cu_event made = error ? NULL : calloc(1, sizeof *made);
  if (!made)
    return error ? error : ERROR_MEMORY;
  made->flags = flags;
  *event = made;
  return 0;
}

cu_result cuEventDestroy_v2(cu_event event) {
  free(event);
  return 0;
}

cu_result cuEventRecord(cu_event event, cu_stream stream) {
  cu_result error = usable(stream);
  if (error)
    return error;
  event->capture = capture_of(stream);
  event->recorded = 1;
  (void)clock_gettime(CLOCK_MONOTONIC, &event->time);
  return 0;
}

cu_result cuEventSynchronize(cu_event event) {
  if (!event->capture)
    return 0;
  event->capture->invalid = 1;
  return ERROR_UNSUPPORTED_IN_CAPTURE;
}

cu_result cuEventElapsedTime(float *ms, cu_event begin, cu_event end) {
  if ((begin->flags | end->flags) & CU_EVENT_NO_TIMING || !begin->recorded ||
      !end->recorded)
    return ERROR_HANDLE;
  *ms = (float)(1e3 * (double)(end->time.tv_sec - begin->time.tv_sec) +
                1e-6 * (double)(end->time.tv_nsec - begin->time.tv_nsec));
  return 0;
}
