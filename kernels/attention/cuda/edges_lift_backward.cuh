/* edges_lift_backward.cuh - backward by rows of attention whose lanes make W e
 * of each edge: gradients of queries and edges, and (P, dS) of each edge and
 * head
 *
 * For GAT, dS is the gradient of the argument of leaky ReLU. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_LIFT_BACKWARD_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_LIFT_BACKWARD_CUH

#include "kernels/attention/cuda/edges_lift.cuh"

namespace dfgnn {

template <int OP, typename T, int VEC, int L, int HL, int S, int U, int HEADS,
          int DIM, int PACKED, int FE, int ONE, int USE, int EDGE, int STAGED>
struct edge_lift_backward : edge_lift<OP, T, VEC, L, HL, S, U, HEADS, DIM,
                                      PACKED, FE, ONE, EDGE, STAGED> {
  using lift_t = edge_lift<OP, T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE, ONE,
                           EDGE, STAGED>;
  using lift_t::C, lift_t::F, lift_t::GAT, lift_t::GT, lift_t::key;
  using lift_t::MATRIX, lift_t::p, lift_t::SIDES, lift_t::WRITE;
  using typename lift_t::A;
  using typename lift_t::pack;
  static constexpr bool KEYS = USE & EDGES_KEYS, VALUES = USE & EDGES_VALUES;
  static constexpr bool ADDS = EDGE & EDGE_ADDS;
  static constexpr int KC = GT ? C : 1, QC = GAT ? 1 : C;

  struct state {
    A x[QC][VEC], dout[C][VEC], att[C][VEC], acc[C][VEC];
    A score[S], lse[S], delta[S], sum[S];
  };

  __device__
      __forceinline__ explicit edge_lift_backward(const edges_params &params,
                                                  A *shared)
      : lift_t(params, shared) {}

  __device__ __forceinline__ void begin(state &z, int row) const {
    this->own(z.dout, p.grad_out, row);
    this->own(z.acc, p.out, row);
    this->load_att(z.att);
#pragma unroll
    for (int h = 0; h < S; ++h) {
      const A lse =
          this->has_head(h) ? this->scalar(p.lse, row, h) : -A(INFINITY);
      z.lse[h] = lse == -A(INFINITY) ? A(INFINITY) : lse * A(kLog2e);
      z.score[h] = GAT ? this->scalar(p.score_dst, row, h) : A(0);
      z.delta[h] = z.sum[h] = A(0);
    }
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        z.delta[lift_t::state(c)] += z.dout[c][i] * z.acc[c][i];
    this->reduce(z.delta);
#pragma unroll
    for (int h = 0; h < S; ++h)
      if (p.grad_lse && this->has_head(h))
        z.delta[h] -= this->scalar(p.grad_lse, row, h);
    this->clear_sums(z.acc);
    if constexpr (!GAT) {
      this->own(z.x, p.query, row);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.x[c][i] *= GT ? A(p.scale) * A(kLog2e) : A(1);
    }
  }

  __device__ __forceinline__ void step(state &z, const char *keys,
                                       const char *values, int index, int from,
                                       int left, int64_t begin) const {
    pack k[U][KC], v[U][C];
    A x[U][C][VEC], s[U * S], dp[U * S], slope[U * S];
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
        s[u * S + h] = dp[u * S + h] = A(0);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
          const A value = widen(v[u][c].item[i]);
          const int at = u * S + lift_t::state(c);
          if constexpr (GT) {
            s[at] += z.x[c][i] *
                     (widen(k[u][c].item[i]) + (KEYS ? x[u][c][i] : A(0)));
            dp[at] += z.dout[c][i] * (value + (VALUES ? x[u][c][i] : A(0)));
          } else {
            if constexpr (!GAT) {
              x[u][c][i] += z.x[c][i] + value;
              s[at] += z.att[c][i] * this->leaky(x[u][c][i]);
            }
            dp[at] += z.dout[c][i] * value;
          }
        }
    }
    if constexpr (!GAT)
      this->reduce(s);
    this->reduce(dp);
#pragma unroll
    for (int i = 0; i < U * S; ++i) {
      const int u = i / S, h = i % S;
      const bool live = u * SIDES < left;
      slope[i] = A(1);
      if (GAT && live) {
        const A t = z.score[h] + this->scalar(p.score_src, j[u], h) +
                    this->scalar(p.score_edge, edge[u], h);
        s[i] = this->leaky(t);
        slope[i] = this->slope_of(t);
      }
      if (!GT)
        s[i] *= A(kLog2e);
      weigh(s[i], dp[i], slope[i], z, h, live, edge[u],
            !lift_t::DROPOUT ||
                drawn.has(u, this->side(), this->head(h), this->first));
    }
    /* s is now dS, dp the weight after dropout. */
    if constexpr (!GAT)
      edge_gradients(z, x, k, s, dp, from, edge, left);
  }

  /* s and <dO, v> of an edge become dS and P. */
  __device__ __forceinline__ void weigh(A &s, A &dp, A slope, state &z, int h,
                                        bool live, int64_t edge,
                                        bool keeps) const {
    const bool there = live && this->has_head(h);
    const int64_t at = edge * HEADS + this->head(h);
    s += this->bias_of(edge, h, live);
    const A weight = there ? exp2_fast(s - z.lse[h]) : A(0);
    const A kept = !lift_t::DROPOUT ? A(1) : keeps ? A(p.dropout.keep) : A(0);
    /* At weight 0 dp may be infinite, and 0 times infinity is NaN. */
    const A ds =
        weight == A(0)
            ? A(0)
            : weight * ((kept == A(0) ? A(0) : dp * kept) - z.delta[h]);
    s = ds * slope;
    dp = weight * kept;
    z.sum[h] += s;
    if (!there || !this->first_of_head())
      return;
    edge_put_pair(dp, s, p.pairs, at);
    if (p.grad_bias)
      static_cast<A *>(p.grad_bias)[at] = ds;
    if (GAT && p.grad_score_edge)
      static_cast<A *>(p.grad_score_edge)[at] = s;
  }

  __device__ __forceinline__ void
  edge_gradients(state &z, A (&x)[U][C][VEC], const pack (&k)[U][KC],
                 const A (&ds)[U * S], const A (&weight)[U * S], int from,
                 const int64_t (&edge)[U], int left) const {
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int at = u * S + lift_t::state(c);
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
          if constexpr (GT) {
            z.acc[c][i] +=
                ds[at] * (widen(k[u][c].item[i]) + (KEYS ? x[u][c][i] : A(0)));
            x[u][c][i] = (KEYS ? ds[at] * A(kLn2) * z.x[c][i] : A(0)) +
                         (VALUES ? weight[at] * z.dout[c][i] : A(0));
          } else {
            x[u][c][i] = ds[at] * z.att[c][i] * this->slope_of(x[u][c][i]);
            z.acc[c][i] += x[u][c][i];
          }
        }
        if constexpr (WRITE && lift_t::GIVEN)
          if (u * SIDES < left && this->has(c))
            store_once<VEC>(
                static_cast<T *>(p.grad_attr) +
                    (this->given(edge[u], c) - static_cast<const T *>(p.attr)),
                x[u][c]);
      }
    if constexpr (WRITE && MATRIX)
      feature_gradients(x, from);
  }

  /* Finds the gradients of edge features, W^T times those of W e, and puts them
   * in place of the features. */
  __device__ __forceinline__ void feature_gradients(const A (&x)[U][C][VEC],
                                                    int from) const {
    constexpr int LEFT = folded(U * F, L / 2, 1);
    A sum[U * F];
#pragma unroll
    for (int f = 0; f < F; ++f) {
#pragma unroll
      for (int u = 0; u < U; ++u)
        sum[u * F + f] = A(0);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        A w[VEC];
        this->column(w, f, c);
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            sum[u * F + f] += x[u][c][i] * w[i];
      }
    }
    const int begin = fold<U * F, L / 2, 1>(sum, 0);
    __syncwarp(); /* all lanes have read the features */
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
      const int u = (begin + i) / F, f = (begin + i) % F;
      if (f < FE)
        this->features.at[(from + u * SIDES) * lift_t::PITCH + f] = sum[i];
    }
  }

  __device__ __forceinline__ void walk(state &z, const row_work &w) const {
    this->walk_row(w, [&](const char *keys, const char *values, int index,
                          int from, int left, int64_t edge) {
      step(z, keys, values, index, from, left, edge);
    });
  }

  __device__ __forceinline__ void finish(state &z, const row_work &w) const {
    if constexpr (GAT) {
      this->sum_sides(z.sum);
#pragma unroll
      for (int h = 0; h < S; ++h)
        if (p.grad_score_dst && this->side() == 0 && this->first_of_head() &&
            this->has_head(h)) {
          const bool whole = lift_t::whole(w);
          A *to = static_cast<A *>(whole ? p.grad_score_dst : p.partial_state);
          A &at = to[int64_t(whole ? w.row : w.slot) * HEADS + this->head(h)];
          at = whole && ADDS ? at + z.sum[h] : z.sum[h];
        }
    } else {
      this->sum_sides(z.acc);
      if (!p.grad_query.data || this->side() != 0)
        return;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (GT)
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            z.acc[c][i] *= A(p.scale);
        if (lift_t::whole(w) && ADDS)
          this->add(p.grad_query, w.row, c, z.acc[c]);
        else if (lift_t::whole(w))
          this->give(p.grad_query, w.row, c, z.acc[c]);
        else
          this->give_partial(p.partial, w.slot, 1, 0, c, z.acc[c]);
      }
    }
  }
};

template <int OP, typename T, int VEC, int L, int HL, int S, int U, int HEADS,
          int DIM, int PACKED, int FE, int ONE, int USE, int EDGE, int WARPS,
          int BLOCKS, int STAGED>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    lift_gradient(const __grid_constant__ edges_params p) {
  lift_rows<edge_lift_backward<OP, T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE,
                               ONE, USE, EDGE, STAGED>,
            WARPS>(p);
}

} // namespace dfgnn

#endif
