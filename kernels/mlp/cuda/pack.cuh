/* pack.cuh - weights as the tiles want them: padded with zeros, rows in the
 * order of tiles, words of a group transposed (tile.cuh); rounded to TF32 if
 * products are of such numbers */
#ifndef DFGNN_MLP_CUDA_PACK_CUH
#define DFGNN_MLP_CUDA_PACK_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* The column that stands at a row of packed weights. */
template <typename T> __device__ __forceinline__ int column_of_row(int row) {
  constexpr int V = lanes<T>::V, GROUP = lanes<T>::GROUP;
  const int tile = row % GROUP / 8, x = row % 8;
  return row / GROUP * GROUP + V * (x / 2) + 2 * tile + x % 2;
}
/* Number i of a packed row is this number of k. */
template <typename T> __device__ __forceinline__ int number_at(int i) {
  constexpr int WORD = 4 / int(sizeof(T));
  const int word = i / WORD % 16;
  return (i / WORD / 16 * 16 + word % 4 * 4 + word / 4) * WORD + i % WORD;
}

template <class S>
__device__ __forceinline__ void pack_layer(const mlp_pack &p, int l, int thread,
                                           int threads) {
  using T = typename S::T;
  const int numbers = S::row_bytes(l) / int(sizeof(T));
  T *to =
      reinterpret_cast<T *>(static_cast<char *>(p.packed) + S::weight_at(l));
  const T *from = static_cast<const T *>(p.weight[l]);
  for (int i = thread; i < S::padded(l) * numbers; i += threads) {
    const int out = column_of_row<T>(i / numbers);
    const int in = number_at<T>(i % numbers);
    T x = out < S::width(l) && i % numbers < S::padded(l - 1) &&
                  in < S::width(l - 1)
              ? from[int64_t(out) * S::width(l - 1) + in]
              : T{};
    if constexpr (sizeof(T) == 4 && !S::EXACT)
      x = tf32_nearest(x);
    to[i] = x;
  }
}

template <typename T>
__device__ __forceinline__ void
pack_floats(void *packed, int at, const void *from, float absent, int width,
            int padded, int thread, int threads) {
  float *to = reinterpret_cast<float *>(static_cast<char *>(packed) + at);
  for (int i = thread; i < padded; i += threads)
    to[i] = i >= width ? 0.0f
            : from     ? widen(static_cast<const T *>(from)[i])
                       : absent;
}

} // namespace mlp

template <typename T, int FLAGS, int WARPS, int LAYERS, int CE, int W0, int W1,
          int W2, int W3, int ACTIVATION, int LAST, int NORM>
__global__ void mlp_pack_weights(const mlp_pack p) {
  using S = mlp::shape<T, FLAGS, WARPS, LAYERS, CE, W0, W1, W2, W3, ACTIVATION,
                       LAST, NORM>;
  const int thread = int(blockIdx.x * blockDim.x + threadIdx.x);
  const int threads = int(gridDim.x * blockDim.x);
  for (int l = 0; l < LAYERS; ++l) {
    if (S::row_bytes(l))
      mlp::pack_layer<S>(p, l, thread, threads);
    mlp::pack_floats<T>(p.packed, S::bias_at(l), p.bias[l], 0.0f, S::width(l),
                        S::padded(l), thread, threads);
  }
  mlp::pack_floats<T>(p.packed, S::NORM_AT, p.norm_weight, 1.0f, S::C,
                      S::padded(LAYERS - 1), thread, threads);
  mlp::pack_floats<T>(p.packed, S::NORM_AT + 4 * S::padded(LAYERS - 1),
                      p.norm_bias, 0.0f, S::C, S::padded(LAYERS - 1), thread,
                      threads);
}

/* Weights of streamed kernels: a row of blocks for each table. */
template <typename T, int ROUND>
__global__ void mlp_pack_tables(const mlp_tables p) {
  const mlp_table &t = p.table[blockIdx.y];
  const int64_t numbers = int64_t(t.rows) * t.stride;
  const T *from = static_cast<const T *>(t.from);
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numbers;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int row = int(i / t.stride), column = int(i % t.stride);
    const int out = t.transposed ? column : row;
    const int in = t.transposed ? row : column;
    T x = out < t.out && in < t.in ? from[int64_t(out) * t.in + in] : T{};
    if constexpr (ROUND)
      x = tf32_nearest(x);
    static_cast<T *>(t.to)[i] = x;
  }
}

/* Rows of e of a launch, in the order of the graph, padded with zeros. */
template <typename T> __global__ void mlp_copy_rows(const mlp_copy_params p) {
  const int64_t numbers = p.edges * p.stride;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numbers;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t edge = p.first + i / p.stride;
    const int column = int(i % p.stride);
    const int64_t place =
        p.edge_order ? mlp::entry(p.edge_order, p.wide, edge) : edge;
    static_cast<T *>(p.to)[i] =
        column < p.width
            ? static_cast<const T *>(p.from)[place * p.width + column]
            : T{};
  }
}

} // namespace dfgnn

#endif
