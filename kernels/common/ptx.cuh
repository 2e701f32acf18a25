/* ptx.cuh - the instructions that CUDA C++ has no function for, one wrapper
 * each
 *
 * All assembly of the kernels stands here.  tests/emulator/ptx.cuh gives the
 * same functions in C++, so that the kernels also run on a CPU. */
#ifndef DFGNN_KERNELS_PTX_CUH
#define DFGNN_KERNELS_PTX_CUH

#include <stdint.h>

#include "kernels/common/device.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define DFGNN_SM80(...) __VA_ARGS__
#else
#define DFGNN_SM80(...) __trap()
#endif

namespace dfgnn {
namespace ptx {

/* ---- kernels one after the other ----------------------------------------- */

/* The next kernel on the stream may begin, if it is launched to overlap
 * (dfgnn_grid), once all blocks of this one have called this or ended. */
DEVICE void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/* Waits until the kernels before this one have ended and all that they wrote
 * can be read. */
DEVICE void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- numbers ------------------------------------------------------------- */

DEVICE float f16_to_float(unsigned short bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}
/* Rounds to nearest, ties to even, as do the next three functions. */
DEVICE unsigned short float_to_f16(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
DEVICE unsigned short float_to_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
/* Two numbers in a word, the first in the lower half. */
DEVICE unsigned pack_f16(float low, float high) {
  unsigned x = 0;
  DFGNN_SM80(asm("cvt.rn.f16x2.f32 %0, %1, %2;"
                 : "=r"(x)
                 : "f"(high), "f"(low)));
  return x;
}
DEVICE unsigned pack_bf16(float low, float high) {
  unsigned x = 0;
  DFGNN_SM80(asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
                 : "=r"(x)
                 : "f"(high), "f"(low)));
  return x;
}

/* 2^x within 2 ulp; numbers below 2^-126 count as 0. */
DEVICE float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* The square root within an ulp. */
DEVICE float sqrt_approximate(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* tanh(x) within 2^-11 of it. */
DEVICE float tanh_approximate(float x) {
  float y = 0.0f;
  DFGNN_SM80(asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)));
  return y;
}
/* NaN if either number is. */
DEVICE float min_or_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
DEVICE float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/* ---- threads and addresses ----------------------------------------------- */

/* The lane's number, read anew at each use so that loops keep no register for
 * it. */
DEVICE int lane_id() {
  int x;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(x));
  return x;
}
/* base + i * bytes in one instruction. */
DEVICE const char *element(const char *base, int i, unsigned bytes) {
  const char *p;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(p) : "r"(i), "r"(bytes), "l"(base));
  return p;
}
/* The same address, of which the compiler no longer knows that it is a
 * variable's: a variable used through it lies in memory and takes no registers.
 */
template <typename A> DEVICE A *in_memory(A *p) {
  asm volatile("" : "+l"(p));
  return p;
}
DEVICE unsigned shared_address(const void *p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/* ---- loads, stores and sums in global memory ----------------------------- */

/* Predicated loads: x keeps its value where `on` is 0.  From an `if` the
 * compiler would make a branch or copies. */
DEVICE void load_if(uint4 &x, const void *p, int on) {
  asm volatile("{.reg .pred on;\n\tsetp.ne.s32 on, %5, 0;\n\t"
               "@on ld.global.v4.u32 {%0, %1, %2, %3}, [%4];}"
               : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
               : "l"(p), "r"(on));
}
DEVICE void load_if(unsigned &x, const void *p, int on) {
  asm volatile("{.reg .pred on;\n\tsetp.ne.s32 on, %2, 0;\n\t"
               "@on ld.global.nc.b32 %0, [%1];}"
               : "+r"(x)
               : "l"(p), "r"(on));
}

/* Relaxed accesses at the device's scope. */
DEVICE void store_relaxed(uint32_t *to, uint32_t x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x)
               : "memory");
}
DEVICE void store_relaxed(unsigned long long *to, unsigned long long x) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(x)
               : "memory");
}
DEVICE uint32_t load_relaxed(const uint32_t *from) {
  uint32_t x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
               : "=r"(x)
               : "l"(from)
               : "memory");
  return x;
}
DEVICE unsigned long long load_relaxed(const unsigned long long *from) {
  unsigned long long x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
               : "=l"(x)
               : "l"(from)
               : "memory");
  return x;
}

/* ---- copies from global to shared memory --------------------------------- */

/* Copies `bytes` bytes and fills up to 16 with zero; both addresses are aligned
 * to 16 bytes. */
DEVICE void copy_async(void *to, const void *from, int bytes) {
  DFGNN_SM80(asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes)
      : "memory"));
}
/* Ends a group of copies (of the thread). */
DEVICE void copy_commit() {
  DFGNN_SM80(asm volatile("cp.async.commit_group;" ::: "memory"));
}
/* Waits until at most PENDING of the latest groups are under way. */
template <int PENDING> DEVICE void copy_wait() {
  DFGNN_SM80(asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"));
}

/* ---- matrices of a warp: cuda_mma.cuh says which lane holds which element -
 */

/* Four 8 x 8 matrices of 16-bit numbers; lane 8 i + r gives the address of row
 * r of matrix i, in shared memory. */
DEVICE void load_matrices(unsigned (&x)[4], const void *row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
      : "r"(shared_address(row))
      : "memory");
}
DEVICE void load_transposed(unsigned (&x)[4], const void *row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
      : "r"(shared_address(row))
      : "memory");
}
/* Transposes an 8 x 8 matrix of 16-bit numbers. */
DEVICE unsigned transpose_matrix(unsigned x) {
  unsigned y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/* d += a b */
DEVICE void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                     unsigned b1) {
  DFGNN_SM80(
      asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}
DEVICE void mma_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                    unsigned b1) {
  DFGNN_SM80(
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}
DEVICE void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                     unsigned b1) {
  DFGNN_SM80(
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

/* Products of half the depth, which add up 16-bit numbers: d += a b, 16 x 8
 * by 8 x 8.  Fragments are those of cuda_mma.cuh, without the upper half of k.
 */
DEVICE void mma_flat_f16(float *d, unsigned a0, unsigned a1, unsigned b) {
  DFGNN_SM80(asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b)));
}
DEVICE void mma_flat_bf16(float *d, unsigned a0, unsigned a1, unsigned b) {
  DFGNN_SM80(asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b)));
}

/* Brings the line of p to the cache that all multiprocessors share. */
DEVICE void fetch_line(const void *p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

} // namespace ptx
} // namespace dfgnn

#endif
