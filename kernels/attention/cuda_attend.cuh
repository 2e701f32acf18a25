/* cuda_attend.cuh - the skeleton of `online`, `split` and the sums of `sliced`
 *
 * A row of the schedule (a destination, or an item of a split one) belongs to
 * `group` lanes of a warp.  L lanes work on an edge, so group / L edges are
 * worked on side by side, U of each in flight: key and value rows of all are
 * requested before the first is used.  Each L lanes keep a softmax of their
 * own (m, l, sums); those merge once, at the end of the row.  A lane holds C
 * vectors of VEC features.  With MULTI the vectors of a warp span several
 * heads, `head_lanes` lanes each; else they are one head.
 *
 * Scores are kept in units of log2(e), so that softmax is exp2. */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_CUH
#define DFGNN_ATTENTION_CUDA_ATTEND_CUH

#include "kernels/attention/cuda_attend.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* ---- scores ------------------------------------------------------------- */

/* What a policy says: does the score gather a key row besides the value row
 * (KEY), is it a sum over features (SUM), does it read a destination row
 * (QUERY), a vector of the head (HEAD); is the softmax known (GIVEN). */
struct gt_score {
  static constexpr bool KEY = true, SUM = true, QUERY = true, HEAD = false;
  static constexpr bool GIVEN = false, NORM = false;
  template <typename A>
  static __device__ __forceinline__ void add(A &s, A &, A q, A x, A, A) {
    s += q * x;
  }
};

/* inv_norm may be a table, or is found from the row itself. */
struct agnn_score {
  static constexpr bool KEY = false, SUM = true, QUERY = true, HEAD = false;
  static constexpr bool GIVEN = false, NORM = true;
  template <typename A>
  static __device__ __forceinline__ void add(A &s, A &, A q, A x, A, A) {
    s += q * x;
  }
};

struct gat_score {
  static constexpr bool KEY = false, SUM = false, QUERY = false, HEAD = false;
  static constexpr bool GIVEN = false, NORM = false;
  template <typename A>
  static __device__ __forceinline__ void add(A &, A &, A, A, A, A) {}
};

struct gatv2_score {
  static constexpr bool KEY = false, SUM = true, QUERY = true, HEAD = true;
  static constexpr bool GIVEN = false, NORM = false;
  template <typename A>
  static __device__ __forceinline__ void add(A &s, A &, A q, A x, A att,
                                             A slope) {
    A t = q + x;
    s += att * (t > A(0) ? t : t * slope);
  }
};

/* Scores and their log-sum-exp are in memory already. */
struct given_score {
  static constexpr bool KEY = false, SUM = false, QUERY = false, HEAD = false;
  static constexpr bool GIVEN = true, NORM = false;
  template <typename A>
  static __device__ __forceinline__ void add(A &, A &, A, A, A, A) {}
};

template <typename A> __device__ __forceinline__ A leaky(A t, A slope) {
  return t > A(0) ? t : t * slope;
}
template <typename A> __device__ __forceinline__ A minus_infinity() {
  return -A(INFINITY);
}

/* ---- schedule ----------------------------------------------------------- */

struct row_work {
  int row;
  int slot; /* of the partial result; -1: the row is whole */
  int degree;
  int64_t begin;
};

__device__ __forceinline__ row_work row_of_unit(const attend_params &p,
                                                int unit) {
  row_work w;
  w.slot = -1;
  const offsets_t offsets{p.offsets, p.offsets64};
  if (p.item_row) {
    w.row = p.item_row[unit];
    w.begin = p.item_first[unit];
    int first = p.row_item[w.row], last = p.row_item[w.row + 1];
    int64_t end = offsets[w.row + 1];
    w.degree = static_cast<int>(min(end - w.begin, int64_t(p.item_edges)));
    /* All but the first item of a row are counted from 0 over the rows; first
     * ones of split rows follow. */
    if (last - first > 1)
      w.slot = unit == first ? p.extra_items + unit - w.row : unit - w.row - 1;
    return w;
  }
  w.row = p.order ? p.order[unit] : unit;
  w.begin = offsets[w.row];
  w.degree = static_cast<int>(offsets[w.row + 1] - w.begin);
  return w;
}

/* ---- the skeleton ------------------------------------------------------- */

