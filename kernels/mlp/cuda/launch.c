#include "kernels/mlp/cuda/launch.h"

#include <string.h>

#include "kernels/common/cublaslt.h"

enum { LONG_COLUMN = 2048 };

/* ---- parameters ---------------------------------------------------------- */

mlp_forward_params dfgnn__mlp_forward_params(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_forward_params p = {
      .graph = r->graph,
      .packed = r->workspace + r->plan.packed,
      .edge = a->edge,
      .dst_part = a->dst_part,
      .src_part = a->src_part,
      .dst_factor = a->dst_factor,
      .src_factor = a->src_factor,
      .sums = {.partial = (float *)(r->workspace + r->plan.partial),
               .wide = r->graph.wide},
      .spans = r->plan.spans,
      .span = (int)r->plan.by.span,
      .slope = (float)r->job->mlp.slope,
      .epsilon = (float)r->job->mlp.epsilon};
  memcpy(p.kept, a->kept, sizeof p.kept);
  return p;
}

void *dfgnn__mlp_kept_rows(const dfgnn_mlp_run *r, int l, int64_t edge) {
  char *rows = r->job->args.kept[l];
  const int64_t at = edge * dfgnn__mlp_padded(&r->job->mlp, l);
  return rows ? rows + (size_t)at * dfgnn_dtype_size(r->job->mlp.dtype) : NULL;
}

mlp_backward_params dfgnn__mlp_backward_params(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int keep = r->plan.flags & MLP_WEIGHTS;
  mlp_backward_params p = {.forward = dfgnn__mlp_forward_params(r),
                           .grad_edge_out = a->grad_edge_out,
                           .grad_out_dst = a->grad_out_dst,
                           .grad_out_src = a->grad_out_src,
                           .arg_dst = a->arg_dst,
                           .row_offsets = r->job->rows.offsets,
                           .grad_edge = a->grad_edge,
                           .grad_dst_factor = a->grad_dst_factor,
                           .grad_src_factor = a->grad_src_factor,
                           .grad_first = keep || a->grad_src_part
                                             ? r->workspace + r->plan.grad_first
                                             : NULL};
  p.forward.sums.out = a->grad_dst_part;
  if (mlp->reduce_dst == DFGNN_REDUCE_MEAN)
    p.dst_offsets = r->job->rows.offsets;
  if (mlp->reduce_src == DFGNN_REDUCE_MEAN)
    p.src_offsets = r->columns.offsets;
  if (dfgnn__mlp_wants_norm(r->job))
    p.norm_partial = (float *)(r->workspace + r->plan.norm_partial);
  if (keep && dfgnn__mlp_copies_edges(&r->plan))
    p.input[0] = r->workspace + r->plan.input[0];
  for (int l = 1; l < mlp->layers; l++) {
    p.input[l] = r->workspace + r->plan.input[l];
    p.grad_z[l] = r->workspace + r->plan.grad_z[l];
    if (!dfgnn__mlp_is_kept(r->job))
      p.z[l - 1] = r->workspace + r->plan.z[l - 1];
  }
  return p;
}

/* ---- rows that no edge writes -------------------------------------------- */

dfgnn_status dfgnn__mlp_clear(const dfgnn_mlp_run *r, void *rows, int64_t count,
                              int64_t width) {
  if (!rows || !count)
    return DFGNN_OK;
  return dfgnn__fill(r->queue, rows, 0,
                     (size_t)(count * width) *
                         dfgnn_dtype_size(r->job->mlp.dtype));
}

dfgnn_status dfgnn__mlp_clear_args(const dfgnn_mlp_run *r) {
  const int64_t numbers =
      r->job->rows.destinations * dfgnn__mlp_out_width(&r->job->mlp);
  if (!r->job->args.arg_dst || !numbers)
    return DFGNN_OK;
  return dfgnn__fill(r->queue, r->job->args.arg_dst, 0xff,
                     (size_t)numbers * sizeof(int32_t));
}

/* ---- reductions ---------------------------------------------------------- */

int dfgnn__mlp_extreme(dfgnn_reduce reduce) {
  return reduce == DFGNN_REDUCE_MAX ? 1 : reduce == DFGNN_REDUCE_MIN ? -1 : 0;
}

