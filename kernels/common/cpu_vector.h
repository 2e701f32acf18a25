/* cpu_vector.h - one vector type for a storage type and an instruction set
 *
 * kernels/cpu.am compiles a source file for each, and defines CPU_ISA
 * (CPU_PORTABLE, CPU_AVX2, CPU_AVX512), CPU_DTYPE (CPU_F32, ...) and CPU_TABLE
 * (avx2_f32, ...).  The file includes this once, and gets
 *   storage   the element of feature tensors
 *   scalar    the type of products and sums: double for F64, float otherwise
 *   vec       VECTOR scalars; v_ functions act on it, v_load and v_store
 *             convert from and to storage, s_load and s_store move scalars
 *   tail      the first n < VECTOR lanes: nothing beyond them is touched, and
 *             loads give zero there
 *   v_step    its second argument where x > 0, else its third
 *   v_exp     e^x for x <= 0, relative error 2e-7 (2e-16 for double); NaN
 *             stays NaN
 * Functions carry their instruction set as a target attribute, so that one
 * binary holds all and the caller chooses at run time. */
#ifndef DFGNN_KERNELS_CPU_VECTOR_H
#define DFGNN_KERNELS_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/common/half.h"

#define CPU_PORTABLE 0
#define CPU_AVX2 1
#define CPU_AVX512 2

/* The name of a table of this instruction set and type. */
#define CPU_TABLE_OF(prefix) CPU_JOIN(prefix, CPU_TABLE)
#define CPU_JOIN(prefix, table) CPU_PASTE(prefix, table)
#define CPU_PASTE(prefix, table) prefix##_##table

#define CPU_F32 0
#define CPU_F16 1
#define CPU_BF16 2
#define CPU_F64 3

#if CPU_DTYPE == CPU_F64
typedef double storage, scalar;
#elif CPU_DTYPE == CPU_F32
typedef float storage, scalar;
#else
typedef uint16_t storage;
typedef float scalar;
#endif

#if CPU_ISA == CPU_AVX512
#include "kernels/common/cpu_avx512.h"
#elif CPU_ISA == CPU_AVX2
#include "kernels/common/cpu_avx2.h"
#else
#include "kernels/common/cpu_portable.h"
#endif

/* Arrays of vectors stay in registers only if loops over them are unrolled,
 * which GCC does only when asked. */
#ifdef __clang__
#define CPU_UNROLL _Pragma("unroll")
#else
#define CPU_UNROLL _Pragma("GCC unroll 32")
#endif
#define CPU_EACH(i, count) CPU_UNROLL for (int i = 0; i < (count); i++)

/* Here and below exp() is zero, as its exponent leaves the normal numbers. */
#define EXP_ZERO (CPU_DTYPE == CPU_F64 ? -709.1 : -88)

/* Cody and Waite's reduction to |r| <= ln(2) / 2, then a polynomial: that of
 * Cephes for float, Taylor's for double. */
CPU_INLINE vec v_exp(vec x) {
  x = v_max(v_set((scalar)EXP_ZERO), x);
  vec n = v_round(v_mul(x, v_set((scalar)0x1.71547652b82fep0)));
#if CPU_DTYPE == CPU_F64
  static const double c[] = {1.0 / 479001600,
                             1.0 / 39916800,
                             1.0 / 3628800,
                             1.0 / 362880,
                             1.0 / 40320,
                             1.0 / 5040,
                             1.0 / 720,
                             1.0 / 120,
                             1.0 / 24,
                             1.0 / 6,
                             0.5};
  vec r = v_fma(n, v_set(-0x1.62e42fefa0000p-1), x);
  r = v_fma(n, v_set(-0x1.cf79abc9e3b39p-40), r);
  vec y = v_set(1.0 / 6227020800);
#else
  static const float c[] = {1.3981999507e-3f, 8.3334519073e-3f,
                            4.1665795894e-2f, 1.6666665459e-1f,
                            5.0000001201e-1f};
  vec r = v_fma(n, v_set(-0.693359375f), x);
  r = v_fma(n, v_set(2.12194440e-4f), r);
  vec y = v_set(1.9875691500e-4f);
#endif
  CPU_UNROLL
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
    y = v_fma(y, r, v_set(c[i]));
  y = v_fma(y, v_mul(r, r), v_add(r, v_set(1)));
  return v_power(y, n);
}

#endif