template <class Score, typename T, int VEC, int L, int C, int U, bool MULTI>
struct attend_row {
  using A = accumulator_t<T>;
  static constexpr int S = MULTI ? C : 1; /* softmax states of a lane */

  const attend_params &p;
  int group, lane_e, lane_g, side; /* lane in edge, in row; edge of the step */
  int head0, head_step, feature;
  bool valid[C];
  const char *q_lane, *k_lane, *v_lane;
  int64_t q_step, k_step, v_step; /* bytes between a lane's vectors */
  A head_vector[C][VEC];

  __device__ __forceinline__ int head(int c) const {
    return MULTI ? head0 + c * head_step : head0;
  }
  __device__ __forceinline__ int feature_of(int c) const {
    return MULTI ? feature : feature + c * L * VEC;
  }
  __device__ __forceinline__ int64_t lane_offset(const tensor_view &t) const {
    return (t.head * head0 + t.feature * feature) * int64_t(sizeof(T));
  }
  __device__ __forceinline__ int64_t step(const tensor_view &t) const {
    if (MULTI)
      return t.head * head_step * int64_t(sizeof(T));
    return (VEC > 1 ? 1 : t.feature) * int64_t(L * VEC * sizeof(T));
  }

  __device__ __forceinline__ attend_row(const attend_params &params, int tile)
      : p(params) {
    const int lane = threadIdx.x & 31;
    group = p.group;
    lane_e = lane & (L - 1);
    lane_g = lane & (group - 1);
    side = lane_g / L;
    if (MULTI) {
      head0 = tile * p.tile_heads + lane_e / p.head_lanes;
      head_step = L / p.head_lanes;
      feature = (lane_e & (p.head_lanes - 1)) * VEC;
    } else {
      head0 = tile;
      head_step = 0;
      feature = lane_e * VEC;
    }
    const int tile_end =
        MULTI ? min((tile + 1) * p.tile_heads, p.heads) : p.heads;
#pragma unroll
    for (int c = 0; c < C; ++c)
      valid[c] = head(c) < tile_end && feature_of(c) < p.dim;
    q_lane = static_cast<const char *>(p.query.data) + lane_offset(p.query);
    k_lane = static_cast<const char *>(p.key.data) + lane_offset(p.key);
    v_lane = static_cast<const char *>(p.value.data) + lane_offset(p.value);
    q_step = step(p.query);
    k_step = step(p.key);
    v_step = step(p.value);
    if constexpr (Score::HEAD) {
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          head_vector[c][i] =
              valid[c]
                  ? widen(static_cast<const T *>(
                        p.att)[int64_t(head(c)) * p.dim + feature_of(c) + i]) *
                        A(kLog2e)
                  : A(0);
    }
  }

  __device__ __forceinline__ packed<T, VEC> gather(const char *lane_base,
                                                   unsigned node_bytes,
                                                   int64_t c_step, int j, int c,
                                                   bool live) const {
    packed<T, VEC> x = zero_packed<T, VEC>();
    if (live && valid[c])
      x = load_packed<VEC>(reinterpret_cast<const T *>(
          lane_base + uint64_t(unsigned(j)) * node_bytes + c * c_step));
    return x;
  }

  /* Sums s over the lanes of an edge's head. */
  template <int N> __device__ __forceinline__ void reduce(A (&s)[N]) const {
#pragma unroll
    for (int o = L / 2; o > 0; o >>= 1) {
      if (MULTI && o >= p.head_lanes)
        continue;
#pragma unroll
      for (int i = 0; i < N; ++i)
        s[i] += __shfl_xor_sync(kFullMask, s[i], o);
    }
  }

