#include "kernels/attention/cuda/tile_forward_instances.cuh"

const void *dfgnn::tile_forward_bf16(int op, int width) {
  return find_tile_forward<tile_math_16<__nv_bfloat16>>(op, width);
}
