/* edges_forward.cuh - attention with edge features: running softmax of scores
 * and of values, with what edges_term.cuh adds */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_FORWARD_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_FORWARD_CUH

#include "kernels/attention/cuda/edges_row.cuh"
#include "kernels/attention/cuda/running_softmax.cuh"

namespace dfgnn {

template <class K> struct edge_forward : edge_row<K> {
  using rows = edge_row<K>;
  using term = edge_term<K>;
  using rows::C, rows::DROPOUT, rows::GAT, rows::GT, rows::KC, rows::p,
      rows::QC;
  using rows::S, rows::SIDES, rows::U, rows::VEC, term::HEADS, term::VALUES;
  using typename rows::A;
  using typename rows::flight;
  using typename rows::pack;
  using typename rows::T;
  static constexpr bool GRADS = false, EXPANDS = VALUES, AHEAD = true;

  /* The lane's part of a row in progress. */
  struct state {
    A q[QC][VEC], att[C][VEC], score[S], m[S], l[S], acc[C][VEC];
    typename term::row row;
    state_bits<S> used; /* does some edge have a weight? */
  };

  using rows::rows;

  /* Loads what does not wait for products with W. */
  DEVICE void load_row(state &z, int row, const T *queries = nullptr,
                       const T * = nullptr) const {
    this->load_query(z.q, row, queries);
    this->load_att(z.att);
    this->load_score(z.score, row);
  }

  DEVICE void expect_row(int row) const {
    if constexpr (!GAT)
      this->expect(p.query, row);
  }

  DEVICE void begin(state &z) const {
    if constexpr (!GAT)
      unroll<C, VEC>([&](int c, int i) { z.q[c][i] *= rows::query_factor(p); });
    this->clear_sums(z.acc);
    unroll<S>([&](int h) {
      z.m[h] = lowest<A>();
      z.l[h] = A(0);
    });
    term::begin(z.row, 1);
  }

  /* U edges of each side; edge u is live if u * SIDES < left. */
  DEVICE void step(state &z, const char *keys, const char *values, int index,
                   int from, int left, int64_t begin) const {
    flight x;
    A s[U * S], weight[U * S];
    this->gather(x, keys, values, index, from, left, begin);
    unroll<U>([&](int u) {
      unroll<S>([&](int h) { s[u * S + h] = A(0); });
      if constexpr (!GAT)
        unroll<C, VEC>([&](int c, int i) {
          s[u * S + term::state(c)] += product(z, x, u, c, i);
        });
      this->add_keys(s, z.row, x.y, u);
    });
    if constexpr (!GAT)
      this->reduce(s);
    unroll<U * S>([&](int i) {
      const int u = i / S, h = i % S;
      const bool live = u * SIDES < left;
      if (GAT && live)
        s[i] = this->leaky(this->sum_of_scores(z.score[h], x, u, h));
      if (!GT)
        s[i] *= A(kLog2e);
      s[i] = live ? s[i] + this->bias_of(x.edge[u], h, live) : -A(INFINITY);
      if (term::WEIGHTS && live && this->has_head(h) && this->first_of_head())
        __stcs(static_cast<A *>(p.weights) + x.edge[u] * HEADS + this->head(h),
               s[i]);
    });
    soften<U>(weight, s, z.m, z.l,
              [&](int h, A factor) { rescale(z, h, factor); });
    if constexpr (DROPOUT)
      unroll<U * S>([&](int i) {
        weight[i] *= this->keeps(x, i / S, i % S) ? A(p.dropout.keep) : A(0);
      });
    unroll<U>([&](int u) { add(z, weight, x, u); });
  }

  /* A feature's part of the score. */
  DEVICE A product(const state &z, const flight &x, int u, int c, int i) const {
    if constexpr (GT)
      return z.q[c][i] * this->key(x.y, widen(x.k[u][c].item[i]), u, c, i);
    else
      return z.att[c][i] *
             this->leaky(z.q[c][i] + widen(x.v[u][c].item[i]) + x.y.x[u][c][i]);
  }

  DEVICE void add(state &z, const A (&weight)[U * S], const flight &x,
                  int u) const {
    unroll<C>([&](int c) {
      const A w = weight[u * S + term::state(c)];
      /* A dropped value may be infinite, and 0 times infinity is NaN. */
      if (!DROPOUT || w != A(0))
        unroll<VEC>([&](int i) {
          z.acc[c][i] +=
              w * this->value(x.y, widen(x.v[u][c].item[i]), u, c, i);
        });
    });
    if constexpr (VALUES)
      unroll<S>([&](int h) {
        if (!DROPOUT || weight[u * S + h] != A(0))
          this->add_sums(z.row, weight[u * S + h], x.y, u, h);
      });
  }

  static DEVICE void rescale(state &z, int h, A factor) {
    unroll<C>([&](int c) {
      if (term::state(c) == h)
        unroll<VEC>([&](int i) { z.acc[c][i] *= factor; });
    });
    term::rescale(z.row, h, factor);
  }

  /* Merges the sides and divides by the row's sum.  The sums of an item stay
   * relative to its own maximum. */
  DEVICE void finish(state &z, const row_edges &w) const {
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
  DEVICE void store(state &z, const A *product, const row_edges &w) const {
    if (this->side() != 0)
      return;
    this->template give_row<VALUES>(p.out, z.acc, z.used, product, w,
                                    [](A(&)[VEC]) {});
  }
};

template <class K>
__global__ void __launch_bounds__(K::warps * 32, K::blocks)
    edge_attend(const __grid_constant__ edges_params p) {
  walk_units<edge_forward<K>>(p);
}

} // namespace dfgnn

#endif
