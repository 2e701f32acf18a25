/* streamed.c - an MLP of any width: a kernel for each layer of a launch's edges
 *
 * Rows of a launch's edges go from layer to layer through memory, where a
 * launch that is small enough stays in the cache. */
#include "kernels/mlp/cuda/launch.h"

typedef struct launch {
  const dfgnn_mlp_run *run;
  mlp_streamed_params p;
} launch;

/* ---- weights ------------------------------------------------------------- */

static char *table_of(const dfgnn_mlp_run *r, int l, int transposed) {
  return r->workspace + r->plan.table[transposed * DFGNN_MLP_LAYERS + l];
}

static dfgnn_status pack_tables(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  mlp_tables tables;
  unsigned count = 0;
  for (int back = 0; back <= (r->job->pass == DFGNN_PASS_BACKWARD); back++)
    for (int l = 0; l < mlp->layers; l++)
      if (dfgnn__mlp_has_weight(mlp, l))
        tables.table[count++] = (mlp_table){
            .from = r->job->args.weight[l],
            .to = table_of(r, l, back),
            .out = (int)mlp->width[l],
            .in = (int)dfgnn__mlp_in_width(mlp, l),
            .rows = (int)dfgnn__mlp_table_rows(&r->plan, l, back),
            .stride = (int)dfgnn__mlp_table_stride(&r->plan, l, back),
            .transposed = back};
  const int round =
      mlp->dtype == DFGNN_F32 && !(r->plan.flags & MLP_EXACT) ? 1 : 0;
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/pack.cuh", "dfgnn::mlp_pack_tables",
                    DFGNN_TYPE(mlp->dtype), round);
  if (!count)
    return DFGNN_OK;
  return dfgnn__launch_struct(
      r->queue, &program,
      (dfgnn_grid){.blocks = {64, count}, .threads = MLP_THREADS}, &tables);
}

/* ---- products ------------------------------------------------------------ */

static dfgnn_status multiply(const launch *l, mlp_product_params *p, int kind) {
  const dfgnn_mlp_run *r = l->run;
  const int columns = (int)r->plan.by.columns;
  const int width = kind == MLP_TO_EDGE ? p->columns : p->out_stride;
  const int flags = r->plan.flags & (MLP_VECTOR | MLP_EXACT);
  const int activation = kind == MLP_TO_HIDDEN || kind == MLP_TO_GRADIENT
                             ? (int)r->job->mlp.activation
                             : MLP_NONE;
  dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/layers.cuh", "dfgnn::mlp_layer",
                    DFGNN_TYPE(r->job->mlp.dtype), flags, columns,
                    (int)r->plan.by.stages, kind, activation);
  if (r->plan.by.wgmma == DFGNN_MLP_WGMMA) {
    program.source = "kernels/mlp/cuda/layers_sm90a.cuh";
    program.name = "dfgnn::mlp_layer_of_groups";
  }
  p->of = l->p;
  p->column_blocks = (int)dfgnn__mlp_blocks(width, columns);
  const unsigned blocks = dfgnn__mlp_blocks(l->p.edges, MLP_ROWS);
  return dfgnn__launch_struct(
      r->queue, &program,
      (dfgnn_grid){.blocks = {blocks * (unsigned)p->column_blocks},
                   .threads = MLP_THREADS,
                   .shared = (unsigned)r->plan.shared_bytes,
                   .carveout = DFGNN_CARVEOUT_SHARED},
      p);
}

/* Rows of e, which the first layer reads. */
static dfgnn_status begin_input(const launch *l, mlp_product_params *p) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  if (!mlp->edge_dim)
    return DFGNN_OK;
  if (!dfgnn__mlp_copies_edges(&r->plan)) {
    p->edge_order = r->graph.edge_order;
    p->in = (int)mlp->edge_dim;
    p->input_stride = mlp->edge_dim;
    p->input = (const char *)l->p.pass.forward.edge +
               (p->edge_order ? 0
                              : (size_t)(l->p.first * mlp->edge_dim) *
                                    dfgnn_dtype_size(mlp->dtype));
    return DFGNN_OK;
  }
  const mlp_copy_params copy = {.from = r->job->args.edge,
                                .edge_order = r->graph.edge_order,
                                .to = r->workspace + r->plan.input[0],
                                .first = l->p.first,
                                .edges = l->p.edges,
                                .wide = r->graph.wide,
                                .width = (int)mlp->edge_dim,
                                .stride = dfgnn__mlp_padded(mlp, -1)};
  p->in = copy.stride;
  p->input_stride = copy.stride;
  p->input = copy.to;
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/pack.cuh", "dfgnn::mlp_copy_rows",
                    DFGNN_TYPE(mlp->dtype));
  return dfgnn__launch_struct(
      r->queue, &program,
      (dfgnn_grid){.blocks = {8 * (unsigned)r->plan.units},
                   .threads = MLP_THREADS},
      &copy);
}

