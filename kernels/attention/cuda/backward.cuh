/* backward.cuh - the walk over rows or columns that gives gradients
 *
 * Lanes are shared out as lanes.cuh says; U edges of each side are in
 * flight.  An edge takes two sums over features, of its score and of dP, and
 * adds multiples of the gathered rows to the row's gradients.  All sums over
 * edges keep their order from run to run. */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_CUH

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/backward_block.cuh"
#include "kernels/attention/cuda/dropout.cuh"
#include "kernels/attention/cuda/score.cuh"
#include "kernels/attention/cuda/walk.cuh"

namespace dfgnn {

/* The number of tensors that belong to the row of a walk (own), and that its
 * edges gather (far).  The score's comes first, that of values last. */
template <class Score> constexpr int own_count(bool columns, int mode) {
  return columns              ? 1 + Score::KEY
         : mode == GRAD_GIVEN ? 1 - Score::KEY
                              : 1 + Score::QUERY;
}
template <class Score> constexpr int far_count(bool columns, int mode) {
  return columns ? 1 + Score::QUERY : 1 + (Score::KEY && mode != GRAD_GIVEN);
}
constexpr int at_least_1(int x) { return x > 1 ? x : 1; }

/* The values that a lane reads of an edge and tells the others. */
struct grad_ahead {
  int index;
  int64_t number; /* in the CSR matrix; 0 if nothing is looked up by it */
};
struct grad_label {
  int index;
  int64_t number;
  unsigned kept; /* bit i: is the weight in the tile's head i kept? */
};

/* Works on the rows that a warp takes at once, from unit on. */
template <int L, int U, class Row>
DEVICE void walk_rows(const Row &row, typename Row::state &z,
                      const row_schedule &schedule, int unit, int last) {
  row_edges w;
  typename Row::ahead first;
  const bool active = find_row(w, schedule, row.group, unit, last);
  row.load(first, row.first_of(w), row.lane_of_row() < w.degree);
  row.begin_row(z, w, active);
  walk_edges<L, U>(row, z, w, first);
  row.finish(z, w, active);
}

template <class K> struct grad_row : lane_map<K> {
  using map = lane_map<K>;
  using map::C, map::DIM, map::feature, map::first_of_head, map::has;
  using map::has_head, map::head, map::HEADS, map::L, map::lane_of_row;
  using map::reduce, map::S, map::side, map::sides, map::TILE, map::VEC;
  using typename map::A;
  using typename map::pack;
  using typename map::T;

  static constexpr int OP = K::op, U = K::unroll, MODE = K::mode % GRAD_ADDS;
  static constexpr bool COLUMNS = K::columns, ADDS = K::mode & GRAD_ADDS;
  static constexpr bool ANY_SLOPE = K::mode & GRAD_ANY_SLOPE;
  using Score = score_of<OP>;
  using Grad = grad_of<OP>;
  static constexpr bool HEAD = Score::HEAD, SCALARS = !Score::SUM;
  static constexpr bool GIVEN = MODE == GRAD_GIVEN;
  static constexpr bool EDGES = !GIVEN && MODE != EDGE_PLAIN;
  static constexpr bool BIAS = EDGES && (MODE & EDGE_BIAS) != 0;
  static constexpr bool DROPOUT = EDGES && (MODE & EDGE_DROPOUT) != 0;
  static constexpr bool WRITE = EDGES && (MODE & EDGE_WRITE) != 0;
  static constexpr bool NUMBERED = BIAS || WRITE || (DROPOUT && TILE > 32);
  static constexpr int OWN = own_count<Score>(COLUMNS, MODE);
  static constexpr int FAR = far_count<Score>(COLUMNS, MODE);
  static constexpr int TO = GRAD_SUMS(OP, COLUMNS);
  static constexpr int YO = at_least_1(OWN) - 1, YF = FAR - 1;
  static constexpr int YT = at_least_1(TO) - 1;
  static constexpr int SUMS =
      GIVEN || SCALARS ? 1 : 2; /* for an edge and head */
  static constexpr bool FAR_SCALAR = !COLUMNS && (Score::NORM || SCALARS);
  static constexpr bool TOTALS = !COLUMNS && (Score::NORM || HEAD);
  static constexpr int STATS = GRAD_STATS(OP);
  static constexpr int HC = HEAD ? C : 1, HV = HEAD ? VEC : 1;
  static constexpr int kBlockTotals = HEAD ? L * C * VEC : 1;
  /* The score transforms a gathered x in its place. */
  static constexpr bool KEEPS =
      HEAD && !GIVEN && !ANY_SLOPE && sizeof(T) == sizeof(A);

  const grad_params &p;
  const char *far[FAR];
  A att[HC][VEC], beta, slope, keep;
  uint64_t key;

  struct state {
    A own[at_least_1(OWN)][C][VEC], sum[at_least_1(TO)][C][VEC];
    A lse[S], delta[S], extra[S], inner[S];
    A raised[HC][VEC];
    A att_total[TOTALS ? HC : 1][VEC], beta_total[S];
    pack x[FAR][U][C];
  };

  DEVICE explicit grad_row(const grad_params &params)
      : map(params.share.group), p(params), beta(1), slope(params.slope),
        keep(params.dropout.keep), key(0) {
    unroll<FAR>([&](int t) { far[t] = this->lane_base(p.far[t]); });
    if (Score::NORM && p.beta)
      beta = *static_cast<const A *>(p.beta);
    if constexpr (HEAD) {
      unroll<C, VEC>([&](int c, int i) {
        att[c][i] =
            has(c) ? widen(static_cast<const T *>(
                         p.att)[head(map::state(c)) * DIM + feature(c) + i])
                   : A(0);
      });
    }
    if constexpr (DROPOUT)
      key = dropout_key(p.dropout);
  }

  DEVICE void begin(state &z) const {
    unroll<FAR, U, C>([&](int t, int u, int c) { clear(z.x[t][u][c]); });
    if constexpr (TOTALS) {
      unroll<HC, VEC>([&](int c, int i) { z.att_total[c][i] = A(0); });
      unroll<S>([&](int h) { z.beta_total[h] = A(0); });
    }
  }

  DEVICE void run(state &z, int unit, int last) const {
    walk_rows<L, U>(*this, z, p.schedule, unit, last);
  }

  /* ---- a row ------------------------------------------------------------- */

  DEVICE const A *scalar(const void *array, int row, int h) const {
    return static_cast<const A *>(array) + int64_t(row) * HEADS + head(h);
  }

  DEVICE void begin_row(state &z, const row_edges &w, bool active) const {
    unroll<OWN>([&](int t) { this->own(z.own[t], p.own[t], w.row, active); });
    unroll<TO, C, VEC>([&](int t, int c, int i) { z.sum[t][c][i] = A(0); });
    unroll<S>([&](int h) {
      z.inner[h] = z.extra[h] = A(0);
      if (SCALARS && active && has_head(h))
        z.extra[h] = __ldg(scalar(p.own_scalar, w.row, h));
    });
    Grad::begin(*this, z);
    if constexpr (!COLUMNS && !GIVEN)
      own_stats(z, w, active);
    Grad::scale(*this, z);
  }

  /* Finds a destination's lse and delta, and leaves them for the walk over
   * columns. */
  DEVICE void own_stats(state &z, const row_edges &w, bool active) const {
    unroll<S>([&](int h) { z.delta[h] = A(0); });
    unroll<C>([&](int c) {
      pack x;
      clear(x);
      if (active && has(c))
        x = load_once<VEC>(this->vector_of(p.out, w.row, c));
      unroll<VEC>([&](int i) {
        z.delta[map::state(c)] += z.own[YO][c][i] * widen(x.item[i]);
      });
    });
    reduce(z.delta);
    const bool writes = active && side() == 0 && first_of_head() && p.stats &&
                        (w.slot < 0 || w.slot >= p.schedule.extra_items);
    unroll<S>([&](int h) {
      const bool mine = active && has_head(h);
      z.lse[h] = lse_of(mine ? __ldg(scalar(p.lse, w.row, h)) : A(0));
      if (mine)
        z.delta[h] -=
            grad_lse_of<A>(p.grad_lse, int64_t(w.row) * HEADS + head(h));
      if (writes && mine) {
        A *to = static_cast<A *>(p.stats) +
                (int64_t(w.row) * HEADS + head(h)) * STATS;
        to[STAT_LSE] = z.lse[h];
        to[STAT_DELTA] = z.delta[h];
        if constexpr (STATS > STAT_EXTRA) {
          to[STAT_EXTRA] = z.extra[h];
          to[STAT_EXTRA + 1] = A(0); /* padding, loaded with the others */
        }
      }
    });
  }

  /* ---- edges ------------------------------------------------------------- */

  using ahead = grad_ahead;
  using label = grad_label;
  DEVICE const int *first_of(const row_edges &w) const {
    return w.indices + lane_of_row();
  }
  DEVICE void read(ahead &x, const int *at, int left) const {
    load(x, at, left + side() - lane_of_row() > this->group);
  }
  DEVICE void load(ahead &x, const int *at, bool there) const {
    x.index = there ? __ldcs(at) : 0;
    x.number = number_at(at, there);
  }
  DEVICE label label_of(const ahead &x, const int *, int) const {
    label y = {x.index, x.number, 0};
    if constexpr (DROPOUT && TILE <= 32)
      y.kept = kept_heads<TILE, HEADS>(p.dropout, key, x.number,
                                       head(0) - this->place_beside());
    return y;
  }
  /* The number in the CSR matrix of the edge whose far node is at `at`; there:
   * is an edge there? */
  DEVICE int64_t number_at(const int *at, bool there) const {
    if constexpr (!EDGES)
      return 0;
    const int64_t place = at - p.schedule.indices;
    if (!COLUMNS)
      return place;
    const offsets_t edges{p.edge_of, p.schedule.offsets64};
    return there ? edges[place] : 0;
  }

  template <bool WHOLE>
  DEVICE void edges(state &z, const row_edges &w, const label &x, int from,
                    int left) const {
    int j[U];
    nodes(j, x.index, from);
    fetch<WHOLE>(z, j, left);
    A weight[U * S], score[U * S]; /* factors of the value's, score's row */
    terms<WHOLE>(weight, score, z, w, j, x, from, left);
    add(z, weight, score);
  }

  DEVICE void nodes(int (&j)[U], int index, int from) const {
    unroll<U>([&](int u) {
      j[u] = __shfl_sync(kFullMask, index, from + u * sides());
    });
  }

  template <bool WHOLE>
  DEVICE void fetch(state &z, const int (&j)[U], int left) const {
    unroll<FAR, U>([&](int t, int u) {
      const char *at = node_row(far[t], j[u], p.far[t].node_bytes);
      unroll<C>([&](int c) {
        this->template gather<WHOLE, (FAR > 1)>(z.x[t][u][c], at, p.far[t], c,
                                                u * sides() < left);
      });
    });
  }

  template <bool WHOLE>
  DEVICE void terms(A (&weight)[U * S], A (&score)[U * S], state &z,
                    const row_edges &w, const int (&j)[U], const label &edge,
                    int from, int left) const {
    if constexpr (GIVEN)
      given_terms<WHOLE>(weight, score, z, j,
                         (w.indices - p.schedule.indices) + (w.degree - left),
                         left);
    else
      find_terms<WHOLE>(weight, score, z, j, edge, from, left);
  }

  template <bool WHOLE> DEVICE bool live(int u, int h, int left) const {
    return (WHOLE || u * sides() < left) && has_head(h);
  }

  template <bool WHOLE>
  DEVICE void far_scalars(A (&x)[U * S], const int (&j)[U], int left) const {
    unroll<U, S>([&](int u, int h) {
      x[u * S + h] =
          live<WHOLE>(u, h, left) ? __ldg(scalar(p.far_scalar, j[u], h)) : A(0);
    });
  }

  template <bool WHOLE>
  DEVICE void given_terms(A (&weight)[U * S], A (&score)[U * S], state &z,
                          const int (&j)[U], int64_t edge, int left) const {
    A far[U * S];
    if constexpr (FAR_SCALAR)
      far_scalars<WHOLE>(far, j, left);
    unroll<U, S>([&](int u, int h) {
      const int n = u * S + h;
      weight[n] = score[n] = A(0);
      if (live<WHOLE>(u, h, left))
        score[n] = __ldg(static_cast<const A *>(p.spill) +
                         (edge + u * sides()) * HEADS + head(h));
      score[n] = Grad::given(*this, z, h, score[n], FAR_SCALAR ? far[n] : A(0));
    });
  }

  template <bool WHOLE>
  DEVICE void find_terms(A (&weight)[U * S], A (&score)[U * S], state &z,
                         const int (&j)[U], const label &edge, int from,
                         int left) const {
    A far[U * S], lse[U * S], delta[U * S], sums[SUMS * U * S];
    if constexpr (FAR_SCALAR)
      far_scalars<WHOLE>(far, j, left);
    if constexpr (COLUMNS)
      far_stats<WHOLE>(lse, delta, far, j, left);
    products(sums, z);
    reduce(sums);
    unroll<U>([&](int u) {
      const int reader = from + u * sides();
      const int64_t number =
          NUMBERED ? __shfl_sync(kFullMask, edge.number, reader) : 0;
      unsigned bits = 0;
      if constexpr (DROPOUT && TILE <= 32)
        bits =
            __shfl_sync(kFullMask, edge.kept, reader) >> this->place_beside();
      unroll<S>([&](int h) {
        const int n = u * S + h;
        const bool on = live<WHOLE>(u, h, left);
        A bias = A(0), kept = A(1);
        if (BIAS && on)
          bias =
              __ldg(static_cast<const A *>(p.bias) + number * HEADS + head(h)) *
              A(kLog2e);
        if constexpr (DROPOUT && TILE <= 32)
          kept = bits >> h * map::BESIDE & 1 ? keep : A(0);
        else if constexpr (DROPOUT)
          kept = kept_of(p.dropout, keep, key, number, HEADS, head(h));
        const edge_terms<A> t = terms_of<OP, A>(
            slope, sums[n], sums[(SUMS - 1) * U * S + n],
            COLUMNS ? lse[n] : z.lse[h], COLUMNS ? delta[n] : z.delta[h],
            z.extra[h], FAR_SCALAR || COLUMNS ? far[n] : A(0), beta, bias,
            kept);
        weight[n] = on ? t.weight : A(0);
        score[n] = on ? t.score : A(0);
        if constexpr (!Score::KEY)
          z.inner[h] += on ? t.score * t.inner : A(0);
        if (EDGES && on && first_of_head())
          emit(number * HEADS + head(h), t);
        score[n] = Grad::edge_factor(*this, z, h, score[n],
                                     FAR_SCALAR || COLUMNS ? far[n] : A(0));
      });
    });
  }

  DEVICE void emit(int64_t at, const edge_terms<A> &t) const {
    if (BIAS && p.grad_bias)
      static_cast<A *>(p.grad_bias)[at] = t.score;
    if (WRITE && p.spill)
      static_cast<A *>(p.spill)[at] = Grad::spilled(t);
  }

  template <bool WHOLE>
  DEVICE void far_stats(A (&lse)[U * S], A (&delta)[U * S], A (&extra)[U * S],
                        const int (&j)[U], int left) const {
    unroll<U, S>([&](int u, int h) {
      constexpr int N = sizeof(A) == 8 ? 2 : STATS; /* numbers a load */
      packed<A, N> x[STATS / N];
      const A *from = static_cast<const A *>(p.stats) +
                      (int64_t(j[u]) * HEADS + head(h)) * STATS;
      unroll<STATS / N>([&](int k) {
        clear(x[k]);
        if (live<WHOLE>(u, h, left))
          x[k] = load_packed<N>(from + k * N);
      });
      constexpr int at = STATS > STAT_EXTRA ? STAT_EXTRA : 0;
      lse[u * S + h] = x[0].item[STAT_LSE];
      delta[u * S + h] = x[0].item[STAT_DELTA];
      extra[u * S + h] = x[at / N].item[at % N];
    });
  }

  /* This lane's part of the sums: of scores, then of dP. */
  DEVICE void products(A (&sums)[SUMS * U * S], state &z) const {
    unroll<SUMS * U * S>([&](int i) { sums[i] = A(0); });
    unroll<U, C, VEC>([&](int u, int c, int i) {
      const int n = u * S + map::state(c);
      const A x = widen(z.x[0][u][c].item[i]);
      sums[(SUMS - 1) * U * S + n] +=
          z.own[YO][c][i] * widen(z.x[YF][u][c].item[i]);
      Grad::add_score(*this, sums[n], z, c, i, x, z.x[0][u][c].item[i]);
    });
  }

  /* An edge whose factors are 0 is left out: its rows may be infinite, and 0
   * times infinity is NaN. */
  DEVICE void add(state &z, const A (&weight)[U * S],
                  const A (&score)[U * S]) const {
    if constexpr (TO > 0) {
      unroll<U, C>([&](int u, int c) {
        const int n = u * S + map::state(c);
        if (weight[n] != A(0) || score[n] != A(0))
          add_vector(z, weight[n], score[n], u, c);
      });
    }
  }

  DEVICE void add_vector(state &z, A weight, A score, int u, int c) const {
    unroll<VEC>([&](int i) {
      const A x = widen(z.x[0][u][c].item[i]);
      if constexpr (COLUMNS)
        z.sum[YT][c][i] += weight * widen(z.x[YF][u][c].item[i]);
      Grad::add(*this, z, score, x, c, i);
    });
  }

  /* ---- the end of a row -------------------------------------------------- */

  DEVICE void finish(state &z, const row_edges &w, bool active) const {
    Grad::finish(*this, z);
    if constexpr (SCALARS) {
      unroll<S>([&](int h) {
        store_scalar(w, h, active, this->sum_sides(z.inner[h]));
      });
    }
    unroll<TO>([&](int t) {
      this->sum_vectors(z.sum[t], [&](const A(&x)[VEC], int c) {
        if (active && has(c))
          store_vector(w, t, c, x);
      });
    });
  }

  DEVICE void store_scalar(const row_edges &w, int h, bool active, A x) const {
    if (!active || side() != 0 || !first_of_head() || !has_head(h))
      return;
    if (w.slot >= 0)
      static_cast<A *>(p.partial_scalar)[int64_t(w.slot) * HEADS + head(h)] = x;
    else if (p.to_scalar) {
      A &to = static_cast<A *>(p.to_scalar)[int64_t(w.row) * HEADS + head(h)];
      to = ADDS ? to + x : x;
    }
  }

  DEVICE void store_vector(const row_edges &w, int t, int c,
                           const A (&x)[VEC]) const {
    if (w.slot >= 0) {
      A *to = static_cast<A *>(p.partial) +
              ((int64_t(w.slot) * TO + t) * HEADS + head(map::state(c))) * DIM +
              feature(c);
      unroll<VEC>([&](int i) { to[i] = x[i]; });
    } else if (p.to[t].data) {
      T *to = const_cast<T *>(this->vector_of(p.to[t], w.row, c));
      if constexpr (ADDS) {
        A sum[VEC];
        widen(sum, load_once<VEC>(to));
        unroll<VEC>([&](int i) { sum[i] += x[i]; });
        store_once<VEC>(to, sum);
      } else {
        store_once<VEC>(to, x);
      }
    }
  }
};

/* Two blocks a multiprocessor where that spills few registers or none: a walk
 * waits for memory, so more warps in flight make it faster. */
constexpr int least_blocks(int features, int edges, int mode) {
  const bool fits = mode == EDGE_PLAIN || edges == 1;
  return features <= (fits ? 16 : 8) ? 2 : 1;
}

template <class K>
__global__ void
__launch_bounds__(256, least_blocks(lane_map<K>::C *K::vector *int(
                                        sizeof(typename lane_map<K>::A)) /
                                        4,
                                    K::unroll, K::mode % GRAD_ADDS))
    gradient(const __grid_constant__ grad_params p) {
  walk_block<grad_row<K>>(p, p);
}

} // namespace dfgnn

#endif
