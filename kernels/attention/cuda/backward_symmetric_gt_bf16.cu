#include "kernels/attention/cuda/backward_symmetric.cuh"

const void *dfgnn::grad_both_gt_bf16(int lanes, int vectors, int unroll,
                                     int several) {
  return find_both<DFGNN_OP_GT, __nv_bfloat16>(lanes, vectors, unroll, several);
}
