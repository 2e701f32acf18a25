#include "kernels/attention/cuda/backward_red.cuh"

const void *dfgnn::grad_red_bf16(int lanes, int vectors, int unroll,
                                 int several) {
  return find_red<__nv_bfloat16>(lanes, vectors, unroll, several);
}
