#include "kernels/reduce/cuda/reduce.h"

namespace dfgnn {

gather_kernel reduce_kernel(dfgnn_dtype dtype, int what,
                            const gather_shape *shape) {
  static gather_finder *const wide[] = {reduce_f32, reduce_f16, reduce_bf16};
  return shape->vector > 1 ? wide[dtype](dtype, what, shape)
                           : reduce_narrow(dtype, what, shape);
}

/* ---- shapes -------------------------------------------------------------- */

/* What the forward pass of an operator finds. */
static int found_by(dfgnn_op op) {
  switch (op) {
  case DFGNN_OP_REDUCE_MIN:
    return REDUCE_MIN;
  case DFGNN_OP_REDUCE_MAX:
    return REDUCE_MAX;
  case DFGNN_OP_REDUCE_PNA:
    return REDUCE_ALL;
  default:
    return REDUCE_MOMENTS;
  }
}

static int gathered_by(dfgnn_op op) {
  switch (op) {
  case DFGNN_OP_REDUCE_MIN:
  case DFGNN_OP_REDUCE_MAX:
    return REDUCE_PICK;
  case DFGNN_OP_REDUCE_PNA:
    return REDUCE_BOTH;
  default:
    return REDUCE_SPREAD;
  }
}

static int has_moments_pass(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD &&
         gathered_by(problem->op) == REDUCE_SPREAD;
}

const char *reduce_refusal(gather_shape *shape, const dfgnn_setting *setting,
                           int lanes, int vectors, int unroll) {
  const dfgnn_problem *problem = setting->problem;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return spmm_refusal(shape, setting, 0, lanes, vectors, unroll);
  if (problem->pass == DFGNN_PASS_BACKWARD)
    return gather_refusal(shape, setting, reduce_gradient_kernel,
                          gathered_by(problem->op), 0, lanes, vectors, unroll);
  return gather_refusal(shape, setting, reduce_kernel, found_by(problem->op), 0,
                        lanes, vectors, unroll);
}

void reduce_prefer_cache(const dfgnn_problem *problem,
                         const gather_shape *shape) {
  const int what = found_by(problem->op);
  if (problem->op == DFGNN_OP_REDUCE_MEAN) {
    spmm_prefer_cache(problem, shape, 0);
    return;
  }
  if (problem->pass == DFGNN_PASS_BACKWARD)
    gather_prefer_cache(reduce_gradient_kernel(
        problem->dtype, gathered_by(problem->op), shape));
  if (problem->pass == DFGNN_PASS_FORWARD || has_moments_pass(problem))
    gather_prefer_cache(reduce_kernel(problem->dtype, what, shape));
  if (problem->pass == DFGNN_PASS_FORWARD && what != REDUCE_MOMENTS)
    gather_prefer_cache(
        reduce_kernel(problem->dtype, what | REDUCE_ARG, shape));
}

/* ---- workspace ----------------------------------------------------------- */

/* Numbers of a partial result, a feature. */
static int parts_of(const dfgnn_problem *problem) {
  const int what = found_by(problem->op);
  const int sums = problem->op == DFGNN_OP_REDUCE_MEAN ? 1 : 3;
  if (problem->pass == DFGNN_PASS_BACKWARD)
    return has_moments_pass(problem) ? sums : 1;
  return (what & REDUCE_MIN ? 2 : 0) + (what & REDUCE_MAX ? 2 : 0) +
         (what & REDUCE_MOMENTS ? sums : 0);
}

size_t reduce_item_bytes(const dfgnn_setting *setting, int item_edges) {
  const dfgnn_problem *problem = setting->problem;
  return gather_bytes(gather_item_slots(setting->matrix, item_edges) *
                          parts_of(problem) * gather_width(problem),
                      gather_scalar(problem->dtype));
}

static size_t table_bytes(const dfgnn_setting *setting) {
  return gather_bytes(setting->matrix->destinations *
                          gather_width(setting->problem),
                      gather_scalar(setting->problem->dtype));
}

size_t reduce_table_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  if (problem->pass == DFGNN_PASS_FORWARD)
    return 0;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return spmm_scale_bytes(setting);
  return gathered_by(problem->op) == REDUCE_PICK ? 0 : 2 * table_bytes(setting);
}

