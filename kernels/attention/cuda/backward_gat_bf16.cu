#include "kernels/attention/cuda/backward_instances.cuh"

const void *dfgnn::grad_gat_bf16(int columns, int mode, int lanes, int vectors,
                                 int unroll, int several) {
  return find_half<DFGNN_OP_GAT, __nv_bfloat16>(columns, mode, lanes, vectors,
                                                unroll, several);
}
