/* run.h - runs an MLP on edges as CUDA kernels */
#ifndef DFGNN_MLP_CUDA_RUN_H
#define DFGNN_MLP_CUDA_RUN_H

#include "kernels/mlp/cuda/plan.h"

/* Fills at most DFGNN_MAX_VIEWS requests, all 0 before; returns their number.
 */
int dfgnn__mlp_cuda_views(const dfgnn_mlp_job *job,
                          dfgnn_view_request *requests);

/* Bytes of device memory, 256-byte aligned, that a run needs. */
size_t dfgnn__mlp_cuda_workspace(const dfgnn_mlp_job *job,
                                 const dfgnn_device_info *device);

/* Puts the pass on the queue's stream.  views: as requested, in order. */
dfgnn_status dfgnn__mlp_cuda(const dfgnn_mlp_job *job,
                             const dfgnn_view *const *views,
                             const dfgnn_queue *queue,
                             const dfgnn_device_info *device, void *workspace);
/* The same, divided as `tuning` says (NULL: by the rule); the workspace is that
 * of such a plan. */
dfgnn_status
dfgnn__mlp_cuda_tuned(const dfgnn_mlp_job *job, const dfgnn_view *const *views,
                      const dfgnn_queue *queue, const dfgnn_device_info *device,
                      const dfgnn_mlp_tuning *tuning, void *workspace);

#endif
