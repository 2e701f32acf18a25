#include "kernels/attention/cuda/backward_red.cuh"

const void *dfgnn::grad_red_f32(int lanes, int vectors, int unroll,
                                int several) {
  return find_red<float>(lanes, vectors, unroll, several);
}
