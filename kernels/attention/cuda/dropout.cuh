/* dropout.cuh - attention dropout in kernels of numbered edges */
#ifndef DFGNN_ATTENTION_CUDA_DROPOUT_CUH
#define DFGNN_ATTENTION_CUDA_DROPOUT_CUH

#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/common/cuda_common.cuh"
#include "kernels/common/dropout.h"

namespace dfgnn {

/* Once a thread. */
__device__ __forceinline__ uint64_t dropout_key(const dropout_params &d) {
  return dfgnn__dropout_key(d.seed ? *d.seed : d.seed_value);
}

/* What a weight is multiplied by: 0, or `keep`, which is d.keep. */
template <typename A>
__device__ __forceinline__ A kept_of(const dropout_params &d, A keep,
                                     uint64_t key, int64_t edge, int heads,
                                     int head) {
  const int64_t number = d.number ? d.number[edge] : edge;
  return dfgnn__dropped(key, number, heads, head, d.threshold) ? A(0) : keep;
}

} // namespace dfgnn

#endif
