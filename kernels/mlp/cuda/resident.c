/* resident.c - an MLP whose weights stay in shared memory: kernels of tiles */
#include <string.h>

#include "kernels/mlp/cuda/launch.h"

/* ---- programs ------------------------------------------------------------ */

/* A kernel over the shape of an MLP: the constants of shape<> in tile.cuh. */
static dfgnn_status launch_shaped(const dfgnn_mlp_run *r, const char *source,
                                  const char *name, int flags, dfgnn_grid grid,
                                  const void *params) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_program program = {.source = source,
                           .name = name,
                           .count = 11,
                           .constant = {DFGNN_TYPE(mlp->dtype),
                                        r->plan->flags & flags, r->plan->warps,
                                        mlp->layers, (int)mlp->edge_dim}};
  for (int l = 0; l < mlp->layers; l++)
    program.constant[5 + l] = dfgnn__mlp_width(mlp, l);
  program.constant[9] = (int)mlp->activation;
  program.constant[10] = (int)mlp->norm;
  return dfgnn__launch_struct(r->queue, &program, grid, params);
}

/* A block for each multiprocessor, or fewer. */
static dfgnn_grid grid_of_tiles(const dfgnn_mlp_run *r, int64_t spans) {
  const int64_t blocks = (spans + r->plan->warps - 1) / r->plan->warps;
  return (dfgnn_grid){
      .blocks = {(unsigned)dfgnn__mlp_least(blocks, r->plan->units)},
      .threads = (unsigned)r->plan->warps * 32,
      .shared = (unsigned)r->plan->shared_bytes,
      .carveout = DFGNN_CARVEOUT_L1};
}

static dfgnn_status pack_weights(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_pack p = {.norm_weight = a->norm_weight,
                .norm_bias = a->norm_bias,
                .packed = r->workspace + r->plan->packed};
  memcpy(p.weight, a->weight, sizeof p.weight);
  memcpy(p.bias, a->bias, sizeof p.bias);
  return launch_shaped(
      r, "kernels/mlp/cuda/pack.cuh", "dfgnn::mlp_pack_weights", 0,
      (dfgnn_grid){.blocks = {128}, .threads = MLP_THREADS}, &p);
}

/* ---- gradients of weights ------------------------------------------------ */

/* The products of a launch, whose first edge is first_edge of the graph. */
static dfgnn_status multiply_weights(const dfgnn_mlp_run *r,
                                     const mlp_backward_params *b,
                                     int64_t first_edge) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  mlp_weights_params p = {.products = mlp->layers,
                          .tiles = r->plan->weight_tiles,
                          .wide = r->graph.wide,
                          .first_edge = first_edge,
                          .edges = dfgnn__mlp_edges_from(r, first_edge),
                          .partial =
                              (float *)(r->workspace + r->plan->weight_partial),
                          .splits = r->plan->splits,
                          .add = first_edge > 0};
  int first = 0;
  for (int l = 0; l < mlp->layers; l++) {
    mlp_product *x = &p.product[l];
    *x = (mlp_product){.grad_z = b->grad_z[l],
                       .input = b->input[l],
                       .out = dfgnn__mlp_width(mlp, l),
                       .in = dfgnn__mlp_width(mlp, l - 1),
                       .first = first};
    x->tiles_in = dfgnn__mlp_tiles_along(x->in);
    first += dfgnn__mlp_tiles_along(x->out) * x->tiles_in;
    if (l)
      continue;
    x->grad_z = (char *)b->grad_first + 2 * first_edge * x->out;
    x->edge_order = r->graph.edge_order;
    x->input = (const char *)b->forward.edge +
               (x->edge_order ? 0 : 2 * first_edge * x->in);
  }
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/weights.cuh", "dfgnn::mlp_weights",
                    DFGNN_TYPE(mlp->dtype));
  /* weight_block<> of weights.cuh has the same rows: three stages of two sides
   * of 64 edges. */
  const dfgnn_grid grid = {.blocks = {(unsigned)(p.tiles * p.splits)},
                           .threads = MLP_THREADS,
                           .shared = 3 * 2 * 64 * (MLP_SIDE * 2 + 16),
                           .carveout = DFGNN_CARVEOUT_SHARED};
  return dfgnn__launch_struct(r->queue, &program, grid, &p);
}

