#include "kernels/mlp/cuda/launch.h"

#include <string.h>

enum { LONG_COLUMN = 2048 };

/* ---- parameters ---------------------------------------------------------- */

mlp_forward_params dfgnn__mlp_forward_params(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_forward_params p = {
      .graph = r->graph,
      .packed = r->workspace + r->plan->packed,
      .edge = a->edge,
      .dst_part = a->dst_part,
      .src_part = a->src_part,
      .edge_out = a->edge_out,
      .sums = {.out = a->out_dst,
               .partial = (float *)(r->workspace + r->plan->partial),
               .offsets = r->job->mlp.reduce_dst == DFGNN_REDUCE_MEAN
                              ? r->job->rows.offsets
                              : NULL,
               .wide = r->graph.wide},
      .spans = r->plan->spans,
      .span = (int)r->plan->span,
      .epsilon = (float)r->job->mlp.epsilon};
  memcpy(p.kept, a->kept, sizeof p.kept);
  return p;
}

void *dfgnn__mlp_kept_rows(const dfgnn_mlp_run *r, int l, int64_t edge) {
  char *rows = r->job->args.kept[l];
  return rows ? rows + 2 * edge * dfgnn__mlp_width(&r->job->mlp, l) : NULL;
}

mlp_backward_params dfgnn__mlp_backward_params(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int weights = r->plan->flags & MLP_WEIGHTS;
  mlp_backward_params p = {.forward = dfgnn__mlp_forward_params(r),
                           .grad_edge_out = a->grad_edge_out,
                           .grad_out_dst = a->grad_out_dst,
                           .grad_edge = a->grad_edge,
                           .grad_first =
                               !r->plan->resident || weights || a->grad_src_part
                                   ? r->workspace + r->plan->grad_first
                                   : NULL};
  p.dst_offsets = p.forward.sums.offsets;
  p.forward.sums.offsets = NULL;
  p.forward.sums.out = a->grad_dst_part;
  if (a->grad_norm_weight || a->grad_norm_bias)
    p.norm_partial = (float *)(r->workspace + r->plan->norm_partial);
  if (weights && dfgnn__mlp_copies_edges(r->plan, r->job))
    p.input[0] = r->workspace + r->plan->input[0];
  for (int l = 1; l < r->job->mlp.layers; l++) {
    p.input[l] = r->workspace + r->plan->input[l];
    p.grad_z[l] = r->workspace + r->plan->grad_z[l];
  }
  return p;
}

mlp_rows_params dfgnn__mlp_rows_params(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  return (mlp_rows_params){.first_width = dfgnn__mlp_width(mlp, 0),
                           .out_width = dfgnn__mlp_out_width(mlp),
                           .norm_weight = r->job->args.norm_weight,
                           .norm_bias = r->job->args.norm_bias,
                           .last = r->workspace + r->plan->last,
                           .residual = mlp->residual};
}

/* ---- sums at nodes ------------------------------------------------------- */

dfgnn_status dfgnn__mlp_clear(const dfgnn_mlp_run *r, void *rows,
                              int64_t width) {
  return rows ? dfgnn__fill(r->queue, rows, 0,
                            2 * (size_t)(r->job->rows.destinations * width))
              : DFGNN_OK;
}

dfgnn_status dfgnn__mlp_merge(const dfgnn_mlp_run *r, const mlp_sums *sums,
                              int width) {
  mlp_sums s = *sums;
  mlp_graph graph = r->graph;
  int64_t spans = r->plan->spans, edges = r->plan->edges_of_span;
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/spans.cuh", "dfgnn::mlp_merge",
                    DFGNN_TYPE(r->job->mlp.dtype));
  void *arguments[] = {&graph, &s, &spans, &edges, &width};
  if (!s.out || spans < 2)
    return DFGNN_OK;
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(spans, MLP_THREADS / 32)},
                   .threads = MLP_THREADS},
      arguments);
}

