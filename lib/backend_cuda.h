/* backend_cuda.h - a CUDA device, and the functions its files share */
#ifndef DFGNN_LIB_BACKEND_CUDA_H
#define DFGNN_LIB_BACKEND_CUDA_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/common/device_graph.h"
#include "kernels/engine/driver.h"
#include "lib/backend.h"
#include "lib/base/error.h"

struct dfgnn_device {
  int ordinal, units;
  int number; /* the driver's CUdevice */
  dfgnn_engine *engine;
  int64_t cache_bytes, shared_bytes; /* shared: of a block at most */
  cu_stream stream;                  /* for copies, analysis and views */
  dfgnn_queue queue;                 /* the queue on `stream` */
  cu_stream timer; /* for timing.  Neither stream waits for the legacy default
                    * stream, which streams that do slow down */
  cu_pool pool;    /* of device memory; NULL: the device has no pools */
  pthread_mutex_t answer_lock;      /* guards answer and order */
  void *answer;                     /* host memory for a small copy back */
  volatile dfgnn_edge_fault *fault; /* that the device writes, behind answer */
  atomic_ullong lists, told; /* deferred lists so far; the last one that a fault
                              * was reported of */
  int waits;                 /* CUDA_LAUNCH_BLOCKING: no list is deferred */
  cu_event order;
  atomic_int asymmetric; /* transposes to sort before the next matrix is tried
                          * for being symmetric */
  atomic_int unsorted;   /* was the last edge list unsorted?  The next may be */
  atomic_uint prepared;  /* kinds of work whose programs are compiled */
  pthread_mutex_t lock;  /* guards the timer's fields below */
  cu_event begin, end;
  void *flush; /* over twice the L2, for cold timing */
  size_t flush_bytes;
  double last_busy_ms;     /* host clock when the timer last used the GPU */
  double bandwidth;        /* once measured */
  struct dfgnn_nvml *nvml; /* NULL: no NVML */
};

/* lib/backend_cuda_device.c: the caller's current device is put back by
 * leave. */
int dfgnn__cuda_enter(const dfgnn_device *device);
void dfgnn__cuda_leave(int entered);

/* The first time that a device does a kind of work, all programs that `run`
 * launches on a queue that lists them are compiled at once, on all cores.  A
 * program that a later piece of the same kind needs beyond them is compiled
 * when it is launched. */
enum {
  DFGNN_PREPARED_ANALYSIS,
  DFGNN_PREPARED_ANALYSIS64, /* of 64-bit offsets */
  DFGNN_PREPARED_EDGES,      /* int32 edge lists */
  DFGNN_PREPARED_EDGES64,    /* int64 */
  DFGNN_PREPARED_SHORT,      /* short lists, int32 and int64 */
  DFGNN_PREPARED_SHORT64,
  DFGNN_PREPARED_BOTH, /* lists that become both directions */
  DFGNN_PREPARED_BOTH64,
  DFGNN_PREPARED_ORDER,
  DFGNN_PREPARED_SLICES,
  DFGNN_PREPARED_ITEMS,
  DFGNN_PREPARED_TRANSPOSE,
  DFGNN_PREPARED_TILES,
  DFGNN_PREPARED_DENSE_TILES
};
typedef dfgnn_status (*dfgnn_dry_run)(const dfgnn_queue *queue,
                                      const void *data);
dfgnn_status dfgnn__cuda_prepare(dfgnn_device *device, unsigned kind,
                                 dfgnn_dry_run run, const void *data);

/* lib/backend_cuda_memory.c */
#define DFGNN_ANSWER_BYTES 1024
dfgnn_status dfgnn__cuda_open_memory(dfgnn_device *device);
/* Waits for the device. */
void dfgnn__cuda_close_memory(dfgnn_device *device);
/* Takes memory for work that follows on the device's stream, and gives it back
 * in the order of that stream. */
dfgnn_status dfgnn__cuda_take(dfgnn_device *device, void **memory,
                              size_t bytes);
/* Adds device memory to a view. */
dfgnn_status dfgnn__cuda_add_array(dfgnn_device *device, dfgnn_view *view,
                                   int slot, size_t bytes);
void dfgnn__cuda_drop(dfgnn_device *device, void *memory);
/* Takes memory for work on another stream; retire gives it back. */
dfgnn_status dfgnn__cuda_take_on(dfgnn_device *device, void **memory,
                                 size_t bytes, void *stream);
/* Takes memory for any stream; release gives it back after the work on the
 * default stream.  NULL may be released. */
dfgnn_status dfgnn__cuda_allocate(dfgnn_device *device, void **memory,
                                  size_t bytes);
void dfgnn__cuda_release(dfgnn_device *device, void *memory);
/* Gives memory back after the work on the stream. */
void dfgnn__cuda_retire(dfgnn_device *device, void *memory, void *stream);
void dfgnn__cuda_settle(dfgnn_device *device);
/* Makes the device's own stream wait for the work that is on `stream` now. */
dfgnn_status dfgnn__cuda_follow(dfgnn_device *device, void *stream);
/* Waits for the device's stream and copies at most DFGNN_ANSWER_BYTES. */
dfgnn_status dfgnn__cuda_answer(dfgnn_device *device, void *to,
                                const void *from, size_t bytes);
