/* cpu_avx512.h - vectors of 16 floats or 8 doubles; see cpu_vector.h */
#include <immintrin.h>

#define CPU_TARGET                                                             \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")))
#define CPU_ALWAYS static inline __attribute__((always_inline)) CPU_TARGET
#define CPU_INLINE CPU_ALWAYS

#if CPU_DTYPE == CPU_F64
#define VECTOR 8
#define V(name) _mm512_##name##_pd
#define V_COMPARE _mm512_cmp_pd_mask
#define V_ROUND _mm512_roundscale_pd
typedef __m512d vec;
typedef __mmask8 tail;
#else
#define VECTOR 16
#define V(name) _mm512_##name##_ps
#define V_COMPARE _mm512_cmp_ps_mask
#define V_ROUND _mm512_roundscale_ps
typedef __m512 vec;
typedef __mmask16 tail;
#endif

CPU_INLINE tail v_tail(int64_t n) { return (tail)((1u << n) - 1u); }

/* Scalars: the type of scores and sums. */
CPU_INLINE vec s_load(const scalar *p) { return V(loadu)(p); }
CPU_INLINE vec s_load_tail(const scalar *p, tail t) {
  return V(maskz_loadu)(t, p);
}
CPU_INLINE void s_store(scalar *p, vec x) { V(storeu)(p, x); }
CPU_INLINE void s_store_tail(scalar *p, vec x, tail t) {
  V(mask_storeu)(p, t, x);
}

CPU_INLINE vec v_zero(void) { return V(setzero)(); }
CPU_INLINE vec v_set(scalar x) { return V(set1)(x); }
CPU_INLINE vec v_add(vec a, vec b) { return V(add)(a, b); }
CPU_INLINE vec v_mul(vec a, vec b) { return V(mul)(a, b); }
CPU_INLINE vec v_div(vec a, vec b) { return V(div)(a, b); }
CPU_INLINE vec v_root(vec x) { return V(sqrt)(x); }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return V(fmadd)(a, b, c); }
CPU_INLINE vec v_max(vec a, vec b) { return V(max)(a, b); }
CPU_INLINE vec v_keep(vec x, tail t, vec fill) {
  return V(mask_blend)(t, fill, x);
}
CPU_INLINE vec v_leaky(vec x, vec slope) {
  return V(mask_mul)(x, V_COMPARE(x, V(setzero)(), _CMP_NGT_UQ), x, slope);
}
CPU_INLINE vec v_step(vec x, vec above, vec below) {
  return V(mask_blend)(V_COMPARE(x, V(setzero)(), _CMP_GT_OQ), below, above);
}
CPU_INLINE vec v_round(vec x) { return V_ROUND(x, 0); }
/* A result below the smallest normal number would cost hundreds of cycles. */
CPU_INLINE vec v_power(vec x, vec n) {
  const scalar least = CPU_DTYPE == CPU_F64 ? -1022.5 : -126.5;
  return V(maskz_scalef)(V_COMPARE(n, v_set(least), _CMP_NLE_UQ), x, n);
}
CPU_INLINE scalar v_sum(vec x) { return V(reduce_add)(x); }
CPU_INLINE scalar v_top(vec x) { return V(reduce_max)(x); }

/* v_sums: the sums of SUMS vectors at once. */
#if CPU_DTYPE == CPU_F64
#define SUMS 2
CPU_INLINE void v_sums(scalar *to, const vec *a) {
  __m512d pair = _mm512_add_pd(_mm512_unpacklo_pd(a[0], a[1]),
                               _mm512_unpackhi_pd(a[0], a[1]));
  __m256d half = _mm256_add_pd(_mm512_castpd512_pd256(pair),
                               _mm512_extractf64x4_pd(pair, 1));
  _mm_storeu_pd(to, _mm_add_pd(_mm256_castpd256_pd128(half),
                               _mm256_extractf128_pd(half, 1)));
}
#else
#define SUMS 4
CPU_INLINE void v_sums(scalar *to, const vec *a) {
  __m512d low = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]),
                                               _mm512_unpackhi_ps(a[0], a[1])));
  __m512d high = _mm512_castps_pd(_mm512_add_ps(
      _mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3])));
  __m512 quad = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
                              _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(quad),
                              _mm512_extractf32x8_ps(quad, 1));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half),
                               _mm256_extractf128_ps(half, 1)));
}
#endif

/* Storage. */
#if CPU_DTYPE == CPU_F32 || CPU_DTYPE == CPU_F64
CPU_INLINE vec v_load(const storage *p) { return s_load(p); }
CPU_INLINE vec v_load_tail(const storage *p, tail t) {
  return s_load_tail(p, t);
}
CPU_INLINE void v_store(storage *p, vec x) { s_store(p, x); }
CPU_INLINE void v_store_tail(storage *p, vec x, tail t) {
  s_store_tail(p, x, t);
}
#else
#if CPU_DTYPE == CPU_F16
CPU_INLINE vec widen(__m256i x) { return _mm512_cvtph_ps(x); }
CPU_INLINE __m256i narrow(vec x) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}
#else
CPU_INLINE vec widen(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
CPU_INLINE __m256i narrow(vec x) {
  __m512i bits = _mm512_castps_si512(x);
  __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded =
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  rounded = _mm512_mask_or_epi32(rounded, V_COMPARE(x, x, _CMP_UNORD_Q), bits,
                                 _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
#endif
CPU_INLINE vec v_load(const storage *p) {
  return widen(_mm256_loadu_si256((const __m256i *)p));
}
CPU_INLINE vec v_load_tail(const storage *p, tail t) {
  return widen(_mm256_maskz_loadu_epi16(t, p));
}
CPU_INLINE void v_store(storage *p, vec x) {
  _mm256_storeu_si256((__m256i *)p, narrow(x));
}
CPU_INLINE void v_store_tail(storage *p, vec x, tail t) {
  _mm256_mask_storeu_epi16(p, t, narrow(x));
}
#endif
