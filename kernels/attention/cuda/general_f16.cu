#include "kernels/attention/cuda/general.cuh"

const void *dfgnn::general_f16(int op, int lanes, int vectors, int several) {
  return find_general_half<__half>(op, lanes, vectors, several);
}
