#include "kernels/attention/cuda/backward_instances.cuh"

const void *dfgnn::grad_gt_f16(int columns, int mode, int lanes, int vectors,
                               int unroll, int several) {
  return find_half<DFGNN_OP_GT, __half>(columns, mode, lanes, vectors, unroll,
                                        several);
}
