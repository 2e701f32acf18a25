/* ptx_widen.cuh - products of half the depth of those of ptx.cuh, which add up
 * 16-bit numbers (sums/cuda/sum.cuh) */
#ifndef DFGNN_KERNELS_PTX_WIDEN_CUH
#define DFGNN_KERNELS_PTX_WIDEN_CUH

#include "kernels/common/ptx.cuh"

namespace dfgnn {
namespace ptx {

/* d += a b, 16 x 8 by 8 x 8: fragments are those of cuda_mma.cuh, without the
 * upper half of k. */
__device__ __forceinline__ void mma_flat_f16(float *d, unsigned a0, unsigned a1,
                                             unsigned b) {
  DFGNN_SM80(asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b)));
}
__device__ __forceinline__ void mma_flat_bf16(float *d, unsigned a0,
                                              unsigned a1, unsigned b) {
  DFGNN_SM80(asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b)));
}

} // namespace ptx
} // namespace dfgnn

#endif
