/* gradients.cuh - the gradient with respect to e' of a tile's rows, and through
 * the norm with respect to the last layer's z; those of factors of edges */
#ifndef DFGNN_MLP_CUDA_GRADIENTS_CUH
#define DFGNN_MLP_CUDA_GRADIENTS_CUH

#include "kernels/mlp/cuda/norm.cuh"

namespace dfgnn {
namespace mlp {

/* ---- the gradient with respect to e' ------------------------------------- */

/* The sums' gradients are multiplied by these: factors of edges, and one over
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

} // namespace mlp
} // namespace dfgnn

#endif
