#include "kernels/attention/cuda/backward_symmetric.cuh"

const void *dfgnn::grad_both_gatv2_f32(int lanes, int vectors, int unroll,
                                       int several) {
  return find_both<DFGNN_OP_GATV2, float>(lanes, vectors, unroll, several);
}
