/* reduce.c - shapes, arguments and passes of reductions on a GPU */
#include "kernels/reduce/cuda/reduce.h"

#include <string.h>

#include "base/error.h"

#define SOURCE "kernels/reduce/cuda/reduce.cuh"
#define MERGE_SOURCE "kernels/reduce/cuda/merge.cuh"

/* ---- shapes -------------------------------------------------------------- */

/* Lanes, vectors, edges in flight. */
/* clang-format off */
static const gather_choice extreme_shapes[] = {
    {32, 1, 4}, {32, 1, 8}, {32, 2, 4}, {16, 1, 4}, {16, 2, 1}, {16, 2, 2},
    {16, 2, 4}, {8, 1, 4}, {8, 2, 4}, {8, 4, 1}, {8, 4, 2}, {4, 1, 4},
    {4, 2, 4}, {0}};
/* Extremes with their edges take more registers: this list sets the edges in
 * flight of a shape, whatever the variant asks for. */
static const gather_choice edge_shapes[] = {
    {32, 1, 4}, {32, 2, 2}, {16, 1, 4}, {16, 2, 2}, {8, 1, 4}, {8, 2, 2},
    {8, 4, 1}, {4, 1, 4}, {4, 2, 2}, {0}};
static const gather_choice moment_shapes[] = {
    {32, 1, 4}, {16, 1, 4}, {16, 2, 2}, {8, 1, 4}, {8, 2, 2}, {4, 1, 4}, {0}};
static const gather_choice gradient_shapes[] = {
    {32, 1, 2}, {32, 1, 4}, {16, 1, 2}, {16, 1, 4}, {8, 1, 4}, {4, 1, 4}, {0}};
/* clang-format on */

int dfgnn__reduce_listed(int lanes, int vectors, int unroll) {
  static const gather_choice *const lists[] = {extreme_shapes, moment_shapes,
                                               gradient_shapes};
  for (int i = 0; i < 3; i++)
    if (dfgnn__gather_listed(lists[i], lanes, vectors, unroll))
      return 1;
  return 0;
}

/* Edges in flight of a forward kernel; 0: it has no such shape. */
static int unroll_of(int what, const gather_shape *shape) {
  const gather_choice *list = edge_shapes;
  if (shape->vector == 1)
    list = dfgnn__gather_narrow_shapes;
  else if (what & REDUCE_MOMENTS)
    list = moment_shapes;
  else if (!(what & REDUCE_ARG))
    list = extreme_shapes;
  if (list != edge_shapes)
    return dfgnn__gather_listed(list, shape->lanes, shape->vectors,
                                shape->unroll)
               ? shape->unroll
               : 0;
  for (; list->lanes; list++)
    if (list->lanes == shape->lanes && list->vectors == shape->vectors)
      return list->unroll;
  return 0;
}

/* what: REDUCE_... bits of the results to find. */
static int find_forward(dfgnn_program *program, dfgnn_dtype dtype, int what,
                        const gather_shape *shape, int width) {
  const int unroll = unroll_of(what, shape);
  const dfgnn_program made = DFGNN_PROGRAM(
      SOURCE, "dfgnn::reduce_rows", DFGNN_TYPE(dtype), shape->vector,
      shape->lanes, shape->vectors, unroll, what, width);
  *program = made;
  return unroll > 0;
}

/* what: the gradients to gather.  REDUCE_BOTH reads seven rows an edge, hence
 * fewer edges in flight. */
static int find_gradient(dfgnn_program *program, dfgnn_dtype dtype, int what,
                         const gather_shape *shape, int width) {
  int unroll = shape->vector == 1 ? 4 : shape->unroll;
  int listed = shape->vector == 1
                   ? shape->lanes == 4 || shape->lanes == 32
                   : dfgnn__gather_listed(gradient_shapes, shape->lanes,
                                          shape->vectors, shape->unroll);
  if (what == REDUCE_BOTH)
    unroll = shape->vector > 4 ? 1 : unroll / 2;
  const dfgnn_program made = DFGNN_PROGRAM(
      "kernels/reduce/cuda/gradient.cuh", "dfgnn::reduce_gradients",
      DFGNN_TYPE(dtype), shape->vector, shape->lanes, unroll, what, width);
  *program = made;
  return listed;
}