/* z of all layers; hidden rows, and z where the pass goes back. */
static dfgnn_status compute_layers(const launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_status status = DFGNN_OK;
  for (int k = 0; !status && k < mlp->layers; k++) {
    const int last = k == mlp->layers - 1;
    mlp_product_params p = {
        .weight = table_of(r, k, 0),
        .weight_stride = (int)dfgnn__mlp_table_stride(&r->plan, k, 0),
        .columns = (int)mlp->width[k],
        .bias = r->job->args.bias[k],
        .parts = !k,
        .out = last ? (void *)l->p.last
                    : (void *)(r->workspace + r->plan.input[k + 1]),
        .z_out = last ? NULL : l->p.pass.z[k],
        .out_stride = dfgnn__mlp_padded(mlp, k)};
    if (k) {
      p.in = dfgnn__mlp_padded(mlp, k - 1);
      p.input_stride = p.in;
      p.input = r->workspace + r->plan.input[k];
    } else {
      status = begin_input(l, &p);
    }
    if (!status)
      status = multiply(l, &p, last ? MLP_TO_LAST : MLP_TO_HIDDEN);
  }
  return status;
}

/* The rows of the gradient with respect to z of layer k. */
static void *gradient_of(const launch *l, int k) {
  const dfgnn_edge_mlp *mlp = &l->run->job->mlp;
  return k ? l->p.pass.grad_z[k]
           : (char *)l->p.pass.grad_first +
                 (size_t)(l->p.first * dfgnn__mlp_padded(mlp, 0)) *
                     dfgnn_dtype_size(mlp->dtype);
}

static dfgnn_status go_back(const launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_status status = DFGNN_OK;
  for (int k = mlp->layers - 1; !status && k >= 0; k--) {
    mlp_product_params p = {.input = gradient_of(l, k),
                            .in = dfgnn__mlp_padded(mlp, k),
                            .input_stride = dfgnn__mlp_padded(mlp, k),
                            .weight = table_of(r, k, 1),
                            .weight_stride =
                                (int)dfgnn__mlp_table_stride(&r->plan, k, 1),
                            .columns = (int)dfgnn__mlp_in_width(mlp, k)};
    if (k) {
      p.z = l->p.pass.z[k - 1];
      p.out = gradient_of(l, k - 1);
      p.out_stride = dfgnn__mlp_padded(mlp, k - 1);
    } else {
      p.out = r->job->args.grad_edge;
      p.out_stride = p.columns;
    }
    if (p.out)
      status = multiply(l, &p, k ? MLP_TO_GRADIENT : MLP_TO_EDGE);
  }
  return status;
}

/* ---- rows of the last layer ---------------------------------------------- */

static dfgnn_program rows_program(const dfgnn_mlp_run *r, const char *name,
                                  int flags) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  return (dfgnn_program)DFGNN_PROGRAM(
      "kernels/mlp/cuda/last_rows.cuh", name, DFGNN_TYPE(mlp->dtype),
      r->plan.flags & flags, (int)mlp->last, (int)mlp->norm,
      (int)dfgnn__mlp_out_width(mlp));
}

static dfgnn_status finish_rows(const launch *l) {
  const dfgnn_program program =
      rows_program(l->run, "dfgnn::mlp_finish_rows",
                   MLP_VECTOR | MLP_GATE | MLP_RESIDUAL | MLP_MAX | MLP_MIN);
  return dfgnn__launch_struct(
      l->run->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(l->p.edges, MLP_ROWS)},
                   .threads = MLP_ROWS},
      &l->p);
}

static unsigned blocks_of_last_rows(const dfgnn_mlp_run *r, int64_t edges) {
  return (unsigned)dfgnn__mlp_least(dfgnn__mlp_blocks(edges, MLP_ROWS),
                                    MLP_ROW_BLOCKS * (int64_t)r->plan.units);
}

static dfgnn_status last_rows(const launch *l) {
  const dfgnn_mlp_run *r = l->run;
  mlp_streamed_params p = l->p;
  void *grad_z = gradient_of(l, r->job->mlp.layers - 1);
  void *arguments[] = {&p, &grad_z};
  const dfgnn_program program =
      rows_program(r, "dfgnn::mlp_last_rows",
                   MLP_VECTOR | MLP_GATE | MLP_RESIDUAL | MLP_GRAD_EDGES |
                       MLP_GRAD_DST | MLP_GRAD_SRC);
  return dfgnn__launch(r->queue, &program,
                       (dfgnn_grid){.blocks = {blocks_of_last_rows(r, p.edges)},
                                    .threads = MLP_THREADS},
                       arguments);
}

/* ---- passes -------------------------------------------------------------- */

