/* wgmma.cuh - products of warpgroups, by the type of their operands */
#ifndef DFGNN_MLP_CUDA_WGMMA_CUH
#define DFGNN_MLP_CUDA_WGMMA_CUH

#include "kernels/common/ptx_sm90a.cuh"
#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

template <typename T> constexpr bool kHalf = false;
template <> constexpr bool kHalf<half_t> = true;

template <typename T, int COLUMNS>
__device__ __forceinline__ void wgmma(float (&d)[64], unsigned long long a,
                                      unsigned long long b) {
  static_assert(sizeof(T) == 2, "operands of 16 bits");
  if constexpr (kHalf<T>)
    ptx::wgmma_f16<COLUMNS>(d, a, b);
  else
    ptx::wgmma_bf16<COLUMNS>(d, a, b);
}

/* The begin of shared memory at a multiple of 1024; 1024 bytes more than needed
 * are there. */
__device__ __forceinline__ char *aligned_shared(uint4 *memory) {
  const unsigned at = unsigned(reinterpret_cast<uintptr_t>(memory)) % 1024;
  return reinterpret_cast<char *>(memory) + (1024 - at) % 1024;
}

} // namespace mlp
} // namespace dfgnn

#endif
