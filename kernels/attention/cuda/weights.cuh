/* weights.cuh - attention weights from scores and their log-sum-exp */
#ifndef DFGNN_ATTENTION_CUDA_WEIGHTS_CUH
#define DFGNN_ATTENTION_CUDA_WEIGHTS_CUH

#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* A warp a row: scores in log2 units become weights. */
template <typename A>
__global__ void __launch_bounds__(256)
    finish_weights(const __grid_constant__ weights_params p) {
  const offsets_t offsets{p.offsets, p.offsets64};
  const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
  for (int64_t row = int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
       row < p.rows; row += warps) {
    const int64_t first = offsets[row] * p.heads;
    const int64_t count = offsets[row + 1] * p.heads - first;
    A *weights = static_cast<A *>(p.weights) + first;
    for (int64_t i = threadIdx.x & 31; i < count; i += 32) {
      const A lse = static_cast<const A *>(p.lse)[row * p.heads + i % p.heads];
      weights[i] =
          lse == -A(INFINITY) ? A(0) : exp2_fast(weights[i] - lse * A(kLog2e));
    }
  }
}

} // namespace dfgnn

#endif
