/* backward.cuh - gradients with respect to e, the parts of destinations and z
 *
 * For the edges of a launch, mlp_backward_last computes the inner values of a
 * tile again and goes back through the norm (where they were kept,
 * mlp_last_rows of last_rows.cuh does); mlp_backward_layers goes back through
 * the layers.  They are two kernels, since the code of both would leave the
 * cache of instructions; between them, and for weights.cuh, rows of the
 * launch's edges are in memory. */
#ifndef DFGNN_MLP_CUDA_BACKWARD_CUH
#define DFGNN_MLP_CUDA_BACKWARD_CUH

#include "kernels/mlp/cuda/gradients.cuh"
#include "kernels/mlp/cuda/spans.cuh"
#include "kernels/mlp/cuda/stored.cuh"

namespace dfgnn {
namespace mlp {

template <class S, int LAYER>
__device__ __forceinline__ void
compute_again(sums<S> &z, rows<S> &x, const mlp_backward_params &p,
              const tile_edges &e, int64_t local, const char *packed) {
  if constexpr (LAYER < S::LAYERS) {
    pack_rows<S, LAYER - 1>(x, z);
    write_rows<S, LAYER - 1>(p.z[LAYER - 1], local, x, e);
    activate_layer<S, LAYER - 1>(x, z, p.forward.slope);
    if constexpr (S::WEIGHTS)
      write_rows<S, LAYER - 1>(p.input[LAYER], local, x, e);
    start_layer<S, LAYER>(z, packed);
    multiply<S, LAYER>(z, x, packed);
    compute_again<S, LAYER + 1>(z, x, p, e, local, packed);
  }
}

/* ---- back through the layers --------------------------------------------- */

/* z is the gradient with respect to e but for the residual. */
template <class S>
__device__ __forceinline__ void
write_edge_gradient(sums<S> &z, const mlp_backward_params &p,
                    const tile_edges &e, const gradient_factors &f) {
  using T = typename S::T;
  constexpr int V = S::L::V;
#pragma unroll
  for (int q = 0; q < S::groups(-1); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[V];
#pragma unroll
      for (int i = 0; i < V; ++i)
        y[i] = 0.0f;
      if constexpr (S::RESIDUAL)
        output_gradient<S>(y, p, e, f, q, half);
#pragma unroll
      for (int i = 0; i < V; ++i)
        y[i] += at(z, q, half, i);
      if (e.live[half])
        store_chunk<T, S::width(-1), S::VECTOR>(
            static_cast<T *>(p.grad_edge) + e.place[half] * S::width(-1),
            q * S::L::GROUP + chunk_of_lane() * V, pack<T>(y));
    }
}

/* z *= a'(x) of the rows of a layer's z; x becomes a(x) if that is needed. */
template <class S, int LAYER>
__device__ __forceinline__ void multiply_slopes(sums<S> &z, rows<S> &x,
                                                float slope) {
  using T = typename S::T;
#pragma unroll
  for (int q = 0; q < S::groups(LAYER); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[S::L::V];
      unpack<T>(y, x.x[q][half]);
#pragma unroll
      for (int i = 0; i < S::L::V; ++i) {
        at(z, q, half, i) *= derivative<S::ACTIVATION, T>(y[i], slope);
        if constexpr (S::KEPT && S::WEIGHTS)
          y[i] = activate<S::ACTIVATION, T>(y[i], slope);
      }
      if constexpr (S::KEPT && S::WEIGHTS)
        x.x[q][half] = pack<T>(y);
    }
}

/* x: the gradient with respect to z of a layer; z has it before rounding when
 * this ends. */
template <class S, int LAYER>
__device__ __forceinline__ void
go_back(sums<S> &z, rows<S> &x, const mlp_backward_params &p,
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
    multiply_slopes<S, LAYER - 1>(z, before, p.forward.slope);
    if constexpr (S::KEPT && S::WEIGHTS)
      write_rows<S, LAYER - 1>(p.input[LAYER], local, before, e);
    pack_rows<S, LAYER - 1>(x, z);
    go_back<S, LAYER - 1>(z, x, p, e, local, packed);
  }
}

/* Adds the gradient with respect to z of the first layer at destinations. */
template <class S>
__device__ __forceinline__ void
sum_rows(sums<S> &z, const mlp_backward_params &p, const tile_edges &e,
         char *staged, span_sums<S, 0> &sums_at, int64_t span) {
#pragma unroll
  for (int q = 0; q < S::groups(0); ++q) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[S::L::V];
#pragma unroll
      for (int i = 0; i < S::L::V; ++i)
        y[i] = at(z, q, half, i);
      sums_at.stage(staged, q, half, y);
    }
    sums_at.take(staged, q, e, p.forward.sums, span);
  }
}

