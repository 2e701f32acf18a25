/* edges_lift_forward.cuh - forward pass whose lanes make W e of each edge */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_LIFT_FORWARD_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_LIFT_FORWARD_CUH

#include "kernels/attention/cuda/edges_lift.cuh"

namespace dfgnn {

template <int OP, typename T, int VEC, int L, int HL, int S, int U, int HEADS,
          int DIM, int PACKED, int FE, int ONE, int USE, int EDGE, int STAGED>
struct edge_lift_forward : edge_lift<OP, T, VEC, L, HL, S, U, HEADS, DIM,
                                     PACKED, FE, ONE, EDGE, STAGED> {
  using lift_t = edge_lift<OP, T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE, ONE,
                           EDGE, STAGED>;
  using lift_t::C, lift_t::GAT, lift_t::GT, lift_t::key, lift_t::p;
  using lift_t::SIDES;
  using typename lift_t::A;
  using typename lift_t::pack;
  static constexpr bool KEYS = USE & EDGES_KEYS, VALUES = USE & EDGES_VALUES;
  static constexpr bool WEIGHTS = EDGE & EDGE_WEIGHTS;
  static constexpr int KC = GT ? C : 1, QC = GAT ? 1 : C;

  struct state {
    A x[QC][VEC], att[C][VEC], score[S], m[S], l[S], acc[C][VEC];
  };

  __device__
      __forceinline__ explicit edge_lift_forward(const edges_params &params,
                                                 A *shared)
      : lift_t(params, shared) {}

  __device__ __forceinline__ void begin(state &z, int row) const {
    if constexpr (!GAT) {
      this->own(z.x, p.query, row);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.x[c][i] *= GT ? A(p.scale) * A(kLog2e) : A(1);
    }
    this->load_att(z.att);
    this->clear_sums(z.acc);
#pragma unroll
    for (int h = 0; h < S; ++h) {
      z.m[h] = lowest<A>();
      z.l[h] = A(0);
      z.score[h] = GAT ? this->scalar(p.score_dst, row, h) : A(0);
    }
  }

  __device__ __forceinline__ void step(state &z, const char *keys,
                                       const char *values, int index, int from,
                                       int left, int64_t begin) const {
    pack k[U][KC], v[U][C];
    A x[U][C][VEC], s[U * S], weight[U * S];
    int64_t edge[U];
    int j[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      edge[u] = begin + u * SIDES;
      j[u] = __shfl_sync(kFullMask, index, from + u * SIDES);
      if constexpr (GT)
        this->gather(k[u], keys, p.key, j[u], u * SIDES < left);
      this->gather(v[u], values, p.value, j[u], u * SIDES < left);
    }
    typename lift_t::kept_t drawn;
    if constexpr (lift_t::DROPOUT)
      drawn.draw(p.dropout, key, begin - this->side(), left + this->side(),
                 this->first);
    if constexpr (!GAT)
      this->lift(x, from, edge, left);
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int h = 0; h < S; ++h)
        s[u * S + h] = A(0);
      if constexpr (!GAT)
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            s[u * S + lift_t::state(c)] +=
                GT ? z.x[c][i] * (widen(k[u][GT ? c : 0].item[i]) +
                                  (KEYS ? x[u][c][i] : A(0)))
                   : z.att[c][i] *
                         this->leaky(z.x[c][i] + widen(v[u][c].item[i]) +
                                     x[u][c][i]);
    }
    if constexpr (!GAT)
      this->reduce(s);
#pragma unroll
    for (int i = 0; i < U * S; ++i) {
      const int u = i / S, h = i % S;
      const bool live = u * SIDES < left;
      if (GAT && live)
        s[i] = this->leaky(z.score[h] + this->scalar(p.score_src, j[u], h) +
                           this->scalar(p.score_edge, edge[u], h));
      if (!GT)
        s[i] *= A(kLog2e);
      s[i] = live ? s[i] + this->bias_of(edge[u], h, live) : -A(INFINITY);
      if (WEIGHTS && live && this->has_head(h) && this->first_of_head())
        __stcs(static_cast<A *>(p.weights) + edge[u] * HEADS + this->head(h),
               s[i]);
    }
    soften<U>(weight, s, z.m, z.l,
              [&](int h, A scale) { rescale(z, h, scale); });
    if constexpr (lift_t::DROPOUT)
#pragma unroll
      for (int i = 0; i < U * S; ++i)
        weight[i] *=
            drawn.has(i / S, this->side(), this->head(i % S), this->first)
                ? A(p.dropout.keep)
                : A(0);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const A w = weight[u * S + lift_t::state(c)];
        /* A dropped value may be infinite, and 0 times infinity is NaN. */
        if (!lift_t::DROPOUT || w != A(0))
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            z.acc[c][i] += w * (widen(v[u][c].item[i]) +
                                (GT && VALUES ? x[u][c][i] : A(0)));
      }
  }

  static __device__ __forceinline__ void rescale(state &z, int h, A scale) {
#pragma unroll
    for (int c = 0; c < C; ++c)
      if (lift_t::state(c) == h)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.acc[c][i] *= scale;
  }

  __device__ __forceinline__ void walk(state &z, const row_work &w) const {
    this->walk_row(w, [&](const char *keys, const char *values, int index,
                          int from, int left, int64_t edge) {
      step(z, keys, values, index, from, left, edge);
    });
  }

  __device__ __forceinline__ void finish(state &z, const row_work &w) const {
    this->merge_sides(z.m, z.l, [&](int h, A scale) { rescale(z, h, scale); });
    this->sum_sides(z.acc);
#pragma unroll
    for (int h = 0; h < S; ++h) {
      const A l = z.l[h];
      const bool writes =
          this->side() == 0 && this->first_of_head() && this->has_head(h);
      if (lift_t::whole(w)) {
        if (p.lse && writes)
          static_cast<A *>(p.lse)[int64_t(w.row) * HEADS + this->head(h)] =
              log_sum_exp(z.m[h], l);
        rescale(z, h, inverse_sum(l));
      } else if (writes) { /* sums stay relative to the item's own maximum */
        A *state = static_cast<A *>(p.partial_state) +
                   (int64_t(w.slot) * HEADS + this->head(h)) * 2;
        state[0] = z.m[h];
        state[1] = l;
      }
    }
    if (this->side() != 0)
      return;
#pragma unroll
    for (int c = 0; c < C; ++c)
      if (lift_t::whole(w))
        this->give(p.out, w.row, c, z.acc[c]);
      else
        this->give_partial(p.partial, w.slot, 1, 0, c, z.acc[c]);
  }
};

template <int OP, typename T, int VEC, int L, int HL, int S, int U, int HEADS,
          int DIM, int PACKED, int FE, int ONE, int USE, int EDGE, int WARPS,
          int BLOCKS, int STAGED>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    lift_attend(const __grid_constant__ edges_params p) {
  lift_rows<edge_lift_forward<OP, T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE,
                              ONE, USE, EDGE, STAGED>,
            WARPS>(p);
}

} // namespace dfgnn

#endif
