#include "kernels/attention/cuda/tile_backward_instances.cuh"

namespace dfgnn {
const void *grad_tile_gat_f16(int kind, int width, int exact) {
  return grad_tile_find<DFGNN_OP_GAT, __half>(kind, width, exact);
}
} // namespace dfgnn
