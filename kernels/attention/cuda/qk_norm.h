/* qk_norm.h - arguments of normalize_rows() and through_norm() */
#ifndef DFGNN_ATTENTION_CUDA_QK_NORM_H
#define DFGNN_ATTENTION_CUDA_QK_NORM_H

#include <stdint.h>

#include "kernels/attention/cuda/lanes.h"

typedef struct qk_norm_params {
  tensor_view x, to;    /* [nodes,H,D] */
  tensor_view gradient; /* the gradient of normalize_rows()'s result */
  const void *weight;   /* [D] or NULL: 1 */
  void *totals;         /* [blocks,D]: parts of the gradient of weight */
  int64_t pairs;        /* nodes times heads */
  int32_t heads, dim;
  int32_t lanes; /* lanes of a pair, a power of two up to 32 */
  int32_t adds;  /* 1: adds the gradient of x to the numbers of `to` */
  double eps;
} qk_norm_params;

#endif
