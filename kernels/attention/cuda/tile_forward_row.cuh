/* tile_forward_row.cuh - a row along its edges, one after the other, by the
 * formulas: for rows whose numbers are not finite, where a product with a
 * weight of 0 is NaN, and for rows with duplicate edges */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_ROW_CUH
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_ROW_CUH

#include "kernels/attention/cuda/score.cuh"
#include "kernels/attention/cuda/tile_edges.cuh"
#include "kernels/attention/cuda/tile_forward.h"

namespace dfgnn {

/* Where a head of a node begins in a tensor. */
DEVICE const char *head_row(const tensor_view &t, int node, int head) {
  return node_row(static_cast<const char *>(t.data) +
                      int64_t(head) * t.head_bytes,
                  node, t.node_bytes);
}

/* Writes the row of a warp, whose lanes have every 32nd feature: sums times
 * factor, and the log-sum-exp of scores that sum up to l relative to m. */
template <typename T, int DIM, int N>
DEVICE void tile_store_row(const tile_params &p, int row, int head, int lane,
                           const float (&sum)[N], float factor, float m,
                           float l) {
  char *to = const_cast<char *>(head_row(p.out, row, head));
  unroll<N>([&](int i) {
    const int f = lane + 32 * i;
    if (f < DIM)
      *reinterpret_cast<T *>(to + int64_t(f) * p.out.feature_bytes) =
          narrow<T>(sum[i] * factor);
  });
  if (p.lse && lane == 0)
    p.lse[int64_t(row) * p.heads + head] =
        l == 0.0f ? -INFINITY : (m + log2_of(l)) * float(kLn2);
}

/* The row of a warp; a lane has every 32nd feature. */
template <int OP, typename T, int DIM, int EDGES> struct tile_row {
  using Score = score_of<OP>;
  static constexpr int N = TILE_WIDTH(DIM) / 32;
  const tile_params &p;
  int row, head, lane;
  float own[N], own_scalar;

  DEVICE void load(float (&x)[N], const tensor_view &t, int node) const {
    const char *from = head_row(t, node, head);
    unroll<N>([&](int i) {
      const int f = lane + 32 * i;
      x[i] = f < DIM ? widen(*reinterpret_cast<const T *>(
                           from + int64_t(f) * t.feature_bytes))
                     : 0.0f;
    });
  }

  DEVICE void begin() {
    unroll<N>([&](int i) { own[i] = 0.0f; });
    if constexpr (Score::QUERY)
      load(own, p.query, row);
    own_scalar = scalar_of(own, p.row_scalar, row);
  }

  /* The scalar of a node that its score reads, beside row x. */
  DEVICE float scalar_of(const float (&x)[N], const float *scalar,
                         int node) const {
    if constexpr (Score::NORM)
      return inverse_norm(dot(x, x));
    return Score::SUM ? 0.0f : __ldg(scalar + int64_t(node) * p.heads + head);
  }

  DEVICE float dot(const float (&x)[N], const float (&y)[N]) const {
    float sum = 0.0f;
    unroll<N>([&](int i) { sum += x[i] * y[i]; });
    return lanes_sum<32>(sum);
  }

  /* The score of an edge in log2 units. */
  DEVICE float score(int column, int64_t edge) const {
    const float beta = Score::NORM && p.beta ? __ldg(p.beta) : 1.0f;
    float x[N], sum = 0.0f;
    if constexpr (Score::SUM) {
      load(x, Score::KEY ? p.key : p.value, column);
      unroll<N>(
          [&](int i) { sum += Score::term(own[i], x[i], 0.0f, p.slope); });
      sum = lanes_sum<32>(sum);
    }
    return whole_score<OP>(sum, own_scalar,
                           scalar_of(x, p.column_scalar, column), beta, p.slope,
                           p.scale) +
           bias_of<EDGES>(p, edge, head);
  }

  DEVICE void run() {
    const offsets_t offsets = {p.offsets, p.offsets64};
    const int64_t first = offsets[row], last = offsets[row + 1];
    const uint64_t key = edge_key<EDGES>(p);
    float m = -INFINITY, l = 0.0f, sum[N] = {};
    begin();
#pragma unroll 1
    for (int64_t e = first; e < last; ++e) {
      const float s = score(__ldg(p.indices + e), e);
      if (s > m || s != s)
        m = s; /* a NaN stays: nothing is greater than it */
    }
#pragma unroll 1
    for (int64_t e = first; e < last && m != -INFINITY; ++e) {
      const int column = __ldg(p.indices + e);
      const float weight = exp2_fast(score(column, e) - m);
      const float kept = edge_kept<EDGES>(p, key, e, head);
      float x[N];
      l += weight;
      if (kept == 0.0f) /* 0 times infinity would be NaN */
        continue;
      load(x, p.value, column);
      unroll<N>([&](int i) { sum[i] += weight * kept * x[i]; });
    }
    tile_store_row<T, DIM>(p, row, head, lane, sum, l == 0.0f ? 0.0f : 1.0f / l,
                           m, l);
  }
};

template <int OP, typename T, int DIM, int EDGES>
DEVICE void tile_slow_row(const tile_params &p, int row, int head, int lane) {
  tile_row<OP, T, DIM, EDGES> work{p, row, head, lane, {}, 0.0f};
  work.run();
}

} // namespace dfgnn

#endif
