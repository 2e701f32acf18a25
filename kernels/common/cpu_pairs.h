/* cpu_pairs.h - lanes that change places, for work across heads
 *
 *   v_fold   the sums of pieces of `group` vectors (1, 2, 4, ... VECTOR), which
 *            are the group-th part of VECTOR / group lanes: those of the first
 *            vector, then those of the second, ...
 *   v_turn   lane i is that of i + step, round the end
 *   lanes    what v_pick takes; v_lanes(shift, first): lane i is that of
 *            first + (i >> shift); v_lanes_at(at): that of at[i], if ANY_LANES
 */
#ifndef DFGNN_KERNELS_CPU_PAIRS_H
#define DFGNN_KERNELS_CPU_PAIRS_H

#include "kernels/common/cpu_vector.h"

/* Halves a group n times: lanes at a distance of `step` are added, and those of
 * two vectors share one, which takes one shuffle and two blends. */
#define FOLD(a, group, step, merge)                                            \
  if ((group) > (step))                                                        \
    CPU_EACH(j, (group) / (step) / 2) {                                        \
      (a)[j] = merge((a)[2 * j], (a)[2 * j + 1]);                              \
    }

#if CPU_ISA == CPU_AVX512

typedef __m512i lanes;

#define MERGE(mask, swapped)                                                   \
  __m512 x = _mm512_mask_blend_ps(mask, b, a);                                 \
  return _mm512_add_ps(_mm512_mask_blend_ps(mask, a, b), swapped)
CPU_ALWAYS vec merge_1(vec a, vec b) {
  MERGE(0xaaaa, _mm512_permute_ps(x, 0xb1));
}
CPU_ALWAYS vec merge_2(vec a, vec b) {
  MERGE(0xcccc, _mm512_permute_ps(x, 0x4e));
}
CPU_ALWAYS vec merge_4(vec a, vec b) {
  MERGE(0xf0f0, _mm512_shuffle_f32x4(x, x, 0xb1));
}
CPU_ALWAYS vec merge_8(vec a, vec b) {
  MERGE(0xff00, _mm512_shuffle_f32x4(x, x, 0x4e));
}
CPU_ALWAYS vec v_fold(vec *a, const int group) {
  FOLD(a, group, 1, merge_1)
  FOLD(a, group, 2, merge_2)
  FOLD(a, group, 4, merge_4)
  FOLD(a, group, 8, merge_8)
  if (group == 2)
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15),
        a[0]);
  if (group == 4)
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        a[0]);
  if (group == 8)
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15),
        a[0]);
  return a[0];
}
#define ANY_LANES 1
CPU_ALWAYS lanes v_lanes_at(const int32_t *at) {
  return _mm512_loadu_si512(at);
}
CPU_ALWAYS vec v_pick(vec x, lanes l) { return _mm512_permutexvar_ps(l, x); }
CPU_ALWAYS vec v_turn(vec x, int64_t step) {
  static const int32_t round[2 * VECTOR] = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return _mm512_permutexvar_ps(_mm512_loadu_si512(round + step), x);
}
#undef MERGE

#elif CPU_ISA == CPU_AVX2

#define ANY_LANES 1
typedef __m256i lanes;

#if CPU_DTYPE == CPU_F64
#define MERGE(mask, swapped)                                                   \
  __m256d x = _mm256_blend_pd(b, a, mask);                                     \
  return _mm256_add_pd(_mm256_blend_pd(a, b, mask), swapped)
