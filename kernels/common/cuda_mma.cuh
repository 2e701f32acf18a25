/* cuda_mma.cuh - products of 16 x 8 tiles on tensor cores, and the copies that
 * feed them (sm_80 and later)
 *
 * Fragments, of lane = 4 g + t:
 *   D, C  16 x 8   d[0], d[1]: row g, columns 2t, 2t + 1; d[2], d[3]: row g + 8
 *   tf32  k = 8    a[0]: row g, k t; a[1]: row g + 8, k t; a[2], a[3]: k t + 4
 *                  b0: k t, column g; b1: k t + 4
 *   16-bit k = 16  pairs, the lower k in the lower half.  a[0]: row g, k 2t and
 *                  2t + 1; a[1]: row g + 8; a[2], a[3]: k 2t + 8 and 2t + 9
 *                  b0: k 2t and 2t + 1, column g; b1: k 2t + 8 and 2t + 9
 * The sum over k may be taken in any order that A and B share, so a lane may
 * give other k than these, alike in both. */
#ifndef DFGNN_KERNELS_CUDA_MMA_CUH
#define DFGNN_KERNELS_CUDA_MMA_CUH

#include "kernels/common/cuda_common.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define DFGNN_SM80(...) __VA_ARGS__
#else
#define DFGNN_SM80(...) __trap()
#endif

namespace dfgnn {

/* ---- numbers ------------------------------------------------------------- */

/* x to 11 bits, to nearest, by two exact-difference products rather than cvt,
 * which is integer arithmetic.  NaN and infinity, and what is above 2^114,
 * become NaN. */
__device__ __forceinline__ float tf32_nearest(float x) {
  return fmaf(x, -8192.0f, fmaf(x, 8192.0f, x));
}

/* x = high + low; what low loses as a tf32 is below 2^-24 x. */
struct tf32_parts {
  unsigned high, low;
};
__device__ __forceinline__ tf32_parts tf32_split(float x) {
  const float high = tf32_nearest(x);
  return {__float_as_uint(high), __float_as_uint(x - high)};
}

/* Two numbers in a word, the first in the lower half. */
template <typename T>
__device__ __forceinline__ unsigned pack_pair(float low, float high);
template <>
__device__ __forceinline__ unsigned pack_pair<half_t>(float low, float high) {
  unsigned x = 0;
  DFGNN_SM80(asm("cvt.rn.f16x2.f32 %0, %1, %2;"
                 : "=r"(x)
                 : "f"(high), "f"(low)));
  return x;
}
template <>
__device__ __forceinline__ unsigned pack_pair<bfloat_t>(float low, float high) {
  unsigned x = 0;
  DFGNN_SM80(asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
                 : "=r"(x)
                 : "f"(high), "f"(low)));
  return x;
}

/* ---- products: d += a b -------------------------------------------------- */

__device__ __forceinline__ void mma_tf32(float (&d)[4], const unsigned (&a)[4],
                                         unsigned b0, unsigned b1) {
  DFGNN_SM80(
      asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

template <typename T>
__device__ __forceinline__ void mma_pairs(float (&d)[4], const unsigned (&a)[4],
                                          unsigned b0, unsigned b1);
template <>
__device__ __forceinline__ void mma_pairs<half_t>(float (&d)[4],
                                                  const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  DFGNN_SM80(
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}
template <>
__device__ __forceinline__ void mma_pairs<bfloat_t>(float (&d)[4],
                                                    const unsigned (&a)[4],
                                                    unsigned b0, unsigned b1) {
  DFGNN_SM80(
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

/* ---- shared memory ------------------------------------------------------- */

__device__ __forceinline__ unsigned shared_address(const void *p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/* Four 8 x 8 matrices of 16-bit numbers; lane 8 i + r gives the address of row
 * r of matrix i.  x[i]: row g, columns 2t and 2t + 1 of matrix i. */
__device__ __forceinline__ void load_matrices(unsigned (&x)[4],
                                              const void *row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
      : "r"(shared_address(row))
      : "memory");
}
/* The same of the transposed: x[i]: rows 2t and 2t + 1, column g. */
__device__ __forceinline__ void load_transposed(unsigned (&x)[4],
                                                const void *row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
      : "r"(shared_address(row))
      : "memory");
}

/* ---- copies from global to shared memory --------------------------------- */

/* 16 bytes, of which those from `bytes` on become zero; both aligned to 16. */
__device__ __forceinline__ void copy_async(void *to, const void *from,
                                           int bytes) {
  DFGNN_SM80(asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes)
      : "memory"));
}
/* 4 or 8 bytes, aligned so. */
template <int BYTES>
__device__ __forceinline__ void copy_few_async(void *to, const void *from) {
  DFGNN_SM80(asm volatile(
      "cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)),
      "l"(from), "n"(BYTES)
      : "memory"));
}
/* Ends a group of copies (of the thread). */
__device__ __forceinline__ void copy_commit() {
  DFGNN_SM80(asm volatile("cp.async.commit_group;" ::: "memory"));
}
/* Waits until at most PENDING of the latest groups are under way. */
template <int PENDING> __device__ __forceinline__ void copy_wait() {
  DFGNN_SM80(asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"));
}

} // namespace dfgnn

#endif
