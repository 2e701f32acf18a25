/* attend.cuh - the skeleton of `online`, `split` and the sums of `sliced`
 *
 * A row of the schedule (a destination, or an item of a split one) belongs to
 * `group` lanes of a warp.  L lanes work on an edge, so group / L edges are
 * worked on side by side, U of each in flight: key and value rows of all are
 * requested before the first is used.  Each L lanes keep a softmax of their
 * own (m, l, sums); those merge once, at the end of the row.  A lane holds C
 * vectors of VEC features.  With MULTI the vectors of a warp span several
 * heads, `head_lanes` lanes each; else they are one head.
 *
 * Steps of which every lane of the warp has an edge and features take no
 * masks; they are most where rows are long.
 *
 * Scores are kept in units of log2(e), so that softmax is exp2. */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_CUH
#define DFGNN_ATTENTION_CUDA_ATTEND_CUH

#include "kernels/attention/cuda/attend.h"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/attention/cuda/score.cuh"

namespace dfgnn {

template <class Score, typename T, int VEC, int L, int C, int U, bool MULTI>
struct attend_row {
  using A = accumulator_t<T>;
  using pack = packed<T, VEC>;
  static constexpr int S = MULTI ? C : 1; /* softmax states of a lane */
  static constexpr int KC = Score::KEY ? C : 1, KU = Score::KEY ? U : 1;
  static constexpr int QC = Score::QUERY ? C : 1, HC = Score::HEAD ? C : 1;
  static constexpr int kVectorBytes = L * VEC * sizeof(T);

  const attend_params &p;
  unsigned valid; /* bit c: vector c has features */
  const char *k_lane, *v_lane;
  A att[HC][VEC];

  struct state {
    A q[QC][VEC], row_score[S], m[S], l[S], acc[C][VEC];
    pack key[KU][KC], value[U][C];
  };

  /* Read anew wherever they are used, to hold no registers in the loop. */
  static __device__ __forceinline__ int lane() {
    int x;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(x));
    return x;
  }
  __device__ __forceinline__ int lane_of_row() const {
    return lane() & (p.group - 1);
  }
  __device__ __forceinline__ int side() const { return lane_of_row() / L; }
  __device__ __forceinline__ int sides() const { return p.group / L; }
  __device__ __forceinline__ int head_step() const {
    return MULTI ? L >> p.head_shift : 0;
  }
  __device__ __forceinline__ int head(int c) const {
    return MULTI ? blockIdx.y * p.tile_heads +
                       ((lane() & (L - 1)) >> p.head_shift) + c * head_step()
                 : blockIdx.y;
  }
  __device__ __forceinline__ int feature(int c) const {
    const int lane_e = lane() & (L - 1);
    return MULTI ? (lane_e & ((1 << p.head_shift) - 1)) * VEC
                 : (lane_e + c * L) * VEC;
  }
  __device__ __forceinline__ bool has(int c) const { return valid >> c & 1; }
  __device__ __forceinline__ const char *lane_base(const tensor_view &t) const {
    return node_row(
        node_row(static_cast<const char *>(t.data), head(0), t.head_bytes),
        feature(0), t.feature_bytes);
  }
  /* From a lane's first vector to vector c. */
  __device__ __forceinline__ const char *
  vector_at(const char *at, const tensor_view &t, int c) const {
    if (MULTI)
      return node_row(at, c * head_step(), t.head_bytes);
    if (VEC > 1)
      return at + c * kVectorBytes;
    return node_row(at, c * L, t.feature_bytes);
  }

  __device__ __forceinline__ attend_row(const attend_params &params)
      : p(params) {
    const int end =
        MULTI ? min(int(blockIdx.y + 1) * p.tile_heads, p.heads) : p.heads;
    valid = 0;
#pragma unroll
    for (int c = 0; c < C; ++c)
      valid |= unsigned(head(c) < end && feature(c) < p.dim) << c;
    k_lane = Score::KEY ? lane_base(p.key) : nullptr;
    v_lane = lane_base(p.value);
    if constexpr (Score::HEAD) {
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          att[c][i] =
              has(c) ? widen(static_cast<const T *>(
                           p.att)[int64_t(head(c)) * p.dim + feature(c) + i]) *
                           A(kLog2e) * A(p.scale)
                     : A(0);
    }
  }

