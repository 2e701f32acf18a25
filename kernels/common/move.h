/* move.h - rows of a tensor from one order into another */
#ifndef DFGNN_KERNELS_MOVE_H
#define DFGNN_KERNELS_MOVE_H

#include <stdint.h>

#include "dfgnn_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Row p of the one side is row order[p] of the other. */
typedef struct dfgnn_move {
  void *to;
  const void *from;
  dfgnn_strides to_strides, from_strides; /* in elements */
  const void *order;                      /* int32 [rows], int64 if wide */
  int wide;
  int scatter; /* 0: to[p] = from[order[p]]; 1: to[order[p]] = from[p] */
  int64_t rows, heads, dim;
  size_t element; /* bytes: 2, 4, 8 or 16 */
} dfgnn_move;

#ifdef __cplusplus
}
#endif
#endif
