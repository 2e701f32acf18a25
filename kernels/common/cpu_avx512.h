/* cpu_avx512.h - vectors of 16 floats; see cpu_vector.h */
#include <immintrin.h>

#define CPU_TARGET                                                             \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define CPU_ALWAYS static inline __attribute__((always_inline)) CPU_TARGET
#define CPU_INLINE CPU_ALWAYS

#define VECTOR 16
#define V(name) _mm512_##name##_ps
#define V_COMPARE _mm512_cmp_ps_mask
#define V_ROUND _mm512_roundscale_ps
typedef __m512 vec;
typedef __mmask16 tail;

CPU_INLINE tail v_tail(int64_t n) { return (tail)((1u << n) - 1u); }

/* Scalars: the type of scores and sums. */
CPU_INLINE vec v_load(const scalar *p) { return V(loadu)(p); }
CPU_INLINE vec v_load_tail(const scalar *p, tail t) {
  return V(maskz_loadu)(t, p);
}
CPU_INLINE void v_store(scalar *p, vec x) { V(storeu)(p, x); }
CPU_INLINE void v_store_tail(scalar *p, vec x, tail t) {
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
  return V(maskz_scalef)(V_COMPARE(n, v_set(-126.5f), _CMP_NLE_UQ), x, n);
}
CPU_INLINE scalar v_sum(vec x) { return V(reduce_add)(x); }
CPU_INLINE scalar v_top(vec x) { return V(reduce_max)(x); }

/* v_sums: the sums of SUMS vectors at once. */
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
