#include "base/error.h"
#include "kernels/mlp/job.h"

dfgnn_status dfgnn__mlp_cpu(const dfgnn_mlp_job *job) {
  (void)job;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "MLPs on edges have no CPU kernels yet");
}
