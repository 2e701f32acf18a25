/* gather.cuh - rows of edges are summed at their source
 *
 * A group of lanes has a row's chunks; the groups of a warp (of a block, for a
 * column of many edges) take every n-th edge and are added in order. */
#ifndef DFGNN_MLP_CUDA_GATHER_CUH
#define DFGNN_MLP_CUDA_GATHER_CUH

#include "kernels/mlp/cuda/spans.cuh"

namespace dfgnn {
namespace mlp {

constexpr int kGatherFlight = 4; /* edges in flight of a group of lanes */

/* Adds edges begin, begin + step ... of a column: chunk c of each. */
template <typename T>
DEVICE void gather(float (&sum)[lanes::V], const mlp_gather_params &p, int c,
                   int64_t begin, int64_t end, int64_t step) {
  constexpr int V = lanes::V;
  for (int64_t k = begin; k < end; k += kGatherFlight * step) {
    chunk x[kGatherFlight];
#pragma unroll
    for (int u = 0; u < kGatherFlight; ++u) {
      x[u] = chunk{};
      if (k + u * step < end)
        x[u] = load_chunk<T>(static_cast<const T *>(p.from) +
                                 entry(p.edges, p.wide, k + u * step) * p.width,
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
DEVICE void write_sum(const mlp_gather_params &p, int64_t column, int c,
                      const float (&sum)[lanes::V]) {
  store_chunk<T>(static_cast<T *>(p.to) + column * p.width, c * lanes::V,
                 pack<T>(sum));
}

} // namespace mlp

/* LANES: of a group, a power of two to 32; each takes every LANES-th chunk.
 * A column of more than long_column edges is left to mlp_gather_long. */
template <typename T, int LANES>
__global__ void mlp_gather(const mlp_gather_params p) {
  constexpr int V = mlp::lanes::V;
  const int lane = ptx::lane_id();
  const int64_t column =
      int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (column >= p.columns)
    return;
  const int64_t begin = mlp::entry(p.offsets, p.wide, column);
  const int64_t end = mlp::entry(p.offsets, p.wide, column + 1);
  if (end - begin > p.long_column)
    return;
  const int chunks = p.width / V;
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
  constexpr int V = mlp::lanes::V, GROUPS = 256 / LANES;
  __shared__ float sums[256][V];
  const int thread = int(threadIdx.x);
  const int chunks = p.width / V;
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

/* ---- gradients of the norm ----------------------------------------------- */

/* Adds the parts of the gradients of the norm's weight and bias, rows of both,
 * of `width` numbers each; NULL: it is not asked for.  A block adds 32 columns,
 * its warps every eighth part. */
__global__ void mlp_finish_norm(const float *partial, int parts, int width,
                                float *weight, float *bias) {
  __shared__ float sums[8][32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int i = int(blockIdx.x) * 32 + lane;
  float *out = i < width ? weight : bias;
  float sum = 0.0f;
  if (i < 2 * width && out)
    for (int k = warp; k < parts; k += 8)
      sum += partial[int64_t(k) * 2 * width + i];
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
