/* backward.cuh - back through the layers of tiles: gradients with respect to e,
 * the parts of destinations and z
 *
 * mlp_last_rows of last_rows.cuh has gone back to z of the last layer, and z of
 * the others was kept by the forward pass.  weights.cuh reads the rows that
 * this leaves in memory. */
#ifndef DFGNN_MLP_CUDA_BACKWARD_CUH
#define DFGNN_MLP_CUDA_BACKWARD_CUH

#include "kernels/mlp/cuda/spans.cuh"
#include "kernels/mlp/cuda/stored.cuh"

namespace dfgnn {
namespace mlp {

template <class S>
DEVICE void add_scaled(float (&to)[S::L::V], const chunk &x, float factor) {
  float y[S::L::V];
  unpack<typename S::T>(y, x);
#pragma unroll
  for (int i = 0; i < S::L::V; ++i)
    to[i] += y[i] * factor;
}

/* z is the gradient with respect to e without that of the residual. */
template <class S>
DEVICE void write_edge_gradient(sums<S> &z, const mlp_backward_params &p,
                                const tile_edges &e) {
  using T = typename S::T;
  constexpr int V = S::L::V;
  const bool adds = S::RESIDUAL && S::GRAD_DST;
  float factor[2] = {1.0f, 1.0f};
  if constexpr (adds)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      factor[half] =
          mean_factor(p.dst_offsets, p.forward.graph.wide, e.row[half]);
#pragma unroll
  for (int q = 0; q < S::groups(-1); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[V];
#pragma unroll
      for (int i = 0; i < V; ++i)
        y[i] = at(z, q, half, i);
      if constexpr (S::RESIDUAL && S::GRAD_EDGES)
        add_scaled<S>(y, row_chunk<S, S::C>(p.grad_edge_out, e.place[half], q),
                      1.0f);
      if constexpr (adds)
        add_scaled<S>(y, row_chunk<S, S::C>(p.grad_out_dst, e.row[half], q),
                      factor[half]);
      if (e.live[half])
        store_chunk<T>(static_cast<T *>(p.grad_edge) +
                           e.place[half] * S::width(-1),
                       q * S::L::GROUP + chunk_of_lane() * V, pack<T>(y));
    }
}

/* z *= a'(x) of the rows of a layer's z; x becomes a(x) if that is needed. */
template <class S, int LAYER>
DEVICE void multiply_slopes(sums<S> &z, rows<S> &x) {
  using T = typename S::T;
#pragma unroll
  for (int q = 0; q < S::groups(LAYER); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[S::L::V];
      unpack<T>(y, x.x[q][half]);
#pragma unroll
      for (int i = 0; i < S::L::V; ++i) {
        at(z, q, half, i) *= derivative<S::ACTIVATION, T>(y[i]);
        if constexpr (S::WEIGHTS)
          y[i] = activate<S::ACTIVATION, T>(y[i]);
      }
      if constexpr (S::WEIGHTS)
        x.x[q][half] = pack<T>(y);
    }
}

/* x: the gradient with respect to z of a layer; z has it before rounding when
 * this ends. */
template <class S, int LAYER>
DEVICE void go_back(sums<S> &z, rows<S> &x, const mlp_backward_params &p,
                    const tile_edges &e, int64_t local, const char *packed) {
  if constexpr (LAYER > 0) {
    if constexpr (S::WEIGHTS && LAYER + 1 < S::LAYERS)
      write_rows<S, LAYER>(p.grad_z[LAYER], local, x, e);
    rows<S> before;
    if constexpr (S::EARLY)
      read_rows<S, LAYER - 1>(before, p.z[LAYER - 1], local, e);
    multiply_back<S, LAYER>(z, x, packed);
    if constexpr (!S::EARLY)
      read_rows<S, LAYER - 1>(before, p.z[LAYER - 1], local, e);
    multiply_slopes<S, LAYER - 1>(z, before);
    if constexpr (S::WEIGHTS)
      write_rows<S, LAYER - 1>(p.input[LAYER], local, before, e);
    pack_rows<S, LAYER - 1>(x, z);
    go_back<S, LAYER - 1>(z, x, p, e, local, packed);
  }
}

/* Adds the gradient with respect to z of the first layer at destinations. */
template <class S>
DEVICE void sum_rows(sums<S> &z, const mlp_backward_params &p,
                     const tile_edges &e, char *staged,
                     span_sums<S, 0> &sums_at, int64_t span) {
#pragma unroll
  for (int q = 0; q < S::groups(0); ++q) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[S::L::V];
#pragma unroll
      for (int i = 0; i < S::L::V; ++i)
        y[i] = at(z, q, half, i);
      sums_at.stage(staged, half, y);
    }
    sums_at.take(staged, q, e, p.forward.sums, span);
  }
}

