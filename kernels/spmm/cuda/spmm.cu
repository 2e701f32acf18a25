#include "kernels/spmm/cuda/spmm.h"

namespace dfgnn {

gather_kernel spmm_kernel(dfgnn_dtype dtype, int what,
                          const gather_shape *shape) {
  static gather_finder *const wide[] = {spmm_f32, spmm_f16, spmm_bf16};
  return shape->vector > 1 ? wide[dtype](dtype, what, shape)
                           : spmm_narrow(dtype, what, shape);
}

/* ---- shapes -------------------------------------------------------------- */

static int per_head(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_WEIGHTED && problem->heads > 1;
}

/* May a 16-byte vector have features of several heads? */
static int heads_mix(const dfgnn_problem *problem) {
  const int64_t size = static_cast<int64_t>(dfgnn_dtype_size(problem->dtype));
  return per_head(problem) &&
         (problem->layout == DFGNN_LAYOUT_NDH || problem->dim * size % 16 != 0);
}

const char *spmm_refusal(gather_shape *shape, const dfgnn_setting *setting,
                         int shares, int lanes, int vectors, int unroll) {
  const dfgnn_problem *problem = setting->problem;
  const int what = (per_head(problem) ? SPMM_HEADS : SPMM_PLAIN) |
                   (shares ? SPMM_BALANCED : 0);
  return gather_refusal(shape, setting, spmm_kernel, what, heads_mix(problem),
                        lanes, vectors, unroll);
}

void spmm_prefer_cache(const dfgnn_problem *problem, const gather_shape *shape,
                       int shares) {
  for (int factor = 0; factor < SPMM_FACTORS; factor++)
    gather_prefer_cache(spmm_kernel(
        problem->dtype, factor | (shares ? SPMM_BALANCED : 0), shape));
}

/* The kernel for the tensors given, which may need another shape. */
static gather_kernel choose(gather_shape *shape, const gather_params *p,
                            const dfgnn_problem *problem, int shares) {
  const int what = (!p->weights && !p->gathered_scale ? SPMM_PLAIN
                    : per_head(problem)               ? SPMM_HEADS
                                                      : SPMM_FACTOR) |
                   (shares ? SPMM_BALANCED : 0);
  if (shape->vector > 1 && (!gather_aligned(p, &p->table, problem->dtype) ||
                            !gather_aligned(p, &p->out, problem->dtype)))
    gather_narrow(shape, p->width);
  return spmm_kernel(problem->dtype, what, shape);
}

/* ---- arguments ----------------------------------------------------------- */

static int averages(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}

size_t spmm_scale_bytes(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  return averages(problem) && problem->pass == DFGNN_PASS_BACKWARD
             ? gather_bytes(setting->matrix->destinations,
                            gather_scalar(problem->dtype))
             : 0;
}

/* What a mean's gradient is multiplied by. */
template <typename A>
static __global__ void mean_scales(A *to, const A *scale, offsets_t offsets,
                                   int rows) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows)
    return;
  const int64_t degree = offsets[i + 1] - offsets[i];
  to[i] = (scale ? scale[i] : A(1)) / A(degree > 0 ? degree : 1);
}

template <typename A>
static dfgnn_status run_mean_scales(void *to, const void *scale,
                                    const dfgnn_launch *launch) {
  const dfgnn_matrix *matrix = launch->setting.matrix;
  if (matrix->destinations == 0)
    return DFGNN_OK;
  return gather_launch(
      "mean_scales", mean_scales<A>,
      dim3(static_cast<unsigned>((matrix->destinations + 255) / 256)), 256,
      launch->stream, static_cast<A *>(to), static_cast<const A *>(scale),
      offsets_of(matrix), static_cast<int>(matrix->destinations));
}

static dfgnn_status fill_backward(gather_params *p, const dfgnn_launch *launch,
                                  const dfgnn_view *transpose, void *scales) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const dfgnn_matrix t = dfgnn__transposed(launch->setting.matrix, transpose);
  gather_fill(p, problem, &t);
  dfgnn_status status = gather_tensor(&p->table, "grad_out", args->grad_out,
                                      &args->grad_out_strides, problem->dtype);
  if (!status)
    status = gather_tensor(&p->out, "grad_value", args->grad_value,
                           &args->grad_value_strides, problem->dtype);
  p->gathered_scale = args->scale_dst;
  p->row_scale = args->scale_src;
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED) {
    p->weights = args->edge_weight;
    p->edge_ids = {transpose->array[2], t.offsets64};
  }
  if (status || !averages(problem))
    return status;
  p->gathered_scale = scales;
  return problem->dtype == DFGNN_F64
             ? run_mean_scales<double>(scales, args->scale_dst, launch)
             : run_mean_scales<float>(scales, args->scale_dst, launch);
}