static launch launch_of(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  return (launch){.run = r,
                  .p = {.edge_dim = (int)mlp->edge_dim,
                        .first_width = (int)mlp->width[0],
                        .out_width = (int)dfgnn__mlp_out_width(mlp),
                        .norm_weight = r->job->args.norm_weight,
                        .norm_bias = r->job->args.norm_bias,
                        .last = (float *)(r->workspace + r->plan.last),
                        .last_stride = dfgnn__mlp_padded(mlp, mlp->layers - 1),
                        .last_width = (int)mlp->width[mlp->layers - 1],
                        .residual = mlp->residual}};
}

static dfgnn_status forward(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const dfgnn_reduce reduce = r->job->mlp.reduce_dst;
  launch l = launch_of(r);
  mlp_forward_params *p = &l.p.pass.forward;
  *p = dfgnn__mlp_forward_params(r);
  p->edge_out = a->edge_out;
  p->edge_rows = a->out_src ? r->workspace + r->plan.edge_rows : NULL;
  p->sums.out = a->out_dst;
  p->sums.arg = a->arg_dst;
  p->sums.partial_arg = (int32_t *)(r->workspace + r->plan.partial_arg);
  if (reduce == DFGNN_REDUCE_MEAN || dfgnn__mlp_is_extreme(reduce))
    p->sums.offsets = r->job->rows.offsets;
  dfgnn_status status =
      dfgnn__mlp_clear(r, a->out_dst, r->job->rows.destinations, l.p.out_width);
  if (!status)
    status = dfgnn__mlp_clear_args(r);
  for (; !status && l.p.first < r->graph.edges;
       l.p.first += r->plan.edges_of_launch) {
    l.p.edges =
        dfgnn__mlp_least(r->graph.edges - l.p.first, r->plan.edges_of_launch);
    status = compute_layers(&l);
    if (!status)
      status = finish_rows(&l);
  }
  if (!status && a->out_dst && r->graph.edges)
    status = dfgnn__mlp_merge(r, &p->sums, l.p.out_width, l.p.last_stride,
                              dfgnn__mlp_extreme(reduce));
  if (!status && a->out_src)
    status = dfgnn__mlp_reduce_at_sources(r);
  return status;
}

/* Which edge of its source each edge is, for extremes at sources. */
static dfgnn_status find_positions(launch *l) {
  const dfgnn_mlp_run *r = l->run;
  int32_t *position = (int32_t *)(r->workspace + r->plan.position);
  int wide = r->columns.offsets64;
  int64_t columns = r->columns.destinations;
  const dfgnn_program program = {.source = "kernels/mlp/cuda/gather.cuh",
                                 .name = "dfgnn::mlp_positions"};
  const void *offsets = r->columns.offsets, *edges = r->column_edges;
  void *arguments[] = {&offsets, &edges, &wide, &columns, &position};
  if (!r->job->args.grad_out_src ||
      !dfgnn__mlp_is_extreme(r->job->mlp.reduce_src) || !r->graph.edges)
    return DFGNN_OK;
  l->p.arg_src = r->job->args.arg_src;
  l->p.position = position;
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(columns, MLP_THREADS / 32)},
                   .threads = MLP_THREADS},
      arguments);
}

static dfgnn_status backward(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int keep = r->plan.flags & MLP_KEEP;
  const int64_t width = r->job->mlp.width[0];
  const int padded = dfgnn__mlp_padded(&r->job->mlp, 0);
  const int64_t blocks = blocks_of_last_rows(
      r, dfgnn__mlp_least(r->graph.edges, r->plan.edges_of_launch));
  launch l = launch_of(r);
  l.p.pass = dfgnn__mlp_backward_params(r);
  l.p.pass.grad_first = r->workspace + r->plan.grad_first;
  dfgnn_status status = find_positions(&l);
  for (; !status && l.p.first < r->graph.edges;
       l.p.first += r->plan.edges_of_launch) {
    l.p.edges =
        dfgnn__mlp_least(r->graph.edges - l.p.first, r->plan.edges_of_launch);
    l.p.pass.add = l.p.first > 0;
    status = compute_layers(&l);
    if (!status)
      status = last_rows(&l);
    if (!status)
      status = go_back(&l);
    if (!status && keep)
      status = dfgnn__mlp_multiply_weights(r, &l.p.pass, l.p.first);
  }
  if (!status && !r->graph.edges && keep)
    status = dfgnn__mlp_multiply_weights(r, &l.p.pass, 0); /* zeros */
  if (!status && a->grad_dst_part)
    status = dfgnn__mlp_sum_at_destinations(r, a->grad_dst_part,
                                            r->plan.grad_first, width, padded);
  if (!status && a->grad_src_part)
    status = dfgnn__mlp_sum_at_sources(r, a->grad_src_part, r->plan.grad_first,
                                       width, padded, 0);
  return status ? status
                : dfgnn__mlp_finish_gradients(r, r->graph.edges ? blocks : 0);
}

dfgnn_status dfgnn__mlp_streamed(const dfgnn_mlp_run *r) {
  dfgnn_status status = pack_tables(r);
  if (status)
    return status;
  return r->job->pass == DFGNN_PASS_FORWARD ? forward(r) : backward(r);
}
