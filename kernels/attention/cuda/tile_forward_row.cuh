/* tile_forward_row.cuh - a row along its edges, one after the other, by the
 * formulas: for rows whose numbers are not finite, where a product with a
 * weight of 0 is NaN, and for rows with duplicate edges */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_ROW_CUH
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_ROW_CUH

#include "kernels/attention/cuda/score.cuh"
#include "kernels/attention/cuda/tile_edges.cuh"
#include "kernels/attention/cuda/tile_forward.h"

namespace dfgnn {

/* The row of a warp; a lane has every 32nd feature. */
template <int OP, typename T, int DIM, int EDGES> struct tile_row {
  static constexpr int N = TILE_WIDTH(DIM) / 32;
  const tile_params &p;
  int row, head, lane;
  float own[N], att[N], own_scalar;

  __device__ __forceinline__ const char *at(const tensor_view &t,
                                            int node) const {
    return node_row(static_cast<const char *>(t.data) +
                        int64_t(head) * t.head_bytes,
                    node, t.node_bytes);
  }

  __device__ __forceinline__ void load(float (&x)[N], const tensor_view &t,
                                       int node) const {
    const char *from = at(t, node);
    unroll<N>([&](int i) {
      const int f = lane + 32 * i;
      x[i] = f < DIM ? widen(*reinterpret_cast<const T *>(
                           from + int64_t(f) * t.feature_bytes))
                     : 0.0f;
    });
  }

  __device__ __forceinline__ void begin() {
    own_scalar = 1.0f;
    if constexpr (OP == DFGNN_OP_GAT)
      own_scalar = __ldg(p.row_scalar + int64_t(row) * p.heads + head);
    else
      load(own, p.query, row);
    if constexpr (OP == DFGNN_OP_GT)
      own_scalar = p.scale;
    if constexpr (OP == DFGNN_OP_AGNN)
      own_scalar =
          inverse_norm(dot(own, own)) * (p.beta ? __ldg(p.beta) : 1.0f);
    if constexpr (OP == DFGNN_OP_GATV2) {
      const tensor_view view = {p.att, 0, unsigned(DIM * sizeof(T)),
                                unsigned(sizeof(T))}; /* [H,D] */
      load(att, view, 0);
    }
  }

  __device__ __forceinline__ float dot(const float (&x)[N],
                                       const float (&y)[N]) const {
    float sum = 0.0f;
    unroll<N>([&](int i) { sum += x[i] * y[i]; });
    return lanes_sum<32>(sum);
  }

  /* The score of an edge in log2 units. */
  __device__ __forceinline__ float score(int column, int64_t edge) const {
    return score_of(column) + bias_of<EDGES>(p, edge, head);
  }
  __device__ __forceinline__ float score_of(int column) const {
    float x[N];
    if constexpr (OP == DFGNN_OP_GAT)
      return leaky(own_scalar + __ldg(p.column_scalar +
                                      int64_t(column) * p.heads + head),
                   p.slope) *
             float(kLog2e);
    load(x, OP == DFGNN_OP_GT ? p.key : p.value, column);
    const float factor =
        OP == DFGNN_OP_AGNN ? own_scalar * inverse_norm(dot(x, x)) : own_scalar;
    float y[N];
    unroll<N>([&](int i) {
      y[i] = OP == DFGNN_OP_GATV2 ? att[i] : own[i];
      if constexpr (OP == DFGNN_OP_GATV2)
        x[i] = leaky(own[i] + x[i], p.slope);
    });
    return dot(x, y) * factor * float(kLog2e);
  }

  __device__ __forceinline__ void run() {
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
    const float factor = l == 0.0f ? 0.0f : 1.0f / l;
    char *to = const_cast<char *>(at(p.out, row));
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
};

template <int OP, typename T, int DIM, int EDGES>
__device__ __forceinline__ void tile_slow_row(const tile_params &p, int row,
                                              int head, int lane) {
  tile_row<OP, T, DIM, EDGES> work{p, row, head, lane, {}, {}, 0.0f};
  work.run();
}

} // namespace dfgnn

#endif