/* Where the gradient with respect to the last layer's z is between the
 * kernels. */
template <class S>
__device__ __forceinline__ void *last_rows(const mlp_backward_params &p) {
  return S::LAYERS > 1 ? p.grad_z[S::LAYERS - 1] : p.grad_first;
}

/* Brings near the gradients of an edge that both kernels read. */
template <class S>
__device__ __forceinline__ void fetch_gradient(const mlp_backward_params &p,
                                               int64_t edge) {
  fetch_edges(p.forward.graph, edge, S::GRAD_EDGES ? p.grad_edge_out : nullptr,
              S::C * int(sizeof(typename S::T)));
}

/* Both kernels do this with a tile; local: its first edge in the launch. */
template <class S> struct last_tile {
  norm_gradient<S> norm_sums;

  __device__ __forceinline__ void begin() { norm_sums.clear(); }
  __device__ __forceinline__ static void fetch(const mlp_backward_params &p,
                                               int64_t edge, int64_t) {
    fetch_gradient<S>(p, edge);
    if (!p.forward.graph.edge_order)
      fetch_rows(p.forward.edge, edge,
                 S::width(-1) * int(sizeof(typename S::T)));
  }
  __device__ __forceinline__ void tile(const mlp_backward_params &p,
                                       const tile_edges &e, int64_t edge,
                                       int64_t local, const char *packed,
                                       char *staged, span_sums<S, 0> &sums_at,
                                       int64_t span) {
    sums<S> z;
    rows<S> x;
    first_layer<S>(z, x, p.forward, e, packed);
    if constexpr (S::WEIGHTS && S::groups(-1) > 0)
      if (p.input[0])
        write_rows<S, -1>(p.input[0], local, x, e);
    compute_again<S, 1>(z, x, p, e, local, packed);
    last_gradient<S>(z, norm_sums, p, e, factors_of<S>(p, e, edge, true),
                     packed);
    pack_rows<S, S::LAYERS - 1>(x, z);
    write_rows<S, S::LAYERS - 1>(last_rows<S>(p), S::LAYERS > 1 ? local : edge,
                                 x, e);
    if constexpr (S::LAYERS == 1)
      if (p.forward.sums.out)
        sum_rows<S>(z, p, e, staged, sums_at, span);
  }
  __device__ __forceinline__ void end(const mlp_backward_params &p, int warp) {
    if (S::NORM != MLP_NORM_NONE && p.norm_partial)
      norm_sums.write(
          p.norm_partial + int64_t(warp) * 2 * S::padded(S::LAYERS - 1), p.add);
  }
};

