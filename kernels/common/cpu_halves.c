/* cpu_halves.c - rows of 16-bit numbers, 8 at a time where the processor has
 * AVX2 and F16C */
#include "kernels/common/cpu_halves.h"

#include "kernels/common/half.h"

static void widen_f16(float *to, const uint16_t *from, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    to[i] = dfgnn__f16_to_float(from[i]);
}

static void widen_bf16(float *to, const uint16_t *from, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    to[i] = dfgnn__bf16_to_float(from[i]);
}

static void narrow_f16(uint16_t *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    to[i] = dfgnn__f16_from_float(from[i]);
}

static void narrow_bf16(uint16_t *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    to[i] = dfgnn__bf16_from_float(from[i]);
}

#ifdef __x86_64__
#include <immintrin.h>

#define FAST static __attribute__((target("avx2,f16c")))

FAST int64_t fast_widen_f16(float *to, const uint16_t *from, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(
        to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
  return i;
}

FAST int64_t fast_widen_bf16(float *to, const uint16_t *from, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i x =
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(from + i)));
    _mm256_storeu_si256((__m256i *)(to + i), _mm256_slli_epi32(x, 16));
  }
  return i;
}

FAST int64_t fast_narrow_f16(uint16_t *to, const float *from, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(
        (__m128i *)(to + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

FAST int64_t fast_narrow_bf16(uint16_t *to, const float *from, int64_t count) {
  const __m256i one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
  const __m256i quiet = _mm256_set1_epi32(0x400000);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_loadu_ps(from + i);
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, half));
    const __m256i kept = _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(rounded),
                         _mm256_castsi256_ps(_mm256_or_si256(bits, quiet)),
                         _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    const __m256i high = _mm256_srli_epi32(kept, 16);
    _mm_storeu_si128((__m128i *)(to + i),
                     _mm_packus_epi32(_mm256_castsi256_si128(high),
                                      _mm256_extracti128_si256(high, 1)));
  }
  return i;
}

static int is_fast(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}
#define FAST_PART(function, ...) is_fast() ? fast_##function(__VA_ARGS__) : 0
#else
#define FAST_PART(function, ...) 0
#endif

void dfgnn__widen_row(dfgnn_dtype dtype, float *to, const uint16_t *from,
                      int64_t count) {
  if (dtype == DFGNN_F16) {
    const int64_t i = FAST_PART(widen_f16, to, from, count);
    widen_f16(to + i, from + i, count - i);
  } else {
    const int64_t i = FAST_PART(widen_bf16, to, from, count);
    widen_bf16(to + i, from + i, count - i);
  }
}

void dfgnn__narrow_row(dfgnn_dtype dtype, uint16_t *to, const float *from,
                       int64_t count) {
  if (dtype == DFGNN_F16) {
    const int64_t i = FAST_PART(narrow_f16, to, from, count);
    narrow_f16(to + i, from + i, count - i);
  } else {
    const int64_t i = FAST_PART(narrow_bf16, to, from, count);
    narrow_bf16(to + i, from + i, count - i);
  }
}
