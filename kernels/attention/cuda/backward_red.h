/* backward_red.h - what host code and the kernels share of gradients by
 * one walk over rows that adds to those of keys and values as it goes, in no
 * order */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_RED_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_RED_H

#include "kernels/attention/cuda/backward.h"

/* What the walk adds to is of accumulators, zero before. */
typedef struct grad_red_params {
  grad_params rows;
  tensor_view key, value; /* no data: not wanted */
} grad_red_params;

/* to = what from, [nodes,H,D] accumulators, holds; zeros if from is NULL. */
typedef struct red_rows_params {
  tensor_view to;
  const float *from;
  int64_t count;
  int32_t heads, dim;
} red_rows_params;

#endif