dfgnn_status dfgnn__mlp_merge(const dfgnn_mlp_run *r, const mlp_sums *sums,
                              int64_t width, int padded, int extreme) {
  mlp_sums s = *sums;
  mlp_graph graph = r->graph;
  int64_t spans = r->plan.spans, edges = r->plan.edges_of_span;
  int columns = (int)width;
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/spans.cuh", "dfgnn::mlp_merge",
                    DFGNN_TYPE(r->job->mlp.dtype), extreme);
  void *arguments[] = {&graph, &s, &spans, &edges, &columns, &padded};
  if (spans < 2)
    return DFGNN_OK;
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(spans, MLP_THREADS / 32)},
                   .threads = MLP_THREADS},
      arguments);
}

/* The grid of a kernel with a warp for each column, or of one with a block for
 * each long one. */
static dfgnn_grid grid_of_columns(const dfgnn_mlp_run *r, int64_t columns,
                                  int longs) {
  const unsigned blocks =
      longs ? (unsigned)dfgnn__mlp_least(columns, 2 * r->plan.units)
            : dfgnn__mlp_blocks(columns, MLP_THREADS / 32);
  return (dfgnn_grid){.blocks = {blocks}, .threads = MLP_THREADS};
}

static dfgnn_status sum_columns(const dfgnn_mlp_run *r,
                                const mlp_gather_params *p,
                                int64_t max_degree) {
  const dfgnn_dtype dtype = r->job->mlp.dtype;
  const int chunks = (int)p->stride * (int)dfgnn_dtype_size(dtype) / MLP_CHUNK;
  int lanes = 4;
  while (lanes < chunks && lanes < 32)
    lanes *= 2;
  dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/gather.cuh", "dfgnn::mlp_gather",
                    DFGNN_TYPE(dtype), lanes);
  if (!p->columns)
    return DFGNN_OK;
  dfgnn_status status = dfgnn__launch_struct(
      r->queue, &program, grid_of_columns(r, p->columns, 0), p);
  if (!status && max_degree > LONG_COLUMN) {
    program.name = "dfgnn::mlp_gather_long";
    status = dfgnn__launch_struct(r->queue, &program,
                                  grid_of_columns(r, p->columns, 1), p);
  }
  return status;
}

static mlp_gather_params columns_of(const dfgnn_mlp_run *r, void *to,
                                    size_t from, int64_t width, int padded) {
  return (mlp_gather_params){.from = r->workspace + from,
                             .stride = padded,
                             .columns = r->columns.destinations,
                             .offsets = r->columns.offsets,
                             .edges = r->column_edges,
                             .to = to,
                             .width = (int)width,
                             .wide = r->columns.offsets64,
                             .long_column = LONG_COLUMN};
}

dfgnn_status dfgnn__mlp_sum_at_sources(const dfgnn_mlp_run *r, void *to,
                                       size_t from, int64_t width, int padded,
                                       int mean) {
  mlp_gather_params p = columns_of(r, to, from, width, padded);
  p.mean = mean;
  return sum_columns(r, &p, r->columns.max_degree);
}

dfgnn_status dfgnn__mlp_sum_at_destinations(const dfgnn_mlp_run *r, void *to,
                                            size_t from, int64_t width,
                                            int padded) {
  mlp_gather_params p = columns_of(r, to, from, width, padded);
  p.columns = r->job->rows.destinations;
  p.offsets = r->job->rows.offsets;
  p.edges = NULL;
  p.wide = r->job->rows.offsets64;
  return sum_columns(r, &p, r->job->rows.max_degree);
}

static dfgnn_status extremes_at_sources(const dfgnn_mlp_run *r,
                                        const mlp_gather_params *p,
                                        int extreme) {
  dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/gather.cuh", "dfgnn::mlp_gather_extremes",
                    DFGNN_TYPE(r->job->mlp.dtype), extreme, 1);
  if (!p->columns)
    return DFGNN_OK;
  dfgnn_status status = dfgnn__launch_struct(
      r->queue, &program, grid_of_columns(r, p->columns, 0), p);
  if (!status && r->columns.max_degree > LONG_COLUMN) {
    program.constant[2] = MLP_THREADS / 32;
    status = dfgnn__launch_struct(r->queue, &program,
                                  grid_of_columns(r, p->columns, 1), p);
  }
  return status;
}

