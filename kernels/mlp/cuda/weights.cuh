/* weights.cuh - gradients of weights and biases: products over edges
 *
 * grad W = grad_z^T input, in tiles of 128 x 128.  A block adds the edges of
 * its split of a launch to its part; mlp_finish adds the parts in order. */
#ifndef DFGNN_MLP_CUDA_WEIGHTS_CUH
#define DFGNN_MLP_CUDA_WEIGHTS_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* A block of weights takes so much at a time. */
template <typename T> struct weight_block {
  static constexpr int THREADS = 256;
  static constexpr int STAGES = 3;
  static constexpr int EDGES = 64; /* of a stage */
  static constexpr int V = lanes::V;
  /* 16 bytes keep the rows of 8 x 8 matrices apart. */
  static constexpr int ROW = MLP_SIDE * int(sizeof(T)) + 16;
  static constexpr int SIDE_BYTES = EDGES * ROW;
  static constexpr int STAGE_BYTES = 2 * SIDE_BYTES;
  static constexpr int K = 16; /* edges of a product */

  /* Where chunk `chunk` of the columns of an edge stands. */
  DEVICE static int place(int edge, int chunk) {
    return edge * ROW + chunk * MLP_CHUNK;
  }
};

/* A thread's copies of a side: a chunk of every LINES-th edge of a stage.
 * Columns behind the last and edges behind the last are zero. */
template <typename T, class B> struct weight_side {
  static constexpr int CHUNKS = MLP_SIDE / B::V;
  static constexpr int LINES = B::THREADS / CHUNKS;
  static constexpr int COUNT = B::EDGES / LINES;
  const T *row;      /* of the thread's first edge of the next stage */
  int64_t stride;    /* of edges */
  const char *order; /* of that edge in edge_order; NULL: rows follow */
  int wide;
  bool there; /* is the chunk one of the columns? */

  DEVICE static int line() { return int(threadIdx.x) / CHUNKS; }
  DEVICE static int chunk() { return int(threadIdx.x) % CHUNKS; }

  /* edge: the split's first edge of the launch, which begins at first_edge. */
  DEVICE void begin(const void *from, int64_t stride_, const void *edge_order,
                    int wide_, int64_t first_edge, int64_t edge, int column,
                    int columns) {
    const int c = column + chunk() * B::V;
    stride = stride_;
    wide = wide_;
    there = c < columns;
    row = static_cast<const T *>(from) + (there ? c : 0);
    order = nullptr;
    if (edge_order)
      order = static_cast<const char *>(edge_order) +
              (first_edge + edge + line()) * (wide ? 8 : 4);
    else
      row += (edge + line()) * stride;
  }

  DEVICE static void copy(char *to, int i, const T *from, bool copies) {
    copy_async(to + B::place(line() + i * LINES, chunk()), from,
               copies ? MLP_CHUNK : 0);
  }

  /* left: edges of the launch from the stage's first on, at most EDGES. */
  DEVICE void step(char *to, int left) {
    const int mine = there ? left - line() : 0;
    if (order) {
      for (int i = 0; i < COUNT; ++i)
        copy(to, i,
             i * LINES < mine ? row + entry(order, wide, i * LINES) * stride
                              : row,
             i * LINES < mine);
      order += B::EDGES * (wide ? 8 : 4);
    } else {
      const T *from = row;
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        copy(to, i, i * LINES < mine ? from : row, i * LINES < mine);
        from += LINES * stride;
      }
      row = from;
    }
  }
};

/* The tile and the edges of a block. */
template <typename T, class B> struct weight_split {
  const mlp_product *product;
  int to, from;       /* first columns of grad_z and of input */
  int64_t begin, end; /* stages */
  float *part;
  weight_side<T, B> rows, columns;

  DEVICE explicit weight_split(const mlp_weights_params &p) {
    const int tile = int(blockIdx.x) % p.tiles;
    const int split = int(blockIdx.x) / p.tiles;
    int which = 0;
    while (which + 1 < p.products && tile >= p.product[which + 1].first)
      ++which;
    product = &p.product[which];
    to = (tile - product->first) / product->tiles_in * MLP_SIDE;
    from = (tile - product->first) % product->tiles_in * MLP_SIDE;
    const int64_t stages = (p.edges + B::EDGES - 1) / B::EDGES;
    begin = stages * split / p.splits;
    end = stages * (split + 1) / p.splits;
    part = p.partial + (int64_t(split) * p.tiles + tile) * MLP_WEIGHT_TILE;
    rows.begin(product->grad_z, product->out, nullptr, 0, 0, begin * B::EDGES,
               to, product->out);
    columns.begin(product->input, product->in, product->edge_order, p.wide,
                  p.first_edge, begin * B::EDGES, from, product->in);
  }

  /* Begins to copy stage k, if there is one; k rises from begin. */
  DEVICE void copy(const mlp_weights_params &p, char *stages, int64_t k) {
    if (k < end) {
      char *stage = stages + int(k - begin) % B::STAGES * B::STAGE_BYTES;
      const int left = int(min(p.edges - k * B::EDGES, int64_t(B::EDGES)));
      rows.step(stage, left);
      columns.step(stage + B::SIDE_BYTES, left);
    }
    copy_commit();
  }
};

