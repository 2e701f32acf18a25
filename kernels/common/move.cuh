/* move.cuh - rows of a tensor from one order into another, on the device */
#ifndef DFGNN_KERNELS_MOVE_CUH
#define DFGNN_KERNELS_MOVE_CUH

#include "kernels/common/cuda_common.cuh"
#include "kernels/common/graph_params.h"
#include "kernels/common/move.h"

namespace dfgnn {

constexpr int kThreads = DFGNN_GRAPH_THREADS;

/* BYTES: of an element; I: the type of row numbers. */
template <int BYTES, typename I>
__global__ void __launch_bounds__(kThreads)
    move_rows(const __grid_constant__ dfgnn_move m) {
  using T = typename word<BYTES>::type;
  const int64_t row = m.heads * m.dim, count = m.rows * row;
  const I *order = static_cast<const I *>(m.order);
  T *to = static_cast<T *>(m.to);
  const T *from = static_cast<const T *>(m.from);
  for (int64_t k = blockIdx.x * (int64_t)kThreads + threadIdx.x; k < count;
       k += gridDim.x * (int64_t)kThreads) {
    /* A division of 64 bits costs more than the move. */
    int64_t p = count <= UINT32_MAX
                    ? static_cast<uint32_t>(k) / static_cast<uint32_t>(row)
                    : k / row;
    int64_t rest = k - p * row;
    int64_t h = m.heads == 1 ? 0 : rest / m.dim, d = rest - h * m.dim;
    int64_t other = order[p];
    to[(m.scatter ? other : p) * m.to_strides.node + h * m.to_strides.head +
       d * m.to_strides.feature] =
        from[(m.scatter ? p : other) * m.from_strides.node +
             h * m.from_strides.head + d * m.from_strides.feature];
  }
}

} // namespace dfgnn

#endif
