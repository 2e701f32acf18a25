#include "kernels/mlp/cuda/run.h"

#include <string.h>

#include "base/error.h"
#include "kernels/mlp/cuda/params.h"
#include "kernels/mlp/cuda/plan.h"

_Static_assert((int)MLP_SOFTPLUS == DFGNN_ACTIVATION_SOFTPLUS &&
                   (int)MLP_GELU_TANH == DFGNN_ACTIVATION_GELU_TANH &&
                   (int)MLP_NORM_RMS == DFGNN_NORM_RMS &&
                   (int)MLP_LAYERS == DFGNN_MLP_LAYERS,
               "params.h has the numbers of dfgnn_mlp.h");

enum { THREADS = 256, LONG_COLUMN = 2048 };

typedef struct run {
  dfgnn_mlp_plan plan;
  const dfgnn_mlp_job *job;
  const dfgnn_queue *queue;
  char *workspace;
  mlp_graph graph;
  dfgnn_matrix columns;     /* where the pass sums at sources, and */
  const void *column_edges; /* the graph's edges of them */
} run;

static unsigned blocks_of(int64_t items, int64_t each) {
  const int64_t blocks = (items + each - 1) / each;
  return (unsigned)(blocks < 1 ? 1 : blocks);
}

static unsigned least(int64_t a, int64_t b) {
  return (unsigned)(a < b ? a : b);
}

/* ---- views --------------------------------------------------------------- */

static int needs_columns(const dfgnn_mlp_job *job) {
  return job->args.out_src || job->args.grad_src_part ||
         (job->args.grad_out_src && job->mlp.reduce_src == DFGNN_REDUCE_MEAN);
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
  const dfgnn_mlp_tuning by_rule = {0};
  return dfgnn__mlp_plan(job, device, &by_rule).bytes;
}

/* ---- programs ------------------------------------------------------------ */

/* A kernel over the shape of an MLP: the constants of shape<> in tile.cuh. */
static dfgnn_program shaped(const run *r, const char *source,
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
static dfgnn_status launch_tiles(const run *r, const char *source,
                                 const char *name, dfgnn_grid grid,
                                 const void *params) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_program program = shaped(r, source, name);
  program.constant[1] = r->plan.flags;
  program.constant[2] = r->plan.warps;
  program.constant[9] = (int)mlp->activation;
  program.constant[10] = (int)mlp->last;
  program.constant[11] = (int)mlp->norm;
  return dfgnn__launch_struct(r->queue, &program, grid, params);
}

static dfgnn_grid grid_of_tiles(const run *r, int64_t spans) {
  const int64_t blocks = (spans + r->plan.warps - 1) / r->plan.warps;
  return (dfgnn_grid){.blocks = {least(blocks < 1 ? 1 : blocks, r->plan.units)},
                      .threads = (unsigned)r->plan.warps * 32,
                      .shared = (unsigned)r->plan.shared_bytes,
                      .carveout = DFGNN_CARVEOUT_L1};
}

static dfgnn_status pack_weights(const run *r) {
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
      r->queue, &program, (dfgnn_grid){.blocks = {32}, .threads = THREADS}, &p);
}

/* ---- sums of rows that spans cut, and at sources ------------------------- */

/* extreme: 1 for maxima, -1 for minima, 0 for sums. */
static dfgnn_status merge(const run *r, const mlp_sums *sums, int layer,
                          int extreme) {
  mlp_sums s = *sums;
  mlp_graph graph = r->graph;
  int64_t spans = r->plan.spans, edges = r->plan.span * MLP_TILE;
  int width = (int)r->job->mlp.width[layer];
  int padded = dfgnn__mlp_padded(&r->job->mlp, layer);
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/spans.cuh", "dfgnn::mlp_merge",
                    DFGNN_TYPE(r->job->mlp.dtype), extreme);
  void *arguments[] = {&graph, &s, &spans, &edges, &width, &padded};
  if (spans < 2)
    return DFGNN_OK;
  return dfgnn__launch(r->queue, &program,
                       (dfgnn_grid){.blocks = {blocks_of(spans, THREADS / 32)},
                                    .threads = THREADS},
                       arguments);
}

/* Sums of padded rows, in the order of the graph, at their source. */
static dfgnn_status sum_at_sources(const run *r, void *to, size_t from,
                                   int layer, int mean) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const mlp_gather_params p = {.from = r->workspace + from,
                               .stride = dfgnn__mlp_padded(mlp, layer),
                               .columns = r->columns.destinations,
                               .offsets = r->columns.offsets,
                               .edges = r->column_edges,
                               .to = to,
                               .width = (int)mlp->width[layer],
                               .wide = r->columns.offsets64,
                               .mean = mean,
                               .long_column = LONG_COLUMN};
  const int chunks =
      (int)p.stride * (int)dfgnn_dtype_size(mlp->dtype) / MLP_CHUNK;
  int lanes = 4;
  while (lanes < chunks && lanes < 32)
    lanes *= 2;
  dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/gather.cuh", "dfgnn::mlp_gather",
                    DFGNN_TYPE(mlp->dtype), lanes);
  dfgnn_grid grid = {.blocks = {blocks_of(p.columns, THREADS / 32)},
                     .threads = THREADS};
  if (!p.columns)
    return DFGNN_OK;
  dfgnn_status status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  if (!status && r->columns.max_degree > LONG_COLUMN) {
    program.name = "dfgnn::mlp_gather_long";
    grid.blocks[0] = least(p.columns, 2 * r->plan.units);
    status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  }
  return status;
}

