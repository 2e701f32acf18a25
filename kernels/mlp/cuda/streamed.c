/* streamed.c - an MLP of any width: a kernel for each layer of a launch's edges
 *
 * Rows of a launch's edges go from layer to layer through memory, where a
 * launch that is small enough stays in the cache. */
#include "kernels/common/cublaslt.h"
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
  for (int back = 0; back < dfgnn__mlp_table_kinds(&r->plan); back++)
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

static int activation_of(const launch *l, int kind) {
  return kind == MLP_TO_HIDDEN || kind == MLP_TO_GRADIENT
             ? (int)l->run->job->mlp.activation
             : MLP_NONE;
}

/* A block for MLP_ROWS edges and `columns` of `width` columns. */
static dfgnn_grid grid_of_layer(const launch *l, mlp_product_params *p,
                                int width, int columns) {
  p->of = l->p;
  p->column_blocks = (int)dfgnn__mlp_blocks(width, columns);
  return (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(l->p.edges, MLP_ROWS) *
                                 (unsigned)p->column_blocks},
                      .threads = MLP_THREADS};
}

static dfgnn_status own_product(const launch *l, mlp_product_params *p,
                                int kind) {
  const dfgnn_mlp_run *r = l->run;
  const int columns = (int)r->plan.by.columns;
  const int width = kind == MLP_TO_EDGE ? p->columns : p->out_stride;
  const int activation = activation_of(l, kind);
  if (kind == MLP_TO_LAST && r->plan.flags & MLP_STORED_LAST)
    kind = MLP_TO_HIDDEN;
  const int flags = r->plan.flags & (MLP_VECTOR | MLP_EXACT);
  dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/layers.cuh", "dfgnn::mlp_layer",
                    DFGNN_TYPE(r->job->mlp.dtype), flags, columns,
                    (int)r->plan.by.stages, kind, activation);
  if (r->plan.by.wgmma == DFGNN_MLP_WGMMA) {
    program.source = "kernels/mlp/cuda/layers_sm90a.cuh";
    program.name = "dfgnn::mlp_layer_of_groups";
  }
  dfgnn_grid grid = grid_of_layer(l, p, width, columns);
  grid.shared = (unsigned)r->plan.shared_bytes;
  grid.carveout = DFGNN_CARVEOUT_SHARED;
  return dfgnn__launch_struct(r->queue, &program, grid, p);
}

/* Turns a library's sums into rows of the layer; z of the last layer is written
 * as a hidden row without activation. */
static dfgnn_status end_layer(const launch *l, mlp_product_params *p,
                              int kind) {
  enum { COLUMNS = 128 };
  const int flags = l->run->plan.flags &
                    (kind == MLP_TO_LAST ? MLP_VECTOR : MLP_VECTOR | MLP_ROUND);
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/mlp/cuda/layers.cuh", "dfgnn::mlp_end_layer",
      DFGNN_TYPE(l->run->job->mlp.dtype), flags, COLUMNS,
      kind == MLP_TO_LAST ? MLP_TO_HIDDEN : kind, activation_of(l, kind));
  const dfgnn_grid grid = grid_of_layer(l, p, p->columns, COLUMNS);
  return dfgnn__launch_struct(l->run->queue, &program, grid, p);
}

/* Layer k's product, or back through it, into rows of the MLP's type. */
static dfgnn_status library_sums(const launch *l, const mlp_product_params *p,
                                 int k, int back, const void *bias, void *to) {
  const dfgnn_mlp_run *r = l->run;
  const int rounded = r->plan.flags & MLP_ROUND;
  const dfgnn_gemm gemm = {
      .dtype = r->job->mlp.dtype,
      .to_dtype = r->job->mlp.dtype,
      .rows = l->p.edges,
      .columns = p->columns,
      .inner = p->in,
      .a = p->input,
      .b = rounded ? table_of(r, k, 0) : r->job->args.weight[k],
      .b_transposed = !back,
      .a_stride = p->input_stride,
      .b_stride = rounded ? dfgnn__mlp_table_stride(&r->plan, k, 0)
                          : dfgnn__mlp_in_width(&r->job->mlp, k),
      .to = to,
      .to_stride = p->columns,
      .bias = bias};
  return dfgnn__multiply(r->queue, &gemm, r->workspace + r->plan.gemm);
}

static int begins_aligned(const void *p) {
  return (uintptr_t)p % MLP_CHUNK == 0;
}

/* A library's product, and a kernel for what follows it unless the library does
 * that, too. */