dfgnn_status dfgnn__mlp_reduce_at_sources(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  mlp_gather_params p = columns_of(r, r->job->args.out_src, r->plan.edge_rows,
                                   dfgnn__mlp_out_width(mlp),
                                   dfgnn__mlp_padded(mlp, mlp->layers - 1));
  p.mean = mlp->reduce_src == DFGNN_REDUCE_MEAN;
  p.arg = r->job->args.arg_src;
  return dfgnn__mlp_is_extreme(mlp->reduce_src)
             ? extremes_at_sources(r, &p, dfgnn__mlp_extreme(mlp->reduce_src))
             : sum_columns(r, &p, r->columns.max_degree);
}

/* ---- gradients of weights and of the norm -------------------------------- */

static int tiles_along(int width) {
  return width > MLP_SIDE ? (width + MLP_SIDE - 1) / MLP_SIDE : 1;
}

/* The products of a launch, whose first edge is first_edge of the graph. */
static mlp_weights_params products_of(const dfgnn_mlp_run *r,
                                      const mlp_backward_params *b,
                                      int64_t first_edge) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const size_t size = dfgnn_dtype_size(mlp->dtype);
  mlp_weights_params p = {.products = mlp->layers,
                          .tiles = r->plan.weight_tiles,
                          .wide = r->graph.wide,
                          .first_edge = first_edge,
                          .edges = dfgnn__mlp_least(r->graph.edges - first_edge,
                                                    r->plan.edges_of_launch),
                          .partial =
                              (float *)(r->workspace + r->plan.weight_partial),
                          .splits = r->plan.splits,
                          .add = first_edge > 0};
  int first = 0;
  for (int l = 0; l < mlp->layers; l++) {
    const int in = dfgnn__mlp_padded(mlp, l - 1);
    const int out = dfgnn__mlp_padded(mlp, l);
    mlp_product *x = &p.product[l];
    *x = (mlp_product){.grad_z = b->grad_z[l],
                       .input = b->input[l],
                       .grad_stride = out,
                       .input_stride = in,
                       .out = out,
                       .in = in,
                       .first = first,
                       .tiles_in = tiles_along(in)};
    first += tiles_along(out) * x->tiles_in;
    if (l)
      continue;
    x->grad_z = (char *)b->grad_first + (size_t)first_edge * (size_t)out * size;
    if (!x->input) { /* rows of e itself */
      x->edge_order = r->graph.edge_order;
      x->input_stride = mlp->edge_dim;
      x->in = (int)mlp->edge_dim;
      x->input = b->forward.edge
                     ? (const char *)b->forward.edge +
                           (x->edge_order ? 0
                                          : (size_t)first_edge *
                                                (size_t)mlp->edge_dim * size)
                     : x->grad_z;
    }
  }
  return p;
}

/* The products by a library, which adds them to the gradients themselves. */
static dfgnn_status library_weights(const dfgnn_mlp_run *r,
                                    const mlp_weights_params *p) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_status status = DFGNN_OK;
  for (int l = 0; !status && l < p->products; l++) {
    const mlp_product *x = &p->product[l];
    float *to = r->job->args.grad_weight[l];
    const dfgnn_gemm gemm = {.dtype = mlp->dtype,
                             .to_dtype = DFGNN_F32,
                             .rows = x->out,
                             .columns = x->in,
                             .inner = p->edges,
                             .a = x->grad_z,
                             .b = x->input,
                             .a_transposed = 1,
                             .a_stride = x->grad_stride,
                             .b_stride = x->input_stride,
                             .to = to,
                             .to_stride = x->in,
                             .keep = (float)p->add};
    if (!to || !x->in)
      continue;
    status = p->edges
                 ? dfgnn__multiply(r->queue, &gemm, r->workspace + r->plan.gemm)
                 : dfgnn__fill(r->queue, to, 0,
                               (size_t)x->out * (size_t)x->in * sizeof *to);
  }
  return status;
}

