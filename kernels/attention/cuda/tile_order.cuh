/* tile_order.cuh - are the edges of each row in the order of their columns? */
#ifndef DFGNN_ATTENTION_CUDA_TILE_ORDER_CUH
#define DFGNN_ATTENTION_CUDA_TILE_ORDER_CUH

#include "kernels/attention/cuda/tile_order.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* A warp takes a row at a time. */
__global__ void __launch_bounds__(256)
    find_disorder(const __grid_constant__ tile_order_params p) {
  const offsets_t offsets{p.offsets, p.offsets64};
  const int lane = threadIdx.x & 31, warps = blockDim.x / 32;
  int found = 0;
  for (int64_t row = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
       row < p.rows; row += int64_t(gridDim.x) * warps) {
    const int64_t last = offsets[row + 1] - 1;
    for (int64_t e = offsets[row] + lane; e < last; e += 32)
      found |= __ldg(p.indices + e) > __ldg(p.indices + e + 1);
  }
  if (found)
    *p.found = 1;
}

} // namespace dfgnn

#endif