CPU_ALWAYS vec merge_1(vec a, vec b) { MERGE(0xa, _mm256_permute_pd(x, 0x5)); }
CPU_ALWAYS vec merge_2(vec a, vec b) {
  MERGE(0xc, _mm256_permute4x64_pd(x, 0x4e));
}
CPU_ALWAYS vec v_fold(vec *a, const int group) {
  FOLD(a, group, 1, merge_1)
  FOLD(a, group, 2, merge_2)
  return group == 2 ? _mm256_permute4x64_pd(a[0], 0xd8) : a[0];
}
CPU_ALWAYS lanes v_lanes_at(const int32_t *at) { /* halves of a double */
  int32_t x[2 * VECTOR];
  for (int i = 0; i < 2 * VECTOR; i++)
    x[i] = at[i / 2] * 2 + i % 2;
  return _mm256_loadu_si256((const __m256i *)x);
}
CPU_ALWAYS vec permuted(vec x, __m256i halves) {
  return _mm256_castps_pd(
      _mm256_permutevar8x32_ps(_mm256_castpd_ps(x), halves));
}
#define HALVES 2
#else
#define MERGE(mask, swapped)                                                   \
  __m256 x = _mm256_blend_ps(b, a, mask);                                      \
  return _mm256_add_ps(_mm256_blend_ps(a, b, mask), swapped)
CPU_ALWAYS vec merge_1(vec a, vec b) {
  MERGE(0xaa, _mm256_permute_ps(x, 0xb1));
}
CPU_ALWAYS vec merge_2(vec a, vec b) {
  MERGE(0xcc, _mm256_permute_ps(x, 0x4e));
}
CPU_ALWAYS vec merge_4(vec a, vec b) {
  MERGE(0xf0, _mm256_permute2f128_ps(x, x, 1));
}
CPU_ALWAYS vec permuted(vec x, __m256i to) {
  return _mm256_permutevar8x32_ps(x, to);
}
CPU_ALWAYS vec v_fold(vec *a, const int group) {
  FOLD(a, group, 1, merge_1)
  FOLD(a, group, 2, merge_2)
  FOLD(a, group, 4, merge_4)
  if (group == 2)
    return permuted(a[0], _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  if (group == 4)
    return permuted(a[0], _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return a[0];
}
CPU_ALWAYS lanes v_lanes_at(const int32_t *at) {
  return _mm256_loadu_si256((const __m256i *)at);
}
#define HALVES 1
#endif
CPU_ALWAYS vec v_pick(vec x, lanes l) { return permuted(x, l); }
CPU_ALWAYS vec v_turn(vec x, int64_t step) {
  static const int32_t round[16] = {0, 1, 2, 3, 4, 5, 6, 7,
                                    0, 1, 2, 3, 4, 5, 6, 7};
  return permuted(x,
                  _mm256_loadu_si256((const __m256i *)(round + HALVES * step)));
}
#undef HALVES
#undef MERGE

#else /* CPU_PORTABLE */

#define ANY_LANES 0
typedef struct lanes {
  int64_t shift, first;
} lanes;

CPU_ALWAYS lanes v_lanes(int shift, int64_t first) {
  return (lanes){shift, first};
}

#if CPU_DTYPE == CPU_F64
CPU_ALWAYS vec merge_1(vec a, vec b) {
  return (vec){a[0], b[0]} + (vec){a[1], b[1]};
}
CPU_ALWAYS vec v_pick(vec x, lanes l) {
  return l.shift ? (vec){x[l.first], x[l.first]} : x;
}
#else
CPU_ALWAYS vec merge_1(vec a, vec b) {
  return (vec){a[0], a[2], b[0], b[2]} + (vec){a[1], a[3], b[1], b[3]};
}
CPU_ALWAYS vec v_pick(vec x, lanes l) {
  if (!l.shift)
    return x;
  scalar a = x[l.first], b = x[l.shift == 1 ? l.first + 1 : l.first];
  return (vec){a, a, b, b};
}
#endif
CPU_ALWAYS vec v_fold(vec *a, const int group) {
  FOLD(a, group, 1, merge_1) /* neighbours stay in order */
  FOLD(a, group, 2, merge_1)
  return a[0];
}
CPU_CALLED vec v_turn(vec x, int64_t step) {
  vec y = x;
  for (int i = 0; i < VECTOR; i++)
    y[i] = x[(i + step) % VECTOR];
  return y;
}

#endif
#undef FOLD

#if ANY_LANES
CPU_ALWAYS lanes v_lanes(int shift, int64_t first) {
  int32_t at[VECTOR];
  for (int i = 0; i < VECTOR; i++)
    at[i] = (int32_t)(first + (i >> shift));
  return v_lanes_at(at);
}
#endif

#endif
