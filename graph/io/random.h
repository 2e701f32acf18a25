/* random.h - random numbers that are the same on every machine
 *
 * SplitMix64 (Steele, Lea & Flood 2014), with one stream per row or graph, so
 * that threads do not change the numbers.  Only integer arithmetic and exact
 * conversions: no libm, no distribution of a C library. */
#ifndef DFGNN_IO_RANDOM_H
#define DFGNN_IO_RANDOM_H

#include <stdint.h>

typedef struct dfgnn__random {
  uint64_t state;
} dfgnn__random;

static inline uint64_t dfgnn__random_next(dfgnn__random *random) {
  uint64_t x = random->state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* The stream of this number of a seed. */
static inline dfgnn__random dfgnn__random_stream(uint64_t seed,
                                                 uint64_t stream) {
  dfgnn__random random = {seed};
  random.state = dfgnn__random_next(&random) ^ (stream + 1);
  random.state = dfgnn__random_next(&random);
  return random;
}

/* A number 0 .. below - 1, for below up to 2^32; its bias is below 2^-32. */
static inline int64_t dfgnn__random_below(dfgnn__random *random,
                                          int64_t below) {
  return (int64_t)(((dfgnn__random_next(random) >> 32) * (uint64_t)below) >>
                   32);
}

/* A number in [0, 1), in steps of 2^-53. */
static inline double dfgnn__random_unit(dfgnn__random *random) {
  return (double)(dfgnn__random_next(random) >> 11) * 0x1p-53;
}

/* A number of mean 0 and deviation 1: the sum of twelve uniform ones less six.
 */
static inline double dfgnn__random_normal(dfgnn__random *random) {
  double sum = -6;
  for (int i = 0; i < 12; i++)
    sum += dfgnn__random_unit(random);
  return sum;
}

#endif
