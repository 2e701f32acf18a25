/* spmm.c - shapes, arguments and passes of SpMM on a GPU */
#include <string.h>

#include "base/error.h"
#include "kernels/spmm/cuda/spmm.h"

#define SOURCE "kernels/spmm/cuda/spmm.cuh"
#define MERGE_SOURCE "kernels/spmm/cuda/merge.cuh"

/* ---- shapes -------------------------------------------------------------- */

/* Lanes, vectors, edges in flight.  Only float has the registers for the shapes
 * behind the first LIGHT_... of each list: a vector of 16-bit numbers has twice
 * as many features. */
/* clang-format off */
const gather_choice dfgnn__spmm_row_shapes[] = {
    {32, 1, 4}, {32, 1, 8}, {32, 2, 2}, {16, 1, 4}, {16, 1, 8}, {16, 2, 1},
    {16, 2, 2}, {8, 1, 4}, {8, 2, 2}, {4, 1, 4}, {4, 2, 2},
    {32, 2, 4}, {16, 2, 4}, {8, 2, 4}, {8, 4, 1}, {8, 4, 2}, {4, 2, 4}, {0}};
const gather_choice dfgnn__spmm_share_shapes[] = {
    {32, 1, 4}, {16, 1, 4}, {8, 1, 4}, {4, 1, 4},
    {32, 1, 8}, {32, 2, 4}, {16, 2, 4}, {0}};
/* clang-format on */
enum { LIGHT_ROWS = 11, LIGHT_SHARES = 4 };

static int listed(const gather_choice *list, int light, dfgnn_dtype dtype,
                  const gather_shape *shape) {
  for (int i = 0; list[i].lanes; i++)
    if (list[i].lanes == shape->lanes && list[i].vectors == shape->vectors &&
        list[i].unroll == shape->unroll)
      return i < light || dtype == DFGNN_F32;
  return 0;
}

static int find_program(dfgnn_program *program, dfgnn_dtype dtype, int what,
                        const gather_shape *shape, int width) {
  const int shares = what & SPMM_BALANCED, factor = what & ~SPMM_BALANCED;
  const dfgnn_program rows_program = DFGNN_PROGRAM(
      SOURCE, "dfgnn::spmm_rows", DFGNN_TYPE(dtype), shape->vector,
      shape->lanes, shape->vectors, shape->unroll, factor, width);
  *program = rows_program;
  if (shares)
    program->name = "dfgnn::spmm_shares";
  if (shape->vector == 1)
    return dfgnn__gather_listed(dfgnn__gather_narrow_shapes, shape->lanes,
                                shape->vectors, shape->unroll);
  return shares ? listed(dfgnn__spmm_share_shapes, LIGHT_SHARES, dtype, shape)
                : listed(dfgnn__spmm_row_shapes, LIGHT_ROWS, dtype, shape);
}

static int per_head(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_WEIGHTED && problem->heads > 1;
}

/* May a 16-byte vector have features of several heads? */
static int heads_mix(const dfgnn_problem *problem) {
  const int64_t size = (int64_t)(dfgnn_dtype_size(problem->dtype));
  return per_head(problem) &&
         (problem->layout == DFGNN_LAYOUT_NDH || problem->dim * size % 16 != 0);
}

const char *dfgnn__spmm_refusal(gather_shape *shape,
                                const dfgnn_setting *setting, int shares,
                                int lanes, int vectors, int unroll) {
  const dfgnn_problem *problem = setting->problem;
  const int what = (per_head(problem) ? SPMM_HEADS : SPMM_PLAIN) |
                   (shares ? SPMM_BALANCED : 0);
  return dfgnn__gather_refusal(shape, setting, find_program, what,
                               heads_mix(problem), lanes, vectors, unroll);
}

/* Finds the program for the tensors given, which may need another shape. */
static int choose(dfgnn_program *program, gather_shape *shape,
                  const gather_params *p, const dfgnn_problem *problem,
                  int shares) {
  const int what = (!p->weights && !p->gathered_scale ? SPMM_PLAIN
                    : per_head(problem)               ? SPMM_HEADS
                                                      : SPMM_FACTOR) |
                   (shares ? SPMM_BALANCED : 0);
  if (shape->vector > 1 &&
      (!dfgnn__gather_aligned(p, &p->table, problem->dtype) ||
       !dfgnn__gather_aligned(p, &p->out, problem->dtype)))
    dfgnn__gather_narrow(shape, p->width);
  return find_program(program, problem->dtype, what, shape, p->width);
}

/* ---- arguments ----------------------------------------------------------- */

static int averages(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}

