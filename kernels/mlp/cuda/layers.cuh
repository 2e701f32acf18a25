/* layers.cuh - a layer of a launch's edges: a product with streamed weights,
 * and what becomes of its sums, or of those of a library's product */
#ifndef DFGNN_MLP_CUDA_LAYERS_CUH
#define DFGNN_MLP_CUDA_LAYERS_CUH

#include "kernels/mlp/cuda/product.cuh"
#include "kernels/mlp/cuda/rows.cuh"

namespace dfgnn {
namespace mlp {

/* Behind the stages, or the sums. */
template <class P> struct layer_numbers {
  block_edges edges;
  float bias[P::COLUMNS];
};

template <class P> __device__ __forceinline__ constexpr int product_bytes() {
  return P::STAGES * P::STAGE_BYTES > MLP_ROWS * P::SUM_ROW * 4
             ? P::STAGES * P::STAGE_BYTES
             : MLP_ROWS * P::SUM_ROW * 4;
}

/* VEC numbers of z, whose bias and parts of nodes are added; columns behind the
 * last become 0. */
template <class P, bool VECTOR>
__device__ __forceinline__ void
add_bias(float (&y)[P::V], const mlp_product_params &p,
         const layer_numbers<P> &n, int r, int first_column, int column) {
  using T = typename P::T;
  const mlp_forward_params &f = p.of.pass.forward;
  float part[2][P::V] = {};
  if (p.parts && f.dst_part)
    read_few<T, P::V, VECTOR>(part[0],
                              static_cast<const T *>(f.dst_part) +
                                  int64_t(n.edges.row[r]) * p.of.first_width,
                              column, p.of.first_width);
  if (p.parts && f.src_part)
    read_few<T, P::V, VECTOR>(part[1],
                              static_cast<const T *>(f.src_part) +
                                  int64_t(n.edges.source[r]) * p.of.first_width,
                              column, p.of.first_width);
#pragma unroll
  for (int i = 0; i < P::V; ++i)
    y[i] = column + i < p.columns ? y[i] + n.bias[column - first_column + i] +
                                        part[0][i] + part[1][i]
                                  : 0.0f;
}

template <typename T, int V, bool ROUND>
__device__ __forceinline__ void write_inner(T *to, float (&y)[V]) {
  if constexpr (ROUND)
#pragma unroll
    for (int i = 0; i < V; ++i)
      y[i] = tf32_nearest(y[i]);
  store_packed<V>(to, y);
}

/* A chunk of the sums of edge r of the block.  ROUND: rows of a layer's inputs,
 * or of gradients, become numbers of TF32. */
template <class P, int KIND, int ACTIVATION, bool VECTOR, bool ROUND>
__device__ __forceinline__ void
end_chunk(float (&y)[P::V], const mlp_product_params &p,
          const layer_numbers<P> &n, int64_t from, int r, int first_column,
          int column) {
  using T = typename P::T;
  constexpr int V = P::V;
  const float slope = p.of.pass.forward.slope;
  const int64_t at = (from + r) * p.out_stride;
  if constexpr (KIND == MLP_TO_HIDDEN || KIND == MLP_TO_LAST)
    add_bias<P, VECTOR>(y, p, n, r, first_column, column);
  if constexpr (KIND == MLP_TO_LAST) {
    float *to = static_cast<float *>(p.out) + at;
#pragma unroll
    for (int i = 0; i < V; i += 4)
      *reinterpret_cast<float4 *>(to + column + i) =
          float4{y[i], y[i + 1], y[i + 2], y[i + 3]};
  } else if constexpr (KIND == MLP_TO_EDGE) {
    float own[V] = {};
    if (p.of.residual) {
      output_gradient_of<T> gradient;
      gradient.begin(p.of, n.edges, p.of.first + from, r, true);
      gradient.template get<V, VECTOR>(own, column, p.of.out_width);
    }
#pragma unroll
    for (int i = 0; i < V; ++i)
      y[i] += own[i];
    write_few<T, V, VECTOR>(static_cast<T *>(p.out) +
                                n.edges.place[r] * p.out_stride,
                            column, p.out_stride, y);
  } else {
    if constexpr (KIND == MLP_TO_HIDDEN) {
      if (p.z_out)
        store_packed<V>(static_cast<T *>(p.z_out) + at + column, y);
#pragma unroll
      for (int i = 0; i < V; ++i)
        y[i] = activate<ACTIVATION, T>(y[i], slope);
    } else {
      float z[V];
      read_few<T, V, true>(z, static_cast<const T *>(p.z) + at, column,
                           p.out_stride);
#pragma unroll
      for (int i = 0; i < V; ++i)
        y[i] *= derivative<ACTIVATION, T>(z[i], slope);
      if (p.activated) {
#pragma unroll
        for (int i = 0; i < V; ++i)
          z[i] = activate<ACTIVATION, T>(z[i], slope);
        write_inner<T, V, ROUND>(static_cast<T *>(p.activated) + at + column,
                                 z);
      }
    }
    write_inner<T, V, ROUND>(static_cast<T *>(p.out) + at + column, y);
  }
}

/* A block's edges and columns. */
template <class P> struct layer_block {
  int64_t from; /* the first edge in the launch */
  int column, count;

  __device__ __forceinline__ explicit layer_block(const mlp_product_params &p) {
    from = int64_t(blockIdx.x) / p.column_blocks * MLP_ROWS;
    column = int(blockIdx.x % p.column_blocks) * P::COLUMNS;
    count = int(min(p.of.edges - from, int64_t(MLP_ROWS)));
  }
  __device__ __forceinline__ void read(layer_numbers<P> &numbers,
                                       const mlp_product_params &p) const {
    const int thread = int(threadIdx.x);
    if (thread < MLP_ROWS)
      numbers.edges.read(p.of.pass.forward.graph, p.of.first + from, count);
    if (thread < P::COLUMNS)
      numbers.bias[thread] = p.bias && column + thread < p.columns
                                 ? widen(static_cast<const typename P::T *>(
                                       p.bias)[column + thread])
                                 : 0.0f;
  }
  /* Calls f(r, c) for each chunk of a thread: edge r, column c of the block. */
  template <typename F>
  __device__ __forceinline__ void each_chunk(const mlp_product_params &p,
                                             F f) const {
    constexpr int CHUNKS = P::COLUMNS / P::V;
#pragma unroll 2
    for (int i = int(threadIdx.x); i < MLP_ROWS * CHUNKS; i += P::THREADS) {
      const int r = i / CHUNKS, c = i % CHUNKS * P::V;
      if (r < count && column + c < p.out_stride)
        f(r, c);
    }
  }
};

/* PRODUCT::rows leaves the block's sums at the begin of shared memory. */
template <class PRODUCT, int KIND, int ACTIVATION, bool VECTOR>
__device__ __forceinline__ void run_layer(char *shared,
                                          const mlp_product_params &p) {
  using P = typename PRODUCT::shape;
  auto &numbers =
      *reinterpret_cast<layer_numbers<P> *>(shared + product_bytes<P>());
  const layer_block<P> block(p);
  block.read(numbers, p);
  PRODUCT::rows(shared, p, block.from, block.column);
  const float *sums = reinterpret_cast<const float *>(shared);
  block.each_chunk(p, [&](int r, int c) {
    float y[P::V];
#pragma unroll
    for (int k = 0; k < P::V; k += 4) {
      const float4 x =
          *reinterpret_cast<const float4 *>(sums + r * P::SUM_ROW + c + k);
      y[k] = x.x, y[k + 1] = x.y, y[k + 2] = x.z, y[k + 3] = x.w;
    }
    end_chunk<P, KIND, ACTIVATION, VECTOR, false>(
        y, p, numbers, block.from, r, block.column, block.column + c);
  });
}

/* Adds a chunk's columns, sum, over the block's edges to its part of the
 * gradient of a bias.  A thread's chunks are of the same columns. */
template <class P>
__device__ __forceinline__ void add_bias_gradient(const float (&sum)[P::V],
                                                  const mlp_product_params &p,
                                                  const layer_block<P> &block) {
  constexpr int CHUNKS = P::COLUMNS / P::V, LINES = P::THREADS / CHUNKS;
  static_assert(P::THREADS % CHUNKS == 0, "a thread has one chunk of columns");
  __shared__ float lines[LINES][P::COLUMNS];
  const int thread = int(threadIdx.x);
#pragma unroll
  for (int i = 0; i < P::V; ++i)
    lines[thread / CHUNKS][thread % CHUNKS * P::V + i] = sum[i];
  __syncthreads();
  if (thread >= P::COLUMNS || block.column + thread >= p.columns)
    return;
  float *to = p.bias_partial + block.from / MLP_ROWS * p.columns +
              block.column + thread;
  float all = p.of.pass.add ? *to : 0.0f;
  for (int k = 0; k < LINES; ++k)
    all += lines[k][thread];
  *to = all;
}

} // namespace mlp

/* A block for MLP_ROWS edges and COLUMNS columns; blocks of the same edges
 * follow each other. */
template <typename T, int FLAGS, int COLUMNS, int STAGES, int KIND,
          int ACTIVATION>
__global__ void __launch_bounds__(256, COLUMNS == 128 ? 2 : 1)
    mlp_layer(const mlp_product_params p) {
  using P = mlp::product<T, (FLAGS & MLP_EXACT) != 0, COLUMNS, STAGES>;
  extern __shared__ uint4 memory[];
  mlp::run_layer<mlp::warp_product<P>, KIND, ACTIVATION,
                 (FLAGS & MLP_VECTOR) != 0>(reinterpret_cast<char *>(memory),
                                            p);
}

/* The end of a layer whose sums a library left in memory, as rows of T. */
template <typename T, int FLAGS, int COLUMNS, int KIND, int ACTIVATION>
__global__ void __launch_bounds__(256)
    mlp_end_layer(const mlp_product_params p) {
  using P = mlp::product<T, false, COLUMNS, 2>;
  __shared__ mlp::layer_numbers<P> numbers;
  const mlp::layer_block<P> block(p);
  float sum[P::V] = {};
  block.read(numbers, p);
  __syncthreads();
  block.each_chunk(p, [&](int r, int c) {
    const int column = block.column + c;
    float y[P::V] = {};
    if (p.sums)
      mlp::read_few<T, P::V, true>(
          y, static_cast<const T *>(p.sums) + (block.from + r) * p.columns,
          column, p.columns);
    mlp::end_chunk<P, KIND, ACTIVATION, (FLAGS & MLP_VECTOR) != 0,
                   (FLAGS & MLP_ROUND) != 0>(y, p, numbers, block.from, r,
                                             block.column, column);
#pragma unroll
    for (int i = 0; i < P::V; ++i)
      sum[i] += y[i];
  });
  if (KIND == MLP_TO_GRADIENT && p.bias_partial)
    mlp::add_bias_gradient<P>(sum, p, block);
}

} // namespace dfgnn

#endif
