/* backward.cuh - gradients with respect to e, the parts of destinations and z
 *
 * For the edges of a launch, mlp_backward_last computes the inner values of a
 * tile again and goes back through the norm; mlp_backward_layers goes back
 * through the layers.  They are two kernels, since the code of both would leave
 * the cache of instructions; between them, and for weights.cuh, rows of the
 * launch's edges are in memory. */
#ifndef DFGNN_MLP_CUDA_BACKWARD_CUH
#define DFGNN_MLP_CUDA_BACKWARD_CUH

#include "kernels/mlp/cuda/spans.cuh"

namespace dfgnn {
namespace mlp {

/* Rows from `edge` on, padded. */
template <class S, int LAYER>
__device__ __forceinline__ void
write_rows(void *to, int64_t edge, const rows<S> &x, const tile_edges &e) {
  using T = typename S::T;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (e.live[half]) {
      T *row = static_cast<T *>(to) +
               (edge + row_of_lane() + 8 * half) * S::padded(LAYER);
#pragma unroll
      for (int q = 0; q < S::groups(LAYER); ++q)
        store_chunk<T, S::padded(LAYER), true>(
            row, q * S::L::GROUP + chunk_of_lane() * S::L::V, x.x[q][half]);
    }
}

/* Rows that are not there are 0. */
template <class S, int LAYER>
__device__ __forceinline__ void read_rows(rows<S> &x, const void *from,
                                          int64_t edge, const tile_edges &e) {
  using T = typename S::T;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T *row = static_cast<const T *>(from) +
                   (edge + (e.live[half] ? row_of_lane() + 8 * half : 0)) *
                       S::padded(LAYER);
#pragma unroll
    for (int q = 0; q < S::groups(LAYER); ++q)
      x.x[q][half] = e.live[half]
                         ? load_chunk<T, S::padded(LAYER), true>(
                               row, q * S::L::GROUP + chunk_of_lane() * S::L::V)
                         : chunk{};
  }
}

template <class S, int LAYER>
__device__ __forceinline__ void pack_rows(rows<S> &x, sums<S> &z) {
#pragma unroll
  for (int q = 0; q < S::groups(LAYER); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[S::L::V];
#pragma unroll
      for (int i = 0; i < S::L::V; ++i)
        y[i] = at(z, q, half, i);
      x.x[q][half] = pack<typename S::T>(y);
    }
}

template <class S, int LAYER>
__device__ __forceinline__ void
compute_again(sums<S> &z, rows<S> &x, const mlp_backward_params &p,
              const tile_edges &e, int64_t local, const char *packed) {
  if constexpr (LAYER < S::LAYERS) {
    pack_rows<S, LAYER - 1>(x, z);
    write_rows<S, LAYER - 1>(p.z[LAYER - 1], local, x, e);
    activate_layer<S, LAYER - 1>(x, z, p.forward.slope);
    if constexpr (S::KEEP)
      write_rows<S, LAYER - 1>(p.input[LAYER], local, x, e);
    start_layer<S, LAYER>(z, packed);
    multiply<S, LAYER>(z, x, packed);
    compute_again<S, LAYER + 1>(z, x, p, e, local, packed);
  }
}

/* ---- the gradient with respect to e' ------------------------------------- */

/* What the sums' gradients are multiplied by: factors of edges, and one over
 * the degree of a mean. */
struct gradient_factors {
  float destination[2], source[2];
  int at[2]; /* for extremes: which edge of its row it is */
};

/* own: of the edge itself, too. */
template <class S>
__device__ __forceinline__ gradient_factors
factors_of(const mlp_backward_params &p, const tile_edges &e, int64_t first,
           bool own) {
  using T = typename S::T;
  gradient_factors f;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    f.destination[half] =
        mean_factor(p.dst_offsets, p.forward.graph.wide, e.row[half]);
    f.source[half] =
        mean_factor(p.src_offsets, p.forward.graph.wide, e.source[half]);
    if constexpr (S::EXTREME)
      f.at[half] = int(first + row_of_lane() + 8 * half -
                       entry(p.row_offsets, p.forward.graph.wide, e.row[half]));
    if (own) {
      f.destination[half] *=
          edge_factor<T>(p.forward.dst_factor, e.place[half]);
      f.source[half] *= edge_factor<T>(p.forward.src_factor, e.place[half]);
    }
  }
  return f;
}

