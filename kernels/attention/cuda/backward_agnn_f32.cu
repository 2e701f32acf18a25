#include "kernels/attention/cuda/backward_instances.cuh"

const void *dfgnn::grad_agnn_f32(int columns, int mode, int lanes, int vectors,
                                 int unroll, int several) {
  return find_wide<DFGNN_OP_AGNN, float>(columns, mode, lanes, vectors, unroll,
                                         several);
}
