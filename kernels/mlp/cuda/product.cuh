/* product.cuh - rows of 128 edges times a layer's weights, which stream through
 * shared memory
 *
 * Both operands are rows of k: those of edges, and those of weights (for
 * gradients, of the transposed weights).  A step takes 128 bytes of k from each
 * row.  A row of a step stands in 128 bytes of shared memory, of which 16-byte
 * chunk c is at place c ^ (row % 8): eight rows' equal chunks lie in different
 * banks. */
#ifndef DFGNN_MLP_CUDA_PRODUCT_CUH
#define DFGNN_MLP_CUDA_PRODUCT_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* COLUMNS: of a block, 128 or 256; STAGES: steps in shared memory. */
template <typename T_, bool EXACT_, int COLUMNS_, int STAGES_> struct product {
  using T = T_;
  static constexpr bool EXACT = EXACT_;
  static constexpr int COLUMNS = COLUMNS_;
  static constexpr int STAGES = STAGES_;
  static constexpr int THREADS = 256;
  static constexpr int V = MLP_CHUNK / int(sizeof(T));
  static constexpr int STEP = MLP_STEP / int(sizeof(T)); /* numbers of k */
  static constexpr int CHUNKS = MLP_STEP / MLP_CHUNK;
  static constexpr int EDGE_BYTES = MLP_ROWS * MLP_STEP;
  static constexpr int STAGE_BYTES = EDGE_BYTES + COLUMNS * MLP_STEP;
  /* Warps stand in two rows of four: each has 64 edges. */
  static constexpr int WARP_COLUMNS = COLUMNS / 4;
  static constexpr int TILES = WARP_COLUMNS / 8;
  /* Sums go through shared memory, in rows of so many floats: 8 keep four rows
   * apart. */
  static constexpr int SUM_ROW = COLUMNS + 8;
};

template <class P> struct product_sums { float x[4][P::TILES][4]; };

/* The place of chunk `chunk` of a row of a step. */
__device__ __forceinline__ int place_of(int row, int chunk) {
  return row * MLP_STEP + ((chunk ^ (row & 7)) * MLP_CHUNK);
}

/* ---- copies -------------------------------------------------------------- */

/* A thread copies chunk threadIdx.x % 8 of every 32nd row. */
template <class P> struct product_copies {
  using T = typename P::T;
  static constexpr int LINES = P::THREADS / P::CHUNKS;
  static constexpr int EDGES = MLP_ROWS / LINES;
  static constexpr int WEIGHTS = P::COLUMNS / LINES;
  const T *edge[EDGES]; /* NULL: behind the last edge */
  const T *weight;      /* of the thread's first row */
  int stride, in;

  /* from: the block's first edge in the launch. */
  __device__ __forceinline__ void begin(const mlp_product_params &p,
                                        int64_t from, int column) {
    const int line = int(threadIdx.x) / P::CHUNKS;
#pragma unroll
    for (int i = 0; i < EDGES; ++i) {
      const int64_t e = from + line + i * LINES;
      const int64_t place =
          e < p.of.edges && p.edge_order
              ? entry(p.edge_order, p.of.pass.forward.graph.wide,
                      p.of.first + e)
              : e;
      edge[i] = e < p.of.edges
                    ? static_cast<const T *>(p.input) + place * p.input_stride
                    : nullptr;
    }
    weight = static_cast<const T *>(p.weight) +
             int64_t(column + line) * p.weight_stride;
    stride = p.weight_stride;
    in = p.in;
  }

  __device__ __forceinline__ void step(char *stage, int k) const {
    const int line = int(threadIdx.x) / P::CHUNKS;
    const int chunk = int(threadIdx.x) % P::CHUNKS;
    const int at = k * P::STEP + chunk * P::V;
#pragma unroll
    for (int i = 0; i < EDGES; ++i) {
      const bool there = edge[i] && at < in;
      copy_async(stage + place_of(line + i * LINES, chunk),
                 there ? edge[i] + at : weight, there ? MLP_CHUNK : 0);
    }
#pragma unroll
    for (int i = 0; i < WEIGHTS; ++i)
      copy_async(stage + P::EDGE_BYTES + place_of(line + i * LINES, chunk),
                 weight + int64_t(i) * LINES * stride + at, MLP_CHUNK);
  }
};

