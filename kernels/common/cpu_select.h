/* cpu_select.h - comparisons, and edge numbers beside features, for reductions
 *
 * clang-format off
 *   v_index        an edge number in every lane, as bits as wide as a scalar;
 *   v_index_load   int32 numbers into lanes, and v_index_store back;
 *   v_take         where x comes before best, x becomes best and k its number:
 *                  a NaN comes before all numbers, then a smaller one if
 *                  sign > 0, a larger one if sign < 0;
 *   v_where_equal  x where two numbers are equal, else 0;
 *   v_deviation    sqrt(x), 0 where x <= 1e-5; a NaN stays one.
 * clang-format on */
#ifndef DFGNN_KERNELS_CPU_SELECT_H
#define DFGNN_KERNELS_CPU_SELECT_H

#include "kernels/common/cpu_vector.h"

#define NO_DEVIATION 1e-5

/* The operators of the compilers' vector extension work in every instruction
 * set. */
CPU_ALWAYS vec v_sub(vec a, vec b) { return a - b; }

#if CPU_ISA == CPU_AVX512

#define V_BITS(x) _mm512_castps_si512(x)
CPU_ALWAYS vec v_index(int64_t k) {
  return _mm512_castsi512_ps(_mm512_set1_epi32((int)k));
}
CPU_ALWAYS vec v_index_load(const int32_t *p) {
  return _mm512_castsi512_ps(_mm512_loadu_si512(p));
}
CPU_ALWAYS vec v_index_load_tail(const int32_t *p, tail t) {
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(t, p));
}
CPU_ALWAYS void v_index_store(int32_t *p, vec x) {
  _mm512_storeu_si512(p, V_BITS(x));
}
CPU_ALWAYS void v_index_store_tail(int32_t *p, vec x, tail t) {
  _mm512_mask_storeu_epi32(p, t, V_BITS(x));
}
CPU_ALWAYS tail v_equal(vec a, vec b) {
  return _mm512_cmpeq_epi32_mask(V_BITS(a), V_BITS(b));
}
#define V_COMPARE_IN _mm512_mask_cmp_ps_mask

CPU_ALWAYS void v_take(vec *best, vec *arg, vec x, vec k, const int sign,
                       const int args) {
  tail m = sign > 0 ? V_COMPARE(x, *best, _CMP_NGE_UQ)
                    : V_COMPARE(x, *best, _CMP_NLE_UQ);
  m = V_COMPARE_IN(m, *best, *best, _CMP_ORD_Q);
  *best = V(mask_mov)(*best, m, x);
  if (args)
    *arg = V(mask_mov)(*arg, m, k);
}
CPU_ALWAYS vec v_where_equal(vec a, vec b, vec x) {
  return V(maskz_mov)(v_equal(a, b), x);
}
CPU_ALWAYS vec v_deviation(vec x) {
  return V(maskz_sqrt)(V_COMPARE(x, v_set((scalar)NO_DEVIATION), _CMP_NLE_UQ),
                       x);
}
CPU_ALWAYS int v_any_nan(vec x) { return V_COMPARE(x, x, _CMP_UNORD_Q) != 0; }

#elif CPU_ISA == CPU_AVX2

