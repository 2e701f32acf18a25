/* move.cu - rows of a tensor from one order into another, on the device */
#include "kernels/common/device_graph.h"

namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 1 << 16; /* more wrap around */

template <typename T, typename I>
__global__ void __launch_bounds__(kThreads)
    move_rows(const __grid_constant__ dfgnn_move m) {
  const int64_t row = m.heads * m.dim, count = m.rows * row;
  const I *order = static_cast<const I *>(m.order);
  T *to = static_cast<T *>(m.to);
  const T *from = static_cast<const T *>(m.from);
  for (int64_t k = blockIdx.x * (int64_t)kThreads + threadIdx.x; k < count;
       k += gridDim.x * (int64_t)kThreads) {
    /* a division of 64 bits costs more than the move */
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

template <typename T> void launch(const dfgnn_move &m, cudaStream_t stream) {
  int64_t blocks = (m.rows * m.heads * m.dim + kThreads - 1) / kThreads;
  auto grid = static_cast<unsigned>(blocks < kBlocks ? blocks : kBlocks);
  if (m.wide)
    move_rows<T, int64_t><<<grid, kThreads, 0, stream>>>(m);
  else
    move_rows<T, int32_t><<<grid, kThreads, 0, stream>>>(m);
}

} // namespace

extern "C" cudaError_t dfgnn__cuda_move(const dfgnn_move *move,
                                        cudaStream_t stream) {
  const dfgnn_move &m = *move;
  if (m.rows * m.heads * m.dim == 0)
    return cudaSuccess;
  switch (m.element) {
  case 2:
    launch<uint16_t>(m, stream);
    break;
  case 4:
    launch<uint32_t>(m, stream);
    break;
  case 8:
    launch<uint2>(m, stream);
    break;
  default:
    launch<uint4>(m, stream);
  }
  return cudaGetLastError();
}
