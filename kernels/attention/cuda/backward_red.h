/* backward_red.h - what host code and the kernels share of gradients by
 * one walk over rows that adds to those of keys and values as it goes, in no
 * order */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_RED_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_RED_H

#include "kernels/attention/cuda/backward.h"

namespace dfgnn {

/* What the walk adds to is of accumulators, zero before. */
struct grad_red_params {
  grad_params rows;
  tensor_view key, value; /* no data: not wanted */
};

/* An instance of gradient_red() for GT; NULL if there is none. */
typedef const void *grad_red_finder(int lanes, int vectors, int unroll,
                                    int several);
grad_red_finder grad_red_f32, grad_red_f16, grad_red_bf16;

/* gradient_red_plain(): any stride and width; one warp a row and head, which
 * has dim accumulators of shared memory. */
const void *grad_red_plain_kernel(dfgnn_dtype dtype);

/* to = what from, [nodes,H,D] accumulators, holds; zeros if from is NULL. */
dfgnn_status grad_red_rows(const tensor_view *to, const void *from,
                           int64_t nodes, const dfgnn_launch *launch);

} // namespace dfgnn

#endif
