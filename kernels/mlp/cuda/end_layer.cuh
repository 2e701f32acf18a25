/* end_layer.cuh - what becomes of the sums of a library's product of a layer:
 * biases, parts of nodes, activations and their slopes, the residual */
#ifndef DFGNN_MLP_CUDA_END_LAYER_CUH
#define DFGNN_MLP_CUDA_END_LAYER_CUH

#include "kernels/mlp/cuda/rows.cuh"

namespace dfgnn {
namespace mlp {

constexpr int kEndThreads = 256, kEndChunk = 8;     /* numbers of a thread */
constexpr int kEndChunks = MLP_COLUMNS / kEndChunk; /* of a row of a block */

/* A block has MLP_ROWS edges and MLP_COLUMNS columns. */
struct layer_block {
  int64_t from; /* the first edge in the launch */
  int column, count;

  __device__ __forceinline__ explicit layer_block(const mlp_layer_params &p) {
    from = int64_t(blockIdx.x) / p.column_blocks * MLP_ROWS;
    column = int(blockIdx.x % p.column_blocks) * MLP_COLUMNS;
    count = int(min(p.of.edges - from, int64_t(MLP_ROWS)));
  }
  /* Calls f(r, c) for each chunk of a thread: edge r of the block, column c. */
  template <typename F>
  __device__ __forceinline__ void each_chunk(const mlp_layer_params &p,
                                             F f) const {
#pragma unroll 2
    for (int i = int(threadIdx.x); i < MLP_ROWS * kEndChunks;
         i += kEndThreads) {
      const int r = i / kEndChunks, c = column + i % kEndChunks * kEndChunk;
      if (r < count && c < p.columns)
        f(r, c);
    }
  }
};

template <typename T>
__device__ __forceinline__ void add_row(float (&y)[kEndChunk],
                                        const void *table, int64_t row,
                                        int width, int column, float factor) {
  float x[kEndChunk];
  if (!table)
    return;
  read_few(x, static_cast<const T *>(table) + row * width + column);
#pragma unroll
  for (int i = 0; i < kEndChunk; ++i)
    y[i] += x[i] * factor;
}

/* The chunk y of the sums of edge r of the block. */
template <typename T, int KIND, int ACTIVATION>
__device__ __forceinline__ void
end_chunk(float (&y)[kEndChunk], const mlp_layer_params &p,
          const block_edges &e, int64_t from, int r, int column) {
  const mlp_backward_params &b = p.of.pass;
  const mlp_forward_params &f = b.forward;
  const int64_t at = (from + r) * p.columns + column;
  if constexpr (KIND == MLP_TO_EDGE) {
    if (p.of.residual) {
      add_row<T>(y, b.grad_edge_out, e.place[r], p.of.out_width, column, 1.0f);
      add_row<T>(y, b.grad_out_dst, e.row[r], p.of.out_width, column,
                 mean_factor(b.dst_offsets, f.graph.wide, e.row[r]));
    }
    store_packed<kEndChunk>(
        static_cast<T *>(p.out) + e.place[r] * p.columns + column, y);
    return;
  }
  if constexpr (KIND == MLP_TO_HIDDEN) {
    add_row<T>(y, p.bias, 0, 0, column, 1.0f);
    if (p.parts) {
      add_row<T>(y, f.dst_part, e.row[r], p.of.first_width, column, 1.0f);
      add_row<T>(y, f.src_part, e.source[r], p.of.first_width, column, 1.0f);
    }
    if (p.z_out)
      store_packed<kEndChunk>(static_cast<T *>(p.z_out) + at, y);
#pragma unroll
    for (int i = 0; i < kEndChunk; ++i)
      y[i] = activate<ACTIVATION, T>(y[i]);
  } else {
    float z[kEndChunk];
    read_few(z, static_cast<const T *>(p.z) + at);
#pragma unroll
    for (int i = 0; i < kEndChunk; ++i)
      y[i] *= derivative<ACTIVATION, T>(z[i]);
    if (p.activated) {
#pragma unroll
      for (int i = 0; i < kEndChunk; ++i)
        z[i] = activate<ACTIVATION, T>(z[i]);
      store_packed<kEndChunk>(static_cast<T *>(p.activated) + at, z);
    }
  }
  store_packed<kEndChunk>(static_cast<T *>(p.out) + at, y);
}

/* Adds a chunk's columns, sum, over the block's edges to its part of the
 * gradient of a bias.  A thread's chunks are of the same columns. */
__device__ __forceinline__ void add_bias_gradient(const float (&sum)[kEndChunk],
                                                  const mlp_layer_params &p,
                                                  const layer_block &block) {
  constexpr int LINES = kEndThreads / kEndChunks;
  __shared__ float lines[LINES][MLP_COLUMNS];
  const int thread = int(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kEndChunk; ++i)
    lines[thread / kEndChunks][thread % kEndChunks * kEndChunk + i] = sum[i];
  __syncthreads();
  if (thread >= MLP_COLUMNS || block.column + thread >= p.columns)
    return;
  float *to = p.bias_partial + block.from / MLP_ROWS * p.columns +
              block.column + thread;
  float all = p.of.pass.add ? *to : 0.0f;
  for (int k = 0; k < LINES; ++k)
    all += lines[k][thread];
  *to = all;
}

} // namespace mlp

/* Blocks of the same edges follow each other. */
template <typename T, int KIND, int ACTIVATION>
__global__ void __launch_bounds__(256) mlp_end_layer(const mlp_layer_params p) {
  __shared__ mlp::block_edges edges;
  const mlp::layer_block block(p);
  float sum[mlp::kEndChunk] = {};
  if (int(threadIdx.x) < MLP_ROWS)
    edges.read(p.of.pass.forward.graph, p.of.first + block.from, block.count);
  __syncthreads();
  block.each_chunk(p, [&](int r, int c) {
    float y[mlp::kEndChunk];
    mlp::read_few(y, static_cast<const T *>(p.sums) +
                         (block.from + r) * p.columns + c);
    mlp::end_chunk<T, KIND, ACTIVATION>(y, p, edges, block.from, r, c);
#pragma unroll
    for (int i = 0; i < mlp::kEndChunk; ++i)
      sum[i] += y[i];
  });
  if (KIND == MLP_TO_GRADIENT && p.bias_partial)
    mlp::add_bias_gradient(sum, p, block);
}

} // namespace dfgnn

#endif
