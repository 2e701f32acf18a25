/* edge_mlps.h - the kernels of MLPs on edges, of the family "mlp" */
#ifndef DFGNN_TESTS_COMPILE_EDGE_MLPS_H
#define DFGNN_TESTS_COMPILE_EDGE_MLPS_H

#include <stdint.h>

#include "kernels/mlp/cuda/plan.h"
#include "tests/common/edge_mlps.h"

/* Both passes with every tensor that there can be; they are at addresses that
 * nobody looks into. */
static dfgnn_mlp_job edge_mlp_job(const dfgnn_edge_mlp *mlp, dfgnn_pass pass,
                                  const dfgnn_matrix *matrix) {
  static _Alignas(64) float here[4];
  dfgnn_mlp_job job = {.mlp = *mlp,
                       .args = DFGNN_EDGE_MLP_ARGS_INIT,
                       .pass = pass,
                       .rows = *matrix};
  dfgnn_edge_mlp_args *a = &job.args;
  a->edge = a->dst_part = a->src_part = here;
  for (int l = 0; l < mlp->layers; l++)
    a->kept[l] = dfgnn_edge_mlp_kept_width(mlp, l) ? here : NULL;
  if (pass == DFGNN_PASS_FORWARD) {
    a->edge_out = here;
    a->out_dst = mlp->reduce_dst ? here : NULL;
    return job;
  }
  a->grad_edge_out = here;
  a->grad_out_dst = mlp->reduce_dst ? here : NULL;
  a->grad_edge = a->grad_dst_part = a->grad_src_part = here;
  a->grad_norm_weight = mlp->norm ? here : NULL;
  for (int l = 0; l < mlp->layers; l++)
    a->grad_bias[l] = here;
  return job;
}

static int collect_edge_mlps(dfgnn_programs *list, const char *family,
                             const dfgnn_matrix *matrix,
                             const dfgnn_device_info *device) {
  const dfgnn_queue queue = {.list = list};
  static const dfgnn_view nothing;
  const dfgnn_view *views[DFGNN_MAX_VIEWS];
  for (int i = 0; i < DFGNN_MAX_VIEWS; i++)
    views[i] = &nothing;
  if (!strstr("cuda.mlp", family))
    return 0;
  for (int i = 0; i < 2 * EDGE_MLPS; i++) {
    const dfgnn_mlp_job job =
        edge_mlp_job(&edge_mlps[i / 2], (dfgnn_pass)(i % 2), matrix);
    const dfgnn_mlp_plan plan = dfgnn__mlp_plan(&job, device);
    if (dfgnn__mlp_run(&job, &plan, views, &queue, NULL)) {
      fprintf(stderr, "FAILED MLP %d: %s\n", i / 2, dfgnn_last_error());
      exit(EXIT_FAILURE);
    }
  }
  return 2 * EDGE_MLPS;
}

#endif
