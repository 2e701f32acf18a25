/* backward_red.h - arguments of the kernels of `red`: one walk over rows that
 * adds to the gradients of keys and values as it goes, in no fixed order */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_RED_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_RED_H

#include "kernels/attention/cuda/backward.h"

/* key and value are the gradients, 0 before, to which the walk adds. */
typedef struct grad_red_params {
  grad_params rows;
  tensor_view key, value; /* without data: not wanted */
} grad_red_params;

/* to [nodes,H,D] = 0 */
typedef struct red_clear_params {
  tensor_view to;
  int64_t count;
  int32_t heads, dim;
} red_clear_params;

#endif