template <class S>
__device__ __forceinline__ void add_scaled(float (&to)[S::L::V], const chunk &x,
                                           float factor) {
  float y[S::L::V];
  unpack<typename S::T>(y, x);
#pragma unroll
  for (int i = 0; i < S::L::V; ++i)
    to[i] += y[i] * factor;
}

/* The gradient of an extreme goes to the edge that it was of. */
template <class S>
__device__ __forceinline__ void
add_extreme(float (&to)[S::L::V], const mlp_backward_params &p,
            const tile_edges &e, const gradient_factors &f, int q, int half) {
  const int column = q * S::L::GROUP + chunk_of_lane() * S::L::V;
  const int32_t *arg = p.arg_dst + int64_t(e.row[half]) * S::C + column;
  float y[S::L::V];
  unpack<typename S::T>(y, row_chunk<S, S::C>(p.grad_out_dst, e.row[half], q));
#pragma unroll
  for (int i = 0; i < S::L::V; ++i)
    if (column + i < S::C && __ldg(arg + i) == f.at[half])
      to[i] += y[i];
}

template <class S>
__device__ __forceinline__ void
output_gradient(float (&to)[S::L::V], const mlp_backward_params &p,
                const tile_edges &e, const gradient_factors &f, int q,
                int half) {
#pragma unroll
  for (int i = 0; i < S::L::V; ++i)
    to[i] = 0.0f;
  if (!e.live[half])
    return;
  if constexpr (S::GRAD_EDGES)
    add_scaled<S>(to, row_chunk<S, S::C>(p.grad_edge_out, e.place[half], q),
                  1.0f);
  if constexpr (S::GRAD_DST && S::EXTREME)
    add_extreme<S>(to, p, e, f, q, half);
  else if constexpr (S::GRAD_DST)
    add_scaled<S>(to, row_chunk<S, S::C>(p.grad_out_dst, e.row[half], q),
                  f.destination[half]);
  if constexpr (S::GRAD_SRC)
    add_scaled<S>(to, row_chunk<S, S::C>(p.grad_out_src, e.source[half], q),
                  f.source[half]);
}

/* ---- norms --------------------------------------------------------------- */

/* Sums over the warp's edges of the gradients of the norm's weight and bias.
 * After fold a lane has the sums of V / 4 of the 2 V numbers of a group. */
template <class S> struct norm_gradient {
  static constexpr int V = S::L::V;
  static constexpr int LAST = S::LAYERS - 1;
  float sum[S::groups(LAST)][V / 4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
      for (int i = 0; i < V / 4; ++i)
        sum[q][i] = 0.0f;
  }
  /* Lanes that differ in bit MASK halve the numbers between them. */
  template <int MASK>
  __device__ __forceinline__ static void fold_lanes(float (&x)[2 * V]) {
    constexpr int N = V * MASK / 16;
    const bool upper = (ptx::lane_id() & MASK) != 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float mine = upper ? x[i + N] : x[i];
      const float give = upper ? x[i] : x[i + N];
      x[i] = mine + __shfl_xor_sync(kFullMask, give, MASK);
    }
    if constexpr (MASK > 4)
      fold_lanes<MASK / 2>(x);
  }
  /* x: V numbers of the weight, then V of the bias. */
  __device__ __forceinline__ void fold(int q, float (&x)[2 * V]) {
    fold_lanes<16>(x);
#pragma unroll
    for (int i = 0; i < V / 4; ++i)
      sum[q][i] += x[i];
  }
  /* to: [2, padded width] of the warp. */
  __device__ __forceinline__ void write(float *to, bool add) const {
    const int lane = ptx::lane_id();
    const int first = (lane >> 4 & 1) * V + (lane >> 3 & 1) * (V / 2) +
                      (lane >> 2 & 1) * (V / 4);
#pragma unroll
    for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
      for (int i = 0; i < V / 4; ++i) {
        const int k = first + i;
        float *p = to + (k / V) * S::padded(LAST) + q * S::L::GROUP +
                   chunk_of_lane() * V + k % V;
        *p = sum[q][i] + (add ? *p : 0.0f);
      }
  }
};