size_t dfgnn__spmm_scale_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  return averages(problem) && problem->pass == DFGNN_PASS_BACKWARD
             ? dfgnn__gather_bytes(setting->matrix->destinations,
                                   dfgnn__scalar_size(problem->dtype))
             : 0;
}

dfgnn_status dfgnn__spmm_mean_scales(void *to, const void *scale,
                                     const dfgnn_launch *launch) {
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const int wide = launch->setting.problem->dtype == DFGNN_F64;
  csr_offsets offsets = dfgnn__gather_offsets(matrix);
  int rows = (int)matrix->destinations;
  void *arguments[] = {&to, &scale, &offsets, &rows};
  const dfgnn_program program =
      DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::mean_scales",
                    DFGNN_TYPE(wide ? DFGNN_F64 : DFGNN_F32));
  const dfgnn_grid grid = {.blocks = {(unsigned)dfgnn__ceil_div(rows, 256)},
                           .threads = 256};
  return rows ? dfgnn__launch(launch->setting.queue, &program, grid, arguments)
              : DFGNN_OK;
}

static dfgnn_status fill_backward(gather_params *p, const dfgnn_launch *launch,
                                  const dfgnn_view *transpose, void *scales) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const dfgnn_matrix t = dfgnn__transposed(launch->setting.matrix, transpose);
  dfgnn__gather_fill(p, problem, &t);
  dfgnn_status status =
      dfgnn__gather_tensor(&p->table, "grad_out", args->grad_out,
                           &args->grad_out_strides, problem->dtype);
  if (!status)
    status = dfgnn__gather_tensor(&p->out, "grad_value", args->grad_value,
                                  &args->grad_value_strides, problem->dtype);
  p->gathered_scale = args->scale_dst;
  p->row_scale = args->scale_src;
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED) {
    p->weights = args->edge_weight;
    p->edge_ids = (csr_offsets){transpose->array[2], t.offsets64};
  }
  if (status || !averages(problem))
    return status;
  p->gathered_scale = scales;
  return dfgnn__spmm_mean_scales(scales, args->scale_dst, launch);
}

static dfgnn_status fill(gather_params *p, const dfgnn_launch *launch,
                         const dfgnn_view *transpose, void *scales) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  if (transpose)
    return fill_backward(p, launch, transpose, scales);
  dfgnn__gather_fill(p, problem, launch->setting.matrix);
  p->gathered_scale = args->scale_src;
  p->row_scale = args->scale_dst;
  p->mean = averages(problem);
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED)
    p->weights = args->edge_weight;
  dfgnn_status status = dfgnn__gather_tensor(
      &p->table, "value", args->value, &args->value_strides, problem->dtype);
  return status ? status
                : dfgnn__gather_tensor(&p->out, "out", args->out,
                                       &args->out_strides, problem->dtype);
}

/* ---- passes -------------------------------------------------------------- */

static dfgnn_status prepare(gather_params *p, dfgnn_program *program,
                            gather_shape *shape, const spmm_call *call,
                            int shares) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  dfgnn_status status = fill(p, call->launch, call->transpose, call->scales);
  if (status)
    return status;
  *shape = call->shape;
  if (choose(program, shape, p, problem, shares))
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for %lld heads of %lld features",
                     (long long)(problem->heads), (long long)(problem->dim));
}

dfgnn_status dfgnn__spmm_rows(const spmm_call *call, const dfgnn_view *order,
                              int warps, int rows, gather_span span) {
  gather_params p;
  dfgnn_program program;
  gather_shape shape;
  dfgnn_status status = prepare(&p, &program, &shape, call, 0);
  if (status)
    return status;
  if (order)
    p.schedule.order = (const int *)(order->array[0]);
  return dfgnn__gather_run(&p, &program, &shape, call->launch, warps, rows,
                           span);
}

static dfgnn_matrix matrix_of(const spmm_call *call) {
  const dfgnn_matrix *matrix = call->launch->setting.matrix;
  return call->transpose ? dfgnn__transposed(matrix, call->transpose) : *matrix;
}

dfgnn_status dfgnn__spmm_items(const spmm_call *call, const dfgnn_view *items,
                               void *partial, int warps, int rows) {
  const dfgnn_matrix matrix = matrix_of(call);
  gather_params p;
  dfgnn_program program;
  gather_shape shape;
  dfgnn_status status = prepare(&p, &program, &shape, call, 0);
  if (status)
    return status;
  dfgnn__gather_items(&p, items, &matrix);
  p.partial = partial;
  status = dfgnn__gather_run(&p, &program, &shape, call->launch, warps, rows,
                             GATHER_ONCE);
  return status ? status : dfgnn__spmm_merge_items(&p, items, call->launch);
}