/* Brings near what the warp's next tile reads. */
template <class S>
DEVICE void fetch_tile(const mlp_backward_params &p, int64_t edge,
                       int64_t local) {
  fetch_layer<S, S::LAYERS - 1>(p.grad_z[S::LAYERS - 1], local);
  fetch_layer<S, 0>(p.z[0], local);
  if constexpr (S::LAYERS > 2)
    fetch_layer<S, 1>(p.z[1], local);
  if constexpr (S::LAYERS > 3)
    fetch_layer<S, 2>(p.z[2], local);
  fetch_edges(p.forward.graph, edge,
              S::RESIDUAL && S::GRAD_EDGES ? p.grad_edge_out : nullptr,
              S::C * int(sizeof(typename S::T)));
}

/* local: the tile's first edge in the launch. */
template <class S>
DEVICE void go_back_tile(const mlp_backward_params &p, const tile_edges &e,
                         int64_t edge, int64_t local, const char *packed,
                         char *staged, span_sums<S, 0> &sums_at, int64_t span) {
  constexpr int LAST = S::LAYERS - 1;
  sums<S> z;
  rows<S> x;
  read_rows<S, LAST>(x, p.grad_z[LAST], local, e);
  go_back<S, LAST>(z, x, p, e, local, packed);
  if (p.grad_first)
    write_rows<S, 0>(p.grad_first, edge, x, e);
  if (p.forward.sums.out)
    sum_rows<S>(z, p, e, staged, sums_at, span);
  if (p.grad_edge) {
    multiply_back<S, 0>(z, x, packed);
    write_edge_gradient<S>(z, p, e);
  }
}

} // namespace mlp

template <typename T, int FLAGS, int WARPS, int LAYERS, int CE, int W0, int W1,
          int W2, int W3, int ACTIVATION, int NORM>
__global__ void __launch_bounds__(WARPS * 32, 1)
    mlp_backward_layers(const mlp_backward_params p) {
  using S =
      mlp::shape<T, FLAGS, WARPS, LAYERS, CE, W0, W1, W2, W3, ACTIVATION, NORM>;
  extern __shared__ uint4 shared[];
  char *packed = reinterpret_cast<char *>(shared);
  const mlp_forward_params &q = p.forward;
  const int warp = int(threadIdx.x) / 32;
  char *staged = packed + S::PACKED + warp * MLP_TILE * MLP_STAGE_ROW;
  mlp::copy_packed<S>(packed, q.packed);
  const int64_t edges_of_span = int64_t(q.span) * MLP_TILE;
  const int64_t first_of_launch = q.first_span * edges_of_span;
  for (int64_t k0 = blockIdx.x; k0 < q.spans;
       k0 += int64_t(gridDim.x) * WARPS) {
    const int64_t k = k0 + int64_t(warp) * gridDim.x;
    if (k >= q.spans)
      break;
    const int64_t span = q.first_span + k;
    const int64_t first = span * edges_of_span;
    const int64_t end = min(first + edges_of_span, q.graph.edges);
    mlp::span_sums<S, 0> sums_at;
    sums_at.begin(q.graph, first);
    for (int64_t edge = first; edge < end; edge += MLP_TILE) {
      if (edge + 2 * MLP_TILE <= end)
        mlp::fetch_tile<S>(p, edge + MLP_TILE,
                           edge + MLP_TILE - first_of_launch);
      const mlp::tile_edges e = mlp::edges_of_tile(q.graph, q.sums, edge);
      mlp::go_back_tile<S>(p, e, edge, edge - first_of_launch, packed, staged,
                           sums_at, span);
      sums_at.end_tile(e);
    }
    if (q.sums.out)
      sums_at.end(q.graph, q.sums, span, end);
  }
}

} // namespace dfgnn

#endif
