/* backward_red.h - arguments of the kernels of `red`: one walk over rows that
 * adds to the gradients of keys and values as it goes, in no fixed order */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_RED_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_RED_H

#include "kernels/attention/cuda/backward.h"

/* key and value are float sums to which the walk adds; they are 0 before. */
typedef struct grad_red_params {
  grad_params rows;
  tensor_view key, value; /* without data: not wanted */
} grad_red_params;

/* to = from, [nodes,H,D] accumulators; zeros if from is NULL. */
typedef struct red_rows_params {
  tensor_view to;
  const float *from;
  int64_t count;
  int32_t heads, dim;
} red_rows_params;

#endif
