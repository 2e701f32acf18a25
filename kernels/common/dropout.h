/* dropout.h - the counter-based generator of attention dropout, for C and CUDA
 *
 * Whether a weight is kept depends on (seed, edge, head) alone: splitmix64
 * (Steele, Lea, Flood 2014) as a hash under a mixed seed.  Each word of it
 * serves two heads of an edge.  python/dfgnn/_composite.py does the same. */
#ifndef DFGNN_KERNELS_DROPOUT_H
#define DFGNN_KERNELS_DROPOUT_H

#include <stdint.h>

#ifdef __CUDACC__
#define DFGNN_HOST_DEVICE __host__ __device__
#else
#define DFGNN_HOST_DEVICE
#endif

static inline DFGNN_HOST_DEVICE uint64_t dfgnn__splitmix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* The key of a call, for the functions below. */
static inline DFGNN_HOST_DEVICE uint64_t dfgnn__dropout_key(uint64_t seed) {
  return dfgnn__splitmix(seed + 0x9e3779b97f4a7c15u);
}

/* Weights whose 32-bit number is below this are dropped. */
static inline DFGNN_HOST_DEVICE uint32_t dfgnn__dropout_threshold(double p) {
  return (uint32_t)(p * 4294967296.0);
}

/* A word is the hash of a counter; the counters of an edge and the next one are
 * dfgnn__dropout_step() apart. */
static inline DFGNN_HOST_DEVICE uint64_t dfgnn__dropout_step(int64_t heads) {
  return (uint64_t)((heads + 1) / 2) * 0x9e3779b97f4a7c15u;
}
static inline DFGNN_HOST_DEVICE uint64_t dfgnn__dropout_counter(uint64_t key,
                                                                int64_t edge,
                                                                int64_t heads,
                                                                int64_t pair) {
  const uint64_t number = (uint64_t)(edge * ((heads + 1) / 2) + pair + 1);
  return key + number * 0x9e3779b97f4a7c15u;
}

/* The numbers of an edge (its position in the CSR matrix) for two heads: 2 pair
 * in the upper half of the word, 2 pair + 1 in the lower. */
static inline DFGNN_HOST_DEVICE uint64_t dfgnn__dropout_word(uint64_t key,
                                                             int64_t edge,
                                                             int64_t heads,
                                                             int64_t pair) {
  return dfgnn__splitmix(dfgnn__dropout_counter(key, edge, heads, pair));
}

/* 1 if the weight of an edge and head is dropped. */
static inline DFGNN_HOST_DEVICE int dfgnn__dropped(uint64_t key, int64_t edge,
                                                   int64_t heads, int64_t head,
                                                   uint32_t threshold) {
  uint64_t word = dfgnn__dropout_word(key, edge, heads, head / 2);
  return (uint32_t)(head & 1 ? word : word >> 32) < threshold;
}

#endif
