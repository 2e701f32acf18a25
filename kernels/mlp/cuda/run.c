#include "kernels/mlp/cuda/run.h"

#include "kernels/mlp/cuda/launch.h"
#include "lib/base/error.h"

_Static_assert((int)MLP_SOFTPLUS == DFGNN_ACTIVATION_SOFTPLUS &&
                   (int)MLP_GELU_TANH == DFGNN_ACTIVATION_GELU_TANH &&
                   (int)MLP_NORM_RMS == DFGNN_NORM_RMS &&
                   (int)MLP_LAYERS == DFGNN_MLP_LAYERS,
               "params.h has the numbers of dfgnn_mlp.h");

/* ---- views --------------------------------------------------------------- */

static int needs_columns(const dfgnn_mlp_job *job) {
  return job->args.out_src || job->args.grad_src_part ||
         (job->args.grad_out_src && job->mlp.reduce_src != DFGNN_REDUCE_SUM);
}

int dfgnn__mlp_cuda_views(const dfgnn_mlp_job *job,
                          dfgnn_view_request *requests) {
  int count = 0;
  requests[count++].kind = DFGNN_VIEW_ROW_OF_EDGE;
  if (needs_columns(job))
    requests[count++].kind = DFGNN_VIEW_TRANSPOSE;
  return count;
}

size_t dfgnn__mlp_cuda_workspace(const dfgnn_mlp_job *job,
                                 const dfgnn_device_info *device) {
  return dfgnn__mlp_plan(job, device, NULL).bytes;
}

dfgnn_status
dfgnn__mlp_cuda_tuned(const dfgnn_mlp_job *job, const dfgnn_view *const *views,
                      const dfgnn_queue *queue, const dfgnn_device_info *device,
                      const dfgnn_mlp_tuning *tuning, void *workspace) {
  const dfgnn_mlp_tuning by_rule = {0};
  const char *refused =
      dfgnn__mlp_cuda_refuses(job, device, tuning ? tuning : &by_rule);
  if (refused)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", refused);
  dfgnn_mlp_run r = {.plan = dfgnn__mlp_plan(job, device, tuning),
                     .job = job,
                     .queue = queue,
                     .workspace = workspace,
                     .graph = {.row_of_edge = views[0]->array[0],
                               .indices = job->rows.indices,
                               .edge_order = job->rows.edge_order,
                               .wide = job->rows.offsets64,
                               .edges = job->rows.edges}};
  if (needs_columns(job)) {
    r.columns = dfgnn__transposed(&job->rows, views[1]);
    r.column_edges = views[1]->array[2];
  }
  return r.plan.by.way == DFGNN_MLP_RESIDENT ? dfgnn__mlp_resident(&r)
                                             : dfgnn__mlp_streamed(&r);
}

dfgnn_status dfgnn__mlp_cuda(const dfgnn_mlp_job *job,
                             const dfgnn_view *const *views,
                             const dfgnn_queue *queue,
                             const dfgnn_device_info *device, void *workspace) {
  return dfgnn__mlp_cuda_tuned(job, views, queue, device, NULL, workspace);
}
