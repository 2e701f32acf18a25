/* cpu_avx2.h - vectors of 8 floats or 4 doubles; see cpu_vector.h */
#include <immintrin.h>

#define CPU_TARGET __attribute__((target("avx2,fma,f16c")))
#define CPU_ALWAYS static inline __attribute__((always_inline)) CPU_TARGET
#define CPU_INLINE CPU_ALWAYS
/* Functions that are not inline: tails of 16-bit rows would fill the loops. */
#define CPU_CALLED static __attribute__((noinline, unused)) CPU_TARGET

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
CPU_INLINE vec s_load(const scalar *p) { return V(loadu)(p); }
CPU_INLINE vec s_load_tail(const scalar *p, tail t) {
  return V(maskload)(p, t.mask);
}
CPU_INLINE void s_store(scalar *p, vec x) { V(storeu)(p, x); }
CPU_INLINE void s_store_tail(scalar *p, vec x, tail t) {
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
CPU_INLINE vec widen(__m128i x) { return _mm256_cvtph_ps(x); }
CPU_INLINE __m128i narrow(vec x) {
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}
#else
CPU_INLINE vec widen(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
CPU_INLINE __m128i narrow(vec x) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i odd =
      _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  rounded = _mm256_castps_si256(_mm256_blendv_ps(
      _mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
  rounded = _mm256_srli_epi32(rounded, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded),
                          _mm256_extracti128_si256(rounded, 1));
}
#endif
CPU_INLINE vec v_load(const storage *p) {
  return widen(_mm_loadu_si128((const __m128i *)p));
}
/* The first n numbers, 8 at most: 4, 2 and 1 at a time. */
CPU_CALLED __m128i load_some(const storage *p, int64_t n) {
  uint64_t four = 0, rest = 0;
  storage one = 0;
  if (n & 8)
    return _mm_loadu_si128((const __m128i *)p);
  if (n & 1)
    memcpy(&one, p + n - 1, sizeof one);
  if (n & 2)
    memcpy(&rest, p + (n & 4), 4);
  rest |= (uint64_t)one << (n & 2) * 16;
  if (!(n & 4))
    return _mm_set_epi64x(0, (int64_t)rest);
  memcpy(&four, p, sizeof four);
  return _mm_set_epi64x((int64_t)rest, (int64_t)four);
}
CPU_CALLED void store_some(storage *p, __m128i x, int64_t n) {
  uint64_t rest = (uint64_t)_mm_cvtsi128_si64(x);
  if (n & 8)
    _mm_storeu_si128((__m128i *)p, x);
  if (n & 4) {
    memcpy(p, &rest, sizeof rest);
    rest = (uint64_t)_mm_extract_epi64(x, 1);
    p += 4;
  }
  if (n & 2) {
    memcpy(p, &rest, 4);
    rest >>= 32;
    p += 2;
  }
  if (n & 1)
    *p = (storage)rest;
}
CPU_INLINE vec v_load_tail(const storage *p, tail t) {
  return widen(load_some(p, t.lanes));
}
CPU_INLINE void v_store(storage *p, vec x) {
  _mm_storeu_si128((__m128i *)p, narrow(x));
}
CPU_INLINE void v_store_tail(storage *p, vec x, tail t) {
  store_some(p, narrow(x), t.lanes);
}
#endif
