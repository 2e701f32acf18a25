/* edges_backward.cuh - backward by rows of attention with edge features: the
 * gradients of queries and of edges (sums over heads), and (P, dS) of each edge
 * and head
 *
 * For GAT, dS is the gradient of the argument of leaky ReLU. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_BACKWARD_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_BACKWARD_CUH

#include "kernels/attention/cuda/edges_row.cuh"

namespace dfgnn {

template <class K> struct edge_backward : edge_row<K> {
  using rows = edge_row<K>;
  using term = edge_term<K>;
  using rows::C, rows::DROPOUT, rows::GAT, rows::GT, rows::p, rows::PRODUCTS;
  using rows::QC, rows::S, rows::SIDES, rows::U, rows::VEC;
  using term::HEADS, term::KEYS, term::VALUES;
  using typename rows::A;
  using typename rows::flight;
  using typename rows::T;
  static constexpr bool GRADS = true, EXPANDS = KEYS;
  /* With more of W there are no registers for what is loaded ahead: 8 x 16 with
   * 16 features took 1.05 to 1.09 of the time. */
  static constexpr bool AHEAD = term::SMALL;

  struct state {
    A q[QC][VEC], dout[C][VEC], att[C][VEC], acc[C][VEC];
    A score[S], lse[S], delta[S], by_lse[S], sum[S];
    typename term::row row;
    state_bits<S> used; /* does some edge have a weight? */
  };

  using rows::rows;

  /* Loads what does not wait for products with W. */
  DEVICE void load_row(state &z, int row, const T *queries = nullptr,
                       const T *grads = nullptr) const {
    this->own(z.acc, p.out, row); /* until begin() makes delta of it */
    this->load_query(z.q, row, queries);
    if constexpr (PRODUCTS && K::staged)
      this->own(z.dout, grads + threadIdx.x / 32 * term::rows_of::PITCH);
    else
      this->own(z.dout, p.grad_out, row);
    this->load_att(z.att);
    this->load_score(z.score, row);
    unroll<S>([&](int h) {
      z.lse[h] = this->has_head(h) ? this->scalar(p.lse, row, h) : -A(INFINITY);
      z.by_lse[h] = p.grad_lse ? this->scalar(p.grad_lse, row, h) : A(0);
    });
  }

  DEVICE void expect_row(int row) const {
    if constexpr (!GAT)
      this->expect(p.query, row);
    this->expect(p.out, row);
    this->expect(p.grad_out, row);
  }

  DEVICE void begin(state &z) const {
    z.used.clear();
    unroll<S>([&](int h) {
      z.delta[h] = z.sum[h] = A(0);
      z.used.set(h, z.lse[h] != -A(INFINITY));
      z.lse[h] = lse_of(z.lse[h]);
    });
    term::begin(z.row, 2);
    unroll<C, VEC>([&](int c, int i) {
      z.delta[term::state(c)] += z.dout[c][i] * z.acc[c][i];
      if constexpr (!GAT)
        z.q[c][i] *= rows::query_factor(p);
      z.acc[c][i] = A(0);
    });
    this->reduce(z.delta);
    unroll<S>([&](int h) { z.delta[h] -= z.by_lse[h]; });
  }

  DEVICE void step(state &z, const char *keys, const char *values, int index,
                   int from, int left, int64_t begin) const {
    flight x;
    A s[U * S], dp[U * S];
    this->gather(x, keys, values, index, from, left, begin);
    unroll<U>([&](int u) {
      unroll<S>([&](int h) { s[u * S + h] = dp[u * S + h] = A(0); });
      unroll<C, VEC>([&](int c, int i) {
        const A value = widen(x.v[u][c].item[i]);
        const int at = u * S + term::state(c);
        if constexpr (GT) {
          s[at] +=
              z.q[c][i] * this->key(x.y, widen(x.k[u][c].item[i]), u, c, i);
        } else if constexpr (!GAT) { /* the argument of leaky ReLU */
          x.y.x[u][c][i] += z.q[c][i] + value;
          s[at] += z.att[c][i] * this->leaky(x.y.x[u][c][i]);
        }
        dp[at] += z.dout[c][i] * this->value(x.y, value, u, c, i);
      });
      this->add_keys(s, z.row, x.y, u);
      this->add_values(dp, z.row, x.y, u);
    });
    if constexpr (!GAT)
      this->reduce(s);
    this->reduce(dp);
    unroll<U * S>([&](int i) {
      const int u = i / S, h = i % S;
      const bool live = u * SIDES < left;
      A slope = A(1);
      if (GAT && live) {
        const A t = this->sum_of_scores(z.score[h], x, u, h);
        s[i] = this->leaky(t);
        slope = this->slope_of(t);
      }
      if (!GT)
        s[i] *= A(kLog2e);
      weigh(s[i], dp[i], slope, z, h, live, x.edge[u], this->keeps(x, u, h));
    });
    /* s is now dS, dp the weight after dropout. */
    if constexpr (!GAT)
      add(z, x, s, dp);
    if constexpr (!GAT && term::WRITE)
      this->gradients(x.y, z.row, s, dp, from, x.edge, left);
  }

  /* s and <dO, v> of an edge become dS and P. */
  DEVICE void weigh(A &s, A &dp, A slope, state &z, int h, bool live,
                    int64_t edge, bool keeps) const {
    const bool there = live && this->has_head(h);
    const int64_t at = edge * HEADS + this->head(h);
    s += this->bias_of(edge, h, live);
    const A weight = there ? exp2_fast(s - z.lse[h]) : A(0);
    const A kept = !DROPOUT ? A(1) : keeps ? A(p.dropout.keep) : A(0);
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

  /* Adds the edges to the row's gradient; W e in y becomes its gradient. */
  DEVICE void add(state &z, flight &x, const A (&ds)[U * S],
                  const A (&weight)[U * S]) const {
    unroll<U>([&](int u) {
      unroll<C>([&](int c) {
        const int at = u * S + term::state(c);
        unroll<VEC>([&](int i) {
          if constexpr (GT) {
            z.acc[c][i] +=
                ds[at] * this->key(x.y, widen(x.k[u][c].item[i]), u, c, i);
            if constexpr (!PRODUCTS)
              x.y.x[u][c][i] = (KEYS ? ds[at] * A(kLn2) * z.q[c][i] : A(0)) +
                               (VALUES ? weight[at] * z.dout[c][i] : A(0));
          } else {
            x.y.x[u][c][i] =
                ds[at] * z.att[c][i] * this->slope_of(x.y.x[u][c][i]);
            z.acc[c][i] += x.y.x[u][c][i];
          }
        });
      });
      if constexpr (KEYS)
        unroll<S>(
            [&](int h) { this->add_sums(z.row, ds[u * S + h], x.y, u, h); });
    });
  }

  DEVICE void finish(state &z, const row_edges &) const {
    if constexpr (GAT) {
      this->sum_sides(z.sum);
    } else {
      this->sum_sides(z.acc);
      if constexpr (KEYS) {
        this->merge_row(z.row);
        unroll<S>([&](int h) { this->leave_row(z.row, h); });
      }
    }
  }

  /* product: W z of the block's rows. */
  DEVICE void store(state &z, const A *product, const row_edges &w) const {
    if constexpr (GAT) {
      store_scores(z, w);
      return;
    }
    if (this->side() != 0 || !p.grad_query.data)
      return;
    this->template give_row<KEYS>(
        p.grad_query, z.acc, z.used, product, w, [&](A(&x)[VEC]) {
          if (GT)
            unroll<VEC>([&](int i) { x[i] *= A(p.scale); });
        });
  }

  DEVICE void store_scores(const state &z, const row_edges &w) const {
    unroll<S>([&](int h) {
      if (p.grad_score_dst && this->writes(h)) {
        const bool whole = term::whole(w);
        A *to = static_cast<A *>(whole ? p.grad_score_dst : p.partial_state);
        A &at = to[int64_t(whole ? w.row : w.slot) * HEADS + this->head(h)];
        at = whole && term::ADDS ? at + z.sum[h] : z.sum[h];
      }
    });
  }
};

template <class K>
__global__ void __launch_bounds__(K::warps * 32, K::blocks)
    edge_gradient(const __grid_constant__ edges_params p) {
  walk_units<edge_backward<K>>(p);
}

} // namespace dfgnn

#endif