static dfgnn_status finish_weights(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const dfgnn_program program = {.source = "kernels/mlp/cuda/weights.cuh",
                                 .name = "dfgnn::mlp_finish_weights"};
  mlp_finish_layers layers = {{{0}}};
  int64_t most = 0;
  int first = 0;
  for (int l = 0; l < mlp->layers; l++) {
    mlp_finish_params *p = &layers.layer[l];
    *p = (mlp_finish_params){
        .partial = (float *)(r->workspace + r->plan->weight_partial) +
                   (size_t)first * MLP_WEIGHT_TILE,
        .stride = (int64_t)r->plan->weight_tiles * MLP_WEIGHT_TILE,
        .splits = r->plan->splits,
        .weight = r->job->args.grad_weight[l],
        .bias = r->job->args.grad_bias[l],
        .out = dfgnn__mlp_width(mlp, l),
        .in = dfgnn__mlp_width(mlp, l - 1)};
    p->tiles_in = dfgnn__mlp_tiles_along(p->in);
    first += dfgnn__mlp_tiles_along(p->out) * p->tiles_in;
    if ((int64_t)p->out * (p->in + 1) > most)
      most = (int64_t)p->out * (p->in + 1);
  }
  return dfgnn__launch_struct(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(most, MLP_THREADS),
                              (unsigned)mlp->layers},
                   .threads = MLP_THREADS},
      &layers);
}

/* ---- passes -------------------------------------------------------------- */

static dfgnn_status forward(const dfgnn_mlp_run *r) {
  const mlp_forward_params p = dfgnn__mlp_forward_params(r);
  const int width = dfgnn__mlp_out_width(&r->job->mlp);
  dfgnn_status status = dfgnn__mlp_clear(r, p.sums.out, width);
  if (!status)
    status =
        launch_shaped(r, "kernels/mlp/cuda/forward.cuh", "dfgnn::mlp_forward",
                      MLP_RESIDUAL | MLP_KEPT, grid_of_tiles(r, p.spans), &p);
  return status ? status : dfgnn__mlp_merge(r, &p.sums, width);
}

/* Goes back from e' to z of the last layer, then through the layers. */
static dfgnn_status backward_launch(const dfgnn_mlp_run *r,
                                    mlp_backward_params *p) {
  const int last = r->job->mlp.layers - 1;
  mlp_rows_params rows = dfgnn__mlp_rows_params(r);
  rows.first = p->forward.first_span * r->plan->edges_of_span;
  rows.edges = dfgnn__mlp_edges_from(r, rows.first);
  rows.last = dfgnn__mlp_kept_rows(r, last, rows.first);
  for (int l = 0; l < last; l++)
    p->z[l] = dfgnn__mlp_kept_rows(r, l, rows.first);
  rows.pass = *p;
  dfgnn_status status = dfgnn__mlp_last_rows(r, &rows, p->grad_z[last]);
  if (!status)
    status = launch_shaped(
        r, "kernels/mlp/cuda/backward.cuh", "dfgnn::mlp_backward_layers",
        MLP_RESIDUAL | MLP_WEIGHTS | MLP_GRAD_EDGES | MLP_GRAD_DST,
        grid_of_tiles(r, p->forward.spans), p);
  if (!status && (r->plan->flags & MLP_WEIGHTS))
    status = multiply_weights(r, p, rows.first);
  return status;
}

static dfgnn_status backward(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_backward_params p = dfgnn__mlp_backward_params(r);
  const int64_t spans_of_launch =
      r->plan->edges_of_launch / r->plan->edges_of_span;
  const int width = dfgnn__mlp_width(&r->job->mlp, 0);
  dfgnn_status status = dfgnn__mlp_clear(r, a->grad_dst_part, width);
  for (int64_t s = 0; !status && s < r->plan->spans; s += spans_of_launch) {
    p.forward.first_span = s;
    p.forward.spans = dfgnn__mlp_least(r->plan->spans - s, spans_of_launch);
    p.add = s > 0;
    status = backward_launch(r, &p);
  }
  if (!status)
    status = dfgnn__mlp_merge(r, &p.forward.sums, width);
  if (!status)
    status = dfgnn__mlp_sum_first(r, a->grad_src_part, 1);
  if (!status && (r->plan->flags & MLP_WEIGHTS))
    status = finish_weights(r);
  return status ? status : dfgnn__mlp_finish_norm(r);
}

dfgnn_status dfgnn__mlp_resident(const dfgnn_mlp_run *r) {
  dfgnn_status status = pack_weights(r);
  if (status)
    return status;
  return r->job->pass == DFGNN_PASS_FORWARD ? forward(r) : backward(r);
}
