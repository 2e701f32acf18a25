/* panel.cuh - the passes of `sliced` over one table at a time
 *
 * score_panel() adds the part of a panel of features to each edge's score: L
 * lanes an edge, one vector a lane, U edges of each side in flight.  The U
 * sums of a side are reduced together: each step halves the sums of a lane, so
 * that lanes end with the scores of neighbouring edges and store them in one
 * piece. */
#ifndef DFGNN_ATTENTION_CUDA_PANEL_CUH
#define DFGNN_ATTENTION_CUDA_PANEL_CUH

#include "kernels/attention/cuda/panel.h"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/attention/cuda/score.cuh"

namespace dfgnn {

template <int SCORE, typename T, int VEC, int L, int U, int DIM>
struct panel_row {
  using Score = score_of<SCORE>;
  using A = accumulator_t<T>;
  using pack = packed<T, VEC>;
  static constexpr int kSides = 32 / L, kStep = kSides * U;
  static constexpr bool EXACT = L * VEC == DIM; /* every lane has features */

  const panel_params &p;
  const char *source;
  A att[VEC];
  bool valid;

  __device__ __forceinline__ explicit panel_row(const panel_params &params)
      : p(params) {
    const int feature = (threadIdx.x & (L - 1)) * VEC;
    valid = feature < DIM;
    source = lane_base(p.source);
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      att[i] =
          Score::HEAD && valid
              ? widen(static_cast<const T *>(
                    p.att)[int64_t(blockIdx.y) * p.att_head + feature + i]) *
                    A(kLog2e) * A(p.scale)
              : A(0);
  }

  __device__ __forceinline__ const char *lane_base(const tensor_view &t) const {
    return node_row(
        node_row(static_cast<const char *>(t.data), blockIdx.y, t.head_bytes),
        (threadIdx.x & (L - 1)) * VEC, t.feature_bytes);
  }

  __device__ __forceinline__ void run(int unit) const {
    const row_work w = row_of_unit(p.schedule, unit);
    const int lane = threadIdx.x & 31, side = lane / L;
    A q[VEC];
    load_query(q, w.row);
    const int *indices = w.indices;
    const int64_t first = w.indices - p.schedule.indices;
    A *scores = static_cast<A *>(p.scores) + blockIdx.y * p.edges + first;
    int ahead = lane < w.degree ? __ldcs(indices + lane) : 0;
    for (int base = 0; base < w.degree; base += 32) {
      const int index = ahead;
      ahead =
          base + 32 + lane < w.degree ? __ldcs(indices + base + 32 + lane) : 0;
#pragma unroll 1
      for (int k = 0; k < 32 && base + k < w.degree; k += kStep)
        edges(q, index, k, w.degree - base - k, side, scores + base + k);
    }
  }

  __device__ __forceinline__ void load_query(A (&q)[VEC], int row) const {
    pack x;
    clear(x);
    if (valid)
      x = load_once<VEC>(reinterpret_cast<const T *>(
          node_row(lane_base(p.query), row, p.query.node_bytes)));
    widen(q, x);
    A factor = A(p.scale) * A(Score::HEAD ? 1 : kLog2e);
    if (Score::NORM)
      factor *= __ldg(static_cast<const A *>(p.inverse_dst) +
                      int64_t(row) * p.heads + blockIdx.y) *
                (p.beta ? *static_cast<const A *>(p.beta) : A(1));
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      q[i] *= factor;
  }

  __device__ __forceinline__ void edges(const A (&q)[VEC], int index, int k,
                                        int left, int side, A *to) const {
    pack x[U];
    A s[U];
    const bool whole = left >= kStep && EXACT;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int j = __shfl_sync(kFullMask, index, k + u * kSides + side);
      const T *from =
          reinterpret_cast<const T *>(node_row(source, j, p.source.node_bytes));
      clear(x[u]);
      if (whole)
        x[u] = load_packed<VEC>(from);
      else
        load_if<VEC>(x[u], from, valid && u * kSides + side < left);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      s[u] = A(0);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        Score::add(s[u], q[i], widen(x[u].item[i]), att[i], A(p.slope),
                   A(p.scale));
    }
    store(gather_sums<U>(s, L / 2), index, k, left, side, to);
  }

  /* Reduces the U sums over the lanes of a side.  Lane b, of bits b1 b2 ...
   * from the highest on, ends with sum b1 * U/2 + b2 * U/4 + ... */
  template <int LEFT>
  static __device__ __forceinline__ A gather_sums(A (&s)[U], int o) {
    if constexpr (LEFT > 1) {
      const bool upper = (threadIdx.x & o) != 0;
#pragma unroll
      for (int i = 0; i < LEFT / 2; ++i) {
        const A mine = upper ? s[i + LEFT / 2] : s[i];
        const A other = upper ? s[i] : s[i + LEFT / 2];
        s[i] = mine + __shfl_xor_sync(kFullMask, other, o);
      }
      return gather_sums<LEFT / 2>(s, o / 2);
    } else {
#pragma unroll
      for (int step = L / U / 2; step > 0; step >>= 1)
        s[0] += __shfl_xor_sync(kFullMask, s[0], step);
      return s[0];
    }
  }

  __device__ __forceinline__ void store(A s, int index, int k, int left,
                                        int side, A *to) const {
    const int lane_e = threadIdx.x & (L - 1);
    const int at = lane_e / (L / U) * kSides + side;
    A inverse = A(1);
    if (Score::NORM && p.last) {
      const int j = __shfl_sync(kFullMask, index, k + at);
      inverse = __ldg(static_cast<const A *>(p.inverse_src) +
                      int64_t(j) * p.heads + blockIdx.y);
    }
    if (at >= left || lane_e % (L / U) != 0)
      return;
    if (p.first)
      __stcs(to + at, s * inverse);
    else
      __stcs(to + at, (__ldcs(to + at) + s) * inverse);
  }
};

template <int SCORE, typename T, int VEC, int L, int U, int DIM>
__global__ void __launch_bounds__(512, 1)
    score_panel(const __grid_constant__ panel_params p) {
  const int unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const panel_row<SCORE, T, VEC, L, U, DIM> work(p);
  if (unit < p.schedule.units)
    work.run(unit);
}

} // namespace dfgnn

#endif