static dfgnn_status fill(gather_params *p, const dfgnn_launch *launch,
                         const dfgnn_view *transpose, void *scales) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  if (transpose)
    return fill_backward(p, launch, transpose, scales);
  gather_fill(p, problem, launch->setting.matrix);
  p->gathered_scale = args->scale_src;
  p->row_scale = args->scale_dst;
  p->mean = averages(problem);
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED)
    p->weights = args->edge_weight;
  dfgnn_status status = gather_tensor(&p->table, "value", args->value,
                                      &args->value_strides, problem->dtype);
  return status ? status
                : gather_tensor(&p->out, "out", args->out, &args->out_strides,
                                problem->dtype);
}

/* ---- passes -------------------------------------------------------------- */

static dfgnn_status prepare(gather_params *p, gather_kernel *kernel,
                            gather_shape *shape, const spmm_call *call,
                            int shares) {
  const dfgnn_problem *problem = call->launch->setting.problem;
  dfgnn_status status = fill(p, call->launch, call->transpose, call->scales);
  if (status)
    return status;
  *shape = call->shape;
  *kernel = choose(shape, p, problem, shares);
  if (*kernel)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for %lld heads of %lld features",
                     static_cast<long long>(problem->heads),
                     static_cast<long long>(problem->dim));
}

dfgnn_status spmm_rows(const spmm_call *call, const dfgnn_view *order,
                       int warps, int rows, gather_span span) {
  gather_params p;
  gather_kernel kernel;
  gather_shape shape;
  dfgnn_status status = prepare(&p, &kernel, &shape, call, 0);
  if (status)
    return status;
  if (order)
    p.schedule.order = static_cast<const int *>(order->array[0]);
  return gather_run(&p, kernel, &shape, call->launch, warps, rows, span);
}

static dfgnn_matrix matrix_of(const spmm_call *call) {
  const dfgnn_matrix *matrix = call->launch->setting.matrix;
  return call->transpose ? dfgnn__transposed(matrix, call->transpose) : *matrix;
}

dfgnn_status spmm_items(const spmm_call *call, const dfgnn_view *items,
                        void *partial, int warps, int rows) {
  const dfgnn_matrix matrix = matrix_of(call);
  gather_params p;
  gather_kernel kernel;
  gather_shape shape;
  dfgnn_status status = prepare(&p, &kernel, &shape, call, 0);
  if (status)
    return status;
  gather_items(&p, items, &matrix);
  p.partial = partial;
  status =
      gather_run(&p, kernel, &shape, call->launch, warps, rows, GATHER_ONCE);
  return status ? status : spmm_merge_items(&p, items, call->launch);
}

/* Numbers of partial results, of `slots` rows. */
static size_t partial_bytes(const dfgnn_setting *setting, int64_t slots) {
  const dfgnn_problem *problem = setting->problem;
  return gather_bytes(slots * gather_width(problem),
                      gather_scalar(problem->dtype));
}

size_t spmm_item_bytes(const dfgnn_setting *setting, int item_edges) {
  return partial_bytes(setting, gather_item_slots(setting->matrix, item_edges));
}

/* Rows of whichever matrix the pass walks. */
static int64_t count_shares(const dfgnn_setting *setting, int share) {
  dfgnn_matrix matrix = *setting->matrix;
  if (setting->problem->pass == DFGNN_PASS_BACKWARD)
    matrix.destinations = matrix.sources;
  return gather_shares(&matrix, share);
}

size_t spmm_share_bytes(const dfgnn_setting *setting, int share) {
  const int64_t shares = count_shares(setting, share);
  return gather_bytes(shares, sizeof(int)) + partial_bytes(setting, 2 * shares);
}

dfgnn_status spmm_shares(const spmm_call *call, int share, void *partial,
                         int warps) {
  const int64_t shares = count_shares(&call->launch->setting, share);
  gather_params p;
  gather_kernel kernel;
  gather_shape shape;
  dfgnn_status status = prepare(&p, &kernel, &shape, call, 1);
  if (status)
    return status;
  p.schedule.units = static_cast<int>(shares);
  p.schedule.share = share;
  p.schedule.share_row = static_cast<int *>(partial);
  p.partial = static_cast<char *>(partial) + gather_bytes(shares, sizeof(int));
  status = gather_run_shares(&p, kernel, &shape, call->launch, warps);
  return status ? status : spmm_merge_shares(&p, call->launch);
}

} // namespace dfgnn
