/* run.c - one pass of an MLP on edges
 *
 * Weights stay in the shared memory of a block, whose warps take the edges
 * tile by tile: kernels of tile.cuh. */
#include <string.h>

#include "kernels/mlp/cuda/plan.h"
#include "lib/base/error.h"

enum { MLP_THREADS = 256, LONG_COLUMN = 2048 };

typedef struct mlp_run {
  const dfgnn_mlp_plan *plan;
  const dfgnn_mlp_job *job;
  const dfgnn_queue *queue;
  char *workspace;
  mlp_graph graph;
  dfgnn_matrix columns;     /* where the pass adds at sources, and */
  const void *column_edges; /* the graph's edges of them */
} mlp_run;

/* Blocks for a number of items, `each` of them in a block. */
static unsigned blocks_of(int64_t items, int64_t each) {
  const int64_t blocks = (items + each - 1) / each;
  return (unsigned)(blocks < 1 ? 1 : blocks);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Edges of a launch whose first is `first`. */
static int64_t edges_from(const mlp_run *r, int64_t first) {
  return least(r->graph.edges - first, r->plan->edges_of_launch);
}

/* ---- parameters ---------------------------------------------------------- */

static mlp_forward_params forward_params(const mlp_run *r) {
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

/* Kept rows of z of layer l from an edge on; NULL if they are not kept. */
static void *kept_rows(const mlp_run *r, int l, int64_t edge) {
  char *rows = r->job->args.kept[l];
  return rows ? rows + 2 * edge * dfgnn__mlp_width(&r->job->mlp, l) : NULL;
}

static mlp_backward_params backward_params(const mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int weights = r->plan->flags & MLP_WEIGHTS;
  mlp_backward_params p = {.forward = forward_params(r),
                           .grad_edge_out = a->grad_edge_out,
                           .grad_out_dst = a->grad_out_dst,
                           .grad_edge = a->grad_edge,
                           .grad_first =
                               weights || a->grad_src_part
                                   ? r->workspace + r->plan->grad_first
                                   : NULL};
  p.dst_offsets = p.forward.sums.offsets;
  p.forward.sums.offsets = NULL;
  p.forward.sums.out = a->grad_dst_part;
  if (a->grad_norm_weight || a->grad_norm_bias)
    p.norm_partial = (float *)(r->workspace + r->plan->norm_partial);
  for (int l = 1; l < r->job->mlp.layers; l++) {
    p.input[l] = r->workspace + r->plan->input[l];
    p.grad_z[l] = r->workspace + r->plan->grad_z[l];
  }
  return p;
}

static mlp_rows_params rows_params(const mlp_run *r) {
  return (mlp_rows_params){.out_width = dfgnn__mlp_out_width(&r->job->mlp),
                           .norm_weight = r->job->args.norm_weight};
}

/* ---- sums at nodes ------------------------------------------------------- */

/* Fills rows of nodes that no edge writes with zeros; NULL: there are none. */
static dfgnn_status clear(const mlp_run *r, void *rows, int64_t width) {
  return rows ? dfgnn__fill(r->queue, rows, 0,
                            2 * (size_t)(r->job->rows.destinations * width))
              : DFGNN_OK;
}

/* Adds the parts of rows that spans cut. */
static dfgnn_status merge(const mlp_run *r, const mlp_sums *sums, int width) {
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
      (dfgnn_grid){.blocks = {blocks_of(spans, MLP_THREADS / 32)},
                   .threads = MLP_THREADS},
      arguments);
}

/* Sums the rows of grad_first at sources. */
static dfgnn_status sum_at_sources(const mlp_run *r, void *to) {
  const dfgnn_matrix *m = &r->columns;
  const mlp_gather_params p = {.from = r->workspace + r->plan->grad_first,
                               .columns = m->destinations,
                               .offsets = m->offsets,
                               .edges = r->column_edges,
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
  dfgnn_grid grid = {.blocks = {blocks_of(p.columns, MLP_THREADS / 32)},
                     .threads = MLP_THREADS};
  if (!to)
    return DFGNN_OK;
  dfgnn_status status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  if (!status && m->max_degree > LONG_COLUMN) {
    program.name = "dfgnn::mlp_gather_long";
    grid.blocks[0] = (unsigned)least(p.columns, 2 * r->plan->units);
    status = dfgnn__launch_struct(r->queue, &program, grid, &p);
  }
  return status;
}

/* ---- rows of the last layer, backward ------------------------------------ */

/* Blocks of mlp_last_rows, each of which has a part of the norm's gradients. */
static unsigned row_blocks(const mlp_run *r, int64_t edges) {
  return (unsigned)least(blocks_of(edges, MLP_ROWS),
                         MLP_ROW_BLOCKS * (int64_t)r->plan->units);
}

/* Bytes of a block's copies of rows; last_shape<> of last_rows.cuh computes the
 * same. */
static unsigned copy_bytes(const mlp_run *r) {
  const int width = dfgnn__mlp_out_width(&r->job->mlp);
  const int lanes = width > 64 ? 16 : 8;
  const int copies = (r->job->mlp.norm != DFGNN_NORM_NONE) +
                     !!(r->plan->flags & MLP_GRAD_EDGES) +
                     !!(r->plan->flags & MLP_GRAD_DST);
  return (unsigned)(2 * MLP_ROW_WARPS * 32 / lanes * copies * width * 2);
}

/* The way back from e' to the last layer's z: params' launch has its edges.
 * grad_z: rows of the gradient with respect to z. */
static dfgnn_status last_rows(const mlp_run *r, const mlp_rows_params *params,
                              void *grad_z) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  mlp_rows_params p = *params;
  void *arguments[] = {&p, &grad_z};
  const int flags = r->plan->flags & (MLP_GRAD_EDGES | MLP_GRAD_DST);
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/last_rows.cuh", "dfgnn::mlp_last_rows",
                    DFGNN_TYPE(mlp->dtype), flags, (int)mlp->norm, p.out_width);
  return dfgnn__launch(r->queue, &program,
                       (dfgnn_grid){.blocks = {row_blocks(r, p.edges)},
                                    .threads = MLP_ROW_WARPS * 32,
                                    .shared = copy_bytes(r)},
                       arguments);
}

