#include "kernels/attention/cuda/general.cuh"

const void *dfgnn::general_bf16(int op, int lanes, int vectors, int several) {
  return find_general_half<__nv_bfloat16>(op, lanes, vectors, several);
}
