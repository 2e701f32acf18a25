/* cuda_tile_backward_row.cuh - one row of gradients by a warp, a feature a
 * lane: along its edges where tiles cannot say it all or gave no number, and
 * from the partial sums of cut windows */
#ifndef DFGNN_ATTENTION_CUDA_TILE_BACKWARD_ROW_CUH
#define DFGNN_ATTENTION_CUDA_TILE_BACKWARD_ROW_CUH

#include "kernels/attention/cuda_terms.cuh"
#include "kernels/attention/cuda_tile_backward.h"

namespace dfgnn {

__device__ __forceinline__ bool is_finite(float x) {
  return fabsf(x) < INFINITY;
}

template <int OP, typename T, int W, bool COLUMNS> struct grad_tile_row {
  static constexpr bool GT = OP == DFGNN_OP_GT, AGNN = OP == DFGNN_OP_AGNN;
  static constexpr bool GAT = OP == DFGNN_OP_GAT;
  static constexpr int OWN = grad_tile_own(OP, COLUMNS), YO = OWN - 1;
  static constexpr int FAR = grad_tile_far(OP, COLUMNS), YF = FAR - 1;
  static constexpr int TO = grad_tile_sums(OP, COLUMNS),
                       YT = TO > 0 ? TO - 1 : 0;
  static constexpr int STATS = stats_count(OP), K = W / 32;

  const grad_tile_params &p;
  int row, head;
  float own[OWN][K], sum[YT + 1][K];
  float lse, delta, extra, beta, inner;

  __device__ static float scalar(const void *array, int64_t at) {
    return static_cast<const float *>(array)[at];
  }
  __device__ int64_t pair(int node) const {
    return int64_t(node) * p.walk.layout.heads + head;
  }
  __device__ const char *row_of(const tensor_view &t, int node) const {
    return static_cast<const char *>(t.data) + int64_t(node) * t.node_bytes +
           int64_t(head) * t.head_bytes;
  }
  __device__ void load(float (&to)[K], const tensor_view &t, int node) const {
    const char *from = row_of(t, node);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int f = (threadIdx.x & 31) + 32 * k;
      to[k] = f < p.walk.layout.dim ? widen(*reinterpret_cast<const T *>(
                                          from + int64_t(f) * t.feature_bytes))
                                    : 0.0f;
    }
  }

  __device__ grad_tile_row(const grad_tile_params &params, int node,
                           int at_head)
      : p(params), row(node), head(at_head), lse(0), delta(0), extra(0),
        beta(1), inner(0) {
#pragma unroll
    for (int t = 0; t < OWN; ++t)
      load(own[t], p.walk.own[t], row);
#pragma unroll
    for (int t = 0; t <= YT; ++t)
#pragma unroll
      for (int k = 0; k < K; ++k)
        sum[t][k] = 0;
    if (!COLUMNS) {
      const float *stats =
          static_cast<const float *>(p.walk.stats) + pair(row) * STATS;
      lse = stats[kLse];
      delta = stats[kDelta];
      extra = STATS > kExtra ? stats[STATS > kExtra ? kExtra : 0] : 0;
    } else if (!GT) {
      extra = scalar(p.walk.own_scalar, pair(row));
    }
    if (AGNN && p.walk.beta)
      beta = scalar(p.walk.beta, 0);
  }

  __device__ void edge(int j) {
    float x[FAR][K], product = 0, dp = 0, far = 0;
#pragma unroll
    for (int t = 0; t < FAR; ++t)
      load(x[t], p.walk.far[t], j);
    if (COLUMNS) {
      const float *stats =
          static_cast<const float *>(p.walk.stats) + pair(j) * STATS;
      lse = stats[kLse];
      delta = stats[kDelta];
      far = STATS > kExtra ? stats[STATS > kExtra ? kExtra : 0] : 0;
    } else if (!GT) {
      far = scalar(p.walk.far_scalar, pair(j));
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      product += own[0][k] * x[0][k];
      dp += own[YO][k] * x[YF][k];
    }
    product = lanes_sum<32>(product);
    dp = lanes_sum<32>(dp);
    if (GT)
      product *= float(p.walk.scale * kLog2e);
    const edge_terms<float> t =
        terms_of<OP, float>(float(p.walk.slope), product, dp, lse, delta, extra,
                            far, beta, 0.0f, 1.0f);
    float score = t.score;
    inner += score * t.inner;
    if (AGNN)
      score *= COLUMNS ? far * extra * beta : far;
    if constexpr (TO > 0)
      if (t.weight != 0 || score != 0) /* 0 times infinity is none */
        add(x, t.weight, score);
  }