dfgnn_status dfgnn__mlp_sum_first(const dfgnn_mlp_run *r, void *to,
                                  int at_sources) {
  const dfgnn_matrix *m = at_sources ? &r->columns : &r->job->rows;
  const mlp_gather_params p = {.from = r->workspace + r->plan->grad_first,
                               .columns = m->destinations,
                               .offsets = m->offsets,
                               .edges = at_sources ? r->column_edges : NULL,
                               .to = to,
                               .width = dfgnn__mlp_width(&r->job->mlp, 0),
                               .wide = m->offsets64,
                               .long_column = LONG_COLUMN};
  int lanes = 4;
  while (lanes < p.width * 2 / MLP_CHUNK && lanes < 32)
    lanes *= 2;
  dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/gather.cuh", "dfgnn::mlp_gather",
                    DFGNN_TYPE(r->job->mlp.dtype), lanes);
  dfgnn_grid grid = {.blocks = {dfgnn__mlp_blocks(p.columns, MLP_THREADS / 32)},
                     .threads = MLP_THREADS};
  if (!to)
    return DFGNN_OK;
  dfgnn_status status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  if (!status && m->max_degree > LONG_COLUMN) {
    program.name = "dfgnn::mlp_gather_long";
    grid.blocks[0] = (unsigned)dfgnn__mlp_least(p.columns, 2 * r->plan->units);
    status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  }
  return status;
}

/* ---- rows of the last layer, backward ------------------------------------ */

unsigned dfgnn__mlp_row_blocks(const dfgnn_mlp_run *r, int64_t edges) {
  return (unsigned)dfgnn__mlp_least(dfgnn__mlp_blocks(edges, MLP_ROWS),
                                    MLP_ROW_BLOCKS * (int64_t)r->plan->units);
}

/* Bytes of a block's copies of rows; last_shape<> of lane_rows.cuh computes the
 * same. */
static unsigned copy_bytes(const dfgnn_mlp_run *r) {
  const int width = dfgnn__mlp_out_width(&r->job->mlp);
  const int lanes = width > 128 ? 32 : width > 64 ? 16 : 8;
  const int copies = (r->job->mlp.norm != DFGNN_NORM_NONE) +
                     !!(r->plan->flags & MLP_GRAD_EDGES) +
                     !!(r->plan->flags & MLP_GRAD_DST);
  const int bytes = 2 * MLP_ROW_WARPS * 32 / lanes * copies * width * 2;
  return bytes <= MLP_COPY_BYTES ? (unsigned)bytes : 0;
}

dfgnn_status dfgnn__mlp_last_rows(const dfgnn_mlp_run *r,
                                  const mlp_rows_params *params, void *grad_z) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  mlp_rows_params p = *params;
  void *arguments[] = {&p, &grad_z};
  const int flags =
      r->plan->flags & (MLP_GRAD_EDGES | MLP_GRAD_DST | MLP_LAST_BIAS);
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/last_rows.cuh", "dfgnn::mlp_last_rows",
                    DFGNN_TYPE(mlp->dtype), flags, (int)mlp->norm, p.out_width);
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_row_blocks(r, p.edges)},
                   .threads = MLP_ROW_WARPS * 32,
                   .shared = copy_bytes(r)},
      arguments);
}

dfgnn_status dfgnn__mlp_finish_sums(const dfgnn_mlp_run *r, size_t from,
                                    int parts, int stride, int width, float *to,
                                    float *to_second) {
  const dfgnn_program program = {.source = "kernels/mlp/cuda/gather.cuh",
                                 .name = "dfgnn::mlp_finish_sums"};
  const float *partial = (float *)(r->workspace + from);
  void *arguments[] = {&partial, &parts, &stride, &width, &to, &to_second};
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(2 * width, 32)},
                   .threads = MLP_THREADS},
      arguments);
}

dfgnn_status dfgnn__mlp_finish_norm(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int width = dfgnn__mlp_out_width(&r->job->mlp);
  if (!a->grad_norm_weight && !a->grad_norm_bias)
    return DFGNN_OK;
  return dfgnn__mlp_finish_sums(
      r, r->plan->norm_partial,
      (int)dfgnn__mlp_row_blocks(r, dfgnn__mlp_edges_from(r, 0)), 2 * width,
      width, a->grad_norm_weight, a->grad_norm_bias);
}
