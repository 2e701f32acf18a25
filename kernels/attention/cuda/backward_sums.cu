/* backward_sums.cu - the small kernels around the walks of backward; their
 * sums are in a fixed order */
#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/launch.cuh"
#include "kernels/attention/cuda/terms.cuh"

namespace dfgnn {

static unsigned blocks_of(int64_t threads, int block) {
  return static_cast<unsigned>((threads + block - 1) / block);
}

static dfgnn_status too_many(const char *what, int64_t count) {
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%lld %s are too many",
                     static_cast<long long>(count), what);
}

/* ---- what columns gather of destinations --------------------------------- */

struct stats_params {
  tensor_view query, grad_out, out;
  const void *lse, *score;
  void *stats;
  int64_t pairs;
  int heads, dim, lanes, count;
};

template <typename T, int VEC>
__global__ void __launch_bounds__(256)
    node_stats(const __grid_constant__ stats_params p) {
  using A = accumulator_t<T>;
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t pair = thread / p.lanes;
  const int lane = static_cast<int>(thread & (p.lanes - 1));
  A delta = A(0), square = A(0);
  if (pair < p.pairs) {
    const int64_t node = pair / p.heads, head = pair - node * p.heads;
    const auto vector = [&](const tensor_view &t, int f) {
      return load_packed<VEC>(reinterpret_cast<const T *>(
          static_cast<const char *>(t.data) + node * t.node_bytes +
          head * t.head_bytes + int64_t(f) * t.feature_bytes));
    };
    for (int f = lane * VEC; f < p.dim; f += p.lanes * VEC) {
      const packed<T, VEC> x = vector(p.grad_out, f), y = vector(p.out, f);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        delta += widen(x.item[i]) * widen(y.item[i]);
      if (p.query.data) {
        const packed<T, VEC> q = vector(p.query, f);
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          square += widen(q.item[i]) * widen(q.item[i]);
      }
    }
  }
  for (int o = p.lanes / 2; o > 0; o >>= 1) {
    delta += __shfl_xor_sync(kFullMask, delta, o);
    square += __shfl_xor_sync(kFullMask, square, o);
  }
  if (pair >= p.pairs || lane != 0)
    return;
  A *to = static_cast<A *>(p.stats) + pair * p.count;
  to[kLse] = lse_of(static_cast<const A *>(p.lse)[pair]);
  to[kDelta] = delta;
  if (p.count > kExtra) {
    to[kExtra] =
        p.score ? static_cast<const A *>(p.score)[pair] : inverse_norm(square);
    to[kExtra + 1] = A(0); /* read with the others */
  }
}

static bool fits_vectors(const tensor_view &t, int heads, unsigned size) {
  return !t.data || (reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
                     t.node_bytes % 16 == 0 && t.feature_bytes == size &&
                     (heads == 1 || t.head_bytes % 16 == 0));
}

dfgnn_status grad_stats(const grad_params *p, int lanes,
                        const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const unsigned size = static_cast<unsigned>(dfgnn_dtype_size(problem->dtype));
  stats_params s = {};
  if (problem->op == DFGNN_OP_AGNN)
    s.query = p->own[0];
  s.grad_out = p->own[problem->op == DFGNN_OP_GAT ? 0 : 1];
  s.out = p->out;
  s.lse = p->lse;
  s.score = p->own_scalar;
  s.stats = p->stats;
  s.pairs = launch->setting.matrix->destinations * problem->heads;
  s.heads = p->layout.heads;
  s.dim = p->layout.dim;
  s.count = stats_count(problem->op);
  const int vector = static_cast<int>(16 / size);
  const bool wide = s.dim % vector == 0 &&
                    fits_vectors(s.query, s.heads, size) &&
                    fits_vectors(s.grad_out, s.heads, size) &&
                    fits_vectors(s.out, s.heads, size);
  for (s.lanes = 1; s.lanes < lanes && s.lanes * (wide ? vector : 1) < s.dim;)
    s.lanes *= 2;
  if (s.pairs == 0)
    return DFGNN_OK;
  if (s.pairs > int64_t(INT32_MAX) * 256 / s.lanes)
    return too_many("destinations and heads", s.pairs);
  using kernel_t = void (*)(stats_params);
  static const kernel_t kernels[DFGNN_DTYPE_COUNT][2] = {
      {node_stats<float, 1>, node_stats<float, 4>},
      {node_stats<__half, 1>, node_stats<__half, 8>},
      {node_stats<__nv_bfloat16, 1>, node_stats<__nv_bfloat16, 8>},
      {node_stats<double, 1>, node_stats<double, 2>}};
  return launch_kernel(
      "node_stats",
      reinterpret_cast<const void *>(kernels[problem->dtype][wide]),
      dim3(blocks_of(s.pairs * s.lanes, 256)), dim3(256), 0, launch->stream, s);
}

