#include "kernels/attention/cuda/backward_instances.cuh"

const void *dfgnn::grad_gat_f32(int columns, int mode, int lanes, int vectors,
                                int unroll, int several) {
  return find_wide<DFGNN_OP_GAT, float>(columns, mode, lanes, vectors, unroll,
                                        several);
}
