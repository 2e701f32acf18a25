#include "kernels/attention/cuda/backward_red.cuh"

const void *dfgnn::grad_red_f16(int lanes, int vectors, int unroll,
                                int several) {
  return find_red<__half>(lanes, vectors, unroll, several);
}
