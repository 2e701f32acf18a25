/* resident.c - an MLP whose weights stay in shared memory: kernels of tiles */
#include <string.h>

#include "kernels/mlp/cuda/launch.h"

/* ---- programs ------------------------------------------------------------ */

/* A kernel over the shape of an MLP: the constants of shape<> in tile.cuh. */
static dfgnn_program shaped(const dfgnn_mlp_run *r, const char *source,
                            const char *name) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_program program = {.source = source,
                           .name = name,
                           .count = 12,
                           .constant = {DFGNN_TYPE(mlp->dtype), 0, 1,
                                        mlp->layers, (int)mlp->edge_dim}};
  for (int l = 0; l < mlp->layers; l++)
    program.constant[5 + l] = (int)mlp->width[l];
  return program;
}

/* A kernel of tiles. */
static dfgnn_status launch_tiles(const dfgnn_mlp_run *r, const char *source,
                                 const char *name, dfgnn_grid grid,
                                 const void *params) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_program program = shaped(r, source, name);
  program.constant[1] = r->plan.flags;
  program.constant[2] = (int)r->plan.by.warps;
  program.constant[9] = (int)mlp->activation;
  program.constant[10] = (int)mlp->last;
  program.constant[11] = (int)mlp->norm;
  return dfgnn__launch_struct(r->queue, &program, grid, params);
}

/* Edges of a launch whose first is `first`. */
static int64_t edges_from(const dfgnn_mlp_run *r, int64_t first) {
  return dfgnn__mlp_least(r->graph.edges - first, r->plan.edges_of_launch);
}

static dfgnn_grid grid_of_tiles(const dfgnn_mlp_run *r, int64_t spans) {
  const int64_t blocks = (spans + r->plan.by.warps - 1) / r->plan.by.warps;
  return (dfgnn_grid){.blocks = {(unsigned)dfgnn__mlp_least(
                          blocks < 1 ? 1 : blocks, r->plan.units)},
                      .threads = (unsigned)r->plan.by.warps * 32,
                      .shared = (unsigned)r->plan.shared_bytes,
                      .carveout = DFGNN_CARVEOUT_L1};
}

static dfgnn_status pack_weights(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_pack p = {.norm_weight = a->norm_weight,
                .norm_bias = a->norm_bias,
                .packed = r->workspace + r->plan.packed};
  memcpy(p.weight, a->weight, sizeof p.weight);
  memcpy(p.bias, a->bias, sizeof p.bias);
  dfgnn_program program =
      shaped(r, "kernels/mlp/cuda/pack.cuh", "dfgnn::mlp_pack_weights");
  program.constant[1] = r->plan.flags & MLP_EXACT;
  return dfgnn__launch_struct(
      r->queue, &program, (dfgnn_grid){.blocks = {128}, .threads = MLP_THREADS},
      &p);
}

/* ---- forward ------------------------------------------------------------- */

static dfgnn_status forward(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int last = r->job->mlp.layers - 1;
  mlp_forward_params p = dfgnn__mlp_forward_params(r);
  p.edge_out = a->edge_out;
  p.edge_rows = a->out_src ? r->workspace + r->plan.edge_rows : NULL;
  p.sums.out = a->out_dst;
  p.sums.arg = a->arg_dst;
  p.sums.partial_arg = (int32_t *)(r->workspace + r->plan.partial_arg);
  const dfgnn_reduce reduce = r->job->mlp.reduce_dst;
  if (reduce == DFGNN_REDUCE_MEAN || dfgnn__mlp_is_extreme(reduce))
    p.sums.offsets = r->job->rows.offsets;
  const int64_t width = r->job->mlp.width[last];
  const int padded = dfgnn__mlp_padded(&r->job->mlp, last);
  dfgnn_status status =
      dfgnn__mlp_clear(r, a->out_dst, r->job->rows.destinations, width);
  if (!status)
    status = dfgnn__mlp_clear_args(r);
  if (!status && r->graph.edges)
    status = launch_tiles(r, "kernels/mlp/cuda/forward.cuh",
                          "dfgnn::mlp_forward", grid_of_tiles(r, p.spans), &p);
  if (!status && a->out_dst && r->graph.edges)
    status =
        dfgnn__mlp_merge(r, &p.sums, width, padded, dfgnn__mlp_extreme(reduce));
  if (!status && a->out_src)
    status = dfgnn__mlp_reduce_at_sources(r);
  return status;
}