/* ---- a step of warps ------------------------------------------------------
 */

/* Fragments of 16 rows: of 16 edges, or of two tiles of columns. */
__device__ __forceinline__ void load_edges(unsigned (&a)[4], const char *side,
                                           int row, int chunk) {
  const int lane = ptx::lane_id();
  load_matrices(a, side + place_of(row + (lane & 15), chunk + (lane >> 4)));
}
__device__ __forceinline__ void load_columns(unsigned (&b)[4], const char *side,
                                             int row, int chunk) {
  const int lane = ptx::lane_id();
  load_matrices(b, side + place_of(row + (lane >> 4) * 8 + (lane & 7),
                                   chunk + (lane >> 3 & 1)));
}

template <class P>
__device__ __forceinline__ void multiply_step(product_sums<P> &z,
                                              const char *stage) {
  using T = typename P::T;
  const int warp = int(threadIdx.x) / 32;
  const int row = warp / 4 * 64, column = warp % 4 * P::WARP_COLUMNS;
#pragma unroll
  for (int c = 0; c < P::CHUNKS; c += 2) {
    unsigned a[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_edges(a[i], stage, row + 16 * i, c);
#pragma unroll
    for (int j = 0; j < P::TILES; j += 2) {
      unsigned b[4];
      load_columns(b, stage + P::EDGE_BYTES, column + 8 * j, c);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        multiply_add<T, P::EXACT, true>(z.x[i][j], a[i], b[0], b[1]);
        multiply_add<T, P::EXACT, true>(z.x[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/* Writes two neighbouring sums of a row of the block. */
template <class P>
__device__ __forceinline__ void write_sums(char *shared, int row, int column,
                                           float x, float y) {
  *reinterpret_cast<float2 *>(reinterpret_cast<float *>(shared) +
                              row * P::SUM_ROW + column) = float2{x, y};
}

/* Products of warps apart from one another. */
template <class P> struct warp_product {
  using shape = P;

  /* The block's sums, [MLP_ROWS, SUM_ROW] floats at the begin of shared memory;
   * all threads may read them when this ends. */
  __device__ __forceinline__ static void
  rows(char *shared, const mlp_product_params &p, int64_t from, int column) {
    const int steps = (p.in + P::STEP - 1) / P::STEP;
    product_copies<P> copies;
    product_sums<P> z = {};
    copies.begin(p, from, column);
    for (int k = 0; k < P::STAGES - 1; ++k) {
      if (k < steps)
        copies.step(shared + k * P::STAGE_BYTES, k);
      copy_commit();
    }
    for (int k = 0; k < steps; ++k) {
      copy_wait<P::STAGES - 2>();
      __syncthreads();
      const int next = k + P::STAGES - 1;
      if (next < steps)
        copies.step(shared + next % P::STAGES * P::STAGE_BYTES, next);
      copy_commit();
      multiply_step<P>(z, shared + k % P::STAGES * P::STAGE_BYTES);
    }
    copy_wait<0>();
    __syncthreads();
    const int warp = int(threadIdx.x) / 32, lane = ptx::lane_id();
    const int row = warp / 4 * 64 + (lane >> 2);
    const int first = warp % 4 * P::WARP_COLUMNS + 2 * (lane & 3);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < P::TILES; ++j)
          write_sums<P>(shared, row + 16 * i + 8 * half, first + 8 * j,
                        z.x[i][j][2 * half], z.x[i][j][2 * half + 1]);
    __syncthreads();
  }
};

} // namespace mlp
} // namespace dfgnn

#endif