  __device__ void add(const float (&x)[FAR][K], float weight, float score) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (COLUMNS)
        sum[YT][k] += weight * x[YF][k];
      if (!GAT)
        sum[0][k] += score * x[0][k];
    }
  }

  __device__ void along_edges() {
    const offsets_t offsets{p.walk.schedule.offsets, p.walk.schedule.offsets64};
    const int64_t end = offsets[row + 1];
    for (int64_t e = offsets[row]; e < end; ++e)
      edge(p.walk.schedule.indices[e]);
  }

  /* What cuda_backward.cuh's finish() does. */
  __device__ void finish() {
    if (AGNN) {
      const float along = extra < inverse_norm(0.0f)
                              ? inner * extra * (COLUMNS ? extra * beta : 1.0f)
                              : 0.0f;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (along != 0)
          sum[0][k] -= along * own[0][k];
        if (!COLUMNS)
          sum[0][k] *= extra * beta;
      }
    }
    if (GT) {
#pragma unroll
      for (int k = 0; k < K; ++k)
        sum[0][k] *= float(p.walk.scale);
    }
  }

  __device__ bool whole() const {
    bool ok = is_finite(inner);
#pragma unroll
    for (int t = 0; t < TO; ++t)
#pragma unroll
      for (int k = 0; k < K; ++k)
        ok = ok && is_finite(sum[t][k]);
    return __all_sync(kFullMask, ok);
  }

  __device__ void store() const {
    const int lane = threadIdx.x & 31;
    if (GAT && lane == 0 && p.walk.to_scalar)
      static_cast<float *>(p.walk.to_scalar)[pair(row)] = inner;
    if (AGNN && !COLUMNS && lane == 0 && p.row_totals)
      static_cast<float *>(p.row_totals)[pair(row)] = inner;
#pragma unroll
    for (int t = 0; t < TO; ++t) {
      if (!p.walk.to[t].data)
        continue;
      char *to = const_cast<char *>(row_of(p.walk.to[t], row));
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (lane + 32 * k < p.walk.layout.dim)
          *reinterpret_cast<T *>(to + int64_t(lane + 32 * k) *
                                          p.walk.to[t].feature_bytes) =
              narrow<T>(sum[t][k]);
    }
  }
};

template <int OP, typename T, int W, bool COLUMNS>
__device__ void grad_tile_slow_row(const grad_tile_params &p, int row,
                                   int head) {
  grad_tile_row<OP, T, W, COLUMNS> r(p, row, head);
  r.along_edges();
  r.finish();
  r.store();
}

/* A block a window that was cut, a warp a row at a time: the items' sums in
 * their order. */
template <int OP, typename T, int W, bool COLUMNS>
__global__ void __launch_bounds__(256)
    grad_tile_merge(const __grid_constant__ grad_tile_params p) {
  using row_t = grad_tile_row<OP, T, W, COLUMNS>;
  const dfgnn_tile_cut cut = p.cuts[blockIdx.x];
  const int head = blockIdx.y, heads = p.walk.layout.heads;
  for (int i = threadIdx.x / 32; i < cut.rows; i += blockDim.x / 32) {
    row_t r(p, cut.row + i, head);
    for (int k = 0; k < cut.slots; ++k) {
      const int64_t slot = int64_t(cut.slot + k) * heads + head;
#pragma unroll
      for (int t = 0; t < row_t::TO; ++t) {
        const float *from = static_cast<const float *>(p.walk.partial) +
                            ((slot * row_t::TO + t) * p.window + i) * W;
#pragma unroll
        for (int f = 0; f < row_t::K; ++f)
          r.sum[t][f] += from[(threadIdx.x & 31) + 32 * f];
      }
      if (OP != DFGNN_OP_GT)
        r.inner += row_t::scalar(p.walk.partial_scalar, slot * p.window + i);
    }
    r.finish();
    if (r.whole())
      r.store();
    else
      grad_tile_slow_row<OP, T, W, COLUMNS>(p, cut.row + i, head);
  }
}

} // namespace dfgnn

#endif
