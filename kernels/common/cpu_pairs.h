/* cpu_pairs.h - neighbours in vectors, for work across heads
 *
 * clang-format off
 *   v_even, v_odd  the lanes 0, 2, ... (1, 3, ...) of a, then those of b;
 *   v_pairs        their sum: lanes are neighbours of a, then of b, added;
 *   lanes          the lanes of rows of `dim` features, a divisor of VECTOR;
 *   v_spread       each number `dim` times; VECTOR numbers may be read.
 * clang-format on */
#ifndef DFGNN_KERNELS_CPU_PAIRS_H
#define DFGNN_KERNELS_CPU_PAIRS_H

#include "kernels/common/cpu_vector.h"

#if CPU_ISA == CPU_AVX512

typedef __m512i lanes;

#if CPU_DTYPE == CPU_F64
CPU_INLINE vec v_even(vec a, vec b) {
  return _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14),
                                b);
}
CPU_INLINE vec v_odd(vec a, vec b) {
  return _mm512_permutex2var_pd(a, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15),
                                b);
}
CPU_INLINE lanes v_lanes(int64_t dim) {
  int64_t x[VECTOR];
  for (int i = 0; i < VECTOR; i++)
    x[i] = i / dim;
  return _mm512_loadu_si512(x);
}
CPU_INLINE vec v_spread(const scalar *p, lanes l) {
  return _mm512_permutexvar_pd(l, s_load(p));
}
#else
CPU_INLINE vec v_even(vec a, vec b) {
  return _mm512_permutex2var_ps(a,
                                _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16,
                                                  18, 20, 22, 24, 26, 28, 30),
                                b);
}
CPU_INLINE vec v_odd(vec a, vec b) {
  return _mm512_permutex2var_ps(a,
                                _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17,
                                                  19, 21, 23, 25, 27, 29, 31),
                                b);
}
CPU_INLINE lanes v_lanes(int64_t dim) {
  int32_t x[VECTOR];
  for (int i = 0; i < VECTOR; i++)
    x[i] = (int32_t)(i / dim);
  return _mm512_loadu_si512(x);
}
CPU_INLINE vec v_spread(const scalar *p, lanes l) {
  return _mm512_permutexvar_ps(l, s_load(p));
}
#endif
CPU_INLINE vec v_pairs(vec a, vec b) {
  return v_add(v_even(a, b), v_odd(a, b));
}

#elif CPU_ISA == CPU_AVX2

typedef __m256i lanes;

/* The instructions act within halves of 128 bits; this puts their results in
 * the order of the arguments. */
CPU_INLINE __m256d in_order(__m256d x) {
  return _mm256_permute4x64_pd(x, 0xd8);
}

#if CPU_DTYPE == CPU_F64
CPU_INLINE vec v_even(vec a, vec b) {
  return in_order(_mm256_unpacklo_pd(a, b));
}
CPU_INLINE vec v_odd(vec a, vec b) {
  return in_order(_mm256_unpackhi_pd(a, b));
}
CPU_INLINE vec v_pairs(vec a, vec b) {
  return in_order(
      _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b)));
}
CPU_INLINE lanes v_lanes(int64_t dim) { /* of halves of a double */
  int32_t x[2 * VECTOR];
  for (int i = 0; i < 2 * VECTOR; i++)
    x[i] = (int32_t)(i / 2 / dim * 2 + i % 2);
  return _mm256_loadu_si256((const __m256i *)x);
}
CPU_INLINE vec v_spread(const scalar *p, lanes l) {
  __m256 x = _mm256_castpd_ps(s_load(p));
  return _mm256_castps_pd(_mm256_permutevar8x32_ps(x, l));
}
#else
CPU_INLINE vec in_order_ps(vec x) {
  return _mm256_castpd_ps(in_order(_mm256_castps_pd(x)));
}
CPU_INLINE vec v_even(vec a, vec b) {
  return in_order_ps(_mm256_shuffle_ps(a, b, 0x88));
}
CPU_INLINE vec v_odd(vec a, vec b) {
  return in_order_ps(_mm256_shuffle_ps(a, b, 0xdd));
}
CPU_INLINE vec v_pairs(vec a, vec b) {
  return in_order_ps(_mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88),
                                   _mm256_shuffle_ps(a, b, 0xdd)));
}
CPU_INLINE lanes v_lanes(int64_t dim) {
  int32_t x[VECTOR];
  for (int i = 0; i < VECTOR; i++)
    x[i] = (int32_t)(i / dim);
  return _mm256_loadu_si256((const __m256i *)x);
}
CPU_INLINE vec v_spread(const scalar *p, lanes l) {
  return _mm256_permutevar8x32_ps(s_load(p), l);
}
#endif

#else /* CPU_PORTABLE */

typedef int64_t lanes; /* dim */

CPU_INLINE lanes v_lanes(int64_t dim) { return dim; }

#if CPU_DTYPE == CPU_F64
CPU_INLINE vec v_even(vec a, vec b) { return (vec){a[0], b[0]}; }
CPU_INLINE vec v_odd(vec a, vec b) { return (vec){a[1], b[1]}; }
CPU_INLINE vec v_spread(const scalar *p, lanes l) {
  return (vec){p[0], p[1 / l]};
}
#else
CPU_INLINE vec v_even(vec a, vec b) { return (vec){a[0], a[2], b[0], b[2]}; }
CPU_INLINE vec v_odd(vec a, vec b) { return (vec){a[1], a[3], b[1], b[3]}; }
CPU_INLINE vec v_spread(const scalar *p, lanes l) {
  return l == 1 ? s_load(p) : (vec){p[0], p[0], p[1], p[1]};
}
#endif
CPU_INLINE vec v_pairs(vec a, vec b) {
  return v_add(v_even(a, b), v_odd(a, b));
}

#endif

#endif
