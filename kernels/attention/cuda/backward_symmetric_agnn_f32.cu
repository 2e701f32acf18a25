#include "kernels/attention/cuda/backward_symmetric.cuh"

const void *dfgnn::grad_both_agnn_f32(int lanes, int vectors, int unroll,
                                      int several) {
  return find_both<DFGNN_OP_AGNN, float>(lanes, vectors, unroll, several);
}