  /* Vector c of a gathered row.  WHOLE: nothing is masked, heads are in one
   * piece. */
  template <bool WHOLE>
  __device__ __forceinline__ void gather(pack &x, const char *at,
                                         const tensor_view &t, int c,
                                         bool live) const {
    const T *from = reinterpret_cast<const T *>(WHOLE ? at + c * kVectorBytes
                                                      : vector_at(at, t, c));
    if (WHOLE && !Score::KEY) {
      x = load_packed<VEC>(from);
      return;
    }
    if (!WHOLE)
      clear(x);
    /* heads is never 0, but the compiler does not know. */
    load_if<VEC>(x, from, WHOLE ? p.heads : int(live && has(c)));
  }

  /* Sums over the lanes of an edge's head. */
  template <int N> __device__ __forceinline__ void reduce(A (&s)[N]) const {
#pragma unroll
    for (int o = L / 2; o > 0; o >>= 1) {
      if (MULTI && o >> p.head_shift)
        continue;
#pragma unroll
      for (int i = 0; i < N; ++i)
        s[i] += __shfl_xor_sync(kFullMask, s[i], o);
    }
  }

  __device__ __forceinline__ void clear_buffers(state &z) const {
#pragma unroll
    for (int u = 0; u < KU; ++u)
#pragma unroll
      for (int c = 0; c < KC; ++c)
        clear(z.key[u][c]);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c)
        clear(z.value[u][c]);
  }

  /* What of a row can be asked for before its turn comes. */
  struct early {
    row_work w;
    bool active;
    int index; /* the lane's first source */
    pack q[QC];
  };

  __device__ __forceinline__ void find_row(early &e, int unit, int last) const {
    e.w = row_work{0, -1, 0, p.schedule.indices};
    unit += lane() / p.group;
    e.active = unit < last;
    if (e.active)
      e.w = row_of_unit(p.schedule, unit);
  }

  __device__ __forceinline__ void fetch_row(early &e) const {
    e.index =
        lane_of_row() < e.w.degree ? __ldcs(e.w.indices + lane_of_row()) : 0;
    if constexpr (Score::QUERY) {
      const char *at =
          node_row(lane_base(p.query), e.w.row, p.query.node_bytes);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        clear(e.q[c]);
        if (e.active && has(c))
          e.q[c] = load_once<VEC>(
              reinterpret_cast<const T *>(vector_at(at, p.query, c)));
      }
    }
  }

  /* Works on the row of e; e becomes the one at `unit`, if that is below
   * `last`. */
  __device__ __forceinline__ void run(state &z, early &e, int unit,
                                      int last) const {
    const row_work w = e.w;
    const bool active = e.active;
    int ahead = e.index;
    begin_row(z, e);
    find_row(e, unit, last);
    const int *at = w.indices + lane_of_row();
    int left = w.degree - side(); /* edges from this side's next one on */
    while (__any_sync(kFullMask, left > 0)) {
      const int index = ahead;
      at += p.group;
      ahead = left + side() - lane_of_row() > p.group ? __ldcs(at) : 0;
      int from = (lane() & ~(p.group - 1)) + side();
#pragma unroll 1
      for (int i = 0; i < L / U; ++i) {
        if (!__any_sync(kFullMask, left > 0))
          break;
        if (p.exact && __all_sync(kFullMask, left > (U - 1) * sides()))
          edges<true>(z, index, from, left, at);
        else
          edges<false>(z, index, from, left, at);
        left -= U * sides();
        from += U * sides();
      }
    }
    fetch_row(e);
    finish(w, active, z);
  }

  __device__ __forceinline__ void begin_row(state &z, const early &e) const {
#pragma unroll
    for (int h = 0; h < S; ++h) {
      z.m[h] = lowest<A>();
      z.l[h] = z.row_score[h] = A(0);
      if (!Score::SUM && e.active && has(h))
        z.row_score[h] =
            __ldg(static_cast<const A *>(Score::GIVEN ? p.lse2 : p.score_dst) +
                  int64_t(e.w.row) * p.heads + head(h));
    }
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        z.acc[c][i] = A(0);
    if constexpr (Score::QUERY)
      scale_query(z.q, e.q);
  }

  __device__ __forceinline__ void scale_query(A (&q)[QC][VEC],
                                              const pack (&from)[QC]) const {
    A square[S];
#pragma unroll
    for (int h = 0; h < S; ++h)
      square[h] = A(0);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      widen(q[c], from[c]);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        square[MULTI ? c : 0] += q[c][i] * q[c][i];
    }
    if (Score::NORM)
      reduce(square);
    A factor[S];
