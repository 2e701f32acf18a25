/* backend_cuda.h - what the files of the CUDA backend share */
#ifndef DFGNN_LIB_BACKEND_CUDA_H
#define DFGNN_LIB_BACKEND_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "lib/backend.h"

struct dfgnn_device {
  int ordinal, units;
  int64_t cache_bytes;
  cudaStream_t stream;  /* of copies, analysis and views: ordered with the
                         * legacy default stream */
  cudaStream_t timer;   /* of timing: not ordered with it, so that a capture
                         * does not disturb other threads */
  pthread_mutex_t lock; /* guards the timer's fields below */
  cudaEvent_t begin, end;
  void *flush; /* over twice the L2, for cold timing */
  size_t flush_bytes;
  double last_busy_ms;     /* host clock when the timer last used the GPU */
  double bandwidth;        /* once measured */
  struct dfgnn_nvml *nvml; /* NULL: no NVML */
};

/* Makes an error of the runtime ours; clears CUDA's own. */
dfgnn_status dfgnn__cuda_fail(cudaError_t error, const char *call);

#define DFGNN_CUDA_GO(call)                                                    \
  do {                                                                         \
    cudaError_t error_ = (call);                                               \
    if (error_ != cudaSuccess) {                                               \
      status = dfgnn__cuda_fail(error_, #call);                                \
      goto out;                                                                \
    }                                                                          \
  } while (0)

/* The caller's current device is put back by leave. */
int dfgnn__cuda_enter(const dfgnn_device *device);
void dfgnn__cuda_leave(int previous);

dfgnn_status dfgnn__cuda_allocate(dfgnn_device *device, void **memory,
                                  size_t bytes);
/* NULL is allowed. */
void dfgnn__cuda_release(dfgnn_device *device, void *memory);

/* lib/backend_cuda_views.c */
dfgnn_status dfgnn__cuda_build_view(dfgnn_device *device, dfgnn_view *view,
                                    const dfgnn_matrix *matrix,
                                    const dfgnn_signature *signature);
/* lib/backend_cuda_tiles.c; view's arrays are the caller's to release */
dfgnn_status dfgnn__cuda_build_tiles(dfgnn_device *device, dfgnn_view *view,
                                     const dfgnn_matrix *matrix);
dfgnn_status dfgnn__cuda_sort_edge_list(dfgnn_device *device,
                                        dfgnn_sorted_edges *sorted,
                                        const dfgnn_coo *coo, void *stream);

/* lib/backend_cuda_time.c */
dfgnn_status dfgnn__cuda_time(dfgnn_device *device, dfgnn_sample *sample,
                              dfgnn_timed_function f, void *data, int repeats,
                              int cold);
dfgnn_status dfgnn__cuda_copy_bandwidth(dfgnn_device *device,
                                        double *bandwidth);

/* lib/nvml.c: clocks and throttling of a GPU, by libnvidia-ml where there is
 * one. */
struct dfgnn_nvml *dfgnn__nvml_open(const char *pci_bus);
void dfgnn__nvml_close(struct dfgnn_nvml *nvml);
/* The multiprocessors' clock (0: not known); *throttled: slowed down by heat,
 * a power brake or a hardware fault. */
double dfgnn__nvml_clock(struct dfgnn_nvml *nvml, int *throttled);

#endif