/* The REDUCE_... bits of an operator's forward pass. */
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

const char *dfgnn__reduce_refusal(gather_shape *shape,
                                  const dfgnn_setting *setting, int lanes,
                                  int vectors, int unroll) {
  const dfgnn_problem *problem = setting->problem;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return dfgnn__spmm_refusal(shape, setting, 0, lanes, vectors, unroll);
  if (problem->pass == DFGNN_PASS_BACKWARD)
    return dfgnn__gather_refusal(shape, setting, find_gradient,
                                 gathered_by(problem->op), 0, lanes, vectors,
                                 unroll);
  return dfgnn__gather_refusal(shape, setting, find_forward,
                               found_by(problem->op), 0, lanes, vectors,
                               unroll);
}

/* ---- workspace ----------------------------------------------------------- */

/* The numbers of a partial result per feature. */
static int parts_of(const dfgnn_problem *problem) {
  const int what = found_by(problem->op);
  const int sums = problem->op == DFGNN_OP_REDUCE_MEAN ? 1 : 3;
  if (problem->pass == DFGNN_PASS_BACKWARD)
    return has_moments_pass(problem) ? sums : 1;
  return (what & REDUCE_MIN ? 2 : 0) + (what & REDUCE_MAX ? 2 : 0) +
         (what & REDUCE_MOMENTS ? sums : 0);
}

size_t dfgnn__reduce_item_bytes(const dfgnn_setting *setting, int item_edges) {
  const dfgnn_problem *problem = setting->problem;
  return dfgnn__gather_bytes(
      dfgnn__gather_item_slots(setting->matrix, item_edges) *
          parts_of(problem) * dfgnn__gather_width(problem),
      dfgnn__scalar_size(problem->dtype));
}

static size_t table_bytes(const dfgnn_setting *setting) {
  return dfgnn__gather_bytes(setting->matrix->destinations *
                                 dfgnn__gather_width(setting->problem),
                             dfgnn__scalar_size(setting->problem->dtype));
}

size_t dfgnn__reduce_table_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  if (problem->pass == DFGNN_PASS_FORWARD)
    return 0;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return dfgnn__spmm_scale_bytes(setting);
  return gathered_by(problem->op) == REDUCE_PICK ? 0 : 2 * table_bytes(setting);
}

/* ---- launches ------------------------------------------------------------ */

static dfgnn_status no_kernel(const dfgnn_problem *problem) {
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for %lld heads of %lld features",
                     (long long)(problem->heads), (long long)(problem->dim));
}

static int aligned_array(const void *array) {
  return (uintptr_t)array % 16 == 0;
}

static dfgnn_status run(gather_params *p, const dfgnn_program *program,
                        const gather_shape *shape, const reduce_call *call,
                        const dfgnn_view *items, const dfgnn_matrix *matrix) {
  if (items)
    dfgnn__gather_items(p, items, matrix);
  p->partial = call->partial;
  return dfgnn__gather_run(p, program, shape, call->launch, call->warps,
                           call->rows, items ? GATHER_ONCE : call->span);
}

static dfgnn_status run_mean(const reduce_call *call) {
  const spmm_call sums = {.launch = call->launch,
                          .transpose = call->transpose,
                          .scales = call->tables,
                          .shape = call->shape};
  return call->items ? dfgnn__spmm_items(&sums, call->items, call->partial,
                                         call->warps, call->rows)
                     : dfgnn__spmm_rows(&sums, call->order, call->warps,
                                        call->rows, call->span);
}

