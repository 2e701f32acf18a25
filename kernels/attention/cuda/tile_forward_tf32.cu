#include "kernels/attention/cuda/tile_forward_instances.cuh"

const void *dfgnn::tile_forward_tf32(int op, int width) {
  return find_tile_forward<tile_math_f32<false>>(op, width);
}