/* ---- forward ------------------------------------------------------------- */

static mlp_forward_params forward_params(const run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  return (mlp_forward_params){
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
      .span = (int)r->plan.span,
      .slope = (float)r->job->mlp.slope,
      .epsilon = (float)r->job->mlp.epsilon};
}

static dfgnn_status clear(const run *r, void *rows, int64_t count, int layer) {
  if (!rows || !count)
    return DFGNN_OK;
  return dfgnn__fill(r->queue, rows, 0,
                     (size_t)(count * r->job->mlp.width[layer]) *
                         dfgnn_dtype_size(r->job->mlp.dtype));
}

static dfgnn_status forward(const run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int last = r->job->mlp.layers - 1;
  mlp_forward_params p = forward_params(r);
  p.edge_out = a->edge_out;
  p.edge_rows = a->out_src ? r->workspace + r->plan.edge_rows : NULL;
  p.sums.out = a->out_dst;
  p.sums.arg = a->arg_dst;
  p.sums.partial_arg = (int32_t *)(r->workspace + r->plan.partial_arg);
  const dfgnn_reduce reduce = r->job->mlp.reduce_dst;
  if (reduce == DFGNN_REDUCE_MEAN || dfgnn__mlp_is_extreme(reduce))
    p.sums.offsets = r->job->rows.offsets;
  dfgnn_status status = clear(r, a->out_dst, r->job->rows.destinations, last);
  if (!status && a->arg_dst)
    status = dfgnn__fill(
        r->queue, a->arg_dst, 0xff,
        (size_t)(r->job->rows.destinations * r->job->mlp.width[last]) *
            sizeof(int32_t));
  if (!status && r->graph.edges)
    status = launch_tiles(r, "kernels/mlp/cuda/forward.cuh",
                          "dfgnn::mlp_forward", grid_of_tiles(r, p.spans), &p);
  if (!status && a->out_dst && r->graph.edges)
    status = merge(r, &p.sums, last,
                   reduce == DFGNN_REDUCE_MAX   ? 1
                   : reduce == DFGNN_REDUCE_MIN ? -1
                                                : 0);
  if (!status && a->out_src)
    status = sum_at_sources(r, a->out_src, r->plan.edge_rows, last,
                            r->job->mlp.reduce_src == DFGNN_REDUCE_MEAN);
  return status;
}

/* ---- backward ------------------------------------------------------------ */

static mlp_backward_params backward_params(const run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int keep = r->plan.flags & MLP_KEEP;
  mlp_backward_params p = {.forward = forward_params(r),
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
    p.z[l - 1] = r->workspace + r->plan.z[l - 1];
  }
  return p;
}

static int tiles_along(int width) {
  return width > MLP_SIDE ? (width + MLP_SIDE - 1) / MLP_SIDE : 1;
}

/* The products of a launch, whose first edge is first_edge of the graph. */
static mlp_weights_params
products_of(const run *r, const mlp_backward_params *b, int64_t first_edge) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const size_t size = dfgnn_dtype_size(mlp->dtype);
  mlp_weights_params p = {
      .products = mlp->layers,
      .tiles = r->plan.weight_tiles,
      .wide = r->graph.wide,
      .first_edge = first_edge,
      .edges = least(r->graph.edges - first_edge,
                     r->plan.spans_of_launch * r->plan.span * MLP_TILE),
      .partial = (float *)(r->workspace + r->plan.weight_partial),
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

static dfgnn_status multiply_weights(const run *r, const mlp_backward_params *b,
                                     int64_t first_edge) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const mlp_weights_params p = products_of(r, b, first_edge);
  const int wide = mlp->dtype == DFGNN_F32;
  /* weight_block<> of weights.cuh has the same. */
  const unsigned row = wide ? MLP_SIDE * 4 + 32 : MLP_SIDE * 2 + 16;
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/weights.cuh", "dfgnn::mlp_weights",
                    DFGNN_TYPE(mlp->dtype), (r->plan.flags & MLP_EXACT) != 0);
  const dfgnn_grid grid = {.blocks = {(unsigned)(p.tiles * p.splits)},
                           .threads = THREADS,
                           .shared = 3 * 2 * (wide ? 32 : 64) * row,
                           .carveout = DFGNN_CARVEOUT_SHARED};
  return dfgnn__launch_struct(r->queue, &program, grid, &p);
}

