/* ptx_sm90a.cuh - the functions of kernels/common/ptx_sm90a.cuh in C++, for the
 * emulator
 *
 * A product is made when the instruction is issued; so a sum that is read too
 * early is not found, but operands that are not there yet are. */
#ifndef DFGNN_KERNELS_PTX_SM90A_CUH
#define DFGNN_KERNELS_PTX_SM90A_CUH

#include "kernels/common/ptx.cuh"

namespace dfgnn {
namespace ptx {

/* An address has 48 bits; `next` stands above. */
inline unsigned long long wgmma_columns(const void *p,
                                        unsigned long long next) {
  return reinterpret_cast<unsigned long long>(p) | next >> 4 << 48;
}
inline unsigned long long wgmma_rows(const void *p) {
  return wgmma_columns(p, 16);
}
inline void wgmma_publish() {}
inline void wgmma_begin() {}
inline void wgmma_commit() {}
template <int PENDING> inline void wgmma_wait() {}

/* Number k of a row: bits 4 to 6 of its address are exchanged by bits 7 to 9,
 * as the hardware does. */
template <float (*WIDEN)(unsigned short), int COLUMNS>
inline float wgmma_number(unsigned long long matrix, int row, int k,
                          emulated_place place) {
  const unsigned long long first = matrix & 0xffffffffffffull;
  const unsigned long long at =
      COLUMNS ? first + unsigned(row) / 64 * (matrix >> 48 << 4) +
                    unsigned(k / 8 * 1024 + k % 8 * 128 + row % 64 * 2)
              : first + unsigned(row / 8 * 1024 + row % 8 * 128 + 2 * k);
  const auto *p =
      reinterpret_cast<const unsigned short *>(at ^ (at >> 7 & 7) << 4);
  if (first % 1024 >= (COLUMNS ? 1 : 128))
    emulated_run->fail(place, "a matrix does not begin at a multiple of 1024");
  if (!emulated_run->is_shared(p))
    emulated_run->fail(place, "%p is not in shared memory", p);
  return WIDEN(*p);
}

struct wgmma_product {
  float *d;
  unsigned long long a, b;
  int warp;
  emulated_place place;
};
/* The warp's 16 rows of 128 columns. */
template <float (*WIDEN)(unsigned short), int COLUMNS>
void wgmma_multiply(void **operands) {
  auto *const *lanes = whole_warp<wgmma_product>(operands);
  const wgmma_product &p = *lanes[0];
  static float a[16][16], b[128][16];
  for (int k = 0; k < 16; k++) {
    for (int r = 0; r < 16; r++)
      a[r][k] = wgmma_number<WIDEN, COLUMNS>(p.a, 16 * p.warp + r, k, p.place);
    for (int c = 0; c < 128; c++)
      b[c][k] = wgmma_number<WIDEN, COLUMNS>(p.b, c, k, p.place);
  }
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 64; i++) {
      const int row = l / 4 + 8 * (i % 4 / 2);
      const int column = i / 4 * 8 + 2 * (l % 4) + i % 2;
      double sum = double(lanes[l]->d[i]);
      for (int k = 0; k < 16; k++)
        sum += double(a[row][k]) * double(b[column][k]);
      lanes[l]->d[i] = cut_off(sum);
    }
}
inline void wgmma(float (&d)[64], unsigned long long a, unsigned long long b,
                  emulated_together *together, emulated_place place) {
  wgmma_product mine{d, a, b, int(threadIdx.x) / 32 % 4, place};
  emulated_run->meet(~0u, &mine, together, place);
}
template <int COLUMNS>
inline void wgmma_f16(float (&d)[64], unsigned long long a,
                      unsigned long long b, EMULATED_HERE) {
  wgmma(d, a, b, wgmma_multiply<f16_to_float, COLUMNS>, EMULATED_PLACE);
}
template <int COLUMNS>
inline void wgmma_bf16(float (&d)[64], unsigned long long a,
                       unsigned long long b, EMULATED_HERE) {
  wgmma(d, a, b, wgmma_multiply<bf16_to_float, COLUMNS>, EMULATED_PLACE);
}

} // namespace ptx
} // namespace dfgnn

#endif
