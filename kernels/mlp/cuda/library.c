/* library.c - an MLP of wide layers: a product by cuBLASLt for each layer of a
 * launch's edges, and a kernel for what follows it
 *
 * Rows of a launch's edges go from layer to layer through memory, where a
 * launch that is small enough stays in the cache. */
#include "kernels/common/cublaslt.h"
#include "kernels/mlp/cuda/launch.h"

typedef struct launch {
  const dfgnn_mlp_run *run;
  mlp_rows_params p;
} launch;

/* ---- layers -------------------------------------------------------------- */

/* Rows of `input` times the weights of layer k, or back through it. */
static dfgnn_status multiply(const launch *l, int k, int back,
                             const void *input, const void *bias, void *to) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const int in = dfgnn__mlp_width(mlp, k - 1), out = dfgnn__mlp_width(mlp, k);
  const dfgnn_gemm gemm = {.dtype = mlp->dtype,
                           .to_dtype = mlp->dtype,
                           .rows = l->p.edges,
                           .columns = back ? in : out,
                           .inner = back ? out : in,
                           .a = input,
                           .b = r->job->args.weight[k],
                           .b_transposed = !back,
                           .a_stride = back ? out : in,
                           .b_stride = in,
                           .to = to,
                           .to_stride = back ? in : out,
                           .bias = bias};
  return dfgnn__multiply(r->queue, &gemm, r->workspace + r->plan->gemm);
}

/* Turns sums, which are in memory, into rows of the layer. */
static dfgnn_status end_layer(const launch *l, mlp_layer_params *p, int kind) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/mlp/cuda/end_layer.cuh", "dfgnn::mlp_end_layer",
      DFGNN_TYPE(r->job->mlp.dtype), kind,
      kind == MLP_TO_EDGE ? MLP_NONE : (int)r->job->mlp.activation);
  p->of = l->p;
  p->column_blocks = (int)dfgnn__mlp_blocks(p->columns, MLP_COLUMNS);
  return dfgnn__launch_struct(
      r->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(l->p.edges, MLP_ROWS) *
                              (unsigned)p->column_blocks},
                   .threads = MLP_THREADS},
      p);
}

/* Rows of e of the launch, which the first layer reads. */
static const void *input_rows(const launch *l) {
  const dfgnn_mlp_run *r = l->run;
  return dfgnn__mlp_copies_edges(r->plan, r->job)
             ? r->workspace + r->plan->input[0]
             : (const char *)r->job->args.edge +
                   2 * l->p.first * r->job->mlp.edge_dim;
}

static dfgnn_status copy_input(const launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const mlp_copy_params copy = {.from = r->job->args.edge,
                                .edge_order = r->graph.edge_order,
                                .to = r->workspace + r->plan->input[0],
                                .first = l->p.first,
                                .edges = l->p.edges,
                                .wide = r->graph.wide,
                                .width = (int)r->job->mlp.edge_dim};
  const dfgnn_program program = {.source = "kernels/mlp/cuda/pack.cuh",
                                 .name = "dfgnn::mlp_copy_rows"};
  if (!dfgnn__mlp_copies_edges(r->plan, r->job))
    return DFGNN_OK;
  return dfgnn__launch_struct(
      r->queue, &program,
      (dfgnn_grid){.blocks = {8 * (unsigned)r->plan->units},
                   .threads = MLP_THREADS},
      &copy);
}

/* Layer k of the launch's edges: z of the last, else the rows that the next
 * layer reads, with z where it is kept.  A library adds a bias itself. */
static dfgnn_status compute_layer(const launch *l, int k) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int last = k == mlp->layers - 1;
  const int parts = !k && (a->dst_part || a->src_part);
  void *kept = dfgnn__mlp_kept_rows(r, k, l->p.first);
  void *sums = last             ? (void *)l->p.last
               : kept && !parts ? kept
                                : r->workspace + r->plan->sums;
  mlp_layer_params p = {.columns = dfgnn__mlp_width(mlp, k),
                        .bias = parts ? a->bias[k] : NULL,
                        .parts = parts,
                        .sums = sums,
                        .z_out = parts ? kept : NULL,
                        .out = r->workspace + r->plan->input[last ? 0 : k + 1]};
  const dfgnn_status status =
      multiply(l, k, 0, k ? r->workspace + r->plan->input[k] : input_rows(l),
               parts ? NULL : a->bias[k], sums);
  return status || last ? status : end_layer(l, &p, MLP_TO_HIDDEN);
}

/* The rows of the gradient with respect to z of layer k. */
static void *gradient_of(const launch *l, int k) {
  return k ? l->p.pass.grad_z[k]
           : (char *)l->p.pass.grad_first + 2 * l->p.first * l->p.first_width;
}

static dfgnn_status go_back(const launch *l, int k) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  const dfgnn_edge_mlp_args *a = &r->job->args;
  void *sums = r->workspace + r->plan->sums;
  mlp_layer_params p = {.columns = dfgnn__mlp_width(mlp, k - 1), .sums = sums};
  if (k) {
    p.z = l->p.pass.z[k - 1];
    p.out = gradient_of(l, k - 1);
    if (r->plan->flags & MLP_WEIGHTS)
      p.activated = l->p.pass.input[k];
    if (a->grad_bias[k - 1])
      p.bias_partial = (float *)(r->workspace + r->plan->bias_partial[k - 1]);
  } else if (!a->grad_edge) {
    return DFGNN_OK;
  } else if (!mlp->residual && !r->graph.edge_order) {
    return multiply(l, k, 1, gradient_of(l, k), NULL,
                    (char *)a->grad_edge + 2 * l->p.first * p.columns);
  } else {
    p.out = a->grad_edge;
  }
  const dfgnn_status status = multiply(l, k, 1, gradient_of(l, k), NULL, sums);
  return status ? status : end_layer(l, &p, k ? MLP_TO_GRADIENT : MLP_TO_EDGE);
}