/* The same on the stream of a queue. */
dfgnn_status dfgnn__cuda_answer_on(dfgnn_device *device,
                                   const dfgnn_queue *queue, void *to,
                                   const void *from, size_t bytes);

/* lib/backend_cuda_order.c: the marks of lib/backend.h. */
dfgnn_status dfgnn__cuda_mark(dfgnn_device *device, void **mark, void *stream);
dfgnn_status dfgnn__cuda_await(dfgnn_device *device, void *mark, void *stream);
dfgnn_status dfgnn__cuda_await_mark(dfgnn_device *device, void *mark);
void dfgnn__cuda_unmark(dfgnn_device *device, void *mark);

/* An analysis that nobody waited for yet. */
typedef struct dfgnn_deferred {
  dfgnn_matrix matrix;
  void *workspace; /* the counts first */
  int64_t graphs;
  const int64_t *graph_ptr;
} dfgnn_deferred;
/* Takes the workspace of an analysis that is on the device's own stream. */
dfgnn_status dfgnn__cuda_defer(dfgnn_deferred **deferred,
                               const dfgnn_matrix *matrix, void *workspace,
                               int64_t graphs, const int64_t *graph_ptr);

/* lib/backend_cuda_analyze.c: the functions of lib/backend.h. */
dfgnn_status dfgnn__cuda_signature(dfgnn_device *device, dfgnn_matrix *matrix,
                                   dfgnn_signature *signature, int64_t graphs,
                                   const int64_t *graph_ptr);
dfgnn_status dfgnn__cuda_signature_begin(dfgnn_device *device,
                                         dfgnn_deferred **deferred,
                                         const dfgnn_matrix *matrix,
                                         int64_t graphs,
                                         const int64_t *graph_ptr);
dfgnn_status dfgnn__cuda_signature_end(dfgnn_device *device, dfgnn_deferred *d,
                                       dfgnn_matrix *matrix,
                                       dfgnn_signature *signature);
dfgnn_status dfgnn__cuda_narrow_indices(dfgnn_device *device, int32_t *to,
                                        const int64_t *from, int64_t count);

/* Checks the counts of an analysis and fills signature and max_degree. */
dfgnn_status dfgnn__cuda_conclude(dfgnn_matrix *matrix,
                                  dfgnn_signature *signature,
                                  const dfgnn_graph_counts *counts,
                                  int64_t graphs, const int64_t *graph_ptr);

/* lib/backend_cuda_views.c */
dfgnn_status dfgnn__cuda_build_view(dfgnn_device *device, dfgnn_view *view,
                                    const dfgnn_matrix *matrix,
                                    const dfgnn_signature *signature);

/* lib/backend_cuda_tiles.c; view's arrays are the caller's to release */
dfgnn_status dfgnn__cuda_build_tiles(dfgnn_device *device, dfgnn_view *view,
                                     const dfgnn_matrix *matrix);

/* lib/backend_cuda_coo.c */
dfgnn_status dfgnn__cuda_sort_edge_list(dfgnn_device *device,
                                        dfgnn_sorted_edges *sorted,
                                        const dfgnn_coo *coo, int deferred,
                                        void *stream);

/* lib/backend_cuda_list.c */
dfgnn_status dfgnn__cuda_late_fault(dfgnn_device *device);

/* lib/backend_cuda_time.c */
dfgnn_status dfgnn__cuda_time(dfgnn_device *device, dfgnn_sample *sample,
                              dfgnn_timed_function f, void *data, int repeats,
                              int cold);
dfgnn_status dfgnn__cuda_watch_create(dfgnn_device *device, void **watch);
void dfgnn__cuda_watch_destroy(dfgnn_device *device, void *watch);
dfgnn_status dfgnn__cuda_watch_mark(dfgnn_device *device, void *watch, int end,
                                    void *stream);
int dfgnn__cuda_watch_read(dfgnn_device *device, void *watch, double *ms);
dfgnn_status dfgnn__cuda_copy_bandwidth(dfgnn_device *device,
                                        double *bandwidth);
void dfgnn__cuda_load(dfgnn_device *device, dfgnn_load *load);

/* lib/nvml.c: clocks and throttling of a GPU, by libnvidia-ml where there is
 * one. */
struct dfgnn_nvml *dfgnn__nvml_open(const char *pci_bus);
void dfgnn__nvml_close(struct dfgnn_nvml *nvml);
/* The multiprocessors' clock (0: not known); *throttled: slowed down by heat,
 * a power brake or a hardware fault. */
double dfgnn__nvml_clock(struct dfgnn_nvml *nvml, int *throttled);
/* The fastest clock; 0: not known. */
double dfgnn__nvml_top_clock(struct dfgnn_nvml *nvml);
/* The share of the last moment in which other processes used the GPU;
 * DFGNN_UNKNOWN where this process's share cannot be told from theirs.  idle: 1
 * if this process did nothing on it for a second. */
double dfgnn__nvml_others(struct dfgnn_nvml *nvml, int idle);

#endif
