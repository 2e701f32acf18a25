/* ptx_widen.cuh - the functions of kernels/common/ptx_widen.cuh in C++, for the
 * emulator */
#ifndef DFGNN_KERNELS_PTX_WIDEN_CUH
#define DFGNN_KERNELS_PTX_WIDEN_CUH

#include "kernels/common/ptx.cuh"

namespace dfgnn {
namespace ptx {

template <float (*WIDEN)(unsigned short)> void multiply_flat(void **operands) {
  auto *const *lanes = whole_warp<product>(operands);
  const auto half = [](unsigned word, int k) {
    return WIDEN(static_cast<unsigned short>(word >> 16 * (k & 1)));
  };
  multiply<8>(
      lanes,
      [&](int r, int k) {
        return half(lanes[4 * (r % 8) + k / 2]->a[r / 8], k);
      },
      [&](int k, int c) { return half(lanes[4 * c + k / 2]->b[0], k); });
}
inline void mma_flat_f16(float *d, unsigned a0, unsigned a1, unsigned b,
                         EMULATED_HERE) {
  const unsigned a[2] = {a0, a1};
  product mine{d, a, {b, 0}};
  emulated_run->meet(~0u, &mine, multiply_flat<f16_to_float>, EMULATED_PLACE);
}
inline void mma_flat_bf16(float *d, unsigned a0, unsigned a1, unsigned b,
                          EMULATED_HERE) {
  const unsigned a[2] = {a0, a1};
  product mine{d, a, {b, 0}};
  emulated_run->meet(~0u, &mine, multiply_flat<bf16_to_float>, EMULATED_PLACE);
}

} // namespace ptx
} // namespace dfgnn

#endif
