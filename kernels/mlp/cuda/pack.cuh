/* pack.cuh - weights as the tiles want them: rows in the order of tiles, words
 * of a group transposed (tile.cuh) */
#ifndef DFGNN_MLP_CUDA_PACK_CUH
#define DFGNN_MLP_CUDA_PACK_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* The column that stands at a row of packed weights. */
DEVICE int column_of_row(int row) {
  constexpr int V = lanes::V, GROUP = lanes::GROUP;
  const int tile = row % GROUP / 8, x = row % 8;
  return row / GROUP * GROUP + V * (x / 2) + 2 * tile + x % 2;
}
/* Number i of a packed row is this number of k. */
DEVICE int number_at(int i) {
  constexpr int WORD = 2;
  const int word = i / WORD % 16;
  return (i / WORD / 16 * 16 + word % 4 * 4 + word / 4) * WORD + i % WORD;
}

template <class S>
DEVICE void pack_layer(const mlp_pack &p, int l, int thread, int threads) {
  using T = typename S::T;
  const int numbers = S::row_bytes(l) / int(sizeof(T));
  T *to =
      reinterpret_cast<T *>(static_cast<char *>(p.packed) + S::weight_at(l));
  const T *from = static_cast<const T *>(p.weight[l]);
  for (int i = thread; i < S::width(l) * numbers; i += threads)
    to[i] = i % numbers < S::width(l - 1)
                ? from[int64_t(column_of_row(i / numbers)) * S::width(l - 1) +
                       number_at(i % numbers)]
                : T{};
}

template <typename T>
DEVICE void pack_floats(void *packed, int at, const void *from, float absent,
                        int width, int thread, int threads) {
  float *to = reinterpret_cast<float *>(static_cast<char *>(packed) + at);
  for (int i = thread; i < width; i += threads)
    to[i] = from ? widen(static_cast<const T *>(from)[i]) : absent;
}

} // namespace mlp

template <typename T, int FLAGS, int WARPS, int LAYERS, int CE, int W0, int W1,
          int W2, int W3, int ACTIVATION, int NORM>
__global__ void mlp_pack_weights(const mlp_pack p) {
  using S =
      mlp::shape<T, FLAGS, WARPS, LAYERS, CE, W0, W1, W2, W3, ACTIVATION, NORM>;
  const int thread = int(blockIdx.x * blockDim.x + threadIdx.x);
  const int threads = int(gridDim.x * blockDim.x);
  for (int l = 0; l < LAYERS; ++l) {
    mlp::pack_layer<S>(p, l, thread, threads);
    mlp::pack_floats<T>(p.packed, S::bias_at(l), p.bias[l], 0.0f, S::width(l),
                        thread, threads);
  }
  mlp::pack_floats<T>(p.packed, S::NORM_AT, p.norm_weight, 1.0f, S::C, thread,
                      threads);
  mlp::pack_floats<T>(p.packed, S::NORM_AT + 4 * S::C, p.norm_bias, 0.0f, S::C,
                      thread, threads);
}

} // namespace dfgnn

#endif
