/* run.c - one pass of an MLP, by the way that its plan names */
#include "kernels/mlp/cuda/launch.h"

dfgnn_status dfgnn__mlp_run(const dfgnn_mlp_job *job,
                            const dfgnn_mlp_plan *plan,
                            const dfgnn_view *const *views,
                            const dfgnn_queue *queue, void *workspace) {
  dfgnn_mlp_run r = {.plan = plan,
                     .job = job,
                     .queue = queue,
                     .workspace = workspace,
                     .graph = {.row_of_edge = views[0]->array[0],
                               .indices = job->rows.indices,
                               .edge_order = job->rows.edge_order,
                               .wide = job->rows.offsets64,
                               .edges = job->rows.edges}};
  if (job->args.grad_src_part) {
    r.columns = dfgnn__transposed(&job->rows, views[1]);
    r.column_edges = views[1]->array[2];
  }
  return plan->resident ? dfgnn__mlp_resident(&r) : dfgnn__mlp_library(&r);
}
