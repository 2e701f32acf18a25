/* cpu_avx2.h - vectors of 8 floats or 4 doubles; see cpu_vector.h */
#include <immintrin.h>

#define CPU_TARGET __attribute__((target("avx2,fma")))
#define CPU_ALWAYS static inline __attribute__((always_inline)) CPU_TARGET
#define CPU_INLINE CPU_ALWAYS

#if CPU_DTYPE == CPU_F64
#define VECTOR 4
#define V(name) _mm256_##name##_pd
typedef __m256d vec;
#else
#define VECTOR 8
#define V(name) _mm256_##name##_ps
typedef __m256 vec;
#endif

typedef struct tail {
  __m256i mask; /* the sign of each scalar lane that is kept */
  int64_t lanes;
} tail;

CPU_INLINE tail v_tail(int64_t n) {
#if CPU_DTYPE == CPU_F64
  __m256i mask =
      _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
#else
  __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
                                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
#endif
  return (tail){mask, n};
}

/* Scalars: the type of scores and sums. */
CPU_INLINE vec v_load(const scalar *p) { return V(loadu)(p); }
CPU_INLINE vec v_load_tail(const scalar *p, tail t) {
  return V(maskload)(p, t.mask);
}
CPU_INLINE void v_store(scalar *p, vec x) { V(storeu)(p, x); }
CPU_INLINE void v_store_tail(scalar *p, vec x, tail t) {
  V(maskstore)(p, t.mask, x);
}

CPU_INLINE vec v_zero(void) { return V(setzero)(); }
CPU_INLINE vec v_set(scalar x) { return V(set1)(x); }
CPU_INLINE vec v_add(vec a, vec b) { return V(add)(a, b); }
CPU_INLINE vec v_mul(vec a, vec b) { return V(mul)(a, b); }
CPU_INLINE vec v_div(vec a, vec b) { return V(div)(a, b); }
CPU_INLINE vec v_root(vec x) { return V(sqrt)(x); }
CPU_INLINE vec v_fma(vec a, vec b, vec c) { return V(fmadd)(a, b, c); }
CPU_INLINE vec v_max(vec a, vec b) { return V(max)(a, b); }
CPU_INLINE vec v_leaky(vec x, vec slope) {
  return V(blendv)(V(mul)(x, slope), x, V(cmp)(x, V(setzero)(), _CMP_GT_OQ));
}
CPU_INLINE vec v_step(vec x, vec above, vec below) {
  return V(blendv)(below, above, V(cmp)(x, V(setzero)(), _CMP_GT_OQ));
}
CPU_INLINE vec v_round(vec x) {
  return V(round)(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* v_sums: the sums of SUMS vectors at once. */
#if CPU_DTYPE == CPU_F64
CPU_INLINE vec v_keep(vec x, tail t, vec fill) {
  return _mm256_blendv_pd(fill, x, _mm256_castsi256_pd(t.mask));
}
CPU_INLINE vec v_power(vec x, vec n) {
  /* 1.5 * 2^52 leaves n in the low bits of the sum. */
  __m256i bits =
      _mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(0x1.8p52 + 1023)));
  return _mm256_mul_pd(x, _mm256_castsi256_pd(_mm256_slli_epi64(bits, 52)));
}
CPU_INLINE scalar v_sum(vec x) {
  __m128d half =
      _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}
CPU_INLINE scalar v_top(vec x) {
  __m128d half =
      _mm_max_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_max_sd(half, _mm_unpackhi_pd(half, half)));
}
#define SUMS 2
CPU_INLINE void v_sums(scalar *to, const vec *a) {
  __m256d pair = _mm256_add_pd(_mm256_unpacklo_pd(a[0], a[1]),
                               _mm256_unpackhi_pd(a[0], a[1]));
  _mm_storeu_pd(to, _mm_add_pd(_mm256_castpd256_pd128(pair),
                               _mm256_extractf128_pd(pair, 1)));
}
#else
CPU_INLINE vec v_keep(vec x, tail t, vec fill) {
  return _mm256_blendv_ps(fill, x, _mm256_castsi256_ps(t.mask));
}
CPU_INLINE vec v_power(vec x, vec n) {
  __m256i bits =
      _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}
CPU_INLINE scalar v_sum(vec x) {
  __m128 half =
      _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
CPU_INLINE scalar v_top(vec x) {
  __m128 half =
      _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
#define SUMS 4
CPU_INLINE void v_sums(scalar *to, const vec *a) {
  __m256d low = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(a[0], a[1]),
                                               _mm256_unpackhi_ps(a[0], a[1])));
  __m256d high = _mm256_castps_pd(_mm256_add_ps(
      _mm256_unpacklo_ps(a[2], a[3]), _mm256_unpackhi_ps(a[2], a[3])));
  __m256 quad = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(low, high)),
                              _mm256_castpd_ps(_mm256_unpackhi_pd(low, high)));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(quad),
                               _mm256_extractf128_ps(quad, 1)));
}
#endif
