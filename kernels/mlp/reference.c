#include "base/error.h"
#include "kernels/mlp/job.h"

dfgnn_status dfgnn__mlp_compare(double *worst, const char **where,
                                const dfgnn_mlp_job *job) {
  (void)worst;
  (void)where;
  (void)job;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "MLPs on edges have no reference yet");
}
