/* weights_sm90a.cuh - weights.cuh with products of warpgroups, of 16-bit types
 *
 * A block has two warpgroups; each has 64 rows of a tile of weights and all of
 * its 128 columns.  Edges are the lines of both operands. */
#ifndef DFGNN_MLP_CUDA_WEIGHTS_SM90A_CUH
#define DFGNN_MLP_CUDA_WEIGHTS_SM90A_CUH

#include "kernels/mlp/cuda/weights.cuh"
#include "kernels/mlp/cuda/wgmma.cuh"

namespace dfgnn {
namespace mlp {

/* A side of a stage: lines of edges with 64 columns, then with the next 64. */
template <typename T> struct group_block {
  static constexpr int THREADS = 256;
  static constexpr int STAGES = 3;
  static constexpr int EDGES = 64;
  static constexpr int V = MLP_CHUNK / int(sizeof(T));
  static constexpr int LINE = 128;
  static constexpr int HALF_BYTES = EDGES * LINE;
  static constexpr int SIDE_BYTES = 2 * HALF_BYTES;
  static constexpr int STAGE_BYTES = 2 * SIDE_BYTES;

  __device__ __forceinline__ static int place(int edge, int chunk) {
    return chunk / 8 * HALF_BYTES + edge * LINE +
           ((chunk % 8 ^ edge % 8) * MLP_CHUNK);
  }
};

template <typename T>
__device__ __forceinline__ void multiply_groups(float (&z)[64],
                                                const char *stage) {
  using B = group_block<T>;
  const char *rows = stage + int(threadIdx.x) / 128 * B::HALF_BYTES;
  const char *columns = stage + B::SIDE_BYTES;
  ptx::wgmma_begin();
#pragma unroll
  for (int k = 0; k < B::EDGES; k += 16)
    wgmma<T, 1>(z, ptx::wgmma_columns(rows + k * B::LINE, B::HALF_BYTES),
                ptx::wgmma_columns(columns + k * B::LINE, B::HALF_BYTES));
  ptx::wgmma_commit();
}

/* Adds two columns of grad_z over a quarter of a stage's edges: those of thread
 * % 64, and the quarter is thread / 64. */
template <typename T>
__device__ __forceinline__ void add_bias_stage(float (&sum)[2],
                                               const char *stage) {
  using B = group_block<T>;
  constexpr int EDGES = B::EDGES / 4;
  const int pair = int(threadIdx.x) % 64;
  const int first = int(threadIdx.x) / 64 * EDGES;
#pragma unroll 4
  for (int e = first; e < first + EDGES; ++e) {
    const auto &x = *reinterpret_cast<const T(*)[2]>(
        stage + B::place(e, pair / 4) + pair % 4 * 4);
    sum[0] += widen(x[0]);
    sum[1] += widen(x[1]);
  }
}

} // namespace mlp

/* mlp_weights of weights.cuh; shared memory has 1024 bytes more. */
template <typename T>
__global__ void __launch_bounds__(256, 2)
    mlp_weights_of_groups(const mlp_weights_params p) {
  using B = mlp::group_block<T>;
  extern __shared__ uint4 memory[];
  char *stages = mlp::aligned_shared(memory);
  mlp::weight_split<T, B> own(p);
  const bool sums = own.from == 0;
  const int thread = int(threadIdx.x), lane = ptx::lane_id();
  float z[64] = {}, bias[2] = {};
  own.copy(p, stages, own.begin);
  for (int64_t k = own.begin; k < own.end; ++k) {
    char *stage = stages + int(k - own.begin) % B::STAGES * B::STAGE_BYTES;
    copy_wait<0>();
    ptx::wgmma_publish();
    __syncthreads();
    /* all have waited for the products of the stage that is filled now */
    own.copy(p, stages, k + 1);
    mlp::multiply_groups<T>(z, stage);
    if (sums)
      mlp::add_bias_stage<T>(bias, stage);
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  copy_wait<0>();
  __syncthreads();
  const int row = thread / 32 * 16 + (lane >> 2);
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 &to = *reinterpret_cast<float2 *>(
          own.part + (row + 8 * half) * MLP_SIDE + 8 * j + 2 * (lane & 3));
      const float2 before = p.add ? to : float2{0.0f, 0.0f};
      to = float2{z[4 * j + 2 * half] + before.x,
                  z[4 * j + 2 * half + 1] + before.y};
    }
  if (!sums)
    return;
  float *quarters = reinterpret_cast<float *>(stages);
  quarters[thread / 64 * MLP_SIDE + thread % 64 * 2] = bias[0];
  quarters[thread / 64 * MLP_SIDE + thread % 64 * 2 + 1] = bias[1];
  __syncthreads();
  if (thread < MLP_SIDE) {
    float *to = own.part + MLP_SIDE * MLP_SIDE + thread;
    float sum = p.add ? *to : 0.0f;
    for (int k = 0; k < 4; ++k)
      sum += quarters[k * MLP_SIDE + thread];
    *to = sum;
  }
}

} // namespace dfgnn

#endif