#if CPU_DTYPE == CPU_F64
CPU_ALWAYS vec v_index(int64_t k) {
  return _mm256_castsi256_pd(_mm256_set1_epi64x(k));
}
CPU_ALWAYS vec v_index_load(const int32_t *p) {
  __m128i x = _mm_loadu_si128((const __m128i *)p);
  return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(x));
}
CPU_ALWAYS void v_index_store(int32_t *p, vec x) {
  __m256i even = _mm256_permutevar8x32_epi32(
      _mm256_castpd_si256(x), _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
  _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(even));
}
CPU_ALWAYS vec v_equal(vec a, vec b) {
  return _mm256_castsi256_pd(
      _mm256_cmpeq_epi64(_mm256_castpd_si256(a), _mm256_castpd_si256(b)));
}
#else
CPU_ALWAYS vec v_index(int64_t k) {
  return _mm256_castsi256_ps(_mm256_set1_epi32((int)k));
}
CPU_ALWAYS vec v_index_load(const int32_t *p) {
  return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)p));
}
CPU_ALWAYS void v_index_store(int32_t *p, vec x) {
  _mm256_storeu_si256((__m256i *)p, _mm256_castps_si256(x));
}
CPU_ALWAYS vec v_equal(vec a, vec b) {
  return _mm256_castsi256_ps(
      _mm256_cmpeq_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
#endif

CPU_ALWAYS vec v_index_load_tail(const int32_t *p, tail t) {
  int32_t lanes[VECTOR] = {0};
  for (int64_t i = 0; i < t.lanes; i++)
    lanes[i] = p[i];
  return v_index_load(lanes);
}
CPU_ALWAYS void v_index_store_tail(int32_t *p, vec x, tail t) {
  int32_t lanes[VECTOR];
  v_index_store(lanes, x);
  for (int64_t i = 0; i < t.lanes; i++)
    p[i] = lanes[i];
}
CPU_ALWAYS void v_take(vec *best, vec *arg, vec x, vec k, const int sign,
                       const int args) {
  vec m =
      sign > 0 ? V(cmp)(x, *best, _CMP_NGE_UQ) : V(cmp)(x, *best, _CMP_NLE_UQ);
  m = V(and)(m, V(cmp)(*best, *best, _CMP_ORD_Q));
  *best = V(blendv)(*best, x, m);
  if (args)
    *arg = V(blendv)(*arg, k, m);
}
CPU_ALWAYS vec v_where_equal(vec a, vec b, vec x) {
  return V(and)(v_equal(a, b), x);
}
CPU_ALWAYS vec v_deviation(vec x) {
  vec above = V(cmp)(x, v_set((scalar)NO_DEVIATION), _CMP_NLE_UQ);
  return V(and)(above, V(sqrt)(x));
}
CPU_ALWAYS int v_any_nan(vec x) {
  return V(movemask)(V(cmp)(x, x, _CMP_UNORD_Q)) != 0;
}

#else /* CPU_PORTABLE */

CPU_ALWAYS vec v_index(int64_t k) {
  bits x = {0};
  for (int i = 0; i < VECTOR; i++)
    x[i] = (unsigned)k;
  return (vec)x;
}
CPU_ALWAYS vec v_index_load_tail(const int32_t *p, tail t) {
  bits x = {0};
  for (int64_t i = 0; i < t; i++)
    x[i] = (uint32_t)p[i];
  return (vec)x;
}
CPU_ALWAYS vec v_index_load(const int32_t *p) {
  return v_index_load_tail(p, VECTOR);
}
CPU_ALWAYS void v_index_store_tail(int32_t *p, vec x, tail t) {
  for (int64_t i = 0; i < t; i++)
    p[i] = (int32_t)(uint32_t)((bits)x)[i];
}
CPU_ALWAYS void v_index_store(int32_t *p, vec x) {
  v_index_store_tail(p, x, VECTOR);
}
CPU_ALWAYS void v_take(vec *best, vec *arg, vec x, vec k, const int sign,
                       const int args) {
  bits m = ~(sign > 0 ? (bits)(x >= *best) : (bits)(x <= *best)) &
           (bits)(*best == *best);
  *best = v_choose(m, x, *best);
  if (args)
    *arg = v_choose(m, k, *arg);
}
CPU_ALWAYS vec v_where_equal(vec a, vec b, vec x) {
  return (vec)((bits)x & (bits)((bits)a == (bits)b));
}
CPU_ALWAYS vec v_deviation(vec x) {
  for (int i = 0; i < VECTOR; i++)
    x[i] = x[i] <= (scalar)NO_DEVIATION ? 0 : (scalar)sqrt((double)x[i]);
  return x;
}
CPU_ALWAYS int v_any_nan(vec x) {
  for (int i = 0; i < VECTOR; i++)
    if (x[i] != x[i])
      return 1;
  return 0;
}

#endif

#endif
