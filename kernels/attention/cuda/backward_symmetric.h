/* backward_symmetric.h - what host code and the kernels share of gradients
 * by one walk over a matrix that equals its transpose: the edges of row i are
 * those of column i, so what rows and columns gather of node j is gathered at
 * once */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_H

#include "kernels/attention/cuda/backward.h"

/* The schedule is that of rows. */
typedef struct grad_both_params {
  grad_params rows, columns;
} grad_both_params;

typedef struct pair_of_arrays {
  const int32_t *a, *b;
  int64_t count;
} pair_of_arrays;

typedef struct compare_params {
  pair_of_arrays pair[2];
  int32_t *differ; /* becomes 1 if any of them does */
} compare_params;

#endif
