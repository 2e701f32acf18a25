/* backward_symmetric.h - arguments of the kernels of `symmetric`: one walk over
 * a matrix that equals its transpose
 *
 * The edges of row i are those of column i, so the tensors that the walks over
 * rows and over columns gather of node j are gathered at once. */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_H

#include "kernels/attention/cuda/backward.h"

/* Both walks have the schedule of rows. */
typedef struct grad_both_params {
  grad_params rows, columns;
} grad_both_params;

typedef struct pair_of_arrays {
  const int32_t *a, *b;
  int64_t count;
} pair_of_arrays;

typedef struct compare_params {
  pair_of_arrays pair[2];
  int32_t *differ; /* becomes 1 if the arrays of a pair differ */
} compare_params;

#endif
