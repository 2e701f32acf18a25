/* most_edges.cuh - the most edges of a block of consecutive rows */
#ifndef DFGNN_ATTENTION_CUDA_MOST_EDGES_CUH
#define DFGNN_ATTENTION_CUDA_MOST_EDGES_CUH

#include "kernels/attention/cuda/passes.cuh"

namespace dfgnn {

__global__ void __launch_bounds__(kPassThreads)
    most_edges(const __grid_constant__ most_edges_params p) {
  const offsets_t offsets{p.offsets, p.offsets64};
  unsigned long long largest = 0;
  for (int64_t block = int64_t(blockIdx.x) * kPassThreads + threadIdx.x;
       block * p.block < p.rows; block += int64_t(gridDim.x) * kPassThreads) {
    const int64_t first = block * p.block, end = min(first + p.block, p.rows);
    largest = max(largest, static_cast<unsigned long long>(offsets[end] -
                                                           offsets[first]));
  }
  for (int o = 16; o > 0; o /= 2)
    largest = max(largest, __shfl_xor_sync(kFullMask, largest, o));
  if (threadIdx.x % 32 == 0)
    atomicMax(reinterpret_cast<unsigned long long *>(p.most), largest);
}

} // namespace dfgnn

#endif
