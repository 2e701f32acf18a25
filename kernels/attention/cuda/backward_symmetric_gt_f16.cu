#include "kernels/attention/cuda/backward_symmetric.cuh"

const void *dfgnn::grad_both_gt_f16(int lanes, int vectors, int unroll,
                                    int several) {
  return find_both<DFGNN_OP_GT, __half>(lanes, vectors, unroll, several);
}
