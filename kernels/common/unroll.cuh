/* unroll.cuh - loops over constants */
#ifndef DFGNN_KERNELS_UNROLL_CUH
#define DFGNN_KERNELS_UNROLL_CUH

#include "kernels/common/device.h"

namespace dfgnn {

/* Calls f(0), f(1) ... f(N - 1), without a loop in the machine code; with two
 * or three counts, f(0, 0), f(0, 1) ..., the last argument the fastest. */
template <int N, class F> DEVICE void unroll(const F &f) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    f(i);
}
template <int N, int M, class F> DEVICE void unroll(const F &f) {
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int k = 0; k < M; ++k)
      f(i, k);
}
template <int N, int M, int L, class F> DEVICE void unroll(const F &f) {
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int k = 0; k < M; ++k)
#pragma unroll
      for (int l = 0; l < L; ++l)
        f(i, k, l);
}

} // namespace dfgnn

#endif