#pragma unroll
    for (int h = 0; h < S; ++h)
      factor[h] =
          A(Score::HEAD ? 1 : kLog2e) *
          (Score::NORM ? inverse_norm(square[h]) *
                             (p.beta ? *static_cast<const A *>(p.beta) : A(1))
                       : A(p.scale));
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        q[c][i] *= factor[MULTI ? c : 0];
  }

  /* U edges of each side; edge u is live if u * sides < left. */
  template <bool WHOLE>
  __device__ __forceinline__ void edges(state &z, int index, int from, int left,
                                        const int *chunk) const {
    int j[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      j[u] = __shfl_sync(kFullMask, index, from + u * sides());
    if constexpr (Score::KEY) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const char *at = node_row(k_lane, j[u], p.key.node_bytes);
#pragma unroll
        for (int c = 0; c < C; ++c)
          gather<WHOLE>(z.key[u][c], at, p.key, c, u * sides() < left);
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const char *at = node_row(v_lane, j[u], p.value.node_bytes);
#pragma unroll
      for (int c = 0; c < C; ++c)
        gather<WHOLE>(z.value[u][c], at, p.value, c, u * sides() < left);
    }

    A s[U * S], weight[U * S];
    if constexpr (Score::KEY)
      sum_scores<WHOLE>(s, z.q, z.key, j, left);
    else if constexpr (Score::SUM)
      sum_scores<WHOLE>(s, z.q, z.value, j, left);
    else if constexpr (Score::GIVEN)
      given_weights<WHOLE>(weight, z.row_score, chunk, from, left);
    else
      source_scores<WHOLE>(s, z.row_score, j, left);
    if constexpr (!Score::GIVEN)
      soften<WHOLE>(weight, s, z, left);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.acc[c][i] +=
              weight[u * S + (MULTI ? c : 0)] * widen(z.value[u][c].item[i]);
  }

  template <bool WHOLE, int XU, int XC>
  __device__ __forceinline__ void
  sum_scores(A (&s)[U * S], const A (&q)[QC][VEC], const pack (&x)[XU][XC],
             const int (&j)[U], int left) const {
#pragma unroll
    for (int i = 0; i < U * S; ++i)
      s[i] = A(0);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          Score::add(s[u * S + (MULTI ? c : 0)], q[c][i],
                     widen(x[u][c].item[i]), att[Score::HEAD ? c : 0][i],
                     A(p.slope), A(p.scale));
    reduce(s);
    if constexpr (Score::NORM) {
      A inverse[U * S];
      if (p.inverse_norms)
        read_scalars<WHOLE>(inverse, p.inverse_norms, j, left);
      else
        row_norms(inverse, x);
#pragma unroll
      for (int i = 0; i < U * S; ++i)
        s[i] *= inverse[i];
    }
  }

  __device__ __forceinline__ void row_norms(A (&inverse)[U * S],
                                            const pack (&x)[U][C]) const {
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
    reduce(inverse);
#pragma unroll
    for (int i = 0; i < U * S; ++i)
      inverse[i] = inverse_norm(inverse[i]);
  }

  /* A scalar a source and head. */
  template <bool WHOLE>
  __device__ __forceinline__ void read_scalars(A (&x)[U * S], const void *from,
                                               const int (&j)[U],
                                               int left) const {
    const A *at = static_cast<const A *>(from) + head(0);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int h = 0; h < S; ++h)
        x[u * S + h] =
            WHOLE || (u * sides() < left && has(h))
                ? __ldg(at + uint64_t(unsigned(j[u])) * unsigned(p.heads) +
                        h * head_step())
                : A(0);
  }

  template <bool WHOLE>
  __device__ __forceinline__ void
  source_scores(A (&s)[U * S], const A (&row_score)[S], const int (&j)[U],
                int left) const {
    read_scalars<WHOLE>(s, p.score_src, j, left);
#pragma unroll
    for (int i = 0; i < U * S; ++i)
      s[i] = leaky(row_score[i % S] + s[i], A(p.slope)) * A(kLog2e);
  }

  /* From scores in memory and their log-sum-exp.  `chunk` is the lane's place
   * in the list of edges, a chunk ahead. */
  template <bool WHOLE>
  __device__ __forceinline__ void
  given_weights(A (&weight)[U * S], const A (&lse2)[S], const int *chunk,
                int from, int left) const {
    const int64_t edge = chunk - p.schedule.indices - p.group + (from - lane());
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int h = 0; h < S; ++h) {
        weight[u * S + h] = A(0);
        if (WHOLE || (u * sides() < left && has(h)))
          weight[u * S + h] =
              exp2_fast(__ldg(static_cast<const A *>(p.scores) +
                              head(h) * p.edges + edge + u * sides()) -
                        lse2[h]);
      }
  }

  /* weight = exp2(s - m).  m follows the largest score at a distance, so that
   * older sums are seldom scaled: weights are at most 2^kSlack. */
  template <bool WHOLE>
  __device__ __forceinline__ void soften(A (&weight)[U * S], A (&s)[U * S],
                                         state &z, int left) const {
    constexpr A kSlack = A(8);
    A top[S];
    bool raised = false;
#pragma unroll
    for (int h = 0; h < S; ++h) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (!WHOLE && u * sides() >= left)
          s[u * S + h] = -A(INFINITY);
        top[h] = u == 0 ? s[h] : max_of(top[h], s[u * S + h]);
      }
      raised = raised || top[h] > z.m[h] + kSlack;
    }
    if (__any_sync(kFullMask, raised)) {
#pragma unroll
      for (int h = 0; h < S; ++h) {
        const A old = z.m[h];
        z.m[h] = max_of(old, top[h]);
        const A scale = exp2_fast(old - z.m[h]);
        z.l[h] *= scale;
#pragma unroll
        for (int c = MULTI ? h : 0; c < (MULTI ? h + 1 : C); ++c)
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            z.acc[c][i] *= scale;
      }
    }