/* The gradients with respect to factors are products of e' with the gradients
 * of sums.  u: the last layer's value before the norm. */
template <class S>
__device__ __forceinline__ void
factor_gradients(sums<S> &u, const norm_of_rows &norm,
                 const mlp_backward_params &p, const tile_edges &e,
                 const char *packed) {
  using T = typename S::T;
  constexpr int LAST = S::LAYERS - 1;
  constexpr int V = S::L::V;
  const float *norm_numbers =
      reinterpret_cast<const float *>(packed + S::NORM_AT);
  const gradient_factors f = factors_of<S>(p, e, 0, false);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float at_dst = 0.0f, at_src = 0.0f;
#pragma unroll
    for (int q = 0; q < S::groups(LAST); ++q) {
      float y[V], own[V], gradient[V];
#pragma unroll
      for (int i = 0; i < V; ++i)
        y[i] = at(u, q, half, i);
      if constexpr (S::NORM != MLP_NORM_NONE) {
        float scale[V], shift[V];
        load_floats<T>(scale, norm_numbers, q);
        load_floats<T>(shift, norm_numbers + S::padded(LAST), q);
#pragma unroll
        for (int i = 0; i < V; ++i)
          y[i] =
              (y[i] - norm.mean[half]) * norm.scale[half] * scale[i] + shift[i];
      }
      if constexpr (S::RESIDUAL) {
        unpack<T>(own, row_chunk<S, S::C>(p.forward.edge, e.place[half], q));
#pragma unroll
        for (int i = 0; i < V; ++i)
          y[i] += own[i];
      }
      if constexpr (S::GRAD_DST) {
        unpack<T>(gradient, row_chunk<S, S::C>(p.grad_out_dst, e.row[half], q));
#pragma unroll
        for (int i = 0; i < V; ++i)
          at_dst += y[i] * gradient[i];
      }
      if constexpr (S::GRAD_SRC) {
        unpack<T>(gradient,
                  row_chunk<S, S::C>(p.grad_out_src, e.source[half], q));
#pragma unroll
        for (int i = 0; i < V; ++i)
          at_src += y[i] * gradient[i];
      }
    }
    at_dst = row_sum(at_dst) * f.destination[half];
    at_src = row_sum(at_src) * f.source[half];
    if (e.live[half] && chunk_of_lane() == 0) {
      if (p.grad_dst_factor)
        static_cast<T *>(p.grad_dst_factor)[e.place[half]] = narrow<T>(at_dst);
      if (p.grad_src_factor)
        static_cast<T *>(p.grad_src_factor)[e.place[half]] = narrow<T>(at_src);
    }
  }
}

/* The gradient with respect to the last layer's z replaces z. */
template <class S>
__device__ __forceinline__ void
last_gradient(sums<S> &z, norm_gradient<S> &norm_sums,
              const mlp_backward_params &p, const tile_edges &e,
              const gradient_factors &f, const char *packed) {
  constexpr int LAST = S::LAYERS - 1;
  constexpr int V = S::L::V;
  const float slope = p.forward.slope;
  const float *norm_weight =
      reinterpret_cast<const float *>(packed + S::NORM_AT);
  sums<S> u = z;
  if constexpr (S::LAST != MLP_NONE)
#pragma unroll
    for (int n = 0; n < S::groups(LAST) * S::L::TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        u.x[n][i] = activate<S::LAST, typename S::T>(z.x[n][i], slope);
  const norm_of_rows norm = measure<S>(u, p.forward.epsilon);
  if constexpr (S::GRAD_FACTORS)
    factor_gradients<S>(u, norm, p, e, packed);
  /* Means over a row of the gradient, and of it times the normed row. */
  float mean[2] = {0.0f, 0.0f}, along[2] = {0.0f, 0.0f};
  sums<S> gradient;
#pragma unroll
  for (int q = 0; q < S::groups(LAST); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[V];
      output_gradient<S>(y, p, e, f, q, half);
#pragma unroll
      for (int i = 0; i < V; ++i)
        at(gradient, q, half, i) = y[i];
    }
  if constexpr (S::NORM != MLP_NORM_NONE) {
#pragma unroll
    for (int q = 0; q < S::groups(LAST); ++q) {
      float scale[V], both[2 * V];
      load_floats<typename S::T>(scale, norm_weight, q);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const float y = at(gradient, q, half, i);
          const float normed =
              (at(u, q, half, i) - norm.mean[half]) * norm.scale[half];
          mean[half] += y * scale[i];
          along[half] += y * scale[i] * normed;
          both[i] = y * normed + (half ? both[i] : 0.0f);
          both[V + i] = y + (half ? both[V + i] : 0.0f);
        }
      }
      if (p.norm_partial)
        norm_sums.fold(q, both);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mean[half] = S::NORM == MLP_NORM_LAYER
                       ? row_sum(mean[half]) * (1.0f / S::C)
                       : 0.0f;
      along[half] = row_sum(along[half]) * (1.0f / S::C);
    }
  }
