#include "kernels/attention/cuda/attend.h"

#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* ---- shapes ------------------------------------------------------------- */

const void *attend_kernel(int score, dfgnn_dtype dtype, int vector, int lanes,
                          int vectors, int unroll, int several) {
  static attend_finder *const wide[][DFGNN_SCORE_COUNT] = {
      {attend_gt_f32, attend_agnn_f32, attend_gat_f32, attend_gatv2_f32,
       attend_given_f32},
      {attend_dot_f16, attend_dot_f16, attend_add_f16, attend_add_f16,
       attend_add_f16},
      {attend_dot_bf16, attend_dot_bf16, attend_add_bf16, attend_add_bf16,
       attend_add_bf16}};
  if (vector == 1)
    return attend_narrow(score, dtype, lanes, vectors, unroll, several);
  if (dtype > DFGNN_BF16)
    return nullptr;
  return wide[dtype][score](score, lanes, vectors, unroll, several);
}

static int ceil_power(int64_t x) {
  int p = 1;
  while (p < x)
    p *= 2;
  return p;
}

static int ceil_div(int64_t a, int64_t b) {
  return static_cast<int>((a + b - 1) / b);
}

/* A warp with several heads spans this many vectors of an edge's row. */
static const int kSlots = 32;

static int shape_find(attend_shape *shape, int score,
                      const dfgnn_setting *setting, int vector, int lanes,
                      int unroll, int several) {
  const dfgnn_problem *problem = setting->problem;
  const int heads = static_cast<int>(problem->heads);
  const int needed = ceil_power(ceil_div(problem->dim, vector));
  attend_shape s = {vector, lanes, 1, unroll, several, 1, lanes, heads};
  if (several) {
    if (needed > lanes)
      return 0;
    s.head_lanes = needed;
    int slots = ceil_power(int64_t(heads) * needed);
    if (slots > kSlots)
      slots = kSlots;
    s.vectors = slots > lanes ? slots / lanes : 1;
    s.tile_heads = s.vectors * lanes / needed;
    s.tiles = ceil_div(heads, s.tile_heads);
  } else {
    s.vectors = needed > lanes ? needed / lanes : 1;
  }
  if (!attend_kernel(score, problem->dtype, vector, lanes, s.vectors, unroll,
                     several))
    return 0;
  *shape = s;
  return 1;
}

static int wide_vector(dfgnn_dtype dtype) {
  return static_cast<int>(16 / dfgnn_dtype_size(dtype));
}

/* The plain shape, for any alignment and stride. */
static int shape_narrow(attend_shape *shape, int score,
                        const dfgnn_setting *setting) {
  static const int unrolls[] = {2, 1};
  attend_shape s = {};
  const int needed = ceil_div(setting->problem->dim, 32);
  s.vector = 1;
  s.lanes = s.head_lanes = 32;
  s.vectors = needed <= 1 ? 1 : needed <= 4 ? 4 : 32;
  s.tile_heads = 1;
  s.tiles = static_cast<int>(setting->problem->heads);
  for (int unroll : unrolls) {
    s.unroll = unroll;
    *shape = s;
    if (attend_kernel(score, setting->problem->dtype, 1, 32, s.vectors, unroll,
                      0))
      return 1;
  }
  return 0;
}

int attend_shape_find(attend_shape *shape, int score,
                      const dfgnn_setting *setting, int lanes, int unroll,
                      int several) {
  const dfgnn_problem *problem = setting->problem;
  const int vector = wide_vector(problem->dtype);
  if (problem->dim > 1024)
    return 0;
  if (problem->dtype == DFGNN_F64 || problem->dim % vector != 0)
    return lanes == 32 && !several && shape_narrow(shape, score, setting) &&
           shape->unroll == unroll;
  return shape_find(shape, score, setting, vector, lanes, unroll, several);
}

/* ---- arguments ---------------------------------------------------------- */

dfgnn_status view_tensor(tensor_view *view, const char *name, const void *data,
                         const dfgnn_strides *strides, size_t size) {
  const int64_t stride[] = {strides->node, strides->head, strides->feature};
  const int64_t most = int64_t(UINT32_MAX) / static_cast<int64_t>(size);
  *view = tensor_view{};
  if (!data)
    return DFGNN_OK;
  for (int64_t x : stride)
    if (x < 0 || x > most)
      return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "%s: a stride is %lld elements, expected 0 .. %lld",
                         name, static_cast<long long>(x),
                         static_cast<long long>(most));
  view->data = data;
  view->node_bytes = static_cast<unsigned>(stride[0] * size);
  view->head_bytes = static_cast<unsigned>(stride[1] * size);
  view->feature_bytes = static_cast<unsigned>(stride[2] * size);
  return DFGNN_OK;
}

