/* tile_forward_instances.cuh - the kernels of one storage type, so that
 * files compile side by side */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_INSTANCES_CUH
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_INSTANCES_CUH

#include "kernels/attention/cuda/tile_forward.cuh"

namespace dfgnn {

template <class Math, int OP> const void *find_tile_forward_width(int width) {
  if (width == 32)
    return reinterpret_cast<const void *>(tile_attend<Math, OP, 32>);
  if (width == 64)
    return reinterpret_cast<const void *>(tile_attend<Math, OP, 64>);
  return reinterpret_cast<const void *>(tile_attend<Math, OP, 128>);
}

template <class Math> const void *find_tile_forward(int op, int width) {
  switch (op) {
  case DFGNN_OP_GT:
    return find_tile_forward_width<Math, DFGNN_OP_GT>(width);
  case DFGNN_OP_AGNN:
    return find_tile_forward_width<Math, DFGNN_OP_AGNN>(width);
  case DFGNN_OP_GAT:
    return find_tile_forward_width<Math, DFGNN_OP_GAT>(width);
  default:
    return find_tile_forward_width<Math, DFGNN_OP_GATV2>(width);
  }
}

} // namespace dfgnn

#endif