/* ---- split rows -----------------------------------------------------------
 */

struct merge_params {
  row_schedule schedule;
  tensor_view to[2];
  void *to_scalar;
  const void *partial, *partial_scalar;
  const int *heavy;
  int tensors, heads, dim, width;
};

constexpr int kMergeThreads = 256;

/* A block a row and head: each slice of threads takes every n-th item, then
 * the slices' sums are added in their order. */
template <typename T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_gradients(const __grid_constant__ merge_params p) {
  using A = accumulator_t<T>;
  extern __shared__ double merge_shared[];
  A *sums = reinterpret_cast<A *>(merge_shared); /* [slices][dim] */
  const int row = p.heavy[blockIdx.x / p.heads];
  const int head = static_cast<int>(blockIdx.x % p.heads);
  const int first = p.schedule.row_item[row],
            count = p.schedule.row_item[row + 1] - first;
  const int64_t base = int64_t(first - row);
  const auto slot = [&](int k) { /* as row_of_unit() numbers them */
                                 return k == 0 ? p.schedule.extra_items + base
                                               : base + k - 1;
  };
  const int slices = kMergeThreads / p.width;
  const int slice = threadIdx.x / p.width, column = threadIdx.x & (p.width - 1);

  for (int t = 0; t < p.tensors; ++t) {
    if (!p.to[t].data)
      continue;
    const A *partial = static_cast<const A *>(p.partial);
    for (int f = column; f < p.dim; f += p.width) {
      A sum = A(0);
#pragma unroll 4
      for (int k = slice; k < count; k += slices)
        sum +=
            partial[((slot(k) * p.tensors + t) * p.heads + head) * p.dim + f];
      sums[slice * p.dim + f] = sum;
    }
    __syncthreads();
    char *to = static_cast<char *>(const_cast<void *>(p.to[t].data)) +
               int64_t(row) * p.to[t].node_bytes +
               int64_t(head) * p.to[t].head_bytes;
    for (int f = threadIdx.x; f < p.dim; f += kMergeThreads) {
      A sum = A(0);
      for (int i = 0; i < slices; ++i)
        sum += sums[i * p.dim + f];
      *reinterpret_cast<T *>(to + int64_t(f) * p.to[t].feature_bytes) =
          narrow<T>(sum);
    }
    __syncthreads();
  }
  if (p.to_scalar && threadIdx.x < 32) {
    A sum = A(0);
    for (int k = threadIdx.x; k < count; k += 32)
      sum += static_cast<const A *>(p.partial_scalar)[slot(k) * p.heads + head];
    sum = lanes_sum<32>(sum);
    if (threadIdx.x == 0)
      static_cast<A *>(p.to_scalar)[int64_t(row) * p.heads + head] = sum;
  }
}

dfgnn_status grad_merge(const grad_params *p, int tensors,
                        const dfgnn_view *items, const dfgnn_launch *launch) {
  const dfgnn_dtype dtype = launch->setting.problem->dtype;
  merge_params q = {};
  const int64_t blocks = items->extra * p->layout.heads;
  if (blocks == 0)
    return DFGNN_OK;
  if (blocks > INT32_MAX)
    return too_many("rows to merge", blocks);
  q.schedule = p->schedule;
  q.to[0] = p->to[0];
  q.to[1] = p->to[1];
  q.to_scalar = p->to_scalar;
  q.partial = p->partial;
  q.partial_scalar = p->partial_scalar;
  q.heavy = static_cast<const int *>(items->array[3]);
  q.tensors = tensors;
  q.heads = p->layout.heads;
  q.dim = p->layout.dim;
  for (q.width = 32; q.width < q.dim && q.width < kMergeThreads;)
    q.width *= 2;
  using kernel_t = void (*)(merge_params);
  static const kernel_t kernels[DFGNN_DTYPE_COUNT] = {
      merge_gradients<float>, merge_gradients<__half>,
      merge_gradients<__nv_bfloat16>, merge_gradients<double>};
  const size_t shared = size_t(kMergeThreads / q.width) * size_t(q.dim) *
                        (dtype == DFGNN_F64 ? sizeof(double) : sizeof(float));
  return launch_kernel("merge_gradients",
                       reinterpret_cast<const void *>(kernels[dtype]),
                       dim3(static_cast<unsigned>(blocks)), dim3(kMergeThreads),
                       shared, launch->stream, q);
}

