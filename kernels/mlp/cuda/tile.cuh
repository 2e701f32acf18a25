/* tile.cuh - 16 edges of a warp go through layers without leaving registers
 *
 * A warp holds the rows of 16 edges as fragments of products of 16 x 8 tiles
 * (kernels/common/cuda_mma.cuh).  Columns are numbered so that a lane's numbers
 * of a row lie side by side in memory, 16 bytes at a time: those are a chunk,
 * and four of them a group, which V / 2 tiles share.  With V numbers in a
 * chunk,
 *
 * clang-format off
 *   column 4 V q + V t + 2 j + c   is   column 2 t + c of tile j of group q
 * clang-format on
 *
 * so lane 4 g + t has chunk t of every group of rows g and g + 8.  What a layer
 * leaves in a lane's accumulators is, rounded and packed, what the lane gives
 * to the next product, and as the sum over k may be taken in any order, word s
 * of a chunk is the lane's part of k.  Weights lie in shared memory [out, in],
 * with rows in the order of tiles and, in each group of a row, words
 * transposed: the first four words are the first of each chunk (pack.cuh).
 *
 * No lane waits for another warp between layers. */
#ifndef DFGNN_MLP_CUDA_TILE_CUH
#define DFGNN_MLP_CUDA_TILE_CUH

#include "kernels/common/cuda_mma.cuh"
#include "kernels/mlp/cuda/params.h"