#pragma unroll
  for (int q = 0; q < S::groups(LAST); ++q) {
    float scale[V];
    if constexpr (S::NORM != MLP_NORM_NONE)
      load_floats<typename S::T>(scale, norm_weight, q);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        float y = at(gradient, q, half, i);
        if constexpr (S::NORM != MLP_NORM_NONE) {
          const float normed =
              (at(u, q, half, i) - norm.mean[half]) * norm.scale[half];
          y = norm.scale[half] *
              (y * scale[i] - mean[half] - normed * along[half]);
        }
        y *= derivative<S::LAST, typename S::T>(at(z, q, half, i), slope);
        at(z, q, half, i) = e.live[half] && inside<S>(q, i) ? y : 0.0f;
      }
    }
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

/* x: the gradient with respect to z of a layer; z has it before rounding when
 * this ends. */
template <class S, int LAYER>
__device__ __forceinline__ void
go_back(sums<S> &z, rows<S> &x, const mlp_backward_params &p,
        const tile_edges &e, int64_t local, const char *packed) {
  if constexpr (LAYER > 0) {
    if constexpr (S::KEEP && LAYER + 1 < S::LAYERS)
      write_rows<S, LAYER>(p.grad_z[LAYER], local, x, e);
    rows<S> before;
    read_rows<S, LAYER - 1>(before, p.z[LAYER - 1], local, e);
    multiply_back<S, LAYER>(z, x, packed);
#pragma unroll
    for (int q = 0; q < S::groups(LAYER - 1); ++q)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float y[S::L::V];
        unpack<typename S::T>(y, before.x[q][half]);
#pragma unroll
        for (int i = 0; i < S::L::V; ++i)
          at(z, q, half, i) *=
              derivative<S::ACTIVATION, typename S::T>(y[i], p.forward.slope);
      }
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

/* What both kernels do with a tile; local: its first edge in the launch. */
template <class S> struct last_tile {
  norm_gradient<S> norm_sums;

  __device__ __forceinline__ void begin() { norm_sums.clear(); }
  __device__ __forceinline__ void tile(const mlp_backward_params &p,
                                       const tile_edges &e, int64_t edge,
                                       int64_t local, const char *packed,
                                       char *staged, span_sums<S, 0> &sums_at,
                                       int64_t span) {
    sums<S> z;
    rows<S> x;
    first_layer<S>(z, x, p.forward, e, packed);
    if constexpr (S::KEEP && S::groups(-1) > 0)
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
  for (int64_t k = int64_t(warp) * gridDim.x + blockIdx.x; k < q.spans;
       k += int64_t(gridDim.x) * S::WARPS) {
    const int64_t span = q.first_span + k;
    const int64_t first = span * edges_of_span;
    const int64_t end = min(first + edges_of_span, q.graph.edges);
    span_sums<S, 0> sums_at;
    sums_at.begin(q.graph, q.sums, first);
    for (int64_t edge = first; edge < end; edge += MLP_TILE) {
      const tile_edges e = edges_of_tile(q.graph, q.sums, edge);
      work.tile(p, e, edge, edge - first_of_launch, packed, staged, sums_at,
                span);
      sums_at.end_tile(e);
    }
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