static dfgnn_status finish_weights(const run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const dfgnn_program program = {.source = "kernels/mlp/cuda/weights.cuh",
                                 .name = "dfgnn::mlp_finish_weights"};
  dfgnn_status status = DFGNN_OK;
  int first = 0;
  for (int l = 0; !status && l < mlp->layers; l++) {
    const mlp_finish_params p = {
        .partial = (float *)(r->workspace + r->plan.weight_partial) +
                   (size_t)first * MLP_WEIGHT_TILE,
        .stride = (int64_t)r->plan.weight_tiles * MLP_WEIGHT_TILE,
        .splits = r->plan.splits,
        .weight = r->job->args.grad_weight[l],
        .bias = r->job->args.grad_bias[l],
        .out = (int)mlp->width[l],
        .in = (int)dfgnn__mlp_in_width(mlp, l),
        .tiles_in = tiles_along(dfgnn__mlp_padded(mlp, l - 1))};
    first += tiles_along(dfgnn__mlp_padded(mlp, l)) * p.tiles_in;
    if (p.weight || p.bias)
      status = dfgnn__launch_struct(
          r->queue, &program,
          (dfgnn_grid){
              .blocks = {blocks_of((int64_t)p.out * (p.in + 1), THREADS)},
              .threads = THREADS},
          &p);
  }
  return status;
}

static dfgnn_status finish_norm(const run *r, int64_t warps) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const dfgnn_program program = {.source = "kernels/mlp/cuda/gather.cuh",
                                 .name = "dfgnn::mlp_finish_norm"};
  const float *partial = (float *)(r->workspace + r->plan.norm_partial);
  int parts = (int)warps, width = (int)mlp->width[mlp->layers - 1];
  int padded = dfgnn__mlp_padded(mlp, mlp->layers - 1);
  float *weight = r->job->args.grad_norm_weight;
  float *bias = r->job->args.grad_norm_bias;
  void *arguments[] = {&partial, &parts, &padded, &width, &weight, &bias};
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {blocks_of(2 * width, 32)}, .threads = THREADS},
      arguments);
}

static dfgnn_status backward(const run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_backward_params p = backward_params(r);
  const int64_t edges_of_span = r->plan.span * MLP_TILE;
  int64_t warps = 0; /* that wrote sums of the norm's gradients */
  dfgnn_status status =
      clear(r, a->grad_dst_part, r->job->rows.destinations, 0);
  for (int64_t s = 0; !status && s < r->plan.spans && r->graph.edges;
       s += r->plan.spans_of_launch) {
    p.forward.first_span = s;
    p.forward.spans = least(r->plan.spans - s, r->plan.spans_of_launch);
    const dfgnn_grid grid = grid_of_tiles(r, p.forward.spans);
    p.add = s > 0;
    if (!s)
      warps = (int64_t)grid.blocks[0] * r->plan.warps;
    status = launch_tiles(r, "kernels/mlp/cuda/backward.cuh",
                          "dfgnn::mlp_backward_last", grid, &p);
    if (!status)
      status = launch_tiles(r, "kernels/mlp/cuda/backward.cuh",
                            "dfgnn::mlp_backward_layers", grid, &p);
    if (!status && (r->plan.flags & MLP_KEEP))
      status = multiply_weights(r, &p, s * edges_of_span);
  }
  if (!status && !r->graph.edges && (r->plan.flags & MLP_KEEP))
    status = multiply_weights(r, &p, 0); /* zeros */
  if (!status && a->grad_dst_part && r->graph.edges)
    status = merge(r, &p.forward.sums, 0, 0);
  if (!status && a->grad_src_part)
    status = sum_at_sources(r, a->grad_src_part, r->plan.grad_first, 0, 0);
  if (!status && (r->plan.flags & MLP_KEEP))
    status = finish_weights(r);
  if (!status && p.norm_partial)
    status = finish_norm(r, warps);
  return status;
}

dfgnn_status
dfgnn__mlp_cuda_tuned(const dfgnn_mlp_job *job, const dfgnn_view *const *views,
                      const dfgnn_queue *queue, const dfgnn_device_info *device,
                      const dfgnn_mlp_tuning *tuning, void *workspace) {
  const char *missing = dfgnn__mlp_cuda_missing(job, device);
  if (missing)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", missing);
  run r = {.plan = dfgnn__mlp_plan(job, device, tuning),
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
  dfgnn_status status = pack_weights(&r);
  if (status)
    return status;
  return job->pass == DFGNN_PASS_FORWARD ? forward(&r) : backward(&r);
}

dfgnn_status dfgnn__mlp_cuda(const dfgnn_mlp_job *job,
                             const dfgnn_view *const *views,
                             const dfgnn_queue *queue,
                             const dfgnn_device_info *device, void *workspace) {
  const dfgnn_mlp_tuning by_rule = {0};
  return dfgnn__mlp_cuda_tuned(job, views, queue, device, &by_rule, workspace);
}
