/* general.cuh - forward attention with an edge bias and dropout: one pass
 * over rows with an online softmax, of numbered edges
 *
 * Lanes are shared out as cuda_lanes.cuh says; each side keeps a softmax of its
 * own, merged at the end of the row.  Scores are in log2 units. */
#ifndef DFGNN_ATTENTION_CUDA_GENERAL_CUH
#define DFGNN_ATTENTION_CUDA_GENERAL_CUH

#include "kernels/attention/cuda/general.h"
#include "kernels/attention/cuda/schedule.cuh"

namespace dfgnn {

/* Adds weights of scores s to a softmax (m, l) whose sums are then to be
 * multiplied by the result. */
template <typename A, int N>
__device__ __forceinline__ A soften(A &m, A &l, A (&s)[N]) {
  A top = m;
#pragma unroll
  for (int u = 0; u < N; ++u)
    top = max_of(top, s[u]);
  const A scale = exp2_fast(m - top);
  m = top;
  l *= scale;
#pragma unroll
  for (int u = 0; u < N; ++u) {
    s[u] = exp2_fast(s[u] - m);
    l += s[u];
  }
  return scale;
}

template <int OP, typename T, int VEC, int L, int C, int U, bool MULTI>
struct general_row : lane_map<T, VEC, L, C, MULTI> {
  using map = lane_map<T, VEC, L, C, MULTI>;
  using map::feature;
  using map::has;
  using map::head;
  using map::lane_of_row;
  using map::m;
  using map::S;
  using map::side;
  using map::sides;
  using typename map::A;
  using typename map::pack;

  static constexpr bool GT = OP == DFGNN_OP_GT, AGNN = OP == DFGNN_OP_AGNN;
  static constexpr bool GAT = OP == DFGNN_OP_GAT, GATV2 = OP == DFGNN_OP_GATV2;
  static constexpr int FAR = GT ? 2 : 1, QC = GAT ? 1 : C, HC = GATV2 ? C : 1;

  const general_params &p;
  const char *far[FAR];
  A att[HC][VEC], slope, keep;
  uint64_t key;

  struct state {
    A q[QC][VEC], own[S], m[S], l[S], sum[C][VEC];
    pack x[FAR][U][C];
  };

  __device__ __forceinline__ explicit general_row(const general_params &params)
      : map(params.layout), p(params), slope(params.slope),
        keep(params.dropout.keep), key(0) {
#pragma unroll
    for (int t = 0; t < FAR; ++t)
      far[t] = this->lane_base(p.far[t]);
    if constexpr (GATV2) {
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          att[c][i] =
              has(c) ? widen(static_cast<const T *>(
                           p.att)[int64_t(head(c)) * m.dim + feature(c) + i]) *
                           A(kLog2e)
                     : A(0);
    }
    if (p.dropout.on)
      key = dropout_key(p.dropout);
  }

  __device__ __forceinline__ void run(int unit) const {
    state z;
    row_work w{0, -1, 0, p.schedule.indices};
    unit += lane_id() / m.group;
    const bool active = unit < p.schedule.units;
    if (active)
      w = row_of_unit(p.schedule, unit);
    const int *at = w.indices + lane_of_row();
    int ahead = lane_of_row() < w.degree ? __ldcs(at) : 0;
    begin_row(z, w, active);
    int left = w.degree - side(); /* edges from this side's next one on */
    while (__any_sync(kFullMask, left > 0)) {
      const int index = ahead;
      at += m.group;
      ahead = left + side() - lane_of_row() > m.group ? __ldcs(at) : 0;
      int from = (lane_id() & ~(m.group - 1)) + side();
#pragma unroll 1
      for (int i = 0; i < L / U; ++i) {
        if (!__any_sync(kFullMask, left > 0))
          break;
        edges(z, w, index, from, left);
        left -= U * sides();
        from += U * sides();
      }
    }
    finish(z, w, active);
  }

  __device__ __forceinline__ void begin_row(state &z, const row_work &w,
                                            bool active) const {
#pragma unroll
    for (int t = 0; t < FAR; ++t)
#pragma unroll
      for (int u = 0; u < U; ++u)
#pragma unroll
        for (int c = 0; c < C; ++c)
          clear(z.x[t][u][c]);
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        z.sum[c][i] = A(0);
#pragma unroll
    for (int h = 0; h < S; ++h) {
      z.m[h] = lowest<A>();
      z.l[h] = z.own[h] = A(0);
      if (GAT && active && has(h))
        z.own[h] = __ldg(static_cast<const A *>(p.score_dst) +
                         int64_t(w.row) * m.heads + head(h));
    }
    if constexpr (!GAT)
      load_query(z, w, active);
  }