static dfgnn_status library_product(const launch *l, mlp_product_params *p,
                                    int kind, int k) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int back = kind == MLP_TO_GRADIENT || kind == MLP_TO_EDGE;
  const int keeps = kind == MLP_TO_HIDDEN && p->z_out;
  void *sums = r->workspace + r->plan.sums;
  dfgnn_status status = DFGNN_OK;
  if (kind == MLP_TO_EDGE && !mlp->residual && !r->graph.edge_order)
    return library_sums(l, p, k, 1, NULL,
                        (char *)p->out + (size_t)(l->p.first * p->columns) *
                                             dfgnn_dtype_size(mlp->dtype));
  if (!back && !p->parts && begins_aligned(p->bias) &&
      dfgnn__mlp_has_weight(mlp, k)) { /* the sums are z, which may be kept */
    p->sums = kind == MLP_TO_LAST ? p->out : keeps ? p->z_out : sums;
    status = library_sums(l, p, k, 0, p->bias, (void *)p->sums);
    p->bias = p->z_out = NULL;
    if (kind == MLP_TO_LAST)
      return status;
  } else if (dfgnn__mlp_has_weight(mlp, k)) {
    p->sums = sums;
    status = library_sums(l, p, k, back, NULL, sums);
  }
  return status ? status : end_layer(l, p, kind);
}

static dfgnn_status multiply(const launch *l, mlp_product_params *p, int kind,
                             int k) {
  return dfgnn__mlp_by_library(&l->run->plan) ? library_product(l, p, kind, k)
                                              : own_product(l, p, kind);
}

dfgnn_status dfgnn__mlp_copy_input(const dfgnn_mlp_run *r,
                                   const mlp_streamed_params *p) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const mlp_copy_params copy = {.from = r->job->args.edge,
                                .edge_order = r->graph.edge_order,
                                .to = r->workspace + r->plan.input[0],
                                .first = p->first,
                                .edges = p->edges,
                                .wide = r->graph.wide,
                                .width = (int)mlp->edge_dim,
                                .stride = dfgnn__mlp_padded(mlp, -1)};
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/mlp/cuda/pack.cuh", "dfgnn::mlp_copy_rows",
                    DFGNN_TYPE(mlp->dtype));
  if (!dfgnn__mlp_copies_edges(&r->plan))
    return DFGNN_OK;
  return dfgnn__launch_struct(
      r->queue, &program,
      (dfgnn_grid){.blocks = {8 * (unsigned)r->plan.units},
                   .threads = MLP_THREADS},
      &copy);
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
  p->in = dfgnn__mlp_padded(mlp, -1);
  p->input_stride = p->in;
  p->input = r->workspace + r->plan.input[0];
  return dfgnn__mlp_copy_input(r, &l->p);
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
        .parts = !k && (r->job->args.dst_part || r->job->args.src_part),
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
      status = multiply(l, &p, last ? MLP_TO_LAST : MLP_TO_HIDDEN, k);
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
      if (r->plan.flags & MLP_KEPT && r->plan.flags & MLP_WEIGHTS)
        p.activated = r->workspace + r->plan.input[k];
      if (r->job->args.grad_bias[k - 1])
        p.bias_partial = (float *)(r->workspace + r->plan.bias_partial[k - 1]);
    } else {
      p.out = r->job->args.grad_edge;
      p.out_stride = p.columns;
    }
    if (p.out)
      status = multiply(l, &p, k ? MLP_TO_GRADIENT : MLP_TO_EDGE, k);
  }
  return status;
}

/* ---- rows of the last layer ---------------------------------------------- */

static dfgnn_program rows_program(const dfgnn_mlp_run *r, const char *source,
                                  const char *name, int flags) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int vector = dfgnn__mlp_has_vector_rows(r->job) ? MLP_VECTOR : 0;
  return (dfgnn_program)DFGNN_PROGRAM(
      source, name, DFGNN_TYPE(mlp->dtype), vector | (r->plan.flags & flags),
      (int)mlp->last, (int)mlp->norm, (int)dfgnn__mlp_out_width(mlp));
}

static dfgnn_status finish_rows(const launch *l) {
  const dfgnn_program program = rows_program(
      l->run, "kernels/mlp/cuda/finish_rows.cuh", "dfgnn::mlp_finish_rows",
      MLP_GATE | MLP_RESIDUAL | MLP_MAX | MLP_MIN | MLP_STORED_LAST);
  return dfgnn__launch_struct(
      l->run->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(l->p.edges, MLP_ROWS)},
                   .threads = MLP_ROWS},
      &l->p);
}

unsigned dfgnn__mlp_row_blocks(const dfgnn_mlp_run *r, int64_t edges) {
  return (unsigned)dfgnn__mlp_least(dfgnn__mlp_blocks(edges, MLP_ROWS),
                                    MLP_ROW_BLOCKS * (int64_t)r->plan.units);
}

/* Bytes of a block's copies of rows; last_shape<> of lane_rows.cuh computes the
 * same. */
