/* ptx_fetch.cuh - an instruction beside those of ptx.cuh, which kernels that do
 * not use it need not be compiled anew for */
#ifndef DFGNN_KERNELS_PTX_FETCH_CUH
#define DFGNN_KERNELS_PTX_FETCH_CUH

namespace dfgnn {
namespace ptx {

/* Brings the line of p to the cache that all multiprocessors share. */
__device__ __forceinline__ void fetch_line(const void *p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

} // namespace ptx
} // namespace dfgnn

#endif
