/* half.h - binary16 and bfloat16 to and from binary32
 *
 * Storage is uint16_t.  Narrowing rounds to nearest, ties to even, keeps NaN
 * (made quiet) and infinities, and gives subnormals and signed zeros as IEEE
 * 754 does.  From double, narrow through float only where double rounding does
 * not matter: dfgnn__f16_from_double and dfgnn__bf16_from_double round once. */
#ifndef DFGNN_KERNELS_HALF_H
#define DFGNN_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t dfgnn__float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float dfgnn__bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float dfgnn__bf16_to_float(uint16_t x) {
  return dfgnn__bits_float((uint32_t)x << 16);
}

static inline uint16_t dfgnn__bf16_from_float(float x) {
  uint32_t bits = dfgnn__float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)((bits >> 16) | 0x0040u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float dfgnn__f16_to_float(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
  uint32_t exponent = (x >> 10) & 0x1fu, fraction = x & 0x3ffu;
  if (exponent == 0x1f)
    return dfgnn__bits_float(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0)
    return dfgnn__bits_float(sign | ((exponent + 112) << 23) |
                             (fraction << 13));
  /* Subnormal: fraction units of 2^-24, exact in binary32. */
  float magnitude = (float)fraction * 0x1p-24f;
  return dfgnn__bits_float(sign | dfgnn__float_bits(magnitude));
}

static inline uint16_t dfgnn__f16_from_float(float x) {
  uint32_t bits = dfgnn__float_bits(x);
  uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
    return (uint16_t)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) { /* below 2^-14: units of 2^-24 */
    /* Adding 0.5 aligns the last place with 2^-24; the sum rounds to even. */
    float sum = dfgnn__bits_float(magnitude) + 0.5f;
    return (uint16_t)(sign | (dfgnn__float_bits(sum) - 0x3f000000u));
  }
  uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* A float whose later rounding to 16 bits equals rounding x at once: round to
 * odd (Boldo and Melquiond 2008). */
static inline float dfgnn__float_to_odd(double x) {
  float nearest = (float)x;
  if ((double)nearest == x || nearest != nearest)
    return nearest;
  uint32_t bits = dfgnn__float_bits(nearest);
  double magnitude = x < 0 ? -x : x;
  float absolute = dfgnn__bits_float(bits & 0x7fffffffu);
  if ((double)absolute > magnitude)
    bits--; /* towards zero */
  return dfgnn__bits_float(bits | 1u);
}

static inline uint16_t dfgnn__f16_from_double(double x) {
  return dfgnn__f16_from_float(dfgnn__float_to_odd(x));
}

static inline uint16_t dfgnn__bf16_from_double(double x) {
  return dfgnn__bf16_from_float(dfgnn__float_to_odd(x));
}

#endif
