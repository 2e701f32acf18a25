/* cuda_mma.cuh - products of 16 x 8 tiles on tensor cores, and the copies that
 * feed them (sm_80 and later)
 *
 * clang-format off
 * Fragments of lane 4 g + t:
 *   D, C  16 x 8   d[0], d[1]: row g, columns 2t, 2t + 1; d[2], d[3]: row g + 8
 *   tf32  k = 8    a[0]: row g, k t; a[1]: row g + 8, k t; a[2], a[3]: k t + 4
 *                  b0: k t, column g; b1: k t + 4
 *   16-bit k = 16  pairs, the lower k in the lower half.  a[0]: row g, k 2t and
 *                  2t + 1; a[1]: row g + 8; a[2], a[3]: k 2t + 8 and 2t + 9
 *                  b0: k 2t and 2t + 1, column g; b1: k 2t + 8 and 2t + 9
 * clang-format on
 * The sum over k may be taken in any order that A and B share, so a lane may
 * give other values of k than these, the same in both. */
#ifndef DFGNN_KERNELS_CUDA_MMA_CUH
#define DFGNN_KERNELS_CUDA_MMA_CUH

#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* ---- numbers ------------------------------------------------------------- */

/* x rounded to 11 bits, to nearest, by two products whose difference is exact;
 * cvt would be integer arithmetic.  NaN, infinities and magnitudes above 2^114
 * become NaN. */
DEVICE float tf32_nearest(float x) {
  return fmaf(x, -8192.0f, fmaf(x, 8192.0f, x));
}

/* x = high + low; rounding low to tf32 changes x by less than 2^-24 x. */
struct tf32_parts {
  unsigned high, low;
};
DEVICE tf32_parts tf32_split(float x) {
  const float high = tf32_nearest(x);
  return {__float_as_uint(high), __float_as_uint(x - high)};
}

/* Two numbers in a word, the first in the lower half. */
template <typename T> DEVICE unsigned pack_pair(float low, float high);
template <> DEVICE unsigned pack_pair<half_t>(float low, float high) {
  return ptx::pack_f16(low, high);
}
template <> DEVICE unsigned pack_pair<bfloat_t>(float low, float high) {
  return ptx::pack_bf16(low, high);
}

/* How a product takes numbers of a T; EXACT: floats as their parts, unrounded.
 */
template <typename T, int EXACT> struct mma_operand {
  static constexpr bool ROUNDS = true;
  static DEVICE void take(float &x, float &y) {
    packed<T, 2> pair;
    pair.bits = pack_pair<T>(x, y);
    x = widen(pair.item[0]);
    y = widen(pair.item[1]);
  }
};
template <int EXACT> struct mma_operand<float, EXACT> {
  static constexpr bool ROUNDS = !EXACT;
  static DEVICE void take(float &x, float &y) {
    x = tf32_nearest(x);
    y = tf32_nearest(y);
  }
};

/* ---- products: d += a b -------------------------------------------------- */

using ptx::mma_tf32;

template <typename T>
DEVICE void mma_pairs(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                      unsigned b1);
template <>
DEVICE void mma_pairs<half_t>(float (&d)[4], const unsigned (&a)[4],
                              unsigned b0, unsigned b1) {
  ptx::mma_f16(d, a, b0, b1);
}
template <>
DEVICE void mma_pairs<bfloat_t>(float (&d)[4], const unsigned (&a)[4],
                                unsigned b0, unsigned b1) {
  ptx::mma_bf16(d, a, b0, b1);
}

/* ---- shared memory ------------------------------------------------------- */

/* Four 8 x 8 matrices of 16-bit numbers; lane 8 i + r gives the address of row
 * r of matrix i.  x[i]: row g, columns 2t and 2t + 1 of matrix i. */
using ptx::load_matrices;
/* The same, transposed.  x[i]: rows 2t and 2t + 1, column g of matrix i. */
using ptx::load_transposed;

/* Copies from global to shared memory. */
using ptx::copy_async;
using ptx::copy_commit;
using ptx::copy_wait;

} // namespace dfgnn

#endif
