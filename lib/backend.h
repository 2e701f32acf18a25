/* backend.h - the functions of a device: one table for each backend
 *
 * lib/backend_cpu.c and lib/backend_cuda.c each define one; a device is an
 * opaque pointer of theirs.  Streams are the caller's (a cudaStream_t), NULL
 * the default one.  All functions are thread-safe. */
#ifndef DFGNN_LIB_BACKEND_H
#define DFGNN_LIB_BACKEND_H

#include "dfgnn.h"
#include "kernels/common/variant.h"
#include "lib/base/load.h"

typedef struct dfgnn_device dfgnn_device;

typedef dfgnn_status (*dfgnn_timed_function)(void *data, void *stream);

#define DFGNN_BRIEFLY (-1)

typedef struct dfgnn_sample {
  double ms;        /* of one call */
  double clock_mhz; /* 0: not known */
  double waited;    /* share of its threads' time in which they were ready and
                     * had no processor; DFGNN_UNKNOWN: not known */
  int tainted;      /* throttled or disturbed: drop it */
} dfgnn_sample;

/* A CSR matrix made of an edge list, in device memory from allocate. */
typedef struct dfgnn_sorted_edges {
  void *offsets; /* 64-bit if there are 2^31 edges or more, like order */
  void *indices; /* int32 */
  void *order;   /* the list's edge that each is; NULL: the same */
  /* where the device notes whether the list is not in order, so that order is
   * not the same; NULL: nobody has to look */
  const uint64_t *was_unsorted;
  int edges_bound;     /* matrix.edges is a bound, the last of the offsets tells
                        * how many there are */
  dfgnn_matrix matrix; /* with these arrays; max_degree may be a bound */
  dfgnn_signature signature;
  int known;                      /* the signature is filled in */
  struct dfgnn_deferred *pending; /* its analysis is under way, else NULL */
  dfgnn_view columns; /* the TRANSPOSE view; array[0] is NULL: not made */
  void *memory;       /* the allocation that holds all arrays, else NULL */
  size_t bytes;       /* of memory */
} dfgnn_sorted_edges;

/* Names the stream on which a backend analyzes and builds views. */
#define DFGNN_OWN_STREAM ((void *)-1)

/* For graphs of at most this many edges a variant is chosen by their shape,
 * before the signature is known: an analysis takes about as long as a pass. */
#define DFGNN_FEW_EDGES (1 << 18)