#pragma unroll
    for (int i = 0; i < U * S; ++i) {
      weight[i] = exp2_fast(s[i] - z.m[i % S]);
      z.l[i % S] += weight[i];
    }
  }

  /* Merges the sides and writes the row. */
  __device__ __forceinline__ void finish(const row_work &w, bool active,
                                         state &z) const {
#pragma unroll
    for (int h = 0; h < S; ++h) {
      if constexpr (Score::GIVEN) {
        if (w.slot >= 0)
          store_state(w, active, h, A(0),
                      A(w.slot >= p.schedule.extra_items)); /* 1 a row */
      } else {
        const A factor = merge_state(w, active, h, z.m[h], z.l[h]);
#pragma unroll
        for (int c = MULTI ? h : 0; c < (MULTI ? h + 1 : C); ++c)
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            z.acc[c][i] *= factor;
      }
    }
    scatter<C>(z.acc, L, 0, w, active);
  }

  __device__ __forceinline__ A merge_state(const row_work &w, bool active,
                                           int h, A m, A l) const {
    A top = m, factor = A(1);
    if (p.group > L) {
#pragma unroll
      for (int o = L; o < 32; o <<= 1)
        if (o < p.group)
          top = max_of(top, __shfl_xor_sync(kFullMask, top, o));
      factor = exp2_fast(m - top);
      l *= factor;
#pragma unroll
      for (int o = L; o < 32; o <<= 1)
        if (o < p.group)
          l += __shfl_xor_sync(kFullMask, l, o);
    }
    if (w.slot >= 0 || p.lse)
      store_state(w, active, h, top, l);
    if (w.slot < 0)
      factor *= l == A(0) ? A(0) : reciprocal(l);
    return factor;
  }

  __device__ __forceinline__ void store_state(const row_work &w, bool active,
                                              int h, A m, A l) const {
    if (!active || side() != 0 || feature(0) != 0 || !has(h))
      return;
    if (w.slot >= 0) {
      A *to = static_cast<A *>(p.partial_state) +
              (int64_t(w.slot) * p.heads + head(h)) * 2;
      to[0] = m;
      to[1] = l;
    } else {
      static_cast<A *>(p.lse)[int64_t(w.row) * p.heads + head(h)] =
          l == A(0) ? -A(INFINITY) : (m + log2_fast(l)) * A(kLn2);
    }
  }

  /* Sums over the sides; while a lane holds more than one vector, each half of
   * a pair of lanes keeps one half of them. */
  template <int LEFT>
  __device__ __forceinline__ void scatter(A (&acc)[C][VEC], int o, int first,
                                          const row_work &w,
                                          bool active) const {
    if (o >= p.group) {
#pragma unroll
      for (int i = 0; i < LEFT; ++i)
        store(acc[i], first + i, w, active);
      return;
    }
    if constexpr (LEFT > 1) {
      const bool upper = (lane() & o) != 0;
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
      for (; o < p.group; o <<= 1) {
        writer = writer && !(lane() & o);
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          acc[0][i] += __shfl_xor_sync(kFullMask, acc[0][i], o);
      }
      store(acc[0], first, w, writer);
    }
  }

  __device__ __forceinline__ void store(const A (&x)[VEC], int c,
                                        const row_work &w, bool writer) const {
    if (!writer || !has(c))
      return;
    if (w.slot >= 0) {
      A *to = static_cast<A *>(p.partial) +
              (int64_t(w.slot) * p.heads + head(c)) * p.dim + feature(c);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        to[i] = x[i];
      return;
    }
    const char *to = vector_at(
        node_row(lane_base(p.out), w.row, p.out.node_bytes), p.out, c);
    store_once<VEC>(const_cast<T *>(reinterpret_cast<const T *>(to)), x);
  }
};