  __device__ __forceinline__ void store_scores(const A (&s)[U * S],
                                               int64_t edge, int stride,
                                               const bool (&live)[U]) const {
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int h = 0; h < S; ++h)
        if (live[u] && feature == 0 && valid[h])
          static_cast<A *>(p.scores)[(edge + u * stride) * p.heads + head(h)] =
              s[u * S + h];
  }

  __device__ __forceinline__ void run(int unit, bool active) {
    row_work w{0, -1, 0, 0};
    if (active)
      w = row_of_unit(p, unit);
    int longest = w.degree;
    if (group < 32) {
#pragma unroll
      for (int o = 16; o > 0; o >>= 1)
        if (o >= group)
          longest = max(longest, __shfl_xor_sync(kFullMask, longest, o));
    }

    A q[Score::QUERY ? C : 1][VEC];
    A row_score[S];
    if constexpr (Score::QUERY)
      load_query(q, w.row, active);
#pragma unroll
    for (int h = 0; h < S; ++h) {
      row_score[h] = A(0);
      if (!Score::SUM && active && valid[h])
        row_score[h] = static_cast<const A *>(
            Score::GIVEN ? p.lse2
                         : p.score_dst)[int64_t(w.row) * p.heads + head(h)];
    }

    A m[S], l[S], acc[C][VEC];
#pragma unroll
    for (int h = 0; h < S; ++h)
      m[h] = minus_infinity<A>(), l[h] = A(0);
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        acc[c][i] = A(0);

    const int *indices = p.indices + w.begin;
    const int sides = group / L, whole = (threadIdx.x & 31) & ~(group - 1);
    int next = lane_g < w.degree ? __ldcs(indices + lane_g) : 0;
#pragma unroll 1
    for (int base = 0; base < longest; base += group) {
      const int index = next;
      next = base + group + lane_g < w.degree
                 ? __ldcs(indices + base + group + lane_g)
                 : 0;
#pragma unroll 1
      for (int k = 0; k < group && base + k < longest; k += U * sides) {
        int j[U];
        bool live[U];
        packed<T, VEC> key[Score::KEY ? U : 1][C], value[U][C];
        A s[U * S];
#pragma unroll
        for (int u = 0; u < U; ++u) {
          const int at = k + u * sides + side;
          j[u] = __shfl_sync(kFullMask, index, whole | at);
          live[u] = base + at < w.degree;
        }
        if constexpr (Score::KEY) {
#pragma unroll
          for (int u = 0; u < U; ++u)
#pragma unroll
            for (int c = 0; c < C; ++c)
              key[u][c] =
                  gather(k_lane, p.key.node_bytes, k_step, j[u], c, live[u]);
        }
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
          for (int c = 0; c < C; ++c)
            value[u][c] =
                gather(v_lane, p.value.node_bytes, v_step, j[u], c, live[u]);

        const int64_t edge = w.begin + base + k + side;
        if constexpr (Score::KEY)
          sum_scores(s, q, key, j, live);
        else if constexpr (Score::SUM)
          sum_scores(s, q, value, j, live);
        else
          read_scores(s, row_score, j, edge, sides, live);
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
          for (int h = 0; h < S; ++h)
            if (!live[u])
              s[u * S + h] = minus_infinity<A>();
        if (!Score::GIVEN && p.scores)
          store_scores(s, edge, sides, live);

        A weight[U * S], scale[S];
        soften(weight, scale, s, m, l, row_score);
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
          for (int i = 0; i < VEC; ++i) {
            if (!Score::GIVEN)
              acc[c][i] *= scale[MULTI ? c : 0];
#pragma unroll
            for (int u = 0; u < U; ++u)
              acc[c][i] +=
                  weight[u * S + (MULTI ? c : 0)] * widen(value[u][c].item[i]);
          }
      }
    }
    finish(w, active, m, l, acc);
  }

  __device__ __forceinline__ void load_query(A (&q)[Score::QUERY ? C : 1][VEC],
                                             int row, bool active) const {
    A square[S];
#pragma unroll
    for (int h = 0; h < S; ++h)
      square[h] = A(0);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      widen<T, VEC>(q[c],
                    gather(q_lane, p.query.node_bytes, q_step, row, c, active));
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        if (Score::NORM)
          square[MULTI ? c : 0] += q[c][i] * q[c][i];
    }
    A factor[S];
    if (Score::NORM)
      reduce(square);
