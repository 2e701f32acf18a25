/* tile_forward.cu - the host's side of `dense` and `window`, and the
 * merge of windows that were cut */
#include "kernels/attention/cuda/tile_forward.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/attention/cuda/launch.cuh"
#include "kernels/attention/cuda/tile_forward_row.cuh"

namespace dfgnn {

/* ---- windows that were cut ----------------------------------------------- */

/* A warp a row: its items' (m, l, sums) become softmax and output. */
template <typename T>
static __global__ void tile_merge(const __grid_constant__ tile_params p,
                                  const dfgnn_tile_cut *cuts, int count, int op,
                                  int width) {
  constexpr int N = kTileMostWidth / 32;
  const int lane = threadIdx.x & 31, head = blockIdx.y;
  const int unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const int window = unit / p.rows, r = unit % p.rows;
  if (window >= count || r >= cuts[window].rows)
    return;
  const dfgnn_tile_cut cut = cuts[window];
  const auto at = [&](int k) {
    return (int64_t(cut.slot + k) * p.heads + head) * p.rows + r;
  };
  float m = lowest<float>(), l = 0.0f, sum[N] = {};
  for (int k = lane; k < cut.slots; k += 32)
    m = fmaxf(m, p.partial_state[2 * at(k)]);
  m = lanes_max<32>(m);
  for (int k = 0; k < cut.slots; ++k) {
    const float scale = exp2_fast(p.partial_state[2 * at(k)] - m);
    l += p.partial_state[2 * at(k) + 1] * scale;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (lane + 32 * i < width)
        sum[i] += p.partial[at(k) * width + lane + 32 * i] * scale;
  }
  const float factor = l == 0.0f ? 0.0f : 1.0f / l;
  float zero = factor * 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i)
    zero = fmaf(sum[i], 0.0f, zero);
  const int row = cut.row + r;
  if (__any_sync(kFullMask, zero != 0.0f)) {
    tile_slow_row<T>(p, op, row, head, lane);
    return;
  }
  char *to = const_cast<char *>(node_row(static_cast<const char *>(p.out.data) +
                                             int64_t(head) * p.out.head_bytes,
                                         row, p.out.node_bytes));
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int f = lane + 32 * i;
    if (f < p.dim)
      *reinterpret_cast<T *>(to + int64_t(f) * p.out.feature_bytes) =
          narrow<T>(sum[i] * factor);
  }
  if (p.lse && lane == 0)
    p.lse[int64_t(row) * p.heads + head] =
        l == 0.0f ? -INFINITY : (m + log2_of(l)) * float(kLn2);
}

static dfgnn_status merge(const tile_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_view *view = launch->views[0];
  constexpr int warps = 4;
  if (view->extra == 0)
    return DFGNN_OK;
  const int64_t blocks = (view->extra * p->rows + warps - 1) / warps;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%lld windows to merge",
                       static_cast<long long>(view->extra));
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(p->heads));
  const dfgnn_tile_cut *cuts =
      static_cast<const dfgnn_tile_cut *>(view->array[3]);
  const int count = static_cast<int>(view->extra);
  const int op = problem->op, width = tile_width(problem->dim);
  cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
  if (problem->dtype == DFGNN_F32)
    tile_merge<float>
        <<<grid, warps * 32, 0, stream>>>(*p, cuts, count, op, width);
  else if (problem->dtype == DFGNN_F16)
    tile_merge<__half>
        <<<grid, warps * 32, 0, stream>>>(*p, cuts, count, op, width);
  else
    tile_merge<__nv_bfloat16>
        <<<grid, warps * 32, 0, stream>>>(*p, cuts, count, op, width);
  return launch_status("tile_merge");
}

/* ---- what a setting needs ------------------------------------------------ */

static const void *kernel_of(const dfgnn_problem *problem) {
  const int width = tile_width(problem->dim);
  switch (problem->dtype) {
  case DFGNN_F16:
    return tile_forward_f16(problem->op, width);
  case DFGNN_BF16:
    return tile_forward_bf16(problem->op, width);
  default:
    return problem->math == DFGNN_MATH_TF32
               ? tile_forward_tf32(problem->op, width)
               : tile_forward_f32(problem->op, width);
  }
}

