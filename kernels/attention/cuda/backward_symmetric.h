/* backward_symmetric.h - what host code and the kernels share of gradients
 * by one walk over a matrix that equals its transpose: the edges of row i are
 * those of column i, so what rows and columns gather of node j is gathered at
 * once */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_H

#include "kernels/attention/cuda/backward.h"

namespace dfgnn {

/* The schedule is that of rows. */
struct grad_both_params {
  grad_params rows, columns;
};

/* An instance of gradient_symmetric(); NULL if there is none.  One file an
 * operator and storage type defines these. */
typedef const void *grad_both_finder(int lanes, int vectors, int unroll,
                                     int several);
grad_both_finder grad_both_gt_f32, grad_both_gt_f16, grad_both_gt_bf16,
    grad_both_agnn_f32, grad_both_gatv2_f32;

} // namespace dfgnn

#endif