/* Writes the gradients of the norm from the parts of mlp_last_rows. */
static dfgnn_status finish_norm(const mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const dfgnn_program program = {.source = "kernels/mlp/cuda/gather.cuh",
                                 .name = "dfgnn::mlp_finish_norm"};
  const float *partial = (float *)(r->workspace + r->plan->norm_partial);
  int parts = (int)row_blocks(r, edges_from(r, 0));
  int width = dfgnn__mlp_out_width(&r->job->mlp);
  float *weight = a->grad_norm_weight, *bias = a->grad_norm_bias;
  void *arguments[] = {&partial, &parts, &width, &weight, &bias};
  if (!weight && !bias)
    return DFGNN_OK;
  return dfgnn__launch(r->queue, &program,
                       (dfgnn_grid){.blocks = {blocks_of(2 * width, 32)},
                                    .threads = MLP_THREADS},
                       arguments);
}

/* ---- programs ------------------------------------------------------------ */

/* A kernel over the shape of an MLP: the constants of shape<> in tile.cuh. */
static dfgnn_status launch_shaped(const mlp_run *r, const char *source,
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
static dfgnn_grid grid_of_tiles(const mlp_run *r, int64_t spans) {
  const int64_t blocks = (spans + r->plan->warps - 1) / r->plan->warps;
  return (dfgnn_grid){.blocks = {(unsigned)least(blocks, r->plan->units)},
                      .threads = (unsigned)r->plan->warps * 32,
                      .shared = (unsigned)r->plan->shared_bytes,
                      .carveout = DFGNN_CARVEOUT_L1};
}

static dfgnn_status pack_weights(const mlp_run *r) {
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
static dfgnn_status multiply_weights(const mlp_run *r,
                                     const mlp_backward_params *b,
                                     int64_t first_edge) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  mlp_weights_params p = {.products = mlp->layers,
                          .tiles = r->plan->weight_tiles,
                          .wide = r->graph.wide,
                          .first_edge = first_edge,
                          .edges = edges_from(r, first_edge),
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

static dfgnn_status finish_weights(const mlp_run *r) {
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
      (dfgnn_grid){
          .blocks = {blocks_of(most, MLP_THREADS), (unsigned)mlp->layers},
          .threads = MLP_THREADS},
      &layers);
}

/* ---- passes -------------------------------------------------------------- */

static dfgnn_status forward(const mlp_run *r) {
  const mlp_forward_params p = forward_params(r);
  const int width = dfgnn__mlp_out_width(&r->job->mlp);
  DFGNN_TRY(clear(r, p.sums.out, width));
  DFGNN_TRY(launch_shaped(r, "kernels/mlp/cuda/forward.cuh",
                          "dfgnn::mlp_forward", MLP_RESIDUAL | MLP_KEPT,
                          grid_of_tiles(r, p.spans), &p));
  return merge(r, &p.sums, width);
}

/* Goes back from e' to z of the last layer, then through the layers. */
static dfgnn_status backward_launch(const mlp_run *r, mlp_backward_params *p) {
  const int last = r->job->mlp.layers - 1;
  mlp_rows_params rows = rows_params(r);
  rows.first = p->forward.first_span * r->plan->edges_of_span;
  rows.edges = edges_from(r, rows.first);
  rows.last = kept_rows(r, last, rows.first);
  for (int l = 0; l < last; l++)
    p->z[l] = kept_rows(r, l, rows.first);
  rows.pass = *p;
  dfgnn_status status = last_rows(r, &rows, p->grad_z[last]);
  if (!status)
    status = launch_shaped(
        r, "kernels/mlp/cuda/backward.cuh", "dfgnn::mlp_backward_layers",
        MLP_RESIDUAL | MLP_WEIGHTS | MLP_GRAD_EDGES | MLP_GRAD_DST,
        grid_of_tiles(r, p->forward.spans), p);
  if (!status && (r->plan->flags & MLP_WEIGHTS))
    status = multiply_weights(r, p, rows.first);
  return status;
}

static dfgnn_status backward(const mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  mlp_backward_params p = backward_params(r);
  const int64_t spans_of_launch =
      r->plan->edges_of_launch / r->plan->edges_of_span;
  const int width = dfgnn__mlp_width(&r->job->mlp, 0);
  dfgnn_status status = clear(r, a->grad_dst_part, width);
  for (int64_t s = 0; !status && s < r->plan->spans; s += spans_of_launch) {
    p.forward.first_span = s;
    p.forward.spans = least(r->plan->spans - s, spans_of_launch);
    p.add = s > 0;
    status = backward_launch(r, &p);
  }
  if (!status)
    status = merge(r, &p.forward.sums, width);
  if (!status)
    status = sum_at_sources(r, a->grad_src_part);
  if (!status && (r->plan->flags & MLP_WEIGHTS))
    status = finish_weights(r);
  return status ? status : finish_norm(r);
}

dfgnn_status dfgnn__mlp_run(const dfgnn_mlp_job *job,
                            const dfgnn_mlp_plan *plan,
                            const dfgnn_view *const *views,
                            const dfgnn_queue *queue, void *workspace) {
  mlp_run r = {.plan = plan,
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
  DFGNN_TRY(pack_weights(&r));
  return job->pass == DFGNN_PASS_FORWARD ? forward(&r) : backward(&r);
}
