#include "kernels/mlp/cuda/run.h"

#include "base/error.h"

const char *dfgnn__mlp_cuda_missing(const dfgnn_mlp_job *job,
                                    const dfgnn_device_info *device) {
  (void)job;
  (void)device;
  return "MLPs on edges have no CUDA kernels yet";
}

int dfgnn__mlp_cuda_views(const dfgnn_mlp_job *job,
                          dfgnn_view_request *requests) {
  (void)job;
  (void)requests;
  return 0;
}

size_t dfgnn__mlp_cuda_workspace(const dfgnn_mlp_job *job,
                                 const dfgnn_device_info *device) {
  (void)job;
  (void)device;
  return 0;
}

dfgnn_status dfgnn__mlp_cuda(const dfgnn_mlp_job *job,
                             const dfgnn_view *const *views,
                             const dfgnn_queue *queue,
                             const dfgnn_device_info *device, void *workspace) {
  (void)views;
  (void)queue;
  (void)workspace;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s",
                     dfgnn__mlp_cuda_missing(job, device));
}