template <class Score, typename T, int VEC, int L, int C, int U, bool MULTI>
__global__ void __launch_bounds__(512, 1)
    attend(const __grid_constant__ attend_params p) {
  using row_t = attend_row<Score, T, VEC, L, C, U, MULTI>;
  __shared__ int taken;
  const int rows = 32 / p.group, at_once = blockDim.x / 32 * rows;
  const int first = blockIdx.x * p.first_step;
  const int last = min(first + p.span, p.schedule.units);
  const bool several = p.span > at_once;
  if (several) {
    if (threadIdx.x == 0)
      taken = at_once;
    __syncthreads();
  }
  const row_t work(p);
  typename row_t::state z;
  typename row_t::early e;
  work.clear_buffers(z);
  int unit = first + static_cast<int>(threadIdx.x / 32) * rows;
  if (unit >= last)
    return;
  work.find_row(e, unit, last);
  work.fetch_row(e);
  while (unit < last) {
    int next = last;
    if (several) {
      int ticket = 0;
      if (row_t::lane() == 0)
        ticket = atomicAdd(&taken, rows);
      ticket = __shfl_sync(kFullMask, ticket, 0);
      next = first + ticket / at_once * p.round_step + ticket % at_once;
    }
    work.run(z, e, next, last);
    unit = next;
  }
}

} // namespace dfgnn

#endif