dfgnn_status attend_fill(attend_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  dfgnn_status status;
  *p = attend_params{};
  p->schedule.units = static_cast<int>(matrix->destinations);
  p->schedule.offsets64 = matrix->offsets64;
  p->schedule.offsets = matrix->offsets;
  p->schedule.indices = matrix->indices;
  p->heads = static_cast<int>(problem->heads);
  p->dim = static_cast<int>(problem->dim);
  const bool key = problem->op == DFGNN_OP_GT;
  const bool query = problem->op != DFGNN_OP_GAT;
  if ((status = view_tensor(&p->query, "query", query ? args->query : nullptr,
                            &args->query_strides, size)) ||
      (status = view_tensor(&p->key, "key", key ? args->key : nullptr,
                            &args->key_strides, size)) ||
      (status = view_tensor(&p->value, "value", args->value,
                            &args->value_strides, size)) ||
      (status =
           view_tensor(&p->out, "out", args->out, &args->out_strides, size)))
    return status;
  p->score_dst = args->score_dst;
  p->score_src = args->score_src;
  p->att = args->att;
  p->beta = args->beta;
  p->lse = args->lse;
  p->scale = args->scale;
  if (problem->op == DFGNN_OP_GATV2)
    p->scale = args->slope > 1.0 ? -1.0 : 1.0;
  p->slope = args->slope;
  return DFGNN_OK;
}

int attend_aligned(const attend_params *p, unsigned size) {
  const tensor_view *views[] = {&p->query, &p->key, &p->value, &p->out};
  for (const tensor_view *v : views)
    if (v->data &&
        (reinterpret_cast<uintptr_t>(v->data) % 16 || v->node_bytes % 16 ||
         v->feature_bytes != size || (p->heads > 1 && v->head_bytes % 16)))
      return 0;
  return 1;
}

/* Do the lanes of every tile have features, in one piece? */
static int shape_exact(const attend_params *p, const attend_shape *shape,
                       unsigned size) {
  const tensor_view *views[] = {&p->query, &p->key, &p->value};
  const unsigned width = shape->several
                             ? shape->head_lanes * shape->vector
                             : shape->lanes * shape->vectors * shape->vector;
  for (const tensor_view *v : views)
    if (v->data && (v->feature_bytes != size ||
                    (shape->several && v->head_bytes != p->dim * size)))
      return 0;
  return p->heads % shape->tile_heads == 0 && int(width) == p->dim;
}

tensor_view view_from(const tensor_view &view, int feature) {
  tensor_view moved = view;
  if (view.data)
    moved.data = static_cast<const char *>(view.data) +
                 int64_t(feature) * view.feature_bytes;
  return moved;
}

void attend_items(row_schedule *schedule, const dfgnn_view *items,
                  const dfgnn_matrix *matrix) {
  schedule->units = static_cast<int>(items->count);
  schedule->item_row = static_cast<const int *>(items->array[0]);
  schedule->item_first = static_cast<const int64_t *>(items->array[1]);
  schedule->row_item = static_cast<const int *>(items->array[2]);
  schedule->item_edges = static_cast<int>(items->request.parameter);
  schedule->extra_items = static_cast<int>(items->count - matrix->destinations);
}

/* ---- launch ------------------------------------------------------------- */

void attend_prefer_cache(int score, const dfgnn_setting *setting,
                         const attend_shape *shape) {
  const void *kernel =
      attend_kernel(score, setting->problem->dtype, shape->vector, shape->lanes,
                    shape->vectors, shape->unroll, shape->several);
  /* A hint: if it is refused, the kernel still runs. */
  if (cudaFuncSetAttribute(kernel,
                           cudaFuncAttributePreferredSharedMemoryCarveout,
                           0) != cudaSuccess)
    (void)cudaGetLastError();
}

dfgnn_status attend_run(attend_params *p, int score, const dfgnn_launch *launch,
                        const attend_shape *wanted,
                        const attend_schedule *schedule) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_dtype dtype = setting->problem->dtype;
  const unsigned size = static_cast<unsigned>(dfgnn_dtype_size(dtype));
  attend_shape shape = *wanted;
  if (shape.vector > 1 && !attend_aligned(p, size) &&
      !shape_narrow(&shape, score, setting))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "no kernel for unaligned tensors of %lld features",
                       static_cast<long long>(setting->problem->dim));
  int rows = schedule->rows;
  if (rows * shape.lanes > 32)
    rows = 32 / shape.lanes;
  p->group = 32 / rows;
  p->tile_heads = shape.tile_heads;
  for (p->head_shift = 0; 1 << p->head_shift < shape.head_lanes;)
    ++p->head_shift;
  p->exact = shape_exact(p, &shape, size);
  if (schedule->order)
    p->schedule.order = static_cast<const int *>(schedule->order->array[0]);
  if (schedule->items)
    attend_items(&p->schedule, schedule->items, setting->matrix);
  if (p->schedule.units == 0)
    return DFGNN_OK;
  const int block_rows = schedule->warps * rows;
  const int units = p->schedule.units;
  int blocks = ceil_div(units, block_rows);
  const int resident = setting->device->units * (32 / schedule->warps);
  if (schedule->span != ATTEND_ONCE && blocks > resident)
    blocks = resident;
  if (schedule->span == ATTEND_DEALT) {
    p->first_step = block_rows;
    p->round_step = blocks * block_rows;
    p->span = blocks * block_rows < units ? units : block_rows;
  } else {
    p->round_step = block_rows;
    p->span = p->first_step = ceil_div(ceil_div(units, blocks), rows) * rows;
    blocks = ceil_div(units, p->span);
  }
  if (shape.tiles > 65535)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%d tiles of heads, a launch has at most 65535",
                       shape.tiles);
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(shape.tiles));
  const void *kernel =
      attend_kernel(score, dtype, shape.vector, shape.lanes, shape.vectors,
                    shape.unroll, shape.several);
  void *arguments[] = {p};
  (void)cudaLaunchKernel(
      kernel, grid, dim3(static_cast<unsigned>(schedule->warps * 32)),
      arguments, 0, static_cast<cudaStream_t>(launch->stream));
  return launch_status("attend");
}