/* Finds extremes and moments of the matrix's rows, in order or by items. */
static dfgnn_status run_forward(gather_params *p, const reduce_call *call,
                                int what, const dfgnn_view *order,
                                const dfgnn_view *items) {
  const dfgnn_setting *setting = &call->launch->setting;
  const dfgnn_dtype dtype = setting->problem->dtype;
  const feature_tensor *out = &p->out;
  dfgnn_program program;
  gather_shape shape = call->shape;
  feature_tensor other[3] = {*out, *out, *out};
  other[0].data = p->out_min;
  other[1].data = p->out_max;
  other[2].data = p->out_std;
  int wide = dfgnn__gather_aligned(p, &p->table, dtype) &&
             dfgnn__gather_aligned(p, out, dtype) &&
             dfgnn__gather_aligned(p, &p->row_grad, dtype) &&
             aligned_array(p->arg_min) && aligned_array(p->arg_max);
  for (int i = 0; i < 3; i++)
    wide = wide && dfgnn__gather_aligned(p, &other[i], dtype);
  if (shape.vector > 1 && !wide)
    dfgnn__gather_narrow(&shape, p->width);
  if (p->arg_min || p->arg_max)
    what |= REDUCE_ARG;
  if (order)
    p->schedule.order = (const int *)(order->array[0]);
  if (!find_forward(&program, dtype, what, &shape, p->width))
    return no_kernel(setting->problem);
  dfgnn_status status = run(p, &program, &shape, call, items, setting->matrix);
  return status || !items
             ? status
             : dfgnn__reduce_merge_items(p, items, call->launch, what);
}

dfgnn_status dfgnn__reduce_forward(const reduce_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  gather_params p;
  if (problem->op == DFGNN_OP_REDUCE_MEAN)
    return run_mean(call);
  dfgnn__gather_fill(&p, problem, call->launch->setting.matrix);
  dfgnn_status status = dfgnn__gather_tensor(
      &p.table, "value", args->value, &args->value_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&p.out, "out", args->out, &args->out_strides,
                                  problem->dtype);
  if (status)
    return status;
  const int what = found_by(problem->op);
  p.square_root = problem->op != DFGNN_OP_REDUCE_VAR;
  p.arg_min = what & REDUCE_MIN ? args->arg_min : NULL;
  p.arg_max = what & REDUCE_MAX ? args->arg_max : NULL;
  if (what == REDUCE_ALL) {
    p.out_min = args->out_min;
    p.out_max = args->out_max;
    p.out_std = args->out_std;
  }
  return run_forward(&p, call, what, call->order, call->items);
}

/* ---- backward ------------------------------------------------------------ */

/* Fills coefficient and mean, for the gradient of var and std, by a forward
 * pass over the rows. */
static dfgnn_status fill_moments(const gather_params *to,
                                 const reduce_call *call) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  const dfgnn_args *args = call->launch->args;
  gather_params p;
  dfgnn__gather_fill(&p, problem, call->launch->setting.matrix);
  dfgnn_status status = dfgnn__gather_tensor(
      &p.table, "value", args->value, &args->value_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&p.row_grad, "grad_out", args->grad_out,
                                  &args->grad_out_strides, problem->dtype);
  p.square_root = problem->op == DFGNN_OP_REDUCE_STD;
  p.coefficient = to->coefficient;
  p.offset = to->offset;
  /* Shapes of gradients may have 2 edges in flight, those of moments have 4. */
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
  dfgnn_status status = dfgnn__gather_tensor(&p->mean_out, "out", args->out,
                                             &args->out_strides, dtype);
  if (!status)
    status = dfgnn__gather_tensor(&std, "out_std", args->out_std,
                                  &args->out_strides, dtype);
  if (!status)
    status =
        dfgnn__gather_tensor(&p->grad_min, "grad_out_min", args->grad_out_min,
                             &args->grad_out_strides, dtype);
  if (!status)
    status =
        dfgnn__gather_tensor(&p->grad_max, "grad_out_max", args->grad_out_max,
                             &args->grad_out_strides, dtype);
  if (!status)
    status = dfgnn__gather_tensor(&grad_std, "grad_out_std", args->grad_out_std,
                                  &args->grad_out_strides, dtype);
  if (status)
    return status;
  return dfgnn__reduce_fill_tables(
      p, &p->table, &grad_std, &std,
      (int)(call->launch->setting.matrix->destinations), call->launch);
}

