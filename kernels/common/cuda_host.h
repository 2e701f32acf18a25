/* cuda_host.h - arithmetic of launches, for the host code of CUDA families */
#ifndef DFGNN_KERNELS_CUDA_HOST_H
#define DFGNN_KERNELS_CUDA_HOST_H

#include <stdlib.h>
#include <string.h>

#include "kernels/common/variant.h"
#include "lib/base/error.h"

enum { DFGNN_GRID_Y_MAX = 65535 };

static inline int64_t dfgnn__ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* The least power of two that is not below x. */
static inline int dfgnn__ceil_power(int64_t x) {
  int p = 1;
  while (p < x)
    p *= 2;
  return p;
}

/* Bits of the numbers up to x, at most 32. */
static inline int dfgnn__bits_of(int64_t x) {
  int bits = 1;
  while (bits < 32 && x >> bits)
    bits++;
  return bits;
}

/* The constant of a program for offsets of 64 bits, if wide, or 32. */
static inline int dfgnn__index_type(int wide) {
  return wide ? DFGNN_TYPE_I64 : DFGNN_TYPE_I32;
}

/* Blocks of `block` threads, as many as have `threads`. */
static inline dfgnn_grid dfgnn__grid_of(int64_t threads, int block) {
  return (dfgnn_grid){.blocks = {(unsigned)dfgnn__ceil_div(threads, block)},
                      .threads = (unsigned)block};
}

/* Moves a pointer on; NULL stays. */
static inline char *dfgnn__behind(void *base, size_t bytes) {
  return base ? (char *)base + bytes : NULL;
}

/* 90 for sm_90. */
static inline int dfgnn__compute_capability(const dfgnn_device_info *device) {
  return strncmp(device->arch, "sm_", 3) == 0 ? atoi(device->arch + 3) : 0;
}

/* Log2 of a power of two. */
static inline int dfgnn__log2(int x) {
  int shift = 0;
  while (1 << shift < x)
    ++shift;
  return shift;
}

/* Rounds up, so that the next part of a workspace is aligned. */
static inline size_t dfgnn__align256(size_t bytes) {
  return (bytes + 255) & ~(size_t)255;
}

/* Takes the next `bytes` of a workspace, which is NULL where its size is asked
 * for. */
static inline void *dfgnn__carve(void *base, size_t *at, size_t bytes) {
  void *p = dfgnn__behind(base, *at);
  *at += dfgnn__align256(bytes);
  return p;
}

/* Takes the next part of a workspace, of `count` elements of `size` bytes;
 * returns its offset. */
static inline size_t dfgnn__place(size_t *next, int64_t count, size_t size) {
  const size_t at = *next;
  *next += dfgnn__align256((size_t)count * size);
  return at;
}

/* Bytes of the type of scores, sums and log-sum-exp. */
static inline size_t dfgnn__scalar_size(dfgnn_dtype dtype) {
  return dtype == DFGNN_F64 ? 8 : 4;
}

/* Elements of a 16-byte vector. */
static inline int dfgnn__wide_vector(dfgnn_dtype dtype) {
  return (int)(16 / dfgnn_dtype_size(dtype));
}

#endif