/* Bytes of the partial results of `slots` rows. */
static size_t partial_bytes(const dfgnn_setting *setting, int64_t slots) {
  const dfgnn_problem *problem = setting->problem;
  return dfgnn__gather_bytes(slots * dfgnn__gather_width(problem),
                             dfgnn__scalar_size(problem->dtype));
}

size_t dfgnn__spmm_item_bytes(const dfgnn_setting *setting, int item_edges) {
  return partial_bytes(setting,
                       dfgnn__gather_item_slots(setting->matrix, item_edges));
}

/* The number of shares of the matrix that the pass walks. */
static int64_t count_shares(const dfgnn_setting *setting, int share) {
  dfgnn_matrix matrix = *setting->matrix;
  if (setting->problem->pass == DFGNN_PASS_BACKWARD)
    matrix.destinations = matrix.sources;
  return dfgnn__gather_shares(&matrix, share);
}

size_t dfgnn__spmm_share_bytes(const dfgnn_setting *setting, int share) {
  const int64_t shares = count_shares(setting, share);
  return dfgnn__gather_bytes(shares, sizeof(int)) +
         partial_bytes(setting, 2 * shares);
}

dfgnn_status dfgnn__spmm_shares(const spmm_call *call, int share, void *partial,
                                int warps) {
  const int64_t shares = count_shares(&call->launch->setting, share);
  gather_params p;
  dfgnn_program program;
  gather_shape shape;
  dfgnn_status status = prepare(&p, &program, &shape, call, 1);
  if (status)
    return status;
  p.schedule.units = (int)shares;
  p.schedule.share = share;
  p.schedule.share_row = (int *)partial;
  p.partial = (char *)partial + dfgnn__gather_bytes(shares, sizeof(int));
  status = dfgnn__gather_run_shares(&p, &program, &shape, call->launch, warps);
  return status ? status : dfgnn__spmm_merge_shares(&p, call->launch);
}

/* ---- rows that were cut -------------------------------------------------- */

static int columns_of(const gather_params *p) {
  const int columns = dfgnn__ceil_power(p->width);
  return columns < 32 ? 32 : columns > MERGE_THREADS ? MERGE_THREADS : columns;
}

dfgnn_status dfgnn__spmm_merge_items(gather_params *p, const dfgnn_view *items,
                                     const dfgnn_launch *launch) {
  const dfgnn_dtype dtype = launch->setting.problem->dtype;
  const void *heavy = items->array[3];
  int columns = columns_of(p);
  void *arguments[] = {p, &heavy, &columns};
  const dfgnn_program program =
      DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::merge_items", DFGNN_TYPE(dtype));
  const dfgnn_grid grid = {.blocks = {(unsigned)items->extra},
                           .threads = MERGE_THREADS};
  return items->extra
             ? dfgnn__launch(launch->setting.queue, &program, grid, arguments)
             : DFGNN_OK;
}

dfgnn_status dfgnn__spmm_merge_shares(gather_params *p,
                                      const dfgnn_launch *launch) {
  const dfgnn_dtype dtype = launch->setting.problem->dtype;
  int columns = columns_of(p);
  void *arguments[] = {p, &columns};
  const dfgnn_program program =
      DFGNN_PROGRAM(MERGE_SOURCE, "dfgnn::merge_shares", DFGNN_TYPE(dtype));
  const dfgnn_grid grid = {.blocks = {(unsigned)p->schedule.units},
                           .threads = MERGE_THREADS};
  return p->schedule.units
             ? dfgnn__launch(launch->setting.queue, &program, grid, arguments)
             : DFGNN_OK;
}

/* ---- for cuSPARSE -------------------------------------------------------- */

dfgnn_status dfgnn__spmm_values(const dfgnn_spmm_values *values,
                                const dfgnn_queue *queue) {
  const dfgnn_program program = {.source = "kernels/spmm/cuda/values.cuh",
                                 .name = "dfgnn::fill_values"};
  const dfgnn_grid grid = {
      .blocks = {(unsigned)dfgnn__ceil_div(values->rows * 32, 256)},
      .threads = 256};
  return values->edges ? dfgnn__launch_struct(queue, &program, grid, values)
                       : DFGNN_OK;
}

dfgnn_status dfgnn__spmm_plain(const dfgnn_launch *launch,
                               const dfgnn_view *transpose, void *scales) {
  spmm_call call = {.launch = launch, .transpose = transpose, .scales = scales};
  dfgnn__gather_narrow(&call.shape,
                       dfgnn__gather_width(launch->setting.problem));
  return dfgnn__spmm_rows(&call, NULL, 4, 1, GATHER_ONCE);
}
