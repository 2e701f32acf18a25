/* fingerprint.h - the arithmetic of signatures, the same on every backend
 *
 * Plain C for the host's compiler and NVRTC alike; lib/signature.h says what
 * the numbers mean. */
#ifndef DFGNN_KERNELS_FINGERPRINT_H
#define DFGNN_KERNELS_FINGERPRINT_H

#include <stdint.h>

/* Nodes are counted by a code of their degree: below EXACT the degree itself;
 * beyond, an octave of degrees has SHARES codes. */
enum {
  DFGNN_DEGREE_EXACT_BITS = 11,
  DFGNN_DEGREE_EXACT = 1 << DFGNN_DEGREE_EXACT_BITS,
  DFGNN_DEGREE_SHARES = 32,
  DFGNN_DEGREE_CODES =
      DFGNN_DEGREE_EXACT + DFGNN_DEGREE_SHARES * (64 - DFGNN_DEGREE_EXACT_BITS)
};

/* The least degree of a code. */
static inline uint64_t dfgnn__first_of_code(int code) {
  int octave = DFGNN_DEGREE_EXACT_BITS +
               (code - DFGNN_DEGREE_EXACT) / DFGNN_DEGREE_SHARES;
  int share = (code - DFGNN_DEGREE_EXACT) % DFGNN_DEGREE_SHARES;
  return code < DFGNN_DEGREE_EXACT
             ? (uint64_t)code
             : (uint64_t)(DFGNN_DEGREE_SHARES + share) << (octave - 5);
}

#define DFGNN_REUSE_WINDOWS 64
#define DFGNN_REUSE_EDGES 1024
#define DFGNN_LOCALITY_ROWS 1024
#define DFGNN_LOCALITY_SPAN 1024

/* A bijective mixer (the finaliser of SplitMix64, Steele et al. 2014). */
static inline uint64_t dfgnn__mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* The fingerprint is a sum modulo 2^64 of one term for each position, so that
 * any order and any number of workers give the same; xxHash cannot do that:
 *   mix(N) + mix(~M) + sum_i offset_term(i, offsets[i]), i = 0 .. N
 *                    + sum_e index_term(e, indices[e]) */
static inline uint64_t dfgnn__offset_term(uint64_t i, uint64_t offset) {
  return dfgnn__mix(offset + (i + 1) * 0x9e3779b97f4a7c15u);
}
static inline uint64_t dfgnn__index_term(uint64_t e, uint64_t index) {
  uint64_t x = (index + (e + 1) * 0xd1b54a32d192ed03u);
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29);
}

#endif
