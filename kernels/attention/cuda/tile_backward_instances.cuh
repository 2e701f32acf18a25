/* tile_backward_instances.cuh - the kernels of an operator and type */
#include "kernels/attention/cuda/tile_backward.cuh"

namespace dfgnn {

template <int OP, typename T, int W, int TERMS>
const void *grad_tile_kernel(int kind) {
  switch (kind) {
  case GRAD_TILE_ROWS:
    return reinterpret_cast<const void *>(
        grad_tile_gradient<OP, T, W, TERMS, false>);
  case GRAD_TILE_COLUMNS:
    return reinterpret_cast<const void *>(
        grad_tile_gradient<OP, T, W, TERMS, true>);
  case GRAD_TILE_MERGE_ROWS:
    return reinterpret_cast<const void *>(grad_tile_merge<OP, T, false>);
  default:
    return reinterpret_cast<const void *>(grad_tile_merge<OP, T, true>);
  }
}

template <int OP, typename T, int TERMS>
const void *grad_tile_of_width(int kind, int width) {
  return width <= 32   ? grad_tile_kernel<OP, T, 32, TERMS>(kind)
         : width <= 64 ? grad_tile_kernel<OP, T, 64, TERMS>(kind)
                       : grad_tile_kernel<OP, T, 128, TERMS>(kind);
}

template <int OP, typename T>
const void *grad_tile_find(int kind, int width, int exact) {
  if constexpr (sizeof(T) == 4)
    return exact ? grad_tile_of_width<OP, T, 3>(kind, width)
                 : grad_tile_of_width<OP, T, 1>(kind, width);
  else
    return grad_tile_of_width<OP, T, 1>(kind, width);
}

} // namespace dfgnn
