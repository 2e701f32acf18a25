#include "kernels/attention/cuda/backward_instances.cuh"

const void *dfgnn::grad_gatv2_f16(int columns, int mode, int lanes, int vectors,
                                  int unroll, int several) {
  return find_half<DFGNN_OP_GATV2, __half>(columns, mode, lanes, vectors,
                                           unroll, several);
}