/* As tile_forward lays it out. */
static size_t shared_bytes(const dfgnn_problem *problem,
                           const tile_plan *plan) {
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const size_t width = static_cast<size_t>(tile_width(problem->dim));
  const size_t row = width * size + kTilePadBytes;
  const bool gt = problem->op == DFGNN_OP_GT;
  const bool agnn = problem->op == DFGNN_OP_AGNN;
  const bool gatv2 = problem->op == DFGNN_OP_GATV2;
  size_t rows = static_cast<size_t>(plan->stages * DFGNN_TILE_COLUMNS);
  size_t scalars = 0;
  if (gt)
    rows *= 2;
  if (gatv2 || (size == 4 && (gt || agnn)))
    rows += static_cast<size_t>(plan->rows);
  if (agnn || gatv2)
    scalars += DFGNN_TILE_COLUMNS;
  if (gatv2)
    scalars += width;
  return rows * row + scalars * sizeof(float);
}

static int compute_capability(const dfgnn_device_info *device) {
  return strncmp(device->arch, "sm_", 3) == 0 ? atoi(device->arch + 3) : 0;
}

static size_t aligned_bytes(int64_t floats) {
  return (static_cast<size_t>(floats) * sizeof(float) + 255) / 256 * 256;
}

static int64_t partial_rows(const dfgnn_setting *setting,
                            const tile_plan *plan) {
  const dfgnn_view_request request = tile_request(plan);
  return dfgnn__tiles_slots(setting, &request) * setting->problem->heads *
         plan->rows;
}

static size_t partial_bytes(const dfgnn_setting *setting,
                            const tile_plan *plan) {
  const int64_t rows = partial_rows(setting, plan);
  return aligned_bytes(2 * rows) +
         aligned_bytes(rows * tile_width(setting->problem->dim));
}

/* The most columns that a window can touch. */
static int64_t most_columns(const dfgnn_setting *setting,
                            const tile_plan *plan) {
  const dfgnn_matrix *matrix = setting->matrix;
  int64_t most = matrix->sources;
  if (matrix->max_degree < most / plan->rows)
    most = matrix->max_degree * plan->rows;
  /* Of the blocks where it begins and ends, and of those between. */
  const int64_t blocks = 2 * setting->signature->largest_graph + plan->rows;
  return matrix->destinations == matrix->sources && blocks < most ? blocks
                                                                  : most;
}

const char *tile_refusal(const dfgnn_setting *setting, const tile_plan *plan) {
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_matrix *matrix = setting->matrix;
  const size_t out = static_cast<size_t>(matrix->destinations) *
                     static_cast<size_t>(problem->heads * problem->dim) *
                     sizeof(float);
  if (compute_capability(setting->device) < 80)
    return "tensor cores for this are of sm_80 and later";
  if (!tile_width(problem->dim))
    return "more than 128 features";
  if (matrix->destinations > INT32_MAX - 65536 || problem->heads > 65535)
    return "too many rows or heads";
  if (shared_bytes(problem, plan) >
      static_cast<size_t>(setting->device->shared_bytes))
    return "a tile is larger than the shared memory of a block";
  if (plan->dense && matrix->destinations != matrix->sources)
    return "the matrix is not square";
  /* A bit a pair of nodes of a block, 32 bits an edge. */
  if (plan->dense && setting->signature->density < 1.0 / 64)
    return "the blocks of the matrix are sparse";
  if (plan->split &&
      (partial_rows(setting, plan) == 0 ||
       most_columns(setting, plan) <= plan->split * DFGNN_TILE_COLUMNS))
    return "no window is longer than an item";
  if (plan->split && partial_bytes(setting, plan) > 4 * out)
    return "partial results might take four times the memory of the output";
  return NULL;
}

struct tile_memory {
  char *partial_state, *partial;
  size_t bytes;
};

static char *part(tile_memory *memory, char *base, int64_t floats) {
  char *at = base + memory->bytes;
  memory->bytes += aligned_bytes(floats);
  return at;
}

static tile_memory memory_of(const dfgnn_setting *setting,
                             const tile_plan *plan, void *workspace) {
  char *base = static_cast<char *>(workspace);
  tile_memory m = {};
  if (plan->split) {
    const int64_t rows = partial_rows(setting, plan);
    m.partial_state = part(&m, base, 2 * rows);
    m.partial = part(&m, base, rows * tile_width(setting->problem->dim));
  }
  return m;
}