namespace dfgnn {
namespace mlp {

/* ---- activations and their derivatives ---------------------------------- */

DEVICE float exponential(float x) { return exp2_fast(x * float(kLog2e)); }
/* The results are rounded to T, so that fast functions do. */
template <typename T> DEVICE float sigmoid(float x) {
  return reciprocal(1.0f + exponential(-x));
}
template <> DEVICE float sigmoid<bfloat_t>(float x) {
  return 0.5f + 0.5f * ptx::tanh_approximate(0.5f * x);
}
/* The distribution of a normal variable, and its density. */
DEVICE float normal(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
DEVICE float normal_density(float x) {
  return 0.39894228040143268f * exponential(-0.5f * x * x);
}
/* gelu_tanh(x) = x sigmoid(2 u(x)) */
constexpr float kGelu = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
constexpr float kGeluCube = 0.044715f;

template <int A, typename T> DEVICE float activate(float x) {
  if constexpr (A == MLP_RELU)
    return x < 0.0f ? 0.0f : x; /* keeps NaN */
  else if constexpr (A == MLP_SILU)
    return x * sigmoid<T>(x);
  else if constexpr (A == MLP_GELU)
    return x * normal(x);
  else if constexpr (A == MLP_GELU_TANH)
    return x * sigmoid<T>(kGelu * (x + kGeluCube * x * x * x));
  else
    return x;
}

/* With respect to x. */
template <int A, typename T> DEVICE float derivative(float x) {
  if constexpr (A == MLP_RELU) {
    return x > 0.0f ? 1.0f : 0.0f;
  } else if constexpr (A == MLP_SILU) {
    const float s = sigmoid<T>(x);
    return s * (1.0f + x * (1.0f - s));
  } else if constexpr (A == MLP_GELU) {
    return normal(x) + x * normal_density(x);
  } else if constexpr (A == MLP_GELU_TANH) {
    const float s = sigmoid<T>(kGelu * (x + kGeluCube * x * x * x));
    return s + x * s * (1.0f - s) * kGelu * (1.0f + 3.0f * kGeluCube * x * x);
  } else {
    return 1.0f;
  }
}

/* ---- chunks -------------------------------------------------------------- */

/* A lane's 16 bytes of a group. */
struct chunk {
  unsigned w[4];
};

/* Of types of 16 bits. */
struct lanes {
  static constexpr int V = MLP_CHUNK / 2; /* numbers of a chunk */
  static constexpr int GROUP = MLP_GROUP; /* columns */
  static constexpr int TILES = GROUP / 8; /* of a group */
};

DEVICE int row_of_lane() { return ptx::lane_id() >> 2; }
DEVICE int chunk_of_lane() { return ptx::lane_id() & 3; }

/* ---- the shape of an MLP ------------------------------------------------- */

template <typename T_, int LAYERS_, int CE, int W0, int W1, int W2, int W3>
struct widths {
  using T = T_;
  using L = lanes;
  static constexpr int LAYERS = LAYERS_;

  /* The width that layer l makes; that of layer -1 is the edges' own. */
  __host__ __device__ static constexpr int width(int l) {
    return l < 0 ? CE : l == 0 ? W0 : l == 1 ? W1 : l == 2 ? W2 : W3;
  }
  __host__ __device__ static constexpr int groups(int l) {
    return width(l) / L::GROUP;
  }
  __host__ __device__ static constexpr int most_groups(int l = -1) {
    return l == LAYERS                      ? 1
           : groups(l) > most_groups(l + 1) ? groups(l)
                                            : most_groups(l + 1);
  }

  /* Bytes of a row of the weights of layer l, and where the weights begin; then
   * follow biases and the norm's numbers, as floats. */
  __host__ __device__ static constexpr int row_bytes(int l) {
    return width(l - 1) * int(sizeof(T)) + MLP_PAD;
  }
  __host__ __device__ static constexpr int weight_at(int l) {
    return l ? weight_at(l - 1) + width(l - 1) * row_bytes(l - 1) : 0;
  }
  __host__ __device__ static constexpr int bias_at(int l) {
    return l ? bias_at(l - 1) + width(l - 1) * 4 : weight_at(LAYERS);
  }
};

template <typename T, int FLAGS, int WARPS_, int LAYERS, int CE, int W0, int W1,
          int W2, int W3, int ACTIVATION_, int NORM_>
struct shape : widths<T, LAYERS, CE, W0, W1, W2, W3> {
  using W = widths<T, LAYERS, CE, W0, W1, W2, W3>;
  using L = lanes;
  static constexpr int WARPS = WARPS_;
  static constexpr int ACTIVATION = ACTIVATION_;
  static constexpr int NORM = NORM_;
  static constexpr bool RESIDUAL = (FLAGS & MLP_RESIDUAL) != 0;
  static constexpr bool WEIGHTS = (FLAGS & MLP_WEIGHTS) != 0;
  static constexpr bool GRAD_EDGES = (FLAGS & MLP_GRAD_EDGES) != 0;
  static constexpr bool GRAD_DST = (FLAGS & MLP_GRAD_DST) != 0;
  static constexpr bool KEPT = (FLAGS & MLP_KEPT) != 0;
  /* Are rows read before the product whose result they meet?  More warps hide
   * the wait, and have no registers for it. */
  static constexpr bool EARLY = WARPS <= 8;
  static constexpr int C = W::width(LAYERS - 1);
  static constexpr int GROUPS = W::most_groups();
  static constexpr int TILES = GROUPS * L::TILES;
  static constexpr int NORM_AT = W::bias_at(LAYERS);
  static constexpr int PACKED = NORM_AT + 2 * W::width(LAYERS - 1) * 4;
};

/* The numbers of a tile of 16 edges before they are rounded. */
template <class S> struct sums { float x[S::TILES][4]; };
/* Rounded rows: [..][0] of row g, [..][1] of row g + 8. */
template <class S> struct rows { chunk x[S::GROUPS][2]; };

/* ---- chunks -------------------------------------------------------------- */

template <typename T>
DEVICE void unpack(float (&to)[lanes::V], const chunk &x) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    T low, high;
    low.bits = static_cast<unsigned short>(x.w[s]);
    high.bits = static_cast<unsigned short>(x.w[s] >> 16);
    to[2 * s] = widen(low);
    to[2 * s + 1] = widen(high);
  }
}

template <typename T> DEVICE chunk pack(const float (&x)[lanes::V]) {
  chunk to;
#pragma unroll
  for (int s = 0; s < 4; ++s)
    to.w[s] = pack_pair<T>(x[2 * s], x[2 * s + 1]);
  return to;
}

template <typename T> DEVICE chunk load_chunk(const T *row, int column) {
  const uint4 bits = __ldg(reinterpret_cast<const uint4 *>(row + column));
  return {{bits.x, bits.y, bits.z, bits.w}};
}

template <typename T>
DEVICE void store_chunk(T *row, int column, const chunk &x) {
  *reinterpret_cast<uint4 *>(row + column) =
      uint4{x.w[0], x.w[1], x.w[2], x.w[3]};
}

/* The numbers of a lane's chunk of group q in row g (half 0) or g + 8. */
template <class S> DEVICE float &at(sums<S> &z, int q, int half, int i) {
  return z.x[q * S::L::TILES + i / 2][half * 2 + i % 2];
}

template <class S>
DEVICE void add_chunk(sums<S> &z, int q, int half, const chunk &x) {
  float numbers[S::L::V];
  unpack<typename S::T>(numbers, x);
#pragma unroll
  for (int i = 0; i < S::L::V; ++i)
    at(z, q, half, i) += numbers[i];
}

/* Floats of all rows: a bias, or the norm's. */
DEVICE void load_floats(float (&x)[lanes::V], const float *from, int q) {
  constexpr int V = lanes::V;
  const float4 *p = reinterpret_cast<const float4 *>(from + q * lanes::GROUP +
                                                     chunk_of_lane() * V);
#pragma unroll
  for (int i = 0; i < V / 4; ++i) {
    const float4 y = p[i];
    x[4 * i] = y.x;
    x[4 * i + 1] = y.y;
    x[4 * i + 2] = y.z;
    x[4 * i + 3] = y.w;
  }
}

/* ---- products ------------------------------------------------------------ */

/* The part of k that words 2 s and 2 s + 1 of a group are. */
template <class S>
DEVICE void multiply_words(float (&d)[4], const chunk (&a)[2], int s,
                           unsigned b0, unsigned b1) {
  const unsigned words[4] = {a[0].w[2 * s], a[1].w[2 * s], a[0].w[2 * s + 1],
                             a[1].w[2 * s + 1]};
  mma_pairs<typename S::T>(d, words, b0, b1);
}

/* z += x W^T, with the weights of layer l. */
template <class S, int LAYER>
DEVICE void multiply(sums<S> &z, const rows<S> &x, const char *packed) {
  const int lane = ptx::lane_id();
  const char *weights = packed + S::weight_at(LAYER) +
                        (lane & 7) * S::row_bytes(LAYER) +
                        (lane >> 3) * MLP_CHUNK;
#pragma unroll
  for (int q = 0; q < S::groups(LAYER - 1); ++q) {
#pragma unroll
    for (int n = 0; n < S::groups(LAYER) * S::L::TILES; ++n) {
      unsigned b[4];
      load_matrices(b,
                    weights + n * 8 * S::row_bytes(LAYER) + q * 4 * MLP_CHUNK);
      multiply_words<S>(z.x[n], x.x[q], 0, b[0], b[1]);
      multiply_words<S>(z.x[n], x.x[q], 1, b[2], b[3]);
    }
  }
}

/* The words of column n of group `to` that belong to the k of group q. */
template <class S, int LAYER>
DEVICE void load_column(unsigned (&b)[4], const char *packed, int q, int to,
                        int n) {
  const int lane = ptx::lane_id();
  const char *weights = packed + S::weight_at(LAYER) + to * 4 * MLP_CHUNK;
  load_transposed(b, weights + (q * 32 + lane) * S::row_bytes(LAYER) +
                         n * MLP_CHUNK);
}

/* z = x W, with the weights of layer l: gradients go back. */
template <class S, int LAYER>
DEVICE void multiply_back(sums<S> &z, const rows<S> &x, const char *packed) {
#pragma unroll
  for (int n = 0; n < S::groups(LAYER - 1) * S::L::TILES; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      z.x[n][i] = 0.0f;
#pragma unroll
  for (int q = 0; q < S::groups(LAYER); ++q) {
#pragma unroll
    for (int n = 0; n < S::groups(LAYER - 1) * S::L::TILES; ++n) {
      unsigned b[4];
      load_column<S, LAYER>(b, packed, q, n / S::L::TILES, n % S::L::TILES);
      multiply_words<S>(z.x[n], x.x[q], 0, b[0], b[1]);
      multiply_words<S>(z.x[n], x.x[q], 1, b[2], b[3]);
    }
  }
}

/* ---- weights in shared memory -------------------------------------------- */

/* Every thread of the block calls it. */
template <class S> DEVICE void copy_packed(char *to, const void *from) {
  static_assert(S::PACKED % MLP_CHUNK == 0, "");
  for (int i = int(threadIdx.x) * MLP_CHUNK; i < S::PACKED;
       i += int(blockDim.x) * MLP_CHUNK)
    copy_async(to + i, static_cast<const char *>(from) + i, MLP_CHUNK);
  copy_commit();
  copy_wait<0>();
  __syncthreads();
}

/* ---- edges --------------------------------------------------------------- */

DEVICE int64_t entry(const void *array, int wide, int64_t i) {
  return offsets_t{array, wide}[i];
}

/* The edges of a tile.  Lane i <= 16 has the destination of edge first + i, -1
 * behind the last edge; a lane has sources and places of its rows. */
struct tile_edges {
  int destination; /* of edge first + lane */
  float factor;    /* of sums of that row: one over its edges for means */
  unsigned ends;   /* bit i: edge i is the last of its row */
  int count;       /* edges that there are, of 16 */
  int row[2], source[2];
  int64_t place[2]; /* in the caller's list */
  bool live[2];
};

/* One over the edges of a row if sums are to be means. */
DEVICE float mean_factor(const void *offsets, int wide, int64_t row) {
  if (!offsets)
    return 1.0f;
  const int64_t n = entry(offsets, wide, row + 1) - entry(offsets, wide, row);
  return n > 0 ? 1.0f / float(n) : 0.0f;
}

DEVICE tile_edges edges_of_tile(const mlp_graph &graph, const mlp_sums &sums,
                                int64_t first) {
  const int lane = ptx::lane_id();
  const int64_t mine = first + lane;
  tile_edges e;
  e.destination = lane <= MLP_TILE && mine < graph.edges
                      ? __ldg(graph.row_of_edge + mine)
                      : -1;
  e.factor = e.destination < 0
                 ? 0.0f
                 : mean_factor(sums.offsets, sums.wide, e.destination);
  const int next = __shfl_down_sync(kFullMask, e.destination, 1);
  e.ends = __ballot_sync(kFullMask, lane < MLP_TILE && mine < graph.edges &&
                                        next != e.destination);
  e.count = int(max(min(graph.edges - first, int64_t(MLP_TILE)), int64_t(0)));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = (lane >> 2) + 8 * half;
    e.live[half] = i < e.count;
    /* what is not there reads the last edge */
    const int64_t edge = min(first + i, graph.edges - 1);
    e.row[half] = __ldg(graph.row_of_edge + edge);
    e.source[half] = __ldg(graph.indices + edge);
    e.place[half] =
        graph.edge_order ? entry(graph.edge_order, graph.wide, edge) : edge;
  }
  return e;
}

/* ---- layers -------------------------------------------------------------- */

template <class S, int LAYER>
DEVICE void start_layer(sums<S> &z, const char *packed) {
  const float *bias =
      reinterpret_cast<const float *>(packed + S::bias_at(LAYER));
#pragma unroll
  for (int q = 0; q < S::groups(LAYER); ++q) {
    float b[S::L::V];
    load_floats(b, bias, q);
#pragma unroll
    for (int i = 0; i < S::L::V; ++i)
      at(z, q, 0, i) = at(z, q, 1, i) = b[i];
  }
}

/* Reads rows of WIDTH numbers, node after node or edge after edge. */
template <class S, int WIDTH>
DEVICE chunk row_chunk(const void *table, int64_t row, int q) {
  using T = typename S::T;
  return load_chunk<T>(static_cast<const T *>(table) + row * WIDTH,
                       q * S::L::GROUP + chunk_of_lane() * S::L::V);
}

template <class S>
DEVICE void add_part(sums<S> &z, const void *part, const int (&row)[2]) {
  if (part)
#pragma unroll
    for (int q = 0; q < S::groups(0); ++q)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_chunk(z, q, half, row_chunk<S, S::width(0)>(part, row[half], q));
}

/* The rows of e, and z of the first layer. */
template <class S>
DEVICE void first_layer(sums<S> &z, rows<S> &x, const mlp_forward_params &p,
                        const tile_edges &e, const char *packed) {
#pragma unroll
  for (int q = 0; q < S::groups(-1); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      x.x[q][half] = row_chunk<S, S::width(-1)>(p.edge, e.place[half], q);
  start_layer<S, 0>(z, packed);
  add_part(z, p.dst_part, e.row);
  add_part(z, p.src_part, e.source);
  multiply<S, 0>(z, x, packed);
}

/* f of the numbers of a lane's chunk, rounded. */
template <class S, class F>
DEVICE chunk rounded(sums<S> &z, int q, int half, const F &f) {
  float y[S::L::V];
#pragma unroll
  for (int i = 0; i < S::L::V; ++i)
    y[i] = f(at(z, q, half, i));
  return pack<typename S::T>(y);
}
template <class S> DEVICE chunk rounded(sums<S> &z, int q, int half) {
  return rounded(z, q, half, [](float x) { return x; });
}

/* x = activation(z) of layer l. */
template <class S, int LAYER>
DEVICE void activate_layer(rows<S> &x, sums<S> &z) {
#pragma unroll
  for (int q = 0; q < S::groups(LAYER); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      x.x[q][half] = rounded(z, q, half, [&](float y) {
        return activate<S::ACTIVATION, typename S::T>(y);
      });
}

} // namespace mlp
} // namespace dfgnn

#endif