/* ---- launches ------------------------------------------------------------ */

static dfgnn_status no_kernel(const dfgnn_problem *problem) {
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for %lld heads of %lld features",
                     static_cast<long long>(problem->heads),
                     static_cast<long long>(problem->dim));
}

static int aligned_array(const void *array) {
  return reinterpret_cast<uintptr_t>(array) % 16 == 0;
}

static dfgnn_status run(gather_params *p, gather_kernel kernel,
                        const gather_shape *shape, const reduce_call *call,
                        const dfgnn_view *items, const dfgnn_matrix *matrix) {
  if (!kernel)
    return no_kernel(call->launch->setting.problem);
  if (items)
    gather_items(p, items, matrix);
  p->partial = call->partial;
  return gather_run(p, kernel, shape, call->launch, call->warps, call->rows,
                    items ? GATHER_ONCE : call->span);
}

static dfgnn_status run_mean(const reduce_call *call) {
  const spmm_call sums = {call->launch, call->transpose, call->tables,
                          call->shape};
  return call->items ? spmm_items(&sums, call->items, call->partial,
                                  call->warps, call->rows)
                     : spmm_rows(&sums, call->order, call->warps, call->rows,
                                 call->span);
}

/* Extremes and moments of the rows of the matrix.  items: of those rows. */
static dfgnn_status run_forward(gather_params *p, const reduce_call *call,
                                int what, const dfgnn_view *order,
                                const dfgnn_view *items) {
  const dfgnn_setting *setting = &call->launch->setting;
  const dfgnn_dtype dtype = setting->problem->dtype;
  const feature_tensor *out = &p->out;
  gather_shape shape = call->shape;
  feature_tensor other[3] = {*out, *out, *out};
  other[0].data = p->out_min;
  other[1].data = p->out_max;
  other[2].data = p->out_std;
  int wide = gather_aligned(p, &p->table, dtype) &&
             gather_aligned(p, out, dtype) &&
             gather_aligned(p, &p->row_grad, dtype) &&
             aligned_array(p->arg_min) && aligned_array(p->arg_max);
  for (int i = 0; i < 3; i++)
    wide = wide && gather_aligned(p, &other[i], dtype);
  if (shape.vector > 1 && !wide)
    gather_narrow(&shape, p->width);
  if (p->arg_min || p->arg_max)
    what |= REDUCE_ARG;
  if (order)
    p->schedule.order = static_cast<const int *>(order->array[0]);
  dfgnn_status status = run(p, reduce_kernel(dtype, what, &shape), &shape, call,
                            items, setting->matrix);
  return status || !items ? status
                          : reduce_merge_items(p, items, call->launch, what);
}

dfgnn_status reduce_forward(const reduce_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  gather_params p;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return run_mean(call);
  gather_fill(&p, problem, call->launch->setting.matrix);
  dfgnn_status status = gather_tensor(&p.table, "value", args->value,
                                      &args->value_strides, problem->dtype);
  if (!status)
    status = gather_tensor(&p.out, "out", args->out, &args->out_strides,
                           problem->dtype);
  if (status)
    return status;
  const int what = found_by(problem->op);
  p.square_root = problem->op != DFGNN_OP_REDUCE_VAR;
  p.arg_min = what & REDUCE_MIN ? args->arg_min : nullptr;
  p.arg_max = what & REDUCE_MAX ? args->arg_max : nullptr;
  if (what == REDUCE_ALL) {
    p.out_min = args->out_min;
    p.out_max = args->out_max;
    p.out_std = args->out_std;
  }
  return run_forward(&p, call, what, call->order, call->items);
}

/* ---- backward ------------------------------------------------------------ */

/* a and mean of var and std: a first pass over the rows. */
static dfgnn_status fill_moments(const gather_params *to,
                                 const reduce_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  gather_params p;
  gather_fill(&p, problem, call->launch->setting.matrix);
  dfgnn_status status = gather_tensor(&p.table, "value", args->value,
                                      &args->value_strides, problem->dtype);
  if (!status)
    status = gather_tensor(&p.row_grad, "grad_out", args->grad_out,
                           &args->grad_out_strides, problem->dtype);
  p.square_root = problem->op == DFGNN_OP_REDUCE_STD;
  p.coefficient = to->coefficient;
  p.offset = to->offset;
  /* Gradients have instances of fewer edges in flight. */
  reduce_call rows = *call;
  if (rows.shape.vector > 1)
    rows.shape.unroll = 4;
  return status ? status
                : run_forward(&p, &rows, REDUCE_MOMENTS, NULL, call->row_items);
}