size_t tile_workspace(const dfgnn_setting *setting, const tile_plan *plan) {
  return memory_of(setting, plan, NULL).bytes;
}

dfgnn_view_request tile_request(const tile_plan *plan) {
  dfgnn_view_request request = {};
  request.kind = DFGNN_VIEW_TILES;
  request.parameter =
      dfgnn__tiles_parameter(plan->rows, plan->split, plan->dense);
  return request;
}

dfgnn_status tile_prepare(const dfgnn_setting *setting) {
  const void *kernel = kernel_of(setting->problem);
  DFGNN_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(setting->device->shared_bytes)));
  /* A hint: if it is refused, the kernel still runs. */
  if (cudaFuncSetAttribute(kernel,
                           cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared) != cudaSuccess)
    (void)cudaGetLastError();
  return DFGNN_OK;
}

/* ---- launch -------------------------------------------------------------- */

static int is_wide(const tile_params *p, unsigned size) {
  const tensor_view *views[] = {&p->query, &p->key, &p->value, &p->out};
  for (const tensor_view *v : views)
    if (v->data &&
        (reinterpret_cast<uintptr_t>(v->data) % 16 || v->node_bytes % 16 ||
         v->feature_bytes != size || (p->heads > 1 && v->head_bytes % 16)))
      return 0;
  return p->dim * size % 16 == 0;
}

static dfgnn_status fill_tensors(tile_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const bool key = problem->op == DFGNN_OP_GT;
  const bool query = problem->op != DFGNN_OP_GAT;
  dfgnn_status status;
  if ((status = view_tensor(&p->query, "query", query ? a->query : nullptr,
                            &a->query_strides, size)) ||
      (status = view_tensor(&p->key, "key", key ? a->key : nullptr,
                            &a->key_strides, size)) ||
      (status = view_tensor(&p->value, "value", a->value, &a->value_strides,
                            size)) ||
      (status = view_tensor(&p->out, "out", a->out, &a->out_strides, size)))
    return status;
  p->wide = is_wide(p, static_cast<unsigned>(size));
  return DFGNN_OK;
}

static dfgnn_status fill(tile_params *p, const dfgnn_launch *launch,
                         const tile_plan *plan) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *a = launch->args;
  const dfgnn_view *view = launch->views[0];
  const tile_memory memory =
      memory_of(&launch->setting, plan, launch->workspace);
  *p = tile_params{};
  p->items = static_cast<const dfgnn_tile *>(view->array[0]);
  p->columns = static_cast<const int *>(view->array[1]);
  p->masks = static_cast<const unsigned *>(view->array[2]);
  p->rows = plan->rows;
  p->stages = plan->stages;
  p->dense = plan->dense;
  p->heads = static_cast<int>(problem->heads);
  p->dim = static_cast<int>(problem->dim);
  p->att = a->att;
  p->beta = static_cast<const float *>(a->beta);
  p->partial = reinterpret_cast<float *>(memory.partial);
  p->partial_state = reinterpret_cast<float *>(memory.partial_state);
  p->lse = static_cast<float *>(a->lse);
  p->scale = static_cast<float>(a->scale);
  p->slope = static_cast<float>(a->slope);
  p->offsets = matrix->offsets;
  p->offsets64 = matrix->offsets64;
  p->indices = matrix->indices;
  if (problem->op == DFGNN_OP_GAT) {
    p->row_scalar = static_cast<const float *>(a->score_dst);
    p->column_scalar = static_cast<const float *>(a->score_src);
  }
  return fill_tensors(p, launch);
}

dfgnn_status tile_launch(const dfgnn_launch *launch, const tile_plan *plan) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_view *view = launch->views[0];
  tile_params p;
  dfgnn_status status;
  if (view->count == 0)
    return DFGNN_OK;
  if (view->count > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld items of windows, expected below 2^31",
                       static_cast<long long>(view->count));
  if ((status = fill(&p, launch, plan)))
    return status;
  const dim3 grid(static_cast<unsigned>(view->count),
                  static_cast<unsigned>(p.heads));
  status = launch_kernel("tile_attend", kernel_of(problem), grid,
                         dim3(static_cast<unsigned>(plan->rows * 2)),
                         shared_bytes(problem, plan), launch->stream, p);
  return status ? status : merge(&p, launch);
}

} // namespace dfgnn