dfgnn_status dfgnn__mlp_multiply_weights(const dfgnn_mlp_run *r,
                                         const mlp_backward_params *b,
                                         int64_t first_edge) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const mlp_weights_params p = products_of(r, b, first_edge);
  if (dfgnn__mlp_by_library(&r->plan))
    return library_weights(r, &p);
  const int wide = mlp->dtype == DFGNN_F32;
  /* weight_block<> of weights.cuh and group_block<> of weights_sm90a.cuh have
   * the same: rows of so many bytes, and 1024 for their alignment. */
  const unsigned row = wide ? MLP_SIDE * 4 + 32 : MLP_SIDE * 2 + 16;
  const dfgnn_program of_warps =
      DFGNN_PROGRAM("kernels/mlp/cuda/weights.cuh", "dfgnn::mlp_weights",
                    DFGNN_TYPE(mlp->dtype), (r->plan.flags & MLP_EXACT) != 0);
  const dfgnn_program of_groups =
      DFGNN_PROGRAM("kernels/mlp/cuda/weights_sm90a.cuh",
                    "dfgnn::mlp_weights_of_groups", DFGNN_TYPE(mlp->dtype));
  const int groups = r->plan.by.wgmma == DFGNN_MLP_WGMMA;
  const dfgnn_grid grid = {.blocks = {(unsigned)(p.tiles * p.splits)},
                           .threads = MLP_THREADS,
                           .shared = groups ? 3 * 2 * 64 * MLP_SIDE * 2 + 1024
                                            : 3 * 2 * (wide ? 32 : 64) * row,
                           .carveout = DFGNN_CARVEOUT_SHARED};
  return dfgnn__launch_struct(r->queue, groups ? &of_groups : &of_warps, grid,
                              &p);
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
        .partial = (float *)(r->workspace + r->plan.weight_partial) +
                   (size_t)first * MLP_WEIGHT_TILE,
        .stride = (int64_t)r->plan.weight_tiles * MLP_WEIGHT_TILE,
        .splits = r->plan.splits,
        .weight = r->job->args.grad_weight[l],
        .bias = r->job->args.grad_bias[l],
        .out = (int)mlp->width[l],
        .in = (int)dfgnn__mlp_in_width(mlp, l),
        .tiles_in = tiles_along(dfgnn__mlp_padded(mlp, l - 1))};
    first += tiles_along(dfgnn__mlp_padded(mlp, l)) * p->tiles_in;
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

/* Adds `parts` rows of `stride`: two sums of `width` numbers, the second from
 * number `second` on. */
static dfgnn_status finish_sums(const dfgnn_mlp_run *r, size_t from, int parts,
                                int stride, int second, int width, float *to,
                                float *to_second) {
  const dfgnn_program program = {.source = "kernels/mlp/cuda/gather.cuh",
                                 .name = "dfgnn::mlp_finish_sums"};
  const float *partial = (float *)(r->workspace + from);
  void *arguments[] = {&partial, &parts, &stride,   &second,
                       &width,   &to,    &to_second};
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(2 * width, 32)},
                   .threads = MLP_THREADS},
      arguments);
}

static dfgnn_status finish_norm(const dfgnn_mlp_run *r, int parts) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int padded = dfgnn__mlp_padded(mlp, mlp->layers - 1);
  return finish_sums(r, r->plan.norm_partial, parts, 2 * padded, padded,
                     (int)dfgnn__mlp_out_width(mlp),
                     r->job->args.grad_norm_weight,
                     r->job->args.grad_norm_bias);
}

static dfgnn_status finish_biases(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_status status = DFGNN_OK;
  for (int l = 0; !status && l < mlp->layers; l++)
    if (r->job->args.grad_bias[l])
      status =
          finish_sums(r, r->plan.bias_partial[l],
                      dfgnn__mlp_bias_parts(&r->plan, l), (int)mlp->width[l], 0,
                      (int)mlp->width[l], r->job->args.grad_bias[l], NULL);
  return status;
}

dfgnn_status dfgnn__mlp_finish_gradients(const dfgnn_mlp_run *r,
                                         int64_t parts) {
  dfgnn_status status = DFGNN_OK;
  if (r->plan.flags & MLP_WEIGHTS)
    status =
        dfgnn__mlp_by_library(&r->plan) ? finish_biases(r) : finish_weights(r);
  if (!status && dfgnn__mlp_wants_norm(r->job))
    status = finish_norm(r, (int)parts);
  return status;
}
