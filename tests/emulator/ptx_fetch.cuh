/* ptx_fetch.cuh - the function of kernels/common/ptx_fetch.cuh in C++, for the
 * emulator, which has no caches */
#ifndef DFGNN_KERNELS_PTX_FETCH_CUH
#define DFGNN_KERNELS_PTX_FETCH_CUH

namespace dfgnn {
namespace ptx {

inline void fetch_line(const void *) {}

} // namespace ptx
} // namespace dfgnn

#endif
