#include "kernels/attention/cuda/tile_backward_instances.cuh"

namespace dfgnn {
const void *grad_tile_agnn_bf16(int kind, int width, int exact) {
  return grad_tile_find<DFGNN_OP_AGNN, __nv_bfloat16>(kind, width, exact);
}
} // namespace dfgnn