  __device__ __forceinline__ void load_query(state &z, const row_work &w,
                                             bool active) const {
    A factor[S];
    this->load_own(z.q, p.query, w.row, active);
#pragma unroll
    for (int h = 0; h < S; ++h)
      factor[h] = GT ? A(p.scale) * A(kLog2e) : A(0);
    if constexpr (AGNN) {
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          factor[MULTI ? c : 0] += z.q[c][i] * z.q[c][i];
      this->reduce(factor);
      const A beta = p.beta ? *static_cast<const A *>(p.beta) : A(1);
#pragma unroll
      for (int h = 0; h < S; ++h)
        factor[h] = inverse_norm(factor[h]) * beta * A(kLog2e);
    }
    if constexpr (!GATV2) {
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.q[c][i] *= factor[MULTI ? c : 0];
    }
  }

  /* U edges of each side; edge u is live if u * sides < left. */
  __device__ __forceinline__ void edges(state &z, const row_work &w, int index,
                                        int from, int left) const {
    int j[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      j[u] = __shfl_sync(kFullMask, index, from + u * sides());
#pragma unroll
    for (int t = 0; t < FAR; ++t)
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const char *at = node_row(far[t], j[u], p.far[t].node_bytes);
#pragma unroll
        for (int c = 0; c < C; ++c)
          this->template gather<false, true>(z.x[t][u][c], at, p.far[t], c,
                                             u * sides() < left);
      }
    A s[S][U], kept[S][U];
    scores(s, z, j, left);
    const int64_t edge = (w.indices - p.schedule.indices) + (w.degree - left);
#pragma unroll
    for (int h = 0; h < S; ++h)
#pragma unroll
      for (int u = 0; u < U; ++u)
        number(s[h][u], kept[h][u], edge + u * sides(), h,
               u * sides() < left && has(h));
#pragma unroll
    for (int h = 0; h < S; ++h) {
      const A scale = soften(z.m[h], z.l[h], s[h]);
#pragma unroll
      for (int c = MULTI ? h : 0; c < (MULTI ? h + 1 : C); ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.sum[c][i] *= scale;
    }
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int h = MULTI ? c : 0;
        if (kept[h][u] != A(0)) { /* 0 times infinity is none */
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            z.sum[c][i] +=
                s[h][u] * kept[h][u] * widen(z.x[FAR - 1][u][c].item[i]);
        }
      }
  }

  /* What depends on an edge's number. */
  __device__ __forceinline__ void number(A &s, A &kept, int64_t edge, int h,
                                         bool live) const {
    const int64_t at = edge * m.heads + head(h);
    kept = A(1);
    if (p.bias && live)
      s += __ldg(static_cast<const A *>(p.bias) + at) * A(kLog2e);
    if (p.dropout.on)
      kept = kept_of(p.dropout, keep, key, edge, m.heads, head(h));
    if (p.weights && live && feature(0) == 0)
      static_cast<A *>(p.weights)[at] = s;
    if (!live)
      s = -A(INFINITY);
  }

  __device__ __forceinline__ void scores(A (&s)[S][U], const state &z,
                                         const int (&j)[U], int left) const {
    A sums[U * S];
#pragma unroll
    for (int i = 0; i < U * S; ++i)
      sums[i] = A(0);
    if constexpr (!GAT) {
#pragma unroll
      for (int u = 0; u < U; ++u)
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
          for (int i = 0; i < VEC; ++i) {
            A &sum = sums[u * S + (MULTI ? c : 0)];
            const A x = widen(z.x[0][u][c].item[i]);
            if constexpr (GATV2) {
              const A t = z.q[c][i] + x;
              sum += att[c][i] * (t > A(0) ? t : t * slope);
            } else {
              sum += z.q[c][i] * x;
            }
          }
      this->reduce(sums);
    }
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int h = 0; h < S; ++h) {
        A far = A(0);
        if ((AGNN || GAT) && u * sides() < left && has(h))
          far = __ldg(static_cast<const A *>(p.far_scalar) +
                      int64_t(j[u]) * m.heads + head(h));
        if constexpr (GAT) {
          const A t = z.own[h] + far;
          s[h][u] = (t > A(0) ? t : t * slope) * A(kLog2e);
        } else {
          s[h][u] = AGNN ? sums[u * S + h] * far : sums[u * S + h];
        }
      }
  }

