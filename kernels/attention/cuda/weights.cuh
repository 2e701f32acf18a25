/* weights.cuh - attention weights from scores and their log-sum-exp */
#ifndef DFGNN_ATTENTION_CUDA_WEIGHTS_CUH
#define DFGNN_ATTENTION_CUDA_WEIGHTS_CUH

#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* The row of an edge, which lies in first .. last. */
DEVICE int64_t row_of_edge(const offsets_t &offsets, int64_t edge,
                           int64_t first, int64_t last) {
  while (first < last) {
    const int64_t middle = first + (last - first + 1) / 2;
    if (offsets[middle] <= edge)
      first = middle;
    else
      last = middle - 1;
  }
  return first;
}

/* A warp takes WEIGHTS_EDGES edges, of whatever rows, at a time: scores in log2
 * units become weights. */
template <typename A>
__global__ void __launch_bounds__(256)
    finish_weights(const __grid_constant__ weights_params p) {
  static_assert(WEIGHTS_EDGES == 32, "a lane finds the row of an edge");
  ptx::wait_for_previous();
  const offsets_t offsets{p.offsets, p.offsets64};
  const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
  const int lane = threadIdx.x & 31;
  for (int64_t at =
           (int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32) *
           WEIGHTS_EDGES;
       at < p.edges; at += warps * WEIGHTS_EDGES) {
    const int count = static_cast<int>(min(int64_t(32), p.edges - at));
    const int64_t mine = min(at + lane, p.edges - 1);
    const int row = static_cast<int>(row_of_edge(offsets, mine, 0, p.rows - 1));
    A *weights = static_cast<A *>(p.weights) + at * p.heads;
    for (int i = lane; i - lane < count * p.heads; i += 32) {
      const int edge = min(i / p.heads, count - 1);
      const int64_t of = __shfl_sync(kFullMask, row, edge);
      if (i >= count * p.heads)
        continue;
      const A lse = static_cast<const A *>(p.lse)[of * p.heads + i % p.heads];
      weights[i] =
          lse == -A(INFINITY) ? A(0) : exp2_fast(weights[i] - lse * A(kLog2e));
    }
  }
}

} // namespace dfgnn

#endif