/* ---- gradients that all rows share ----------------------------------------
 */

struct totals_params {
  void *to;
  const void *totals;
  int64_t rows, width;
};

constexpr int kTotalColumns = 32, kTotalRows = 16;

template <typename A>
__global__ void __launch_bounds__(kTotalColumns *kTotalRows)
    sum_totals(const __grid_constant__ totals_params p) {
  __shared__ A sums[kTotalRows][kTotalColumns];
  const int64_t column = int64_t(blockIdx.x) * kTotalColumns + threadIdx.x;
  const A *from = static_cast<const A *>(p.totals);
  A sum = A(0);
  if (column < p.width)
#pragma unroll 4
    for (int64_t r = threadIdx.y; r < p.rows; r += kTotalRows)
      sum += from[r * p.width + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= p.width)
    return;
  for (int i = 1; i < kTotalRows; ++i)
    sum += sums[i][threadIdx.x];
  static_cast<A *>(p.to)[column] = sum;
}

dfgnn_status grad_totals(void *to, const void *totals, int64_t rows,
                         int64_t width, const dfgnn_launch *launch) {
  const totals_params p = {to, totals, rows, width};
  using kernel_t = void (*)(totals_params);
  const kernel_t kernel = launch->setting.problem->dtype == DFGNN_F64
                              ? sum_totals<double>
                              : sum_totals<float>;
  return launch_kernel("sum_totals", reinterpret_cast<const void *>(kernel),
                       dim3(blocks_of(width, kTotalColumns)),
                       dim3(kTotalColumns, kTotalRows), 0, launch->stream, p);
}

/* ---- GAT: rows of spilled scalars -----------------------------------------
 */

struct row_sums_params {
  void *to;
  const void *spill;
  const void *offsets;
  int offsets64, heads, lanes;
  int64_t pairs;
};

template <typename A>
__global__ void __launch_bounds__(256)
    row_sums(const __grid_constant__ row_sums_params p) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t pair = thread / p.lanes;
  const int lane = static_cast<int>(thread & (p.lanes - 1));
  A sum = A(0);
  if (pair < p.pairs) {
    const offsets_t offsets{p.offsets, p.offsets64};
    const int64_t row = pair / p.heads, end = offsets[row + 1];
    const A *from = static_cast<const A *>(p.spill) + (pair - row * p.heads);
#pragma unroll 4
    for (int64_t e = offsets[row] + lane; e < end; e += p.lanes)
      sum += from[e * p.heads];
  }
  for (int o = p.lanes / 2; o > 0; o >>= 1)
    sum += __shfl_xor_sync(kFullMask, sum, o);
  if (pair < p.pairs && lane == 0)
    static_cast<A *>(p.to)[pair] = sum;
}

dfgnn_status grad_row_sums(void *to, const void *spill,
                           const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  row_sums_params p = {};
  p.to = to;
  p.spill = spill;
  p.offsets = matrix->offsets;
  p.offsets64 = matrix->offsets64;
  p.heads = static_cast<int>(problem->heads);
  p.pairs = matrix->destinations * problem->heads;
  p.lanes = matrix->edges < matrix->destinations * 16 ? 8 : 32;
  if (p.pairs == 0)
    return DFGNN_OK;
  if (p.pairs > int64_t(INT32_MAX) * 256 / p.lanes)
    return too_many("destinations and heads", p.pairs);
  using kernel_t = void (*)(row_sums_params);
  const kernel_t kernel =
      problem->dtype == DFGNN_F64 ? row_sums<double> : row_sums<float>;
  return launch_kernel("row_sums", reinterpret_cast<const void *>(kernel),
                       dim3(blocks_of(p.pairs * p.lanes, 256)), dim3(256), 0,
                       launch->stream, p);
}

} // namespace dfgnn