/* 64 x 32 numbers of a warp, and sums of 64 rows. */
struct weight_sums {
  float x[4][4][4], row[4][4];
};

template <typename T> DEVICE unsigned ones();
template <> DEVICE unsigned ones<half_t>() { return 0x3c003c00u; }
template <> DEVICE unsigned ones<bfloat_t>() { return 0x3f803f80u; }

/* Fragments of edges k .. k + K of a stage: rows of grad_z's columns from m on,
 * and two tiles of input's columns from n on. */
template <typename T>
DEVICE void load_a(unsigned (&a)[4], const char *side, int k, int m) {
  using B = weight_block<T>;
  const int lane = ptx::lane_id();
  load_transposed(a, side + (k + (lane >> 4) * 8 + (lane & 7)) * B::ROW +
                         (m + (lane >> 3 & 1) * 8) * 2);
}
template <typename T>
DEVICE void load_b(unsigned (&b)[4], const char *side, int k, int n) {
  using B = weight_block<T>;
  const int lane = ptx::lane_id();
  load_transposed(b, side + (k + (lane >> 3 & 1) * 8 + (lane & 7)) * B::ROW +
                         (n + (lane >> 4) * 8) * 2);
}

template <typename T>
DEVICE void multiply_stage(weight_sums &z, const char *stage, int m, int n,
                           bool sums) {
  using B = weight_block<T>;
#pragma unroll
  for (int k = 0; k < B::EDGES; k += B::K) {
    unsigned a[4][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_a<T>(a[i], stage, k, m + 16 * i);
#pragma unroll
    for (int j = 0; j < 2; ++j)
      load_b<T>(b[j], stage + B::SIDE_BYTES, k, n + 16 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        mma_pairs<T>(z.x[i][j], a[i], b[j / 2][j % 2 * 2],
                     b[j / 2][j % 2 * 2 + 1]);
    if (sums)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mma_pairs<T>(z.row[i], a[i], ones<T>(), ones<T>());
  }
}

/* Gives every number of a warp's sums and its place in the part to f. */
template <typename F>
DEVICE void each_weight(weight_sums &z, int m, int n, bool sums, F f) {
  const int g = ptx::lane_id() >> 2, t = ptx::lane_id() & 3;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m + 16 * i + g + 8 * half;
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          f(z.x[i][j][2 * half + c], row * MLP_SIDE + n + 8 * j + 2 * t + c);
      if (sums && t == 0)
        f(z.row[i][2 * half], MLP_SIDE * MLP_SIDE + row);
    }
}

} // namespace mlp

template <typename T>
__global__ void __launch_bounds__(256, 2)
    mlp_weights(const mlp_weights_params p) {
  using B = mlp::weight_block<T>;
  extern __shared__ uint4 shared[];
  char *stages = reinterpret_cast<char *>(shared);
  mlp::weight_split<T, B> own(p);
  float *part = own.part;
  const int warp = int(threadIdx.x) / 32, m = warp / 4 * 64, n = warp % 4 * 32;
  const bool sums = own.from == 0 && n == 0;
  mlp::weight_sums z;
  for (int k = 0; k < B::STAGES - 1; ++k)
    own.copy(p, stages, own.begin + k);
  mlp::each_weight(z, m, n, sums,
                   [&](float &x, int at) { x = p.add ? part[at] : 0.0f; });
  if (!sums || (ptx::lane_id() & 3))
#pragma unroll
    for (int i = 0; i < 4; ++i)
      z.row[i][0] = z.row[i][2] = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    z.row[i][1] = z.row[i][3] = 0.0f;
  for (int64_t k = own.begin; k < own.end; ++k) {
    copy_wait<B::STAGES - 2>();
    __syncthreads();
    own.copy(p, stages, k + B::STAGES - 1);
    mlp::multiply_stage<T>(
        z, stages + int(k - own.begin) % B::STAGES * B::STAGE_BYTES, m, n,
        sums);
  }
  mlp::each_weight(z, m, n, sums, [&](float &x, int at) { part[at] = x; });
}

/* Adds parts in order: a thread for each number of a weight, then of its bias.
 */
__global__ void mlp_finish_weights(const mlp_finish_layers layers) {
  const mlp_finish_params &p = layers.layer[blockIdx.y];
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  const int row = i < p.out * p.in ? i / p.in : i - p.out * p.in;
  const int column = i < p.out * p.in ? i % p.in : 0;
  float *to = i < p.out * p.in ? p.weight : p.bias;
  if (i >= p.out * p.in + p.out || !to)
    return;
  const int64_t at =
      int64_t(row / MLP_SIDE * p.tiles_in + column / MLP_SIDE) *
          MLP_WEIGHT_TILE +
      (i < p.out * p.in ? row % MLP_SIDE * MLP_SIDE + column % MLP_SIDE
                        : MLP_SIDE * MLP_SIDE + row % MLP_SIDE);
  float sum = 0.0f;
#pragma unroll 8
  for (int k = 0; k < p.splits; ++k)
    sum += p.partial[k * p.stride + at];
  to[i < p.out * p.in ? i : row] = sum;
}

} // namespace dfgnn

#endif
