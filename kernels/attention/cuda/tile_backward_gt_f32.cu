#include "kernels/attention/cuda/tile_backward_instances.cuh"

namespace dfgnn {
const void *grad_tile_gt_f32(int kind, int width, int exact) {
  return grad_tile_find<DFGNN_OP_GT, float>(kind, width, exact);
}
} // namespace dfgnn