template <class S> struct layers_tile {
  __device__ __forceinline__ void begin() {}
  __device__ __forceinline__ static void fetch(const mlp_backward_params &p,
                                               int64_t edge, int64_t local) {
    fetch_layer<S, S::LAYERS - 1>(last_rows<S>(p),
                                  S::LAYERS > 1 ? local : edge);
    if constexpr (S::LAYERS > 1)
      fetch_layer<S, 0>(p.z[0], local);
    if constexpr (S::LAYERS > 2)
      fetch_layer<S, 1>(p.z[1], local);
    if constexpr (S::LAYERS > 3)
      fetch_layer<S, 2>(p.z[2], local);
    fetch_gradient<S>(p, edge);
  }
  __device__ __forceinline__ void tile(const mlp_backward_params &p,
                                       const tile_edges &e, int64_t edge,
                                       int64_t local, const char *packed,
                                       char *staged, span_sums<S, 0> &sums_at,
                                       int64_t span) {
    sums<S> z;
    rows<S> x;
    read_rows<S, S::LAYERS - 1>(x, last_rows<S>(p),
                                S::LAYERS > 1 ? local : edge, e);
    if constexpr (S::LAYERS > 1) {
      go_back<S, S::LAYERS - 1>(z, x, p, e, local, packed);
      if (p.grad_first)
        write_rows<S, 0>(p.grad_first, edge, x, e);
      if (p.forward.sums.out)
        sum_rows<S>(z, p, e, staged, sums_at, span);
    }
    if constexpr (S::groups(-1) > 0)
      if (p.grad_edge) {
        multiply_back<S, 0>(z, x, packed);
        write_edge_gradient<S>(z, p, e, factors_of<S>(p, e, edge, true));
      }
  }
  __device__ __forceinline__ void end(const mlp_backward_params &, int) {}
};

/* sums: does the kernel add at destinations? */
template <class S, template <class> class WORK>
__device__ __forceinline__ void walk_back(const mlp_backward_params &p,
                                          bool sums) {
  extern __shared__ uint4 shared[];
  char *packed = reinterpret_cast<char *>(shared);
  const mlp_forward_params &q = p.forward;
  const int warp = int(threadIdx.x) / 32;
  char *staged = packed + S::PACKED + warp * MLP_TILE * MLP_STAGE_ROW;
  copy_packed<S>(packed, q.packed);
  const int64_t edges_of_span = int64_t(q.span) * MLP_TILE;
  const int64_t first_of_launch = q.first_span * edges_of_span;
  WORK<S> work;
  work.begin();
  for (int64_t k0 = blockIdx.x; k0 < q.spans;
       k0 += int64_t(gridDim.x) * S::WARPS) {
    const int64_t k = k0 + int64_t(warp) * gridDim.x;
    if (k >= q.spans) {
      wait_for_tiles<S>(q.span);
      continue;
    }
    const int64_t span = q.first_span + k;
    const int64_t first = span * edges_of_span;
    const int64_t end = min(first + edges_of_span, q.graph.edges);
    span_sums<S, 0> sums_at;
    sums_at.begin(q.graph, q.sums, first);
    for (int64_t edge = first; edge < end; edge += MLP_TILE) {
      wait_for_tiles<S>(1);
      if (edge + 2 * MLP_TILE <= end)
        work.fetch(p, edge + MLP_TILE, edge + MLP_TILE - first_of_launch);
      const tile_edges e = edges_of_tile(q.graph, q.sums, edge);
      work.tile(p, e, edge, edge - first_of_launch, packed, staged, sums_at,
                span);
      sums_at.end_tile(e);
    }
    wait_for_tiles<S>(q.span - tiles_of(end - first));
    if (sums && q.sums.out)
      sums_at.end(q.graph, q.sums, span, end);
  }
  work.end(p, int(blockIdx.x) * S::WARPS + warp);
}

} // namespace mlp

template <typename T, int FLAGS, int WARPS, int LAYERS, int CE, int W0, int W1,
          int W2, int W3, int ACTIVATION, int LAST, int NORM>
__global__ void __launch_bounds__(WARPS * 32, 1)
    mlp_backward_last(const mlp_backward_params p) {
  mlp::walk_back<mlp::shape<T, FLAGS, WARPS, LAYERS, CE, W0, W1, W2, W3,
                            ACTIVATION, LAST, NORM>,
                 mlp::last_tile>(p, LAYERS == 1);
}

template <typename T, int FLAGS, int WARPS, int LAYERS, int CE, int W0, int W1,
          int W2, int W3, int ACTIVATION, int LAST, int NORM>
__global__ void __launch_bounds__(WARPS * 32, 1)
    mlp_backward_layers(const mlp_backward_params p) {
  mlp::walk_back<mlp::shape<T, FLAGS, WARPS, LAYERS, CE, W0, W1, W2, W3,
                            ACTIVATION, LAST, NORM>,
                 mlp::layers_tile>(p, LAYERS > 1);
}

} // namespace dfgnn

#endif