static dfgnn_status fill_pna(gather_params *p, const reduce_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  const dfgnn_dtype dtype = problem->dtype;
  feature_tensor grad_std, std;
  dfgnn_status status =
      gather_tensor(&p->mean_out, "out", args->out, &args->out_strides, dtype);
  if (!status)
    status = gather_tensor(&std, "out_std", args->out_std, &args->out_strides,
                           dtype);
  if (!status)
    status = gather_tensor(&p->grad_min, "grad_out_min", args->grad_out_min,
                           &args->grad_out_strides, dtype);
  if (!status)
    status = gather_tensor(&p->grad_max, "grad_out_max", args->grad_out_max,
                           &args->grad_out_strides, dtype);
  if (!status)
    status = gather_tensor(&grad_std, "grad_out_std", args->grad_out_std,
                           &args->grad_out_strides, dtype);
  if (status)
    return status;
  return reduce_fill_tables(
      p, &p->table, &grad_std, &std,
      static_cast<int>(call->launch->setting.matrix->destinations),
      call->launch);
}

static dfgnn_status fill_backward(gather_params *p, const reduce_call *call,
                                  const dfgnn_matrix *transposed) {
  const dfgnn_setting *setting = &call->launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_args *args = call->launch->args;
  const int what = gathered_by(problem->op);
  gather_fill(p, problem, transposed);
  p->edge_ids = {call->transpose->array[2], transposed->offsets64};
  p->row_offsets = offsets_of(setting->matrix);
  p->coefficient = call->tables;
  p->offset = static_cast<char *>(call->tables) +
              (what == REDUCE_PICK ? 0 : table_bytes(setting));
  p->row_arg = what == REDUCE_BOTH || problem->op == DFGNN_OP_REDUCE_MIN
                   ? args->arg_min
                   : args->arg_max;
  p->row_arg2 = args->arg_max;
  dfgnn_status status = gather_tensor(&p->table, "grad_out", args->grad_out,
                                      &args->grad_out_strides, problem->dtype);
  if (!status)
    status = gather_tensor(&p->out, "grad_value", args->grad_value,
                           &args->grad_value_strides, problem->dtype);
  if (!status && what != REDUCE_PICK)
    status = gather_tensor(&p->own, "value", args->value, &args->value_strides,
                           problem->dtype);
  if (status || what == REDUCE_PICK)
    return status;
  return what == REDUCE_BOTH ? fill_pna(p, call) : fill_moments(p, call);
}

dfgnn_status reduce_backward(const reduce_call *call) {
  const dfgnn_setting *setting = &call->launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_dtype dtype = problem->dtype;
  const int what = gathered_by(problem->op);
  gather_params p;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return run_mean(call);
  const dfgnn_matrix transposed =
      dfgnn__transposed(setting->matrix, call->transpose);
  dfgnn_status status = fill_backward(&p, call, &transposed);
  if (status)
    return status;
  gather_shape shape = call->shape;
  const feature_tensor *tensors[] = {&p.table,    &p.out, &p.grad_min,
                                     &p.grad_max, &p.own, &p.mean_out};
  int wide = aligned_array(p.row_arg) && aligned_array(p.row_arg2);
  for (const feature_tensor *t : tensors)
    wide = wide && gather_aligned(&p, t, dtype);
  if (shape.vector > 1 && !wide)
    gather_narrow(&shape, p.width);
  if (shape.vector == 1)
    shape = {1, shape.lanes, 1, 4};
  if (call->order)
    p.schedule.order = static_cast<const int *>(call->order->array[0]);
  status = run(&p, reduce_gradient_kernel(dtype, what, &shape), &shape, call,
               call->items, &transposed);
  return status || !call->items
             ? status
             : spmm_merge_items(&p, call->items, call->launch);
}

} // namespace dfgnn
