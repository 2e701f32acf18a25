/* general.h - what host code and kernels of `general` share */
#ifndef DFGNN_ATTENTION_CUDA_GENERAL_H
#define DFGNN_ATTENTION_CUDA_GENERAL_H

#include "kernels/attention/cuda/attend.h"
#include "kernels/attention/cuda/dropout.cuh"
#include "kernels/attention/cuda/lanes.cuh"

namespace dfgnn {

struct general_params {
  row_schedule schedule;
  lane_layout layout;
  tensor_view query, far[2], out; /* far: GT k and v, else the value */
  const void *score_dst, *att, *beta;
  const void *far_scalar; /* AGNN inverse norms, GAT scores, [M,H] */
  const void *bias;       /* [E,H] or NULL */
  void *weights;          /* [E,H] or NULL: scores in log2 units */
  void *lse, *partial, *partial_state;
  dropout_params dropout;
  double scale, slope;
};

/* An instance of general(), of any number of edges in flight; or NULL. */
typedef const void *general_finder(int op, int lanes, int vectors, int several);
general_finder general_f32, general_f16, general_bf16;

/* general_plain(): any stride, width and type; one warp a row and head. */
const void *general_plain_kernel(int op, dfgnn_dtype dtype);

} // namespace dfgnn

#endif
