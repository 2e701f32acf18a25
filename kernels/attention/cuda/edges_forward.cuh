/* edges_forward.cuh - attention with edge features: running softmax of scores
 * and of values, with what edges_term.cuh adds */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_FORWARD_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_FORWARD_CUH

#include "kernels/attention/cuda/edges_term.cuh"
#include "kernels/attention/cuda/running_softmax.cuh"

namespace dfgnn {

template <class K> struct edge_forward : edge_term<K> {
  using term = edge_term<K>;
  using term::C, term::DROPOUT, term::GAT, term::GT, term::HEADS, term::p;
  using term::PRODUCTS, term::S, term::SIDES, term::U, term::VALUES, term::VEC;
  using typename term::A;
  using typename term::early;
  using typename term::pack;
  using T = typename K::type;
  static constexpr bool GRADS = false, EXPANDS = VALUES;
  static constexpr int KC = GT ? C : 1, QC = GAT ? 1 : C;

  /* The lane's part of a row in progress. */
  struct state {
    A q[QC][VEC], att[C][VEC], score[S], m[S], l[S], acc[C][VEC];
    typename term::row row;
    state_bits<S> used; /* does some edge have a weight? */
  };

  using term::term;

  /* Loads what does not wait for products with W. */
  __device__ __forceinline__ void load_row(state &z, int row,
                                           const T *queries = nullptr,
                                           const T * = nullptr) const {
    if constexpr (PRODUCTS && K::staged)
      this->own(z.q, queries + threadIdx.x / 32 * term::rows_of::PITCH);
    else if constexpr (!GAT)
      this->own(z.q, p.query, row);
    this->load_att(z.att);
    unroll<S>([&](int h) {
      z.score[h] = GAT ? this->scalar(p.score_dst, row, h) : A(0);
    });
  }

  __device__ __forceinline__ void begin(state &z) const {
    if constexpr (!GAT)
      unroll<C, VEC>([&](int c, int i) {
        z.q[c][i] *= GT ? A(p.scale) * A(kLog2e) : A(1);
      });
    this->clear_sums(z.acc);
    unroll<S>([&](int h) {
      z.m[h] = lowest<A>();
      z.l[h] = A(0);
    });
    term::begin(z.row, 1);
  }

  /* U edges of each side; edge u is live if u * SIDES < left. */
  __device__ __forceinline__ void step(state &z, const char *keys,
                                       const char *values, int index, int from,
                                       int left, int64_t begin) const {
    pack k[U][KC], v[U][C];
    A s[U * S], weight[U * S];
    typename term::edges y;
    int64_t edge[U];
    int j[U];
    unroll<U>([&](int u) {
      edge[u] = begin + u * SIDES;
      j[u] = __shfl_sync(kFullMask, index, from + u * SIDES);
      if constexpr (GT)
        this->gather(k[u], keys, p.key, j[u], u * SIDES < left);
      this->gather(v[u], values, p.value, j[u], u * SIDES < left);
    });
    typename term::kept_t drawn;
    if constexpr (DROPOUT)
      drawn.draw(p.dropout, this->seed, begin - this->side(),
                 left + this->side(), this->first);
    this->load(y, from, edge, left);
    unroll<U>([&](int u) {
      unroll<S>([&](int h) { s[u * S + h] = A(0); });
      if constexpr (!GAT)
        unroll<C, VEC>([&](int c, int i) {
          s[u * S + term::state(c)] += product(z, k[u], v[u], y, u, c, i);
        });
      this->add_keys(s, z.row, y, u);
    });
    if constexpr (!GAT)
      this->reduce(s);
    unroll<U * S>([&](int i) {
      const int u = i / S, h = i % S;
      const bool live = u * SIDES < left;
      if (GAT && live)
        s[i] = this->leaky(z.score[h] + this->scalar(p.score_src, j[u], h) +
                           this->scalar(p.score_edge, edge[u], h));
      if (!GT)
        s[i] *= A(kLog2e);
      s[i] = live ? s[i] + this->bias_of(edge[u], h, live) : -A(INFINITY);
      if (term::WEIGHTS && live && this->has_head(h) && this->first_of_head())
        __stcs(static_cast<A *>(p.weights) + edge[u] * HEADS + this->head(h),
               s[i]);
    });
    soften<U>(weight, s, z.m, z.l,
              [&](int h, A factor) { rescale(z, h, factor); });
    if constexpr (DROPOUT)
      unroll<U * S>([&](int i) {
        weight[i] *=
            drawn.has(i / S, this->side(), this->head(i % S), this->first)
                ? A(p.dropout.keep)
                : A(0);
      });
    unroll<U>([&](int u) { add(z, weight, v[u], y, u); });
  }

  /* A feature's part of the score. */
  __device__ __forceinline__ A product(const state &z, const pack (&k)[KC],
                                       const pack (&v)[C],
                                       const typename term::edges &y, int u,
                                       int c, int i) const {
    if constexpr (GT)
      return z.q[c][i] * this->key(y, widen(k[c].item[i]), u, c, i);
    else
      return z.att[c][i] *
             this->leaky(z.q[c][i] + widen(v[c].item[i]) + y.x[u][c][i]);
  }

  __device__ __forceinline__ void add(state &z, const A (&weight)[U * S],
                                      const pack (&v)[C],
                                      const typename term::edges &y,
                                      int u) const {
    unroll<C>([&](int c) {
      const A w = weight[u * S + term::state(c)];
      /* A dropped value may be infinite, and 0 times infinity is NaN. */
      if (!DROPOUT || w != A(0))
        unroll<VEC>([&](int i) {
          z.acc[c][i] += w * this->value(y, widen(v[c].item[i]), u, c, i);
        });
    });
    if constexpr (VALUES)
      unroll<S>([&](int h) {
        if (!DROPOUT || weight[u * S + h] != A(0))
          this->add_sums(z.row, weight[u * S + h], y, u, h);
      });
  }

  static __device__ __forceinline__ void rescale(state &z, int h, A factor) {
    unroll<C>([&](int c) {
      if (term::state(c) == h)
        unroll<VEC>([&](int i) { z.acc[c][i] *= factor; });
    });
    term::rescale(z.row, h, factor);
  }

  template <bool FETCHED>
  __device__ __forceinline__ void walk(state &z, early &e,
                                       const row_work &w) const {
    this->template walk_row<FETCHED>(
        e, w,
        [&](const char *keys, const char *values, int index, int from, int left,
            int64_t edge) { step(z, keys, values, index, from, left, edge); });
  }

  /* Merges the sides and divides by the row's sum.  The sums of an item stay
   * relative to its own maximum. */
  __device__ __forceinline__ void finish(state &z, const row_work &w) const {
    this->merge_sides(z.m, z.l,
                      [&](int h, A factor) { rescale(z, h, factor); });
    this->sum_sides(z.acc);
    if (VALUES)
      this->merge_row(z.row);
    z.used.clear();
    unroll<S>([&](int h) {
      const A l = z.l[h];
      z.used.set(h, l != A(0));
      if (term::whole(w)) {
        if (p.lse && this->writes(h))
          static_cast<A *>(p.lse)[int64_t(w.row) * HEADS + this->head(h)] =
              log_sum_exp(z.m[h], l);
        rescale(z, h, inverse_sum(l));
      } else if (this->writes(h)) {
        A *to = static_cast<A *>(p.partial_state) +
                (int64_t(w.slot) * HEADS + this->head(h)) * 2;
        to[0] = z.m[h];
        to[1] = l;
      }
      if (VALUES)
        this->leave_row(z.row, h);
    });
  }

  /* product: W z of the block's rows. */
  __device__ __forceinline__ void store(state &z, const A *product,
                                        const row_work &w) const {
    if (this->side() != 0)
      return;
    unroll<C>([&](int c) {
      /* A NaN in W times 0 is NaN: rows without weights skip the product. */
      if constexpr (PRODUCTS && VALUES)
        if (this->has(c) && z.used.has(term::state(c)))
          this->add_product(z.acc[c], product, c);
      if (term::whole(w))
        this->give(p.out, w.row, c, z.acc[c]);
      else
        this->give_partial(p.partial, w.slot, 1, 0, c, z.acc[c]);
    });
  }
};

template <class K>
__global__ void __launch_bounds__(K::warps * 32, K::blocks)
    edge_attend(const __grid_constant__ edges_params p) {
  walk_units<edge_forward<K>>(p);
}

} // namespace dfgnn

#endif
