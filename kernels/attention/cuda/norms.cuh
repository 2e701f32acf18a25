/* norms.cuh - inverse norms of a tensor's rows */
#ifndef DFGNN_ATTENTION_CUDA_NORMS_CUH
#define DFGNN_ATTENTION_CUDA_NORMS_CUH

#include "kernels/attention/cuda/norms.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

template <typename T>
__global__ void __launch_bounds__(256)
    inverse_norms(const __grid_constant__ norms_params p) {
  ptx::let_next_begin();
  using A = accumulator_t<T>;
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t pair = thread / p.lanes;
  const int lane = static_cast<int>(thread & (p.lanes - 1));
  A square = A(0);
  if (pair < p.pairs) {
    const int64_t node = pair / p.heads, head = pair - node * p.heads;
    const char *row = static_cast<const char *>(p.tensor.data) +
                      node * p.tensor.node_bytes + head * p.tensor.head_bytes;
    for (int f = lane; f < p.dim; f += p.lanes) {
      const A x = widen(*reinterpret_cast<const T *>(
          row + int64_t(f) * p.tensor.feature_bytes));
      square += x * x;
    }
  }
  for (int o = p.lanes / 2; o > 0; o >>= 1)
    square += __shfl_xor_sync(kFullMask, square, o);
  if (pair < p.pairs && lane == 0)
    static_cast<A *>(p.inverse)[pair] = inverse_norm(square);
}

} // namespace dfgnn

#endif
