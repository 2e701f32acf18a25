/* launch.cuh - a launch of a kernel that takes one struct */
#ifndef DFGNN_ATTENTION_CUDA_LAUNCH_CUH
#define DFGNN_ATTENTION_CUDA_LAUNCH_CUH

#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

template <class P>
dfgnn_status launch_kernel(const char *name, const void *kernel, dim3 grid,
                           dim3 block, size_t shared, void *stream,
                           const P &params) {
  void *arguments[] = {const_cast<P *>(&params)};
  (void)cudaLaunchKernel(kernel, grid, block, arguments, shared,
                         static_cast<cudaStream_t>(stream));
  return launch_status(name);
}

} // namespace dfgnn

#endif