/* ---- backward ------------------------------------------------------------ */

/* Goes back to the last layer's z, which was kept, or is computed again with
 * the values of all layers. */
static dfgnn_status begin_launch(const dfgnn_mlp_run *r, mlp_backward_params *p,
                                 dfgnn_grid grid) {
  const int last = r->job->mlp.layers - 1;
  const int64_t first = p->forward.first_span * r->plan.edges_of_span;
  if (!dfgnn__mlp_is_kept(r->job))
    return launch_tiles(r, "kernels/mlp/cuda/backward.cuh",
                        "dfgnn::mlp_backward_last", grid, p);
  mlp_streamed_params rows = dfgnn__mlp_streamed_params(r);
  for (int l = 0; l < last; l++)
    p->z[l] = dfgnn__mlp_kept_rows(r, l, first);
  rows.pass = *p;
  rows.first = first;
  rows.edges = edges_from(r, first);
  rows.last = dfgnn__mlp_kept_rows(r, last, first);
  const dfgnn_status status =
      r->plan.flags & MLP_WEIGHTS ? dfgnn__mlp_copy_input(r, &rows) : DFGNN_OK;
  return status ? status : dfgnn__mlp_last_rows(r, &rows, p->grad_z[last]);
}

static dfgnn_status backward(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_backward_params p = dfgnn__mlp_backward_params(r);
  const int64_t edges_of_span = r->plan.edges_of_span;
  const int64_t spans_of_launch = r->plan.edges_of_launch / edges_of_span;
  int64_t parts = 0; /* of the norm's gradients */
  const int64_t width = r->job->mlp.width[0];
  const int padded = dfgnn__mlp_padded(&r->job->mlp, 0);
  dfgnn_status status =
      dfgnn__mlp_clear(r, a->grad_dst_part, r->job->rows.destinations, width);
  for (int64_t s = 0; !status && s < r->plan.spans && r->graph.edges;
       s += spans_of_launch) {
    p.forward.first_span = s;
    p.forward.spans = dfgnn__mlp_least(r->plan.spans - s, spans_of_launch);
    const dfgnn_grid grid = grid_of_tiles(r, p.forward.spans);
    p.add = s > 0;
    if (!s)
      parts = dfgnn__mlp_is_kept(r->job)
                  ? dfgnn__mlp_row_blocks(r, edges_from(r, 0))
                  : (int64_t)grid.blocks[0] * r->plan.by.warps;
    status = begin_launch(r, &p, grid);
    if (!status)
      status = launch_tiles(r, "kernels/mlp/cuda/backward.cuh",
                            "dfgnn::mlp_backward_layers", grid, &p);
    if (!status && (r->plan.flags & MLP_WEIGHTS))
      status = dfgnn__mlp_multiply_weights(r, &p, s * edges_of_span);
  }
  if (!status && !r->graph.edges && (r->plan.flags & MLP_WEIGHTS))
    status = dfgnn__mlp_multiply_weights(r, &p, 0); /* zeros */
  if (!status && a->grad_dst_part && r->graph.edges)
    status = dfgnn__mlp_merge(r, &p.forward.sums, width, padded, 0);
  if (!status && a->grad_src_part)
    status = dfgnn__mlp_sum_at_sources(r, a->grad_src_part, r->plan.grad_first,
                                       width, padded, 0);
  return status ? status : dfgnn__mlp_finish_gradients(r, parts);
}

dfgnn_status dfgnn__mlp_resident(const dfgnn_mlp_run *r) {
  dfgnn_status status = pack_weights(r);
  if (status)
    return status;
  return r->job->pass == DFGNN_PASS_FORWARD ? forward(r) : backward(r);
}
