/* backward_compare.cuh - compares a matrix with its transpose */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_COMPARE_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_COMPARE_CUH

#include "kernels/attention/cuda/backward_symmetric.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

__global__ void __launch_bounds__(256)
    compare_arrays(const __grid_constant__ compare_params p) {
  int differ = 0;
  for (const pair_of_arrays &x : p.pair)
#pragma unroll 4
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
         i < x.count; i += int64_t(gridDim.x) * blockDim.x)
      differ |= __ldcs(x.a + i) != __ldcs(x.b + i);
  if (differ)
    *p.differ = 1;
}

} // namespace dfgnn

#endif
