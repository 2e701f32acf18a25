/* forward.cuh - e' of every edge and its sum at the destination
 *
 * Weights stay in the shared memory of a block; its warps walk spans of tiles
 * apart from one another. */
#ifndef DFGNN_MLP_CUDA_FORWARD_CUH
#define DFGNN_MLP_CUDA_FORWARD_CUH

#include "kernels/mlp/cuda/spans.cuh"
#include "kernels/mlp/cuda/stored.cuh"

namespace dfgnn {
namespace mlp {

/* ---- what LayerNorm and RMSNorm subtract from a row and scale it by ------ */

/* A sum over the four lanes of a row. */
DEVICE float row_sum(float x) { return lanes_sum<4>(x); }

/* (x - mean) scale, for the two rows of a lane. */
struct norm_of_rows {
  float mean[2], scale[2];
};

template <class S> DEVICE norm_of_rows measure(sums<S> &u, float epsilon) {
  constexpr int LAST = S::LAYERS - 1;
  norm_of_rows norm = {{0.0f, 0.0f}, {1.0f, 1.0f}};
  if constexpr (S::NORM != MLP_NORM_NONE) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (S::NORM == MLP_NORM_LAYER) {
        float sum = 0.0f;
#pragma unroll
        for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
          for (int i = 0; i < S::L::V; ++i)
            sum += at(u, q, half, i);
        norm.mean[half] = row_sum(sum) * (1.0f / S::C);
      }
      float squares = 0.0f;
#pragma unroll
      for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
        for (int i = 0; i < S::L::V; ++i) {
          const float d = at(u, q, half, i) - norm.mean[half];
          squares += d * d;
        }
      norm.scale[half] =
          1.0f / sqrtf(row_sum(squares) * (1.0f / S::C) + epsilon);
    }
  }
  return norm;
}

/* ---- edges --------------------------------------------------------------- */

/* z of layer LAYER - 1 becomes that of the last; each is kept on the way if the
 * way back reads it. */
template <class S, int LAYER>
DEVICE void further_layers(sums<S> &z, rows<S> &x, const mlp_forward_params &p,
                           const tile_edges &e, int64_t edge,
                           const char *packed) {
  if constexpr (S::KEPT)
    if (p.kept[LAYER - 1])
      write_sums<S, LAYER - 1>(p.kept[LAYER - 1], edge, z, e);
  if constexpr (LAYER < S::LAYERS) {
    activate_layer<S, LAYER - 1>(x, z);
    start_layer<S, LAYER>(z, packed);
    multiply<S, LAYER>(z, x, packed);
    further_layers<S, LAYER + 1>(z, x, p, e, edge, packed);
  }
}

/* e' of the last layer's z, one chunk after the other. */
template <class S>
DEVICE void finish_tile(sums<S> &z, const mlp_forward_params &p,
                        const tile_edges &e, const char *packed, char *staged,
                        span_sums<S, S::LAYERS - 1> &sums_at, int64_t span) {
  using T = typename S::T;
  constexpr int LAST = S::LAYERS - 1;
  constexpr int V = S::L::V;
  const float *norm_numbers =
      reinterpret_cast<const float *>(packed + S::NORM_AT);
  rows<S> own; /* all is loaded before lanes wait for each other */
  if constexpr (S::RESIDUAL)
#pragma unroll
    for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        own.x[q][half] = row_chunk<S, S::C>(p.edge, e.place[half], q);
  const norm_of_rows norm = measure<S>(z, p.epsilon);
#pragma unroll
  for (int q = 0; q < S::groups(LAST); ++q) {
    float scale[V], shift[V];
    if constexpr (S::NORM != MLP_NORM_NONE) {
      load_floats(scale, norm_numbers, q);
      load_floats(shift, norm_numbers + S::C, q);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[V], added[V];
      if constexpr (S::RESIDUAL)
        unpack<T>(added, own.x[q][half]);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        y[i] = at(z, q, half, i);
        if constexpr (S::NORM != MLP_NORM_NONE)
          y[i] =
              (y[i] - norm.mean[half]) * norm.scale[half] * scale[i] + shift[i];
        if constexpr (S::RESIDUAL)
          y[i] += added[i];
        y[i] = e.live[half] ? y[i] : 0.0f;
      }
      if (p.edge_out && e.live[half])
        store_chunk<T>(static_cast<T *>(p.edge_out) + e.place[half] * S::C,
                       q * S::L::GROUP + chunk_of_lane() * V, pack<T>(y));
      if (p.sums.out)
        sums_at.stage(staged, half, y);
    }
    if (p.sums.out)
      sums_at.take(staged, q, e, p.sums, span);
  }
}

} // namespace mlp

template <typename T, int FLAGS, int WARPS, int LAYERS, int CE, int W0, int W1,
          int W2, int W3, int ACTIVATION, int NORM>
__global__ void __launch_bounds__(WARPS * 32, 1)
    mlp_forward(const mlp_forward_params p) {
  using S =
      mlp::shape<T, FLAGS, WARPS, LAYERS, CE, W0, W1, W2, W3, ACTIVATION, NORM>;
  extern __shared__ uint4 shared[];
  char *packed = reinterpret_cast<char *>(shared);
  const int warp = int(threadIdx.x) / 32;
  char *staged = packed + S::PACKED + warp * MLP_TILE * MLP_STAGE_ROW;
  mlp::copy_packed<S>(packed, p.packed);
  const int64_t edges_of_span = int64_t(p.span) * MLP_TILE;
  for (int64_t k0 = blockIdx.x; k0 < p.spans;
       k0 += int64_t(gridDim.x) * WARPS) {
    const int64_t k = k0 + int64_t(warp) * gridDim.x;
    if (k >= p.spans)
      break;
    const int64_t span = p.first_span + k;
    const int64_t first = span * edges_of_span;
    const int64_t end = min(first + edges_of_span, p.graph.edges);
    mlp::span_sums<S, LAYERS - 1> sums_at;
    sums_at.begin(p.graph, first);
    for (int64_t edge = first; edge < end; edge += MLP_TILE) {
      if (edge + 2 * MLP_TILE <= end)
        mlp::fetch_edges(p.graph, edge + MLP_TILE, p.edge, CE * int(sizeof(T)));
      const mlp::tile_edges e = mlp::edges_of_tile(p.graph, p.sums, edge);
      mlp::sums<S> z;
      mlp::rows<S> x;
      mlp::first_layer<S>(z, x, p, e, packed);
      mlp::further_layers<S, 1>(z, x, p, e, edge, packed);
      mlp::finish_tile<S>(z, p, e, packed, staged, sums_at, span);
      sums_at.end_tile(e);
    }
    if (p.sums.out)
      sums_at.end(p.graph, p.sums, span, end);
  }
}

} // namespace dfgnn

#endif