#pragma unroll
    for (int h = 0; h < S; ++h) {
      factor[h] = A(p.scale) * A(kLog2e);
      if (Score::NORM)
        factor[h] = A(kLog2e) * inverse_norm(square[h]) *
                    (p.beta ? *static_cast<const A *>(p.beta) : A(1));
    }
    if (!Score::HEAD) {
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          q[c][i] *= factor[MULTI ? c : 0];
    }
  }

  __device__ __forceinline__ void
  sum_scores(A (&s)[U * S], const A (&q)[Score::QUERY ? C : 1][VEC],
             const packed<T, VEC> (&x)[U][C], const int (&j)[U],
             const bool (&live)[U]) const {
#pragma unroll
    for (int i = 0; i < U * S; ++i)
      s[i] = A(0);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          Score::add(s[u * S + (MULTI ? c : 0)], s[0],
                     q[Score::QUERY ? c : 0][i], widen(x[u][c].item[i]),
                     head_vector[c][i], A(p.slope));
    if constexpr (Score::NORM) {
      A inverse[U * S];
      if (p.inverse_norms) {
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
          for (int h = 0; h < S; ++h)
            inverse[u * S + h] =
                live[u] && valid[h]
                    ? __ldg(static_cast<const A *>(p.inverse_norms) +
                            int64_t(j[u]) * p.heads + head(h))
                    : A(0);
        reduce(s);
      } else {
#pragma unroll
        for (int i = 0; i < U * S; ++i)
          inverse[i] = A(0);
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
          for (int c = 0; c < C; ++c)
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
              const A v = widen(x[u][c].item[i]);
              inverse[u * S + (MULTI ? c : 0)] += v * v;
            }
        reduce(s);
        reduce(inverse);
#pragma unroll
        for (int i = 0; i < U * S; ++i)
          inverse[i] = inverse_norm(inverse[i]);
      }
#pragma unroll
      for (int i = 0; i < U * S; ++i)
        s[i] *= inverse[i];
    } else {
      reduce(s);
    }
  }

  __device__ __forceinline__ void
  read_scores(A (&s)[U * S], const A (&row_score)[S], const int (&j)[U],
              int64_t edge, int stride, const bool (&live)[U]) const {
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int h = 0; h < S; ++h) {
        A &x = s[u * S + h];
        x = A(0);
        if (!live[u] || !valid[h])
          continue;
        if (Score::GIVEN)
          x = static_cast<const A *>(
              p.scores)[(edge + u * stride) * p.heads + head(h)];
        else
          x = leaky(row_score[h] + __ldg(static_cast<const A *>(p.score_src) +
                                         int64_t(j[u]) * p.heads + head(h)),
                    A(p.slope)) *
              A(kLog2e);
      }
  }

  /* weight = exp2(s - m) after m has taken in the new scores; scale is what
   * older sums lose by it.  A row of -inf keeps m = -inf and weights of 0. */
  __device__ __forceinline__ void soften(A (&weight)[U * S], A (&scale)[S],
                                         const A (&s)[U * S], A (&m)[S],
                                         A (&l)[S],
                                         const A (&row_score)[S]) const {
#pragma unroll
    for (int h = 0; h < S; ++h) {
      if (Score::GIVEN) {
        const A base =
            row_score[h] == minus_infinity<A>() ? A(0) : row_score[h];
#pragma unroll
        for (int u = 0; u < U; ++u)
          weight[u * S + h] = exp2_fast(s[u * S + h] - base);
        continue;
      }
      A top = m[h];
#pragma unroll
      for (int u = 0; u < U; ++u)
        top = max_of(top, s[u * S + h]);
      const A base = top == minus_infinity<A>() ? A(0) : top;
      scale[h] = exp2_fast(m[h] - base);
      m[h] = top;
      l[h] *= scale[h];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        weight[u * S + h] = exp2_fast(s[u * S + h] - base);
        l[h] += weight[u * S + h];
      }
    }
  }

  /* Merges the sides and writes the row. */
  __device__ __forceinline__ void finish(const row_work &w, bool active,
                                         A (&m)[S], A (&l)[S],
                                         A (&acc)[C][VEC]) const {
    const bool partial = w.slot >= 0;
    A factor[S];
#pragma unroll
    for (int h = 0; h < S; ++h) {
      if (Score::GIVEN) {
        m[h] = A(0);
        l[h] = A(1);
        factor[h] = A(1);
        continue;
      }
      A top = m[h];
#pragma unroll
      for (int o = L; o < 32; o <<= 1)
        if (o < group)
          top = max_of(top, __shfl_xor_sync(kFullMask, top, o));
      factor[h] = top == minus_infinity<A>() ? A(1) : exp2_fast(m[h] - top);
      m[h] = top;
      l[h] *= factor[h];
#pragma unroll
      for (int o = L; o < 32; o <<= 1)
        if (o < group)
          l[h] += __shfl_xor_sync(kFullMask, l[h], o);
      if (!partial)
        factor[h] *= l[h] == A(0) ? A(0) : A(1) / l[h];
    }
    if (active && side == 0 && feature == 0) {
#pragma unroll
      for (int h = 0; h < S; ++h)
        if (valid[h])
          store_state(w, head(h), m[h], l[h]);
    }
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        acc[c][i] *= factor[MULTI ? c : 0];
    scatter<C>(acc, L, 0, w, active);
  }

  __device__ __forceinline__ void store_state(const row_work &w, int h, A m,
                                              A l) const {
    if (w.slot >= 0) {
      A *state = static_cast<A *>(p.partial_state) +
                 (int64_t(w.slot) * p.heads + h) * 2;
      state[0] = m;
      state[1] = l;
      return;
    }
    if (Score::GIVEN)
      return;
    const int64_t at = int64_t(w.row) * p.heads + h;
    const A lse2 = l == A(0) ? minus_infinity<A>() : m + log2_of(l);
    if (p.lse)
      static_cast<A *>(p.lse)[at] = lse2 * A(kLn2);
    if (p.lse2_out)
      static_cast<A *>(p.lse2_out)[at] = lse2;
  }

  /* Sums over the sides; while a lane holds more than one vector, each half of
   * a pair of lanes keeps one half of them. */
  template <int LEFT>
  __device__ __forceinline__ void scatter(A (&acc)[C][VEC], int o, int first,
                                          const row_work &w,
                                          bool active) const {
    if (o >= group) {
#pragma unroll
      for (int i = 0; i < LEFT; ++i)
        store(acc[i], first + i, w, active);
      return;
    }
    const bool upper = (lane_g & o) != 0;
    if constexpr (LEFT > 1) {
#pragma unroll
      for (int c = 0; c < LEFT / 2; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
          const A mine = upper ? acc[c + LEFT / 2][i] : acc[c][i];
          const A other = upper ? acc[c][i] : acc[c + LEFT / 2][i];
          acc[c][i] = mine + __shfl_xor_sync(kFullMask, other, o);
        }
      scatter<LEFT / 2>(acc, o * 2, upper ? first + LEFT / 2 : first, w,
                        active);
    } else {
      bool writer = active;
      for (; o < group; o <<= 1) {
        writer = writer && !(lane_g & o);
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          acc[0][i] += __shfl_xor_sync(kFullMask, acc[0][i], o);
      }
      store(acc[0], first, w, writer);
    }
  }

  __device__ __forceinline__ void store(const A (&x)[VEC], int c,
                                        const row_work &w, bool writer) const {
    const int h = head(c), f = feature_of(c);
    if (!writer || f >= p.dim || h >= p.heads ||
        (MULTI && c * head_step + lane_e / p.head_lanes >= p.tile_heads))
      return;
    if (w.slot >= 0) {
      A *to = static_cast<A *>(p.partial) +
              (int64_t(w.slot) * p.heads + h) * p.dim + f;
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        to[i] = x[i];
      return;
    }
    T *to = static_cast<T *>(p.out) + w.row * p.out_node + h * p.out_head +
            f * p.out_feature;
    store_packed<VEC>(to, x);
  }
};

template <class Score, typename T, int VEC, int L, int C, int U, bool MULTI>
__global__ void __launch_bounds__(512)
    attend(const __grid_constant__ attend_params p) {
  __shared__ int taken;
  const int blocks = p.blocks;
  const int tile = blockIdx.x / blocks, block = blockIdx.x - tile * blocks;
  const int rows = 32 / p.group, lane = threadIdx.x & 31;
  const int first = block * p.span, last = min(first + p.span, p.units);
  const bool several = p.span > int(blockDim.x / 32) * rows;
  if (several) {
    if (threadIdx.x == 0)
      taken = blockDim.x / 32 * rows;
    __syncthreads();
  }
  attend_row<Score, T, VEC, L, C, U, MULTI> work(p, tile);
  int unit = first + static_cast<int>(threadIdx.x) / 32 * rows;
  while (unit < last) {
    int later = 0;
    if (several && lane == 0)
      later = atomicAdd(&taken, rows);
    const int mine = unit + lane / p.group;
    work.run(mine, mine < last);
    if (!several)
      break;
    unit = first + __shfl_sync(kFullMask, later, 0);
  }
}

} // namespace dfgnn

#endif