/* Adds the launch's edges to the gradients of weights. */
static dfgnn_status multiply_weights(const launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp *mlp = &r->job->mlp;
  dfgnn_status status = DFGNN_OK;
  for (int k = 0; !status && k < mlp->layers; k++) {
    const int in = dfgnn__mlp_width(mlp, k - 1), out = dfgnn__mlp_width(mlp, k);
    const dfgnn_gemm gemm = {.dtype = mlp->dtype,
                             .to_dtype = DFGNN_F32,
                             .rows = out,
                             .columns = in,
                             .inner = l->p.edges,
                             .a = gradient_of(l, k),
                             .b = k ? l->p.pass.input[k] : input_rows(l),
                             .a_transposed = 1,
                             .a_stride = out,
                             .b_stride = in,
                             .to = r->job->args.grad_weight[k],
                             .to_stride = in,
                             .keep = (float)l->p.pass.add};
    if (gemm.to)
      status = dfgnn__multiply(r->queue, &gemm, r->workspace + r->plan->gemm);
  }
  return status;
}

static dfgnn_status finish_biases(const dfgnn_mlp_run *r) {
  dfgnn_status status = DFGNN_OK;
  for (int k = 0; !status && k < r->job->mlp.layers; k++) {
    const int width = dfgnn__mlp_width(&r->job->mlp, k);
    if (r->job->args.grad_bias[k])
      status =
          dfgnn__mlp_finish_sums(r, r->plan->bias_partial[k],
                                 dfgnn__mlp_bias_parts(r->plan, r->job, k),
                                 width, width, r->job->args.grad_bias[k], NULL);
  }
  return status;
}

/* ---- passes -------------------------------------------------------------- */

static dfgnn_status finish_rows(const launch *l) {
  const dfgnn_edge_mlp *mlp = &l->run->job->mlp;
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/mlp/cuda/finish_rows.cuh", "dfgnn::mlp_finish_rows",
      DFGNN_TYPE(mlp->dtype), l->run->plan->flags & MLP_RESIDUAL,
      (int)mlp->norm, l->p.out_width);
  return dfgnn__launch_struct(
      l->run->queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__mlp_blocks(l->p.edges, MLP_ROWS)},
                   .threads = MLP_ROWS},
      &l->p);
}

/* The launch's edges from l->p.first on, and where their z is kept. */
static void begin_launch(launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const int last = r->job->mlp.layers - 1;
  l->p.edges = dfgnn__mlp_edges_from(r, l->p.first);
  l->p.pass.add = l->p.first > 0;
  for (int k = 0; k < last; k++)
    l->p.pass.z[k] = dfgnn__mlp_kept_rows(r, k, l->p.first);
  if (r->job->args.kept[last])
    l->p.last = dfgnn__mlp_kept_rows(r, last, l->p.first);
}

static dfgnn_status forward(launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const mlp_forward_params *p = &l->p.pass.forward;
  dfgnn_status status = dfgnn__mlp_clear(r, p->sums.out, l->p.out_width);
  for (; !status && l->p.first < r->graph.edges;
       l->p.first += r->plan->edges_of_launch) {
    begin_launch(l);
    status = copy_input(l);
    for (int k = 0; !status && k < r->job->mlp.layers; k++)
      status = compute_layer(l, k);
    if (!status)
      status = finish_rows(l);
  }
  return status ? status : dfgnn__mlp_merge(r, &p->sums, l->p.out_width);
}

static dfgnn_status backward(launch *l) {
  const dfgnn_mlp_run *r = l->run;
  const dfgnn_edge_mlp_args *a = &r->job->args;
  const int weights = r->plan->flags & MLP_WEIGHTS,
            last = r->job->mlp.layers - 1;
  dfgnn_status status = DFGNN_OK;
  if (r->plan->flags & MLP_LAST_BIAS)
    l->p.last_bias = (float *)(r->workspace + r->plan->bias_partial[last]);
  for (; !status && l->p.first < r->graph.edges;
       l->p.first += r->plan->edges_of_launch) {
    begin_launch(l);
    status = weights ? copy_input(l) : DFGNN_OK;
    if (!status)
      status = dfgnn__mlp_last_rows(r, &l->p, gradient_of(l, last));
    for (int k = last; !status && k >= 0; k--)
      status = go_back(l, k);
    if (!status && weights)
      status = multiply_weights(l);
  }
  if (!status)
    status = dfgnn__mlp_sum_first(r, a->grad_dst_part, 0);
  if (!status)
    status = dfgnn__mlp_sum_first(r, a->grad_src_part, 1);
  if (!status)
    status = finish_biases(r);
  return status ? status : dfgnn__mlp_finish_norm(r);
}

dfgnn_status dfgnn__mlp_library(const dfgnn_mlp_run *r) {
  launch l = {.run = r, .p = dfgnn__mlp_rows_params(r)};
  l.p.pass = dfgnn__mlp_backward_params(r);
  if (r->job->pass == DFGNN_PASS_FORWARD)
    l.p.pass.forward = dfgnn__mlp_forward_params(r);
  return r->job->pass == DFGNN_PASS_FORWARD ? forward(&l) : backward(&l);
}
