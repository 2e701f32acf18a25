/* values.cuh - the values of the sparse matrix by which cuSPARSE multiplies the
 * features */
#ifndef DFGNN_SUMS_CUDA_VALUES_CUH
#define DFGNN_SUMS_CUDA_VALUES_CUH

#include "kernels/common/cuda_common.cuh"
#include "kernels/sums/cuda/values.h"

namespace dfgnn {

/* A warp takes a row; a lane takes an edge at a time. */
__global__ void fill_values(const __grid_constant__ dfgnn_spmm_values v) {
  const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= v.rows)
    return;
  const offsets_t offsets{v.offsets, v.wide}, ids{v.edge_ids, v.wide},
      destinations{v.destination_offsets, v.wide};
  const int64_t begin = offsets[row], end = offsets[row + 1];
  const float own = v.row_scale ? v.row_scale[row] : 1.0f;
  for (int64_t e = begin + (threadIdx.x & 31); e < end; e += 32) {
    const int j = v.indices[e];
    float x = own * (v.gathered_scale ? v.gathered_scale[j] : 1.0f);
    if (v.mean) {
      const int64_t i = v.edge_ids ? j : row;
      x /= float(destinations[i + 1] - destinations[i]);
    }
    if (v.weights)
      x *= v.weights[(v.edge_ids ? ids[e] : e) * v.heads + v.head];
    v.to[e] = x;
  }
}

} // namespace dfgnn

#endif