  __device__ __forceinline__ void finish(state &z, const row_work &w,
                                         bool active) const {
#pragma unroll
    for (int h = 0; h < S; ++h) {
      A top = z.m[h];
#pragma unroll
      for (int o = L; o < 32; o <<= 1)
        if (o < m.group)
          top = max_of(top, __shfl_xor_sync(kFullMask, top, o));
      A factor = exp2_fast(z.m[h] - top);
      const A l = this->sum_sides(z.l[h] * factor);
      if (active && side() == 0 && feature(0) == 0 && has(h))
        store_state(w, h, top, l);
      if (w.slot < 0)
        factor *= l == A(0) ? A(0) : reciprocal(l);
#pragma unroll
      for (int c = MULTI ? h : 0; c < (MULTI ? h + 1 : C); ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.sum[c][i] *= factor;
    }
    this->sum_vectors(z.sum, [&](const A(&x)[VEC], int c) {
      if (active && has(c))
        store_vector(w, c, x);
    });
  }

  __device__ __forceinline__ void store_state(const row_work &w, int h, A top,
                                              A l) const {
    if (w.slot >= 0) {
      A *to = static_cast<A *>(p.partial_state) +
              (int64_t(w.slot) * m.heads + head(h)) * 2;
      to[0] = top;
      to[1] = l;
    } else if (p.lse) {
      static_cast<A *>(p.lse)[int64_t(w.row) * m.heads + head(h)] =
          l == A(0) ? -A(INFINITY) : (top + log2_fast(l)) * A(kLn2);
    }
  }

  __device__ __forceinline__ void store_vector(const row_work &w, int c,
                                               const A (&x)[VEC]) const {
    if (w.slot >= 0) {
      A *to = static_cast<A *>(p.partial) +
              (int64_t(w.slot) * m.heads + head(c)) * m.dim + feature(c);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        to[i] = x[i];
      return;
    }
    const char *to = this->vector_of(p.out, w.row, c);
    store_once<VEC>(const_cast<T *>(reinterpret_cast<const T *>(to)), x);
  }
};

template <int OP, typename T, int VEC, int L, int C, int U, bool MULTI>
__global__ void __launch_bounds__(128, 1)
    general(const __grid_constant__ general_params p) {
  const int rows = 32 / p.layout.group;
  const int unit = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * rows;
  if (unit >= p.schedule.units)
    return;
  const general_row<OP, T, VEC, L, C, U, MULTI> work(p);
  work.run(unit);
}

struct general_instance {
  int op, lanes, vectors, several;
  const void *kernel;
};

/* Lanes an edge, vectors a lane, edges in flight, several heads a warp. */
#define DFGNN_GENERAL_WIDE(X)                                                  \
  X(32, 1, 4, 0)                                                               \
  X(16, 2, 2, 0)                                                               \
  X(8, 4, 1, 0)                                                                \
  X(16, 1, 4, 0)                                                               \
  X(8, 2, 2, 0)                                                                \
  X(8, 1, 4, 0)                                                                \
  X(4, 1, 4, 0)                                                                \
  X(32, 2, 2, 0)                                                               \
  X(32, 4, 1, 0)                                                               \
  X(32, 8, 1, 0)                                                               \
  X(32, 1, 2, 1)                                                               \
  X(16, 2, 2, 1)

/* Of 16-bit types, of which a vector holds twice as many. */
#define DFGNN_GENERAL_HALF(X)                                                  \
  X(16, 1, 4, 0)                                                               \
  X(8, 2, 2, 0)                                                                \
  X(8, 1, 4, 0)                                                                \
  X(4, 1, 4, 0)                                                                \
  X(32, 1, 2, 0)                                                               \
  X(32, 2, 1, 0)                                                               \
  X(32, 4, 1, 0)                                                               \
  X(16, 1, 2, 1)

#define DFGNN_GENERAL_ROW(OP, L, C, U, M)                                      \
  {OP, L, C, M,                                                                \
   reinterpret_cast<const void *>(                                             \
       general<OP, T, 16 / sizeof(T), L, C, U, M != 0>)},
#define DFGNN_GENERAL_ROWS(L, C, U, M)                                         \
  DFGNN_GENERAL_ROW(DFGNN_OP_GT, L, C, U, M)                                   \
  DFGNN_GENERAL_ROW(DFGNN_OP_AGNN, L, C, U, M)                                 \
  DFGNN_GENERAL_ROW(DFGNN_OP_GAT, L, C, U, M)                                  \
  DFGNN_GENERAL_ROW(DFGNN_OP_GATV2, L, C, U, M)

template <int N>
inline const void *find_general(const general_instance (&table)[N], int op,
                                int lanes, int vectors, int several) {
  for (const general_instance &i : table)
    if (i.op == op && i.lanes == lanes && i.vectors == vectors &&
        i.several == several)
      return i.kernel;
  return nullptr;
}

template <typename T>
const void *find_general_wide(int op, int lanes, int vectors, int several) {
  static const general_instance table[] = {
      DFGNN_GENERAL_WIDE(DFGNN_GENERAL_ROWS)};
  return find_general(table, op, lanes, vectors, several);
}

template <typename T>
const void *find_general_half(int op, int lanes, int vectors, int several) {
  static const general_instance table[] = {
      DFGNN_GENERAL_HALF(DFGNN_GENERAL_ROWS)};
  return find_general(table, op, lanes, vectors, several);
}

} // namespace dfgnn

#endif