/* ---- small kernels ------------------------------------------------------ */

template <typename T>
__global__ void inverse_norms(accumulator_t<T> *inverse, tensor_view value,
                              int64_t pairs, int heads, int dim, int lanes) {
  using A = accumulator_t<T>;
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t pair = thread / lanes;
  const int lane = static_cast<int>(thread & (lanes - 1));
  A square = A(0);
  if (pair < pairs) {
    const int64_t node = pair / heads, head = pair - node * heads;
    const char *row = static_cast<const char *>(value.data) +
                      node * value.node_bytes + head * value.head_bytes;
    for (int f = lane; f < dim; f += lanes) {
      const A x = widen(
          *reinterpret_cast<const T *>(row + int64_t(f) * value.feature_bytes));
      square += x * x;
    }
  }
  for (int o = lanes / 2; o > 0; o >>= 1)
    square += __shfl_xor_sync(kFullMask, square, o);
  if (pair < pairs && lane == 0)
    inverse[pair] = inverse_norm(square);
}

dfgnn_status attend_inverse_norms(void *inverse, const tensor_view *tensor,
                                  int64_t nodes, const dfgnn_launch *launch) {
  const int heads = static_cast<int>(launch->setting.problem->heads);
  const int dim = static_cast<int>(launch->setting.problem->dim);
  const int64_t pairs = nodes * heads;
  int lanes = ceil_power(ceil_div(dim, 4));
  if (lanes > 32)
    lanes = 32;
  const int64_t blocks = (pairs * lanes + 255) / 256;
  if (blocks == 0)
    return DFGNN_OK;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%lld norms are too many",
                       static_cast<long long>(pairs));
  cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
  const unsigned grid = static_cast<unsigned>(blocks);
  switch (launch->setting.problem->dtype) {
  case DFGNN_F16:
    inverse_norms<__half><<<grid, 256, 0, stream>>>(
        static_cast<float *>(inverse), *tensor, pairs, heads, dim, lanes);
    break;
  case DFGNN_BF16:
    inverse_norms<__nv_bfloat16><<<grid, 256, 0, stream>>>(
        static_cast<float *>(inverse), *tensor, pairs, heads, dim, lanes);
    break;
  case DFGNN_F64:
    inverse_norms<double><<<grid, 256, 0, stream>>>(
        static_cast<double *>(inverse), *tensor, pairs, heads, dim, lanes);
    break;
  default:
    inverse_norms<float><<<grid, 256, 0, stream>>>(
        static_cast<float *>(inverse), *tensor, pairs, heads, dim, lanes);
  }
  return launch_status("inverse_norms");
}

dfgnn_status panel_run(const panel_params *p, const dfgnn_launch *launch,
                       const attend_shape *shape, int warps) {
  const dfgnn_problem *problem = launch->setting.problem;
  panel_params panel = *p;
  panel.exact = panel.dim == shape->lanes * shape->vector;
  const void *kernel =
      shape->vector == 1 ? panel_narrow(problem->op, problem->dtype,
                                        shape->lanes, shape->unroll)
      : problem->dtype == DFGNN_F32
          ? panel_f32(problem->op, shape->lanes, shape->unroll)
      : problem->dtype == DFGNN_F16
          ? panel_f16(problem->op, shape->lanes, shape->unroll)
          : panel_bf16(problem->op, shape->lanes, shape->unroll);
  if (!kernel)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "no kernel for panels of %d lanes", shape->lanes);
  const dim3 grid(static_cast<unsigned>(ceil_div(panel.schedule.units, warps)),
                  static_cast<unsigned>(panel.heads));
  void *arguments[] = {&panel};
  (void)cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(warps * 32)),
                         arguments, 0,
                         static_cast<cudaStream_t>(launch->stream));
  return launch_status("score_panel");
}

} // namespace dfgnn
