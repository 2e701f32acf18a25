/* gather.cuh - rows of edges are summed at their source, or their largest
 * numbers taken
 *
 * A group of lanes has a row's chunks; the groups of a warp (of a block, for a
 * column of many edges) take every n-th edge and are added in order. */
#ifndef DFGNN_MLP_CUDA_GATHER_CUH
#define DFGNN_MLP_CUDA_GATHER_CUH

#include "kernels/mlp/cuda/spans.cuh"

namespace dfgnn {
namespace mlp {

constexpr int kGatherFlight = 4; /* edges in flight of a group of lanes */

/* The row of `from` of edge k of the columns. */
__device__ __forceinline__ int64_t row_of(const mlp_gather_params &p,
                                          int64_t k) {
  return p.edges ? entry(p.edges, p.wide, k) : k;
}

/* Adds edges begin, begin + step ... of a column: chunk c of each. */
template <typename T>
__device__ __forceinline__ void
gather(float (&sum)[lanes<T>::V], const mlp_gather_params &p, int c,
       int64_t begin, int64_t end, int64_t step) {
  constexpr int V = lanes<T>::V;
  for (int64_t k = begin; k < end; k += kGatherFlight * step) {
    chunk x[kGatherFlight];
#pragma unroll
    for (int u = 0; u < kGatherFlight; ++u) {
      x[u] = chunk{};
      if (k + u * step < end)
        x[u] = load_chunk<T, lanes<T>::GROUP, true>(
            static_cast<const T *>(p.from) + row_of(p, k + u * step) * p.stride,
            c * V);
    }
#pragma unroll
    for (int u = 0; u < kGatherFlight; ++u) {
      float y[V];
      unpack<T>(y, x[u]);
#pragma unroll
      for (int i = 0; i < V; ++i)
        sum[i] += y[i];
    }
  }
}

template <typename T>
__device__ __forceinline__ void write_sum(const mlp_gather_params &p,
                                          int64_t column, int c,
                                          const float (&sum)[lanes<T>::V]) {
  constexpr int V = lanes<T>::V;
  const float factor = p.mean ? mean_factor(p.offsets, p.wide, column) : 1.0f;
  T *to = static_cast<T *>(p.to) + column * p.width;
#pragma unroll
  for (int i = 0; i < V; ++i)
    if (c * V + i < p.width)
      to[c * V + i] = narrow<T>(sum[i] * factor);
}

} // namespace mlp

/* LANES: of a group, a power of two to 32; each takes every LANES-th chunk.
 * A column of more than long_column edges is left to mlp_gather_long. */
template <typename T, int LANES>
__global__ void mlp_gather(const mlp_gather_params p) {
  constexpr int V = mlp::lanes<T>::V;
  const int lane = ptx::lane_id();
  const int64_t column =
      int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (column >= p.columns)
    return;
  const int64_t begin = mlp::entry(p.offsets, p.wide, column);
  const int64_t end = mlp::entry(p.offsets, p.wide, column + 1);
  if (end - begin > p.long_column)
    return;
  const int chunks = int(p.stride) / V;
  for (int first = 0; first < chunks; first += LANES) {
    const int c = first + lane % LANES;
    float sum[V] = {};
    if (c < chunks)
      mlp::gather<T>(sum, p, c, begin + lane / LANES, end, 32 / LANES);
#pragma unroll
    for (int i = 0; i < V; ++i)
#pragma unroll
      for (int o = LANES; o < 32; o *= 2)
        sum[i] += __shfl_xor_sync(kFullMask, sum[i], o);
    if (lane < LANES && c < chunks)
      mlp::write_sum<T>(p, column, c, sum);
  }
}

/* A block of 256 threads for each column of many edges. */
template <typename T, int LANES>
__global__ void mlp_gather_long(const mlp_gather_params p) {
  constexpr int V = mlp::lanes<T>::V, GROUPS = 256 / LANES;
  __shared__ float sums[256][V];
  const int thread = int(threadIdx.x);
  const int chunks = int(p.stride) / V;
  for (int64_t column = blockIdx.x; column < p.columns; column += gridDim.x) {
    const int64_t begin = mlp::entry(p.offsets, p.wide, column);
    const int64_t end = mlp::entry(p.offsets, p.wide, column + 1);
    if (end - begin <= p.long_column)
      continue;
    for (int first = 0; first < chunks; first += LANES) {
      const int c = first + thread % LANES;
      float sum[V] = {};
      if (c < chunks)
        mlp::gather<T>(sum, p, c, begin + thread / LANES, end, GROUPS);
#pragma unroll
      for (int i = 0; i < V; ++i)
        sums[thread][i] = sum[i];
      __syncthreads();
      if (thread < LANES && c < chunks) {
        for (int k = 1; k < GROUPS; ++k)
#pragma unroll
          for (int i = 0; i < V; ++i)
            sum[i] += sums[k * LANES + thread][i];
        mlp::write_sum<T>(p, column, c, sum);
      }
      __syncthreads();
    }
  }
}

/* ---- extremes ------------------------------------------------------------ */

namespace mlp {

/* A number, and which edge of its column it is of; -1: none. */
struct extreme {
  float x;
  int arg;