static dfgnn_status fill_backward(gather_params *p, const reduce_call *call,
                                  const dfgnn_matrix *transposed) {
  const dfgnn_setting *setting = &call->launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_args *args = call->launch->args;
  const int what = gathered_by(problem->op);
  dfgnn__gather_fill(p, problem, transposed);
  p->edge_ids = (csr_offsets){call->transpose->array[2], transposed->offsets64};
  p->row_offsets = dfgnn__gather_offsets(setting->matrix);
  p->coefficient = call->tables;
  p->offset =
      (char *)(call->tables) + (what == REDUCE_PICK ? 0 : table_bytes(setting));
  p->row_arg = what == REDUCE_BOTH || problem->op == DFGNN_OP_REDUCE_MIN
                   ? args->arg_min
                   : args->arg_max;
  p->row_arg2 = args->arg_max;
  dfgnn_status status =
      dfgnn__gather_tensor(&p->table, "grad_out", args->grad_out,
                           &args->grad_out_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&p->out, "grad_value", args->grad_value,
                                  &args->grad_value_strides, problem->dtype);
  if (!status && what != REDUCE_PICK)
    status = dfgnn__gather_tensor(&p->own, "value", args->value,
                                  &args->value_strides, problem->dtype);
  if (status || what == REDUCE_PICK)
    return status;
  return what == REDUCE_BOTH ? fill_pna(p, call) : fill_moments(p, call);
}

dfgnn_status dfgnn__reduce_backward(const reduce_call *call) {
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
  dfgnn_program program;
  gather_shape shape = call->shape;
  const feature_tensor *tensors[] = {&p.table,    &p.out, &p.grad_min,
                                     &p.grad_max, &p.own, &p.mean_out};
  int wide = aligned_array(p.row_arg) && aligned_array(p.row_arg2);
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    wide = wide && dfgnn__gather_aligned(&p, tensors[i], dtype);
  if (shape.vector > 1 && !wide)
    dfgnn__gather_narrow(&shape, p.width);
  if (shape.vector == 1)
    shape = (gather_shape){1, shape.lanes, 1, 4};
  if (call->order)
    p.schedule.order = (const int *)(call->order->array[0]);
  if (!find_gradient(&program, dtype, what, &shape, p.width))
    return no_kernel(problem);
  status = run(&p, &program, &shape, call, call->items, &transposed);
  return status || !call->items
             ? status
             : dfgnn__spmm_merge_items(&p, call->items, call->launch);
}

/* ---- rows that were cut, and tables of the backward pass ------------------
 */

dfgnn_status dfgnn__reduce_merge_items(gather_params *p,
                                       const dfgnn_view *items,
                                       const dfgnn_launch *launch, int what) {
  const void *heavy = items->array[3];
  int columns = dfgnn__ceil_power(p->width);
  columns = columns < 32              ? 32
            : columns > MERGE_THREADS ? MERGE_THREADS
                                      : columns;
  void *arguments[] = {p, &heavy, &columns};
  const dfgnn_program program =
      DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::reduce_items",
                    DFGNN_TYPE(launch->setting.problem->dtype), what);
  const dfgnn_grid grid = {.blocks = {(unsigned)items->extra},
                           .threads = MERGE_THREADS};
  return items->extra
             ? dfgnn__launch(launch->setting.queue, &program, grid, arguments)
             : DFGNN_OK;
}

dfgnn_status dfgnn__reduce_fill_tables(const gather_params *p,
                                       const feature_tensor *grad,
                                       const feature_tensor *grad_std,
                                       const feature_tensor *std, int rows,
                                       const dfgnn_launch *launch) {
  const int64_t blocks = dfgnn__ceil_div((int64_t)rows * p->width, 256);
  void *arguments[] = {(void *)p, (void *)grad, (void *)grad_std, (void *)std,
                       &rows};
  const dfgnn_program program =
      DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::fill_tables",
                    DFGNN_TYPE(launch->setting.problem->dtype));
  const dfgnn_grid grid = {.blocks = {(unsigned)blocks}, .threads = 256};
  if (blocks == 0)
    return DFGNN_OK;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%d rows of %d features are too many: a grid has 2^31 "
                       "blocks of 256 features",
                       rows, p->width);
  return dfgnn__launch(launch->setting.queue, &program, grid, arguments);
}
