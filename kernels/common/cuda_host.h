/* cuda_host.h - arithmetic of launches, for the host code of CUDA families */
#ifndef DFGNN_KERNELS_CUDA_HOST_H
#define DFGNN_KERNELS_CUDA_HOST_H

#include <stdlib.h>
#include <string.h>

#include "kernels/common/variant.h"

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