static unsigned copy_bytes(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int flags = r->plan.flags;
  const int64_t width = dfgnn__mlp_out_width(mlp);
  const int64_t size = (int64_t)dfgnn_dtype_size(mlp->dtype);
  const int64_t last = flags & MLP_STORED_LAST ? size : (int64_t)sizeof(float);
  const int64_t chunk = size + last < 6 ? 8 : 4;
  const int64_t lanes = width > 16 * chunk ? 32 : width > 8 * chunk ? 16 : 8;
  const int copies = 1 + mlp->gate + !!(flags & MLP_GRAD_EDGES) +
                     !!(flags & MLP_GRAD_DST) + !!(flags & MLP_GRAD_SRC);
  const int64_t bytes = 2 * MLP_ROW_WARPS * 32 / lanes * copies * width * size;
  const int curved = mlp->gate || mlp->last != DFGNN_ACTIVATION_NONE ||
                     mlp->norm != DFGNN_NORM_NONE;
  return dfgnn__mlp_has_vector_rows(r->job) && curved && size == last &&
                 bytes <= MLP_COPY_BYTES
             ? (unsigned)bytes
             : 0;
}

dfgnn_status dfgnn__mlp_last_rows(const dfgnn_mlp_run *r,
                                  const mlp_streamed_params *params,
                                  void *grad_z) {
  mlp_streamed_params p = *params;
  void *arguments[] = {&p, &grad_z};
  const dfgnn_program program = rows_program(
      r, "kernels/mlp/cuda/last_rows.cuh", "dfgnn::mlp_last_rows",
      MLP_GATE | MLP_RESIDUAL | MLP_GRAD_EDGES | MLP_GRAD_DST | MLP_GRAD_SRC |
          MLP_STORED_LAST | MLP_LAST_BIAS | MLP_ROUND);
  return dfgnn__launch(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_row_blocks(r, p.edges)},
                   .threads = MLP_ROW_WARPS * 32,
                   .shared = copy_bytes(r)},
      arguments);
}

/* ---- passes -------------------------------------------------------------- */

mlp_streamed_params dfgnn__mlp_streamed_params(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  return (mlp_streamed_params){.edge_dim = (int)mlp->edge_dim,
                               .first_width = (int)mlp->width[0],
                               .out_width = (int)dfgnn__mlp_out_width(mlp),
                               .norm_weight = r->job->args.norm_weight,
                               .norm_bias = r->job->args.norm_bias,
                               .last = r->workspace + r->plan.last,
                               .last_stride =
                                   dfgnn__mlp_padded(mlp, mlp->layers - 1),
                               .last_width = (int)mlp->width[mlp->layers - 1],
                               .residual = mlp->residual};
}

/* The launch's edges from l->p.first on, and where their z is kept. */
static void begin_launch(launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const int last = r->job->mlp.layers - 1;
  l->p.edges =
      dfgnn__mlp_least(r->graph.edges - l->p.first, r->plan.edges_of_launch);
  if (!dfgnn__mlp_is_kept(r->job))
    return;
  for (int k = 0; k < last; k++)
    l->p.pass.z[k] = dfgnn__mlp_kept_rows(r, k, l->p.first);
  if (r->job->args.kept[last])
    l->p.last = dfgnn__mlp_kept_rows(r, last, l->p.first);
}

static dfgnn_status forward(const dfgnn_mlp_run *r) {
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const dfgnn_reduce reduce = r->job->mlp.reduce_dst;
  launch l = {.run = r, .p = dfgnn__mlp_streamed_params(r)};
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
    begin_launch(&l);
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
  const int keep = r->plan.flags & MLP_WEIGHTS;
  const int64_t width = r->job->mlp.width[0];
  const int padded = dfgnn__mlp_padded(&r->job->mlp, 0);
  const int64_t blocks = dfgnn__mlp_row_blocks(
      r, dfgnn__mlp_least(r->graph.edges, r->plan.edges_of_launch));
  launch l = {.run = r, .p = dfgnn__mlp_streamed_params(r)};
  l.p.pass = dfgnn__mlp_backward_params(r);
  l.p.pass.grad_first = r->workspace + r->plan.grad_first;
  if (r->plan.flags & MLP_LAST_BIAS)
    l.p.last_bias =
        (float *)(r->workspace + r->plan.bias_partial[r->job->mlp.layers - 1]);
  dfgnn_status status = find_positions(&l);
  for (; !status && l.p.first < r->graph.edges;
       l.p.first += r->plan.edges_of_launch) {
    begin_launch(&l);
    l.p.pass.add = l.p.first > 0;
    if (!dfgnn__mlp_is_kept(r->job))
      status = compute_layers(&l);
    else if (keep)
      status = dfgnn__mlp_copy_input(r, &l.p);
    if (!status)
      status = dfgnn__mlp_last_rows(r, &l.p,
                                    gradient_of(&l, r->job->mlp.layers - 1));
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
