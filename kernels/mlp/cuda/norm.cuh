/* norm.cuh - what LayerNorm and RMSNorm subtract from a row and scale it by */
#ifndef DFGNN_MLP_CUDA_NORM_CUH
#define DFGNN_MLP_CUDA_NORM_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* A sum over the four lanes of a row. */
__device__ __forceinline__ float row_sum(float x) { return lanes_sum<4>(x); }

/* (x - mean) scale, for the two rows of a lane. */
struct norm_of_rows {
  float mean[2], scale[2];
};

template <class S>
__device__ __forceinline__ norm_of_rows measure(sums<S> &u, float epsilon) {
  constexpr int LAST = S::LAYERS - 1;
  norm_of_rows norm = {{0.0f, 0.0f}, {1.0f, 1.0f}};
  if constexpr (S::NORM != MLP_NORM_NONE) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (S::NORM == MLP_NORM_LAYER) {
        float sum = 0.0f;
#pragma unroll
        for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
          for (int i = 0; i < S::L::V; ++i)
            sum += at(u, q, half, i);
        norm.mean[half] = row_sum(sum) * (1.0f / S::C);
      }
      float squares = 0.0f;
#pragma unroll
      for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
        for (int i = 0; i < S::L::V; ++i) {
          const float d = at(u, q, half, i) - norm.mean[half];
          squares += d * d;
        }
      norm.scale[half] =
          1.0f / sqrtf(row_sum(squares) * (1.0f / S::C) + epsilon);
    }
  }
  return norm;
}

} // namespace mlp
} // namespace dfgnn

#endif