  __device__ __forceinline__ void take(float y, int at) {
    if (at >= 0 && (arg < 0 || y > x || y != y)) {
      x = y;
      arg = at;
    }
  }
};

} // namespace mlp

/* Maxima (SIGN 1) or minima (-1): WARPS warps for each column, 1 or 8, which
 * take parts of its edges, in order.  With 1, columns of more than long_column
 * edges are left out; with 8, the others. */
template <typename T, int SIGN, int WARPS>
__global__ void __launch_bounds__(256)
    mlp_gather_extremes(const mlp_gather_params p) {
  __shared__ mlp::extreme parts[8][32];
  const int lane = ptx::lane_id(), warp = int(threadIdx.x) / 32;
  const int part = warp % WARPS;
  for (int64_t column = int64_t(blockIdx.x) * (8 / WARPS) + warp / WARPS;
       column < p.columns; column += int64_t(gridDim.x) * (8 / WARPS)) {
    const int64_t begin = mlp::entry(p.offsets, p.wide, column);
    const int64_t count = mlp::entry(p.offsets, p.wide, column + 1) - begin;
    if ((count > p.long_column) != (WARPS > 1))
      continue;
    const int64_t first = count * part / WARPS;
    const int64_t end = count * (part + 1) / WARPS;
    for (int c = lane; c < (p.width + 31) / 32 * 32; c += 32) {
      mlp::extreme best = {0.0f, -1};
      for (int64_t k = first; c < p.width && k < end; ++k)
        best.take(widen(static_cast<const T *>(
                      p.from)[mlp::row_of(p, begin + k) * p.stride + c]) *
                      float(SIGN),
                  int(k));
      if constexpr (WARPS > 1) {
        parts[warp][lane] = best;
        __syncthreads();
        for (int k = 1; part == 0 && k < WARPS; ++k)
          best.take(parts[warp + k][lane].x, parts[warp + k][lane].arg);
        __syncthreads();
      }
      if (part > 0 || c >= p.width)
        continue;
      const int64_t at = column * p.width + c;
      static_cast<T *>(p.to)[at] =
          narrow<T>(best.arg < 0 ? 0.0f : best.x * float(SIGN));
      if (p.arg)
        p.arg[at] = best.arg;
    }
  }
}

/* Which edge of its column each edge is: a warp for each column. */
__global__ void mlp_positions(const void *offsets, const void *edges, int wide,
                              int64_t columns, int32_t *position) {
  const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
  for (int64_t column =
           int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
       column < columns; column += warps) {
    const int64_t begin = mlp::entry(offsets, wide, column);
    const int64_t end = mlp::entry(offsets, wide, column + 1);
    for (int64_t k = begin + ptx::lane_id(); k < end; k += 32)
      position[mlp::entry(edges, wide, k)] = int32_t(k - begin);
  }
}

/* ---- gradients of the norm and of biases --------------------------------- */

/* Adds the parts, rows of `stride`, of two sums of `width` numbers, of which
 * the second begins at number `second` of a part; NULL: it is not asked for.  A
 * block adds 32 columns, its warps every eighth part. */
__global__ void mlp_finish_sums(const float *partial, int parts, int stride,
                                int second, int width, float *to,
                                float *to_second) {
  __shared__ float sums[8][32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int i = int(blockIdx.x) * 32 + lane;
  float *out = i < width ? to : to_second;
  float sum = 0.0f;
  if (i < 2 * width && out)
    for (int k = warp; k < parts; k += 8)
      sum +=
          partial[int64_t(k) * stride + (i < width ? i : second + i - width)];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || i >= 2 * width || !out)
    return;
  for (int k = 1; k < 8; ++k)
    sum += sums[k][lane];
  out[i % width] = sum;
}

} // namespace dfgnn

#endif
