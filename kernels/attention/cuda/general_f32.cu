#include "kernels/attention/cuda/general.cuh"

const void *dfgnn::general_f32(int op, int lanes, int vectors, int several) {
  return find_general_wide<float>(op, lanes, vectors, several);
}