typedef struct dfgnn_backend {
  const char *name;
  int survives_fork; /* a child of fork() may use the parent's device */
  int alignment;     /* of workspaces; 0: WORKSPACE_ALIGNMENT of lib/plan.c */

  int (*device_count)(void);
  /* threads: of the CPU backend, 0 for its default. */
  dfgnn_status (*open)(dfgnn_device **device, int ordinal, int threads);
  void (*close)(dfgnn_device *device);
  void (*identify)(const dfgnn_device *device, dfgnn_device_info *info);

  /* The engine that compiles and launches device code.  NULL: there is none. */
  dfgnn_engine *(*engine)(dfgnn_device *device);

  /* 256-byte aligned device memory, for any stream. */
  dfgnn_status (*allocate)(dfgnn_device *device, void **memory, size_t bytes);
  /* Work with the memory on other streams than the default one must be over. */
  void (*release)(dfgnn_device *device, void *memory);
  /* Releases memory once the work on the stream is over; the host does not
   * wait.  NULL: release is called instead. */
  void (*retire)(dfgnn_device *device, void *memory, void *stream);
  /* Waits for all streams of the device.  NULL: nothing to wait for. */
  void (*settle)(dfgnn_device *device);
  /* Blocking copies between any of host and device memory. */
  dfgnn_status (*copy)(dfgnn_device *device, void *to, const void *from,
                       size_t bytes);
  /* Sets device memory to bytes of one value, and waits. */
  dfgnn_status (*fill)(dfgnn_device *device, void *to, int byte, size_t bytes);
  dfgnn_status (*synchronize)(dfgnn_device *device, void *stream);
  int (*capturing)(dfgnn_device *device, void *stream);
  /* Makes the device the thread's current one while a variant prepares or
   * launches; leave takes the result of enter.  NULL: nothing to do. */
  int (*enter)(const dfgnn_device *device);
  void (*leave)(int previous);

  /* Checks a matrix (offsets start at 0, never fall, end at edges; indices in
   * range; blocks of graph_ptr not left) and fills max_degree and signature.
   * Failures name the first wrong row.  The fingerprint is the same on every
   * backend (lib/signature.h). */
  dfgnn_status (*analyze)(dfgnn_device *device, dfgnn_matrix *matrix,
                          dfgnn_signature *signature, int64_t graphs,
                          const int64_t *graph_ptr);
  /* The same in two steps: begin does not wait for the device; end does and
   * frees *pending.  With a NULL matrix end neither waits nor checks.
   * graph_ptr must last until end.  NULL: analyze does not wait either. */
  dfgnn_status (*analyze_begin)(dfgnn_device *device,
                                struct dfgnn_deferred **pending,
                                const dfgnn_matrix *matrix, int64_t graphs,
                                const int64_t *graph_ptr);
  dfgnn_status (*analyze_end)(dfgnn_device *device,
                              struct dfgnn_deferred *pending,
                              dfgnn_matrix *matrix, dfgnn_signature *signature);
  /* The largest degree of a matrix that is not analyzed.  NULL: finding it
   * would take a wait, so the number of edges stands for it. */
  int64_t (*max_degree)(const dfgnn_matrix *matrix);
  /* Narrows 64-bit device indices; out of range is an error naming the edge. */
  dfgnn_status (*narrow)(dfgnn_device *device, int32_t *to, const int64_t *from,
                         int64_t count);
  /* Builds a view, in the order of the backend's own stream; its arrays come
   * from allocate, array[0] owning none of the others: release each non-NULL
   * one. */
  dfgnn_status (*build_view)(dfgnn_device *device, dfgnn_view *view,
                             const dfgnn_matrix *matrix,
                             const dfgnn_signature *signature);

  /* Fails once for each list that the device found a fault in after the host
   * had gone on.  NULL: no list is. */
  dfgnn_status (*late_fault)(dfgnn_device *device);
  /* Makes a CSR matrix of an edge list whose arrays the device can read once
   * `stream` has come to this call, in the order of that stream.  order stays
   * NULL if the edges are known to be sorted by destination.  Ends out of range
   * are an error naming the edge, or one of late_fault if the checks may be
   * deferred. */
  dfgnn_status (*sort_edges)(dfgnn_device *device, dfgnn_sorted_edges *sorted,
                             const dfgnn_coo *coo, int deferred, void *stream);

  /* Work that the backend's own stream gets from now on waits for the work that
   * is on `stream` now.  NULL: there is no own stream. */
  dfgnn_status (*follow)(dfgnn_device *device, void *stream);
  /* mark makes *mark, new if it is NULL, stand for the work that is on a stream
   * now; await makes a stream wait for that work, await_mark the host.  NULL:
   * no work is ever under way when a call returns. */
  dfgnn_status (*mark)(dfgnn_device *device, void **mark, void *stream);
  dfgnn_status (*await)(dfgnn_device *device, void *mark, void *stream);
  dfgnn_status (*await_mark)(dfgnn_device *device, void *mark);
  void (*unmark)(dfgnn_device *device, void *mark);

  /* Measures the milliseconds of one call.  Calls f so often that launch and
   * timer cost are negligible (CUDA: replays a captured graph of short calls);
   * `repeats` > 0 fixes how often; DFGNN_BRIEFLY: as rarely as gives a time.
   * cold: the last-level cache is flushed before each timed call, outside the
   * timing. */
  dfgnn_status (*time)(dfgnn_device *device, dfgnn_sample *sample,
                       dfgnn_timed_function f, void *data, int repeats,
                       int cold);
  /* A watch times work on a stream that nobody waits for: watch_mark notes when
   * the stream comes to the begin of the work, then to its end; watch_read
   * gives the time between them, or returns 0 as long as it is not known.
   * Neither waits or allocates. */
  dfgnn_status (*watch_create)(dfgnn_device *device, void **watch);
  void (*watch_destroy)(dfgnn_device *device, void *watch);
  dfgnn_status (*watch_mark)(dfgnn_device *device, void *watch, int end,
                             void *stream);
  int (*watch_read)(dfgnn_device *device, void *watch, double *ms);
  /* Reads what else goes on on the device. */
  void (*load)(dfgnn_device *device, dfgnn_load *load);
  /* Bytes per second of a large copy, read plus written. */
  dfgnn_status (*copy_bandwidth)(dfgnn_device *device, double *bandwidth);
} dfgnn_backend;

extern const dfgnn_backend dfgnn__backend_cpu;
extern const dfgnn_backend dfgnn__backend_cuda;

#endif
