/* tile_backward_row.cuh - one row of gradients by a warp, 16 bytes a lane:
 * along its edges, where tiles have duplicate edges or gave a result that is
 * not finite */
#ifndef DFGNN_ATTENTION_CUDA_TILE_BACKWARD_ROW_CUH
#define DFGNN_ATTENTION_CUDA_TILE_BACKWARD_ROW_CUH

#include "kernels/attention/cuda/score.cuh"
#include "kernels/attention/cuda/tile_backward.h"
#include "kernels/attention/cuda/tile_edges.cuh"

namespace dfgnn {

DEVICE bool is_finite(float x) { return fabsf(x) < INFINITY; }

/* Bits of a mask of results, beside bit t for sum t.  GRAD_TILE_INNER: the sum
 * of dS times the score's inner derivative, which gives GAT's grad_score.
 * GRAD_TILE_EDGES: the numbers written for edges. */
constexpr unsigned GRAD_TILE_INNER = 4, GRAD_TILE_EDGES = 8;

template <int OP, typename T, int DIM, bool COLUMNS, int EDGES>
struct grad_tile_row {
  using Score = score_of<OP>;
  static constexpr int OWN = GRAD_TILE_TENSORS(OP), YO = OWN - 1;
  static constexpr int FAR = OWN, YF = YO;
  static constexpr int TO = GRAD_SUMS(OP, COLUMNS), YT = TO > 0 ? TO - 1 : 0;
  static constexpr int STATS = GRAD_STATS(OP), K = 16 / sizeof(T);

  const grad_tile_params &p;
  int row, head;
  float own[OWN][K], sum[YT + 1][K];
  float lse, delta, extra, inner;
  uint64_t key;

  __device__ static float scalar(const void *array, int64_t at) {
    return static_cast<const float *>(array)[at];
  }
  __device__ int64_t pair(int node) const {
    return int64_t(node) * p.walk.heads + head;
  }
  __device__ const char *row_of(const tensor_view &t, int node) const {
    return static_cast<const char *>(t.data) + int64_t(node) * t.node_bytes +
           int64_t(head) * t.head_bytes;
  }
  /* Lane l has features K l .. K l + K - 1, as it has when delta is summed: so
   * dP - delta is 0 in a row with one edge. */
  __device__ static int first() { return (threadIdx.x & 31) * K; }
  __device__ bool has() const { return first() < DIM; }
  __device__ void load(float (&to)[K], const tensor_view &t, int node) const {
    packed<T, K> x;
    clear(x);
    if (has())
      x = load_packed<K>(reinterpret_cast<const T *>(row_of(t, node)) +
                         first());
    widen(to, x);
  }

  __device__ grad_tile_row(const grad_tile_params &params, int node,
                           int at_head)
      : p(params), row(node), head(at_head), lse(0), delta(0), extra(0),
        inner(0), key(edge_key<EDGES>(params.walk)) {
    unroll<OWN>([&](int t) { load(own[t], p.walk.own[t], row); });
#pragma unroll
    for (int t = 0; t <= YT; ++t)
      unroll<K>([&](int k) { sum[t][k] = 0; });
    if (!COLUMNS) {
      const float *stats =
          static_cast<const float *>(p.walk.stats) + pair(row) * STATS;
      lse = stats[STAT_LSE];
      delta = stats[STAT_DELTA];
      extra =
          STATS > STAT_EXTRA ? stats[STATS > STAT_EXTRA ? STAT_EXTRA : 0] : 0;
    } else if (!Score::KEY) {
      extra = scalar(p.walk.own_scalar, pair(row));
    }
  }

  /* number: of the edge in the CSR matrix.  emits: write its gradients. */
  __device__ void edge(int j, int64_t number, bool emits) {
    float x[FAR][K], product = 0, dp = 0, far = 0;
    unroll<FAR>([&](int t) { load(x[t], p.walk.far[t], j); });
    if (COLUMNS) {
      const float *stats =
          static_cast<const float *>(p.walk.stats) + pair(j) * STATS;
      lse = stats[STAT_LSE];
      delta = stats[STAT_DELTA];
      far = STATS > STAT_EXTRA ? stats[STATS > STAT_EXTRA ? STAT_EXTRA : 0] : 0;
    } else if (!Score::KEY) {
      far = scalar(p.walk.far_scalar, pair(j));
    }
    unroll<K>([&](int k) {
      product += own[0][k] * x[0][k];
      dp += own[YO][k] * x[YF][k];
    });
    product = lanes_sum<32>(product);
    dp = lanes_sum<32>(dp);
    if (Score::KEY)
      product *= float(p.walk.scale * kLog2e);
    const edge_terms<float> t =
        terms_of<OP, float>(float(p.walk.slope), product, dp, lse, delta, extra,
                            far, 1.0f, bias_of<EDGES>(p.walk, number, head),
                            edge_kept<EDGES>(p.walk, key, number, head));
    if (emits && (threadIdx.x & 31) == 0)
      emit_edge<COLUMNS, EDGES>(p.walk, number, head, t.score);
    inner += t.score * t.inner;
    if constexpr (TO > 0)
      if (t.weight != 0 || t.score != 0) /* 0 times infinity would be NaN */
        add(x, t.weight, t.score);
  }

  __device__ void add(const float (&x)[FAR][K], float weight, float score) {
    unroll<K>([&](int k) {
      if (COLUMNS)
        sum[YT][k] += weight * x[YF][k];
      if (Score::SUM)
        sum[0][k] += score * x[0][k];
    });
  }

  __device__ void along_edges(unsigned wanted) {
    const offsets_t offsets{p.walk.schedule.offsets, p.walk.schedule.offsets64};
    const int64_t end = offsets[row + 1];
    for (int64_t e = offsets[row]; e < end; ++e)
      edge(p.walk.schedule.indices[e], edge_number<COLUMNS, EDGES>(p.walk, e),
           wanted & GRAD_TILE_EDGES);
  }

  __device__ void finish() {
    if (Score::KEY) {
      unroll<K>([&](int k) { sum[0][k] *= float(p.walk.scale); });
    }
  }

  __device__ void store(unsigned wanted) const {
    if ((threadIdx.x & 31) == 0 && wanted & GRAD_TILE_INNER)
      if (!Score::SUM && p.walk.to_scalar)
        static_cast<float *>(p.walk.to_scalar)[pair(row)] = inner;
    unroll<TO>([&](int t) {
      if (p.walk.to[t].data && wanted >> t & 1 && has())
        store_packed<K>(reinterpret_cast<T *>(
                            const_cast<char *>(row_of(p.walk.to[t], row))) +
                            first(),
                        sum[t]);
    });
  }
};

template <int OP, typename T, int DIM, int COLUMNS, int EDGES>
__device__ void grad_tile_slow_row(const grad_tile_params &p, int row, int head,
                                   unsigned wanted) {
  grad_tile_row<OP, T, DIM, COLUMNS != 0, EDGES> r(p, row, head);
  r.along_edges(wanted);
  r.finish();
  r.store(wanted);
}

} // namespace dfgnn

#endif
