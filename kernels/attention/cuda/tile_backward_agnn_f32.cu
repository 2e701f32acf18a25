#include "kernels/attention/cuda/tile_backward_instances.cuh"

namespace dfgnn {
const void *grad_tile_agnn_f32(int kind, int width, int exact) {
  return grad_tile_find<DFGNN_OP_AGNN, float>(kind, width, exact);
}
} // namespace dfgnn
