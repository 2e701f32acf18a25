/* ptx_sm90a.cuh - the instructions of sm_90a alone: products of a warpgroup
 *
 * A source that includes this has a name that ends in _sm90a.cuh, by which the
 * compiler knows for what to compile it (kernels/engine/compiler.c).
 * tests/emulator/ptx_sm90a.cuh gives the same functions in C++. */
#ifndef DFGNN_KERNELS_PTX_SM90A_CUH
#define DFGNN_KERNELS_PTX_SM90A_CUH

#include "kernels/common/ptx.cuh"

namespace dfgnn {
namespace ptx {

/* Matrices in shared memory for wgmma, from p on.  Both consist of lines of 128
 * bytes, whose 16-byte chunk c is at place c ^ (line % 8); line 0 at a multiple
 * of 1024.
 *
 * wgmma_rows: a line is a row, whose numbers are those of k; p may be 32, 64 or
 * 96 bytes behind a line's begin, and a product takes 32 bytes of each row.
 * wgmma_columns: a line is a k, with numbers of 64 rows; `next` bytes behind
 * are those of the next 64. */
__device__ __forceinline__ unsigned long long
wgmma_columns(const void *p, unsigned long long next) {
  const unsigned long long swizzle_128 = 1ull << 62, eight_lines = 1024 >> 4;
  return (shared_address(p) & 0x3ffff) >> 4 | next >> 4 << 16 |
         eight_lines << 32 | swizzle_128;
}
__device__ __forceinline__ unsigned long long wgmma_rows(const void *p) {
  return wgmma_columns(p, 16); /* nobody reads it */
}

/* What threads have written, copy_async too, becomes visible to products that
 * begin behind the next barrier. */
__device__ __forceinline__ void wgmma_publish() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Before the first product that adds to registers which were written. */
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Ends a group of products. */
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING groups are under way. */
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#define DFGNN_WGMMA_D                                                          \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "    \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "     \
  "%30, %31, "                                                                 \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "     \
  "%46, %47, "                                                                 \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "     \
  "%62, %63}"
#define DFGNN_WGMMA_4(d, i)                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DFGNN_WGMMA_16(d, i)                                                   \
  DFGNN_WGMMA_4(d, i), DFGNN_WGMMA_4(d, i + 4), DFGNN_WGMMA_4(d, i + 8),       \
      DFGNN_WGMMA_4(d, i + 12)
#define DFGNN_WGMMA_SUMS(d)                                                    \
  DFGNN_WGMMA_16(d, 0), DFGNN_WGMMA_16(d, 16), DFGNN_WGMMA_16(d, 32),          \
      DFGNN_WGMMA_16(d, 48)

/* d += a b^T by four warps that follow each other, the first a multiple of
 * four: 64 rows of a and 128 of b, k = 16.  COLUMNS: 1 if both are
 * wgmma_columns, 0 if both are wgmma_rows.  The warp w of the four has rows 16
 * w to 16 w + 15; d[4 j + i] is d[i] of cuda_mma.cuh of its tile of columns j.
 */
template <int COLUMNS>
__device__ __forceinline__ void wgmma_f16(float (&d)[64], unsigned long long a,
                                          unsigned long long b) {
  asm volatile(
      "{.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " DFGNN_WGMMA_D
      ", %64, %65, p, 1, 1, %67, %67;}"
      : DFGNN_WGMMA_SUMS(d)
      : "l"(a), "l"(b), "r"(1), "n"(COLUMNS));
}
template <int COLUMNS>
__device__ __forceinline__ void wgmma_bf16(float (&d)[64], unsigned long long a,
                                           unsigned long long b) {
  asm volatile(
      "{.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " DFGNN_WGMMA_D
      ", %64, %65, p, 1, 1, %67, %67;}"
      : DFGNN_WGMMA_SUMS(d)
      : "l"(a), "l"(b), "r"(1), "n"(COLUMNS));
}

#undef DFGNN_WGMMA_D
#undef DFGNN_WGMMA_4
#undef DFGNN_WGMMA_16
#undef DFGNN_WGMMA_SUMS

} // namespace ptx
} // namespace dfgnn

#endif
