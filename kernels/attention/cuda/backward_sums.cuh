/* backward_sums.cuh - the small kernels around the walks of backward; their
 * sums are in a fixed order */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_SUMS_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_SUMS_CUH

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/attention/cuda/score.cuh"

namespace dfgnn {

/* ---- stats of destinations, without a walk over rows --------------------- */

template <typename T, int VEC>
__global__ void __launch_bounds__(256)
    node_stats(const __grid_constant__ grad_stats_params p) {
  using A = accumulator_t<T>;
  ptx::let_next_begin();
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
      unroll<VEC>([&](int i) { delta += widen(x.item[i]) * widen(y.item[i]); });
      if (p.query.data) {
        const packed<T, VEC> q = vector(p.query, f);
        unroll<VEC>(
            [&](int i) { square += widen(q.item[i]) * widen(q.item[i]); });
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
  to[STAT_LSE] = lse_of(static_cast<const A *>(p.lse)[pair]);
  to[STAT_DELTA] = delta - grad_lse_of<A>(p.grad_lse, pair);
  if (p.count > STAT_EXTRA) {
    to[STAT_EXTRA] =
        p.score ? static_cast<const A *>(p.score)[pair] : inverse_norm(square);
    to[STAT_EXTRA + 1] = A(0); /* padding, loaded with the others */
  }
}

/* ---- split rows ---------------------------------------------------------- */

constexpr int kMergeThreads = 256;

/* A block takes a row and head: each slice of threads takes every n-th item,
 * then the slices' sums are added in their order. */
template <typename T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_gradients(const __grid_constant__ grad_merge_params p) {
  using A = accumulator_t<T>;
  extern __shared__ double merge_shared[];
  A *sums = reinterpret_cast<A *>(merge_shared); /* [slices][dim] */
  const int listed = merged_row(p.heavy, blockIdx.x / p.heads);
  const int row = max(listed, 0);
  const int head = static_cast<int>(blockIdx.x % p.heads);
  const row_parts parts(p.schedule, row);
  const int count = parts.count;
  const int slices = kMergeThreads / p.width;
  const int slice = threadIdx.x / p.width, column = threadIdx.x & (p.width - 1);
  ptx::let_next_begin();
  ptx::wait_for_previous();
  if (listed < 0) /* a place behind the last heavy row */
    return;

  for (int t = 0; t < p.tensors; ++t) {
    if (!p.to[t].data)
      continue;
    const A *partial = static_cast<const A *>(p.partial);
    for (int f = column; f < p.dim; f += p.width) {
      A sum = A(0);
#pragma unroll 4
      for (int k = slice; k < count; k += slices)
        sum +=
            partial[((parts.slot(k) * p.tensors + t) * p.heads + head) * p.dim +
                    f];
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
      T &at = *reinterpret_cast<T *>(to + int64_t(f) * p.to[t].feature_bytes);
      at = narrow<T>(p.adds ? widen(at) + sum : sum);
    }
    __syncthreads();
  }
  if (p.to_scalar && threadIdx.x < 32) {
    A sum = A(0);
    for (int k = threadIdx.x; k < count; k += 32)
      sum += static_cast<const A *>(
          p.partial_scalar)[parts.slot(k) * p.heads + head];
    sum = lanes_sum<32>(sum);
    if (threadIdx.x == 0) {
      A &to = static_cast<A *>(p.to_scalar)[int64_t(row) * p.heads + head];
      to = p.adds ? to + sum : sum;
    }
  }
}

/* ---- gradients of parameters --------------------------------------------- */

constexpr int kTotalColumns = 32, kTotalRows = 16;

template <typename A>
__global__ void __launch_bounds__(kTotalColumns *kTotalRows)
    sum_totals(const __grid_constant__ grad_totals_params p) {
  __shared__ A sums[kTotalRows][kTotalColumns];
  const int lane = threadIdx.x % kTotalColumns;
  const int line = threadIdx.x / kTotalColumns;
  const int64_t column = int64_t(blockIdx.x) * kTotalColumns + lane;
  const A *from = static_cast<const A *>(p.totals);
  ptx::let_next_begin();
  ptx::wait_for_previous();
  A sum = A(0);
  if (column < p.width)
#pragma unroll 4
    for (int64_t r = line; r < p.rows; r += kTotalRows)
      sum += from[r * p.width + column];
  sums[line][lane] = sum;
  __syncthreads();
  if (line != 0 || column >= p.width)
    return;
  for (int i = 1; i < kTotalRows; ++i)
    sum += sums[i][lane];
  static_cast<A *>(p.to)[column] = sum;
}

/* ---- GAT: sums over rows of spilled dS ----------------------------------- */

template <typename A>
__global__ void __launch_bounds__(256)
    row_sums(const __grid_constant__ grad_row_sums_params p) {
  ptx::wait_for_previous();
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
  if (pair < p.pairs && lane == 0) {
    A &to = static_cast<A *>(p.to)[pair];
    to = p.adds ? to + sum : sum;
  }
}

} // namespace dfgnn

#endif
