/* attend.cuh - the walk over rows of `online`, `split` and the sums of `sliced`
 *
 * Lanes share rows as lanes.cuh and walk.cuh say: key and value rows of the U
 * edges of a side are requested before the first is used.  Each side keeps a
 * running softmax of its own for every head; those merge once, at the end of
 * the row. */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_CUH
#define DFGNN_ATTENTION_CUDA_ATTEND_CUH

#include "kernels/attention/cuda/attend.h"
#include "kernels/attention/cuda/dropout.cuh"
#include "kernels/attention/cuda/running_softmax.cuh"
#include "kernels/attention/cuda/score.cuh"
#include "kernels/attention/cuda/walk.cuh"

namespace dfgnn {

template <class K> struct attend_row : lane_map<K> {
  using map = lane_map<K>;
  using map::C, map::DIM, map::feature, map::group, map::has, map::has_head;
  using map::head, map::HEADS, map::HV, map::L, map::lane_of_row, map::S;
  using map::side, map::sides, map::TILE, map::VEC;
  using typename map::A;
  using typename map::pack;
  using typename map::T;
  using Score = score_of<K::op>;

  static constexpr int U = K::unroll, EDGE = K::mode;
  static constexpr bool BIAS = EDGE & EDGE_BIAS, DROPOUT = EDGE & EDGE_DROPOUT;
  static constexpr bool WEIGHTS = EDGE & EDGE_WEIGHTS;
  /* A lane finds for all heads of the tile which weights of the edge that it
   * read are kept, and hands that out with the edge. */
  static constexpr bool SHARED_MASK = DROPOUT && TILE <= 32;
  static constexpr int KC = Score::KEY ? C : 1, KU = Score::KEY ? U : 1;
  static constexpr int QC = Score::QUERY ? C : 1, HC = Score::HEAD ? C : 1;

  const attend_params &p;
  const char *k_lane, *v_lane;
  A att[HC][VEC];
  uint64_t key;               /* the key of the dropout generator */
  A *partial, *partial_state; /* those of attend_params */

  /* The lane's part of a row in progress. */
  struct state {
    A q[QC][VEC], row_score[S], m[S], l[S], acc[C][VEC];
    pack key[KU][KC], value[U][C];
  };

  DEVICE explicit attend_row(const attend_params &params)
      : map(params.share.group), p(params),
        partial(static_cast<A *>(params.partial)),
        partial_state(static_cast<A *>(params.partial_state)) {
    k_lane = Score::KEY ? this->lane_base(p.key) : nullptr;
    v_lane = this->lane_base(p.value);
    key = DROPOUT ? dropout_key(p.dropout) : 0;
    if constexpr (Score::HEAD) {
      unroll<C, VEC>([&](int c, int i) {
        att[c][i] =
            has(c) ? widen(static_cast<const T *>(
                         p.att)[head(map::state(c)) * DIM + feature(c) + i]) *
                         A(kLog2e) * A(p.scale)
                   : A(0);
      });
    }
  }

  DEVICE void clear_buffers(state &z) const {
    unroll<KU, KC>([&](int u, int c) { clear(z.key[u][c]); });
    unroll<U, C>([&](int u, int c) { clear(z.value[u][c]); });
  }

  /* The part of a row that is loaded before its turn comes. */
  struct early {
    row_edges w;
    bool active;
    int index; /* the lane's first source */
    pack q[QC];
  };

  DEVICE void fetch_row(early &e) const {
    e.index =
        lane_of_row() < e.w.degree ? __ldcs(e.w.indices + lane_of_row()) : 0;
    if constexpr (Score::QUERY) {
      const char *at =
          node_row(this->lane_base(p.query), e.w.row, p.query.node_bytes);
      unroll<C>([&](int c) {
        clear(e.q[c]);
        if (e.active && has(c))
          e.q[c] = load_once<VEC>(this->vector_at(at, p.query, c));
      });
    }
  }

  /* Works on the row of e; e becomes the one at `unit`, if that is below
   * `last`. */
  DEVICE void run(state &z, early &e, int unit, int last) const {
    const row_edges w = e.w;
    const bool active = e.active;
    const int first = e.index;
    begin_row(z, e);
    e.active = find_row(e.w, p.schedule, group, unit, last);
    walk_edges<L, U>(*this, z, w, first);
    fetch_row(e);
    finish(w, active, z);
  }

  /* ---- what walk_edges() asks for ---------------------------------------- */

  using ahead = int; /* the source */
  DEVICE const int *first_of(const row_edges &w) const {
    return w.indices + lane_of_row();
  }
  struct label {
    int index;
    unsigned mask; /* SHARED_MASK: bit i: is the weight in head i kept? */
    const int *at; /* the place of the edge that the lane read */
  };
  DEVICE void read(int &index, const int *at, int left) const {
    index = left + side() - lane_of_row() > group ? __ldcs(at) : 0;
  }
  DEVICE label label_of(int index, const int *at, int) const {
    label x = {index, 0, at};
    if constexpr (SHARED_MASK)
      x.mask = kept_heads<TILE, HEADS>(p.dropout, key, at - p.schedule.indices,
                                       head(0) - this->place_beside());
    return x;
  }

  DEVICE void begin_row(state &z, const early &e) const {
    unroll<S>([&](int h) {
      z.m[h] = lowest<A>();
      z.l[h] = z.row_score[h] = A(0);
      if (!Score::SUM && e.active && has_head(h))
        z.row_score[h] = __ldg(static_cast<const A *>(p.score_dst) +
                               int64_t(e.w.row) * HEADS + head(h));
    });
    unroll<C, VEC>([&](int c, int i) { z.acc[c][i] = A(0); });
    if constexpr (Score::QUERY)
      scale_query(z.q, e.q);
  }

  DEVICE void scale_query(A (&q)[QC][VEC], const pack (&from)[QC]) const {
    A square[S];
    unroll<S>([&](int h) { square[h] = A(0); });
    unroll<C>([&](int c) {
      widen(q[c], from[c]);
      unroll<VEC>([&](int i) { square[map::state(c)] += q[c][i] * q[c][i]; });
    });
    if (Score::NORM)
      this->reduce(square);
    A factor[S];
    unroll<S>([&](int h) {
      factor[h] =
          A(Score::HEAD ? 1 : kLog2e) *
          (Score::NORM ? inverse_norm(square[h]) *
                             (p.beta ? *static_cast<const A *>(p.beta) : A(1))
                       : A(p.scale));
    });
    unroll<C, VEC>([&](int c, int i) { q[c][i] *= factor[map::state(c)]; });
  }

  template <bool WHOLE>
  DEVICE void edges(state &z, const row_edges &, const label &x, int from,
                    int left) const {
    int j[U];
    unroll<U>([&](int u) {
      j[u] = __shfl_sync(kFullMask, x.index, from + u * sides());
    });
    if constexpr (Score::KEY) {
      unroll<U>([&](int u) {
        const char *at = node_row(k_lane, j[u], p.key.node_bytes);
        unroll<C>([&](int c) {
          this->template gather<WHOLE, true>(z.key[u][c], at, p.key, c,
                                             u * sides() < left);
        });
      });
    }
    unroll<U>([&](int u) {
      const char *at = node_row(v_lane, j[u], p.value.node_bytes);
      unroll<C>([&](int c) {
        this->template gather<WHOLE, Score::KEY>(z.value[u][c], at, p.value, c,
                                                 u * sides() < left);
      });
    });

    A s[U * S], weight[U * S], kept[DROPOUT ? U * S : 1];
    int64_t edge = 0; /* the number of this side's first edge */
    if constexpr (EDGE != 0)
      edge = x.at - p.schedule.indices + (from - lane_id());
    if constexpr (Score::KEY)
      sum_scores(s, z.q, z.key);
    else if constexpr (Score::SUM)
      sum_scores(s, z.q, z.value);
    else
      source_scores<WHOLE>(s, z.row_score, j, left);
    if constexpr (BIAS || WEIGHTS)
      number_scores<WHOLE>(s, edge, left);
    leave_out<WHOLE>(s, left);
    soften<U>(weight, s, z.m, z.l,
              [&](int h, A factor) { rescale(z, h, factor); });
    if constexpr (DROPOUT)
      drop(weight, kept, edge, x.mask, from);
    unroll<U, C>([&](int u, int c) {
      /* A dropped value may be infinite, and 0 times infinity is NaN. */
      if (!DROPOUT || kept[DROPOUT ? u * S + map::state(c) : 0] != A(0))
        unroll<VEC>([&](int i) {
          z.acc[c][i] +=
              weight[u * S + map::state(c)] * widen(z.value[u][c].item[i]);
        });
    });
  }

  template <int XU, int XC>
  DEVICE void sum_scores(A (&s)[U * S], const A (&q)[QC][VEC],
                         const pack (&x)[XU][XC]) const {
    unroll<U * S>([&](int i) { s[i] = A(0); });
    unroll<U, C, VEC>([&](int u, int c, int i) {
      Score::add(s[u * S + map::state(c)], q[c][i], widen(x[u][c].item[i]),
                 att[Score::HEAD ? c : 0][i], A(p.slope), A(p.scale));
    });
    this->reduce(s);
    if constexpr (Score::NORM) {
      A inverse[U * S];
      row_norms(inverse, x);
      unroll<U * S>([&](int i) { s[i] *= inverse[i]; });
    }
  }

  DEVICE void row_norms(A (&inverse)[U * S], const pack (&x)[U][C]) const {
    unroll<U * S>([&](int i) { inverse[i] = A(0); });
    unroll<U, C, VEC>([&](int u, int c, int i) {
      const A v = widen(x[u][c].item[i]);
      inverse[u * S + map::state(c)] += v * v;
    });
    this->reduce(inverse);
    unroll<U * S>([&](int i) { inverse[i] = inverse_norm(inverse[i]); });
  }

  /* Reads a scalar of each source and head. */
  template <bool WHOLE>
  DEVICE void read_scalars(A (&x)[U * S], const void *from, const int (&j)[U],
                           int left) const {
    const A *at = static_cast<const A *>(from) + head(0);
    unroll<U, S>([&](int u, int h) {
      x[u * S + h] =
          (WHOLE || u * sides() < left) && has_head(h)
              ? __ldg(at + uint64_t(unsigned(j[u])) * unsigned(HEADS) +
                      h * map::BESIDE)
              : A(0);
    });
  }

  template <bool WHOLE>
  DEVICE void source_scores(A (&s)[U * S], const A (&row_score)[S],
                            const int (&j)[U], int left) const {
    read_scalars<WHOLE>(s, p.score_src, j, left);
    unroll<U * S>([&](int i) {
      s[i] = leaky(row_score[i % S] + s[i], A(p.slope)) * A(kLog2e);
    });
  }

  /* Adds the bias of each edge to its scores, and writes them, as EDGE says. */
  template <bool WHOLE>
  DEVICE void number_scores(A (&s)[U * S], int64_t edge, int left) const {
    unroll<U, S>([&](int u, int h) {
      if ((WHOLE || u * sides() < left) && has_head(h)) {
        const int64_t at = (edge + u * sides()) * HEADS + head(h);
        if (BIAS)
          s[u * S + h] +=
              __ldg(static_cast<const A *>(p.bias) + at) * A(kLog2e);
        if (WEIGHTS && this->first_of_head())
          static_cast<A *>(p.weights)[at] = s[u * S + h];
      }
    });
  }

  /* Scales or drops weights, which count in the softmax all the same. */
  template <int N>
  DEVICE void drop(A (&weight)[U * S], A (&kept)[N], int64_t edge,
                   unsigned mask, int from) const {
    unsigned bits = 0;
    unroll<N>([&](int i) {
      if constexpr (SHARED_MASK) {
        if (i % S == 0)
          bits = __shfl_sync(kFullMask, mask, from + i / S * sides()) >>
                 this->place_beside();
        kept[i] = bits >> i % S * map::BESIDE & 1 ? A(p.dropout.keep) : A(0);
      } else {
        kept[i] = kept_of(p.dropout, A(p.dropout.keep), key,
                          edge + i / S * sides(), HEADS, head(i % S));
      }
      weight[i] *= kept[i];
    });
  }

  /* Edges that are not there get no weight. */
  template <bool WHOLE> DEVICE void leave_out(A (&s)[U * S], int left) const {
    if constexpr (!WHOLE)
      unroll<U * S>([&](int i) {
        if (i / S * sides() >= left)
          s[i] = -A(INFINITY);
      });
  }

  static DEVICE void rescale(state &z, int h, A factor) {
#pragma unroll
    for (int c = h * HV; c < (h + 1) * HV; ++c)
      unroll<VEC>([&](int i) { z.acc[c][i] *= factor; });
  }

  /* Merges the sides and writes the row. */
  DEVICE void finish(const row_edges &w, bool active, state &z) const {
    unroll<S>([&](int h) {
      rescale(z, h, merge_state(w, active, h, z.m[h], z.l[h]));
    });
    this->sum_vectors(z.acc, [&](const A(&x)[VEC], int c) {
      if (active && has(c))
        store(x, c, w);
    });
  }

  DEVICE A merge_state(const row_edges &w, bool active, int h, A m, A l) const {
    A top = m, factor = A(1);
    if (group > L) {
      top = this->max_sides(top);
      factor = exp2_fast(m - top);
      l = this->sum_sides(l * factor);
    }
    if (w.slot >= 0 || p.lse)
      store_state(w, active, h, top, l);
    if (w.slot < 0)
      factor *= inverse_sum(l);
    return factor;
  }

  DEVICE void store_state(const row_edges &w, bool active, int h, A m,
                          A l) const {
    if (!active || side() != 0 || !this->first_of_head() || !has_head(h))
      return;
    if (w.slot >= 0) {
      A *to = partial_state + (int64_t(w.slot) * HEADS + head(h)) * 2;
      to[0] = m;
      to[1] = l;
    } else {
      static_cast<A *>(p.lse)[int64_t(w.row) * HEADS + head(h)] =
          log_sum_exp(m, l);
    }
  }

  DEVICE void store(const A (&x)[VEC], int c, const row_edges &w) const {
    if (w.slot >= 0) {
      A *to = partial + (int64_t(w.slot) * HEADS + head(map::state(c))) * DIM +
              feature(c);
      unroll<VEC>([&](int i) { to[i] = x[i]; });
      return;
    }
    store_once<VEC>(const_cast<T *>(this->vector_of(p.out, w.row, c)), x);
  }
};

template <class K>
__global__ void __launch_bounds__(512, 1)
    attend(const __grid_constant__ attend_params p) {
  using row_t = attend_row<K>;
  __shared__ int taken;
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const block_units units(p.share, p.schedule.units);
  if (units.several) {
    if (threadIdx.x == 0)
      taken = units.at_once;
    __syncthreads();
  }
  const row_t work(p);
  typename row_t::state z;
  typename row_t::early e;
  work.clear_buffers(z);
  int unit = units.first + units.own_ticket();
  if (unit >= units.last)
    return;
  e.active = find_row(e.w, p.schedule, p.share.group, unit, units.last);
  work.fetch_row(e);
  while (unit < units.last) {
    const int next = units.several
                         ? units.unit_of(next_ticket(taken, units.rows))
                         : units.last;
    work.run(z, e, next, units.last);
    unit = next;
  }
}

} // namespace dfgnn

#endif
