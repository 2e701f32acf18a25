/* cpu_vector.h - one vector type for a type of numbers and an instruction set
 *
 * kernels/cpu.am compiles a source file for each, and defines CPU_ISA
 * (CPU_PORTABLE, CPU_AVX2, CPU_AVX512), CPU_DTYPE (CPU_F32, CPU_F64) and
 * CPU_TABLE (avx2_f32, ...).  The file includes this once, and gets
 *   scalar    float or double; 16-bit tensors come as copies (lib/halves.h)
 *   vec       VECTOR scalars; v_ functions act on it
 *   tail      the first n < VECTOR lanes: nothing beyond them is touched, and
 *             loads give zero there
 *   v_step    its second argument where x > 0, else its third
 *   v_log     the natural logarithm of x >= 1, relative error 2e-7 (2e-16 for
 *             double); NaN stays NaN
 *   v_exp     e^x for x <= 0, relative error 2e-7 (2e-16 for double); NaN
 *             stays NaN
 * Functions carry their instruction set as a target attribute, so that one
 * binary holds all and the caller chooses at run time. */
#ifndef DFGNN_KERNELS_CPU_VECTOR_H
#define DFGNN_KERNELS_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define CPU_PORTABLE 0
#define CPU_AVX2 1
#define CPU_AVX512 2

/* The name of a table of this instruction set and type. */
#define CPU_TABLE_OF(prefix) CPU_JOIN(prefix, CPU_TABLE)
#define CPU_JOIN(prefix, table) CPU_PASTE(prefix, table)
#define CPU_PASTE(prefix, table) prefix##_##table

#define CPU_F32 0
#define CPU_F64 1

#if CPU_DTYPE == CPU_F64
typedef double scalar;
#else
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
#if CPU_ISA == CPU_PORTABLE && defined __x86_64__
#define CPU_UNROLL /* small, as cpu_portable.h says */
#elif defined __clang__
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

/* x = m 2^n with m from the root of 1/2 to that of 2, and Cephes' polynomial in
 * m - 1. */
CPU_INLINE vec v_log(vec x) {
#if CPU_DTYPE == CPU_F64
  scalar y[VECTOR];
  v_store(y, x);
  for (int i = 0; i < VECTOR; i++)
    y[i] = log(y[i]);
  return v_load(y);
#else
  typedef int32_t whole __attribute__((vector_size(sizeof(vec))));
  typedef float number __attribute__((vector_size(sizeof(vec))));
  static const float c[] = {
      -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
      -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
  const whole exponent = ((whole)x - 0x3f3504f3) >> 23;
  const vec n = (vec) __builtin_convertvector(exponent, number);
  const vec r = v_add((vec)((whole)x - (exponent << 23)), v_set(-1));
  const vec square = v_mul(r, r);
  vec y = v_set(7.0376836292e-2f);
  CPU_UNROLL
  for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
    y = v_fma(y, r, v_set(c[i]));
  y = v_mul(y, v_mul(r, square));
  y = v_fma(n, v_set(-2.12194440e-4f), y);
  y = v_add(r, v_fma(square, v_set(-0.5f), y));
  return v_fma(n, v_set(0.693359375f), v_fma(x, v_zero(), y));
#endif
}

#endif
