/* softmax.cuh - the log-sum-exp of scores in memory, and attention weights */
#ifndef DFGNN_ATTENTION_CUDA_SOFTMAX_CUH
#define DFGNN_ATTENTION_CUDA_SOFTMAX_CUH

#include "kernels/attention/cuda/panel.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* All warps of a block share a row of more edges than this. */
constexpr int kLongRow = 2048;

template <typename A> struct softmax_sum {
  A m, l;
  __device__ __forceinline__ void add(A s) {
    const A top = max_of(m, s);
    l = l * exp2_fast(m - top) + exp2_fast(s - top);
    m = top;
  }
  __device__ __forceinline__ void merge(A m2, A l2) {
    const A top = max_of(m, m2);
    l = l * exp2_fast(m - top) + l2 * exp2_fast(m2 - top);
    m = top;
  }
  __device__ __forceinline__ void merge_warp() {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const A m2 = __shfl_xor_sync(kFullMask, m, o);
      const A l2 = __shfl_xor_sync(kFullMask, l, o);
      merge(m2, l2);
    }
  }
};

/* Sums every `stride`-th score of a row from `at` on.  GAT's scores are
 * computed here, and the bias is added here. */
template <typename A, int GAT, int BIAS>
__device__ __forceinline__ void
sum_row(softmax_sum<A> &sum, const softmax_params &p, int row, int head,
        int64_t begin, int degree, int at, int stride) {
  A *scores = static_cast<A *>(p.scores) + head * p.edges + begin;
  A dst = A(0);
  if (GAT)
    dst = static_cast<const A *>(p.score_dst)[int64_t(row) * p.heads + head];
#pragma unroll 4
  for (int i = at; i < degree; i += stride) {
    A s;
    if (GAT) {
      const A t =
          dst + __ldg(static_cast<const A *>(p.score_src) +
                      int64_t(__ldg(p.indices + begin + i)) * p.heads + head);
      s = (t > A(0) ? t : t * A(p.slope)) * A(kLog2e);
    } else {
      s = scores[i];
    }
    if (BIAS)
      s +=
          __ldg(static_cast<const A *>(p.bias) + (begin + i) * p.heads + head) *
          A(kLog2e);
    if (GAT || BIAS)
      scores[i] = s;
    sum.add(s);
  }
}

/* Scores far from 0 lose digits against a log-sum-exp of their size, so in such
 * a row they are replaced by their distance to the largest.  Returns the number
 * that was subtracted.  Each thread shifts the scores that it summed. */
template <typename A>
__device__ __forceinline__ A shift_row(const softmax_sum<A> &sum,
                                       const softmax_params &p, int head,
                                       int64_t begin, int degree, int at,
                                       int stride) {
  constexpr A kFar = A(32);
  const bool far = sum.m > kFar || sum.m < -kFar;
  if (!far || sum.l == A(0) || sum.m == A(INFINITY))
    return A(0);
  A *scores = static_cast<A *>(p.scores) + head * p.edges + begin;
  for (int i = at; i < degree; i += stride)
    scores[i] -= sum.m;
  return sum.m;
}

/* The log-sum-exp of the scores as they are in memory now. */
template <typename A>
__device__ __forceinline__ A lse2_of(const softmax_sum<A> &sum, A shift) {
  return sum.l == A(0) ? A(0) : sum.m - shift + log2_fast(sum.l);
}

template <typename A>
__device__ __forceinline__ void finish_row(const softmax_sum<A> &sum, A shift,
                                           const softmax_params &p, int row,
                                           int head) {
  const int64_t at = int64_t(row) * p.heads + head;
  /* In a row of -inf lse2 is 0, so that weights are exp2(-inf - 0) = 0. */
  static_cast<A *>(p.lse2)[at] = lse2_of(sum, shift);
  if (p.lse)
    static_cast<A *>(p.lse)[at] =
        sum.l == A(0) ? -A(INFINITY) : lse2_of(sum, A(0)) * A(kLn2);
}

template <typename A>
__device__ __forceinline__ void weigh_row(A lse2, const softmax_params &p,
                                          int head, int64_t begin, int degree,
                                          int at, int stride) {
  const A *scores = static_cast<const A *>(p.scores) + head * p.edges + begin;
  for (int i = at; i < degree; i += stride)
    static_cast<A *>(p.weights)[(begin + i) * p.heads + head] =
        exp2_fast(scores[i] - lse2);
}

/* A warp takes a row and head; after that whole blocks take the long rows. */
template <typename A, int GAT, int BIAS>
__global__ void __launch_bounds__(256)
    row_softmax(const __grid_constant__ softmax_params p) {
  __shared__ A m[8], l[8];
  const offsets_t offsets{p.offsets, p.offsets64};
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int head = blockIdx.y, first = blockIdx.x * 8;
  const int row = first + warp;
  if (row < p.rows) {
    const int64_t begin = offsets[row];
    const int degree = static_cast<int>(offsets[row + 1] - begin);
    if (degree <= kLongRow) {
      softmax_sum<A> sum{lowest<A>(), A(0)};
      sum_row<A, GAT, BIAS>(sum, p, row, head, begin, degree, lane, 32);
      sum.merge_warp();
      const A shift = shift_row(sum, p, head, begin, degree, lane, 32);
      if (lane == 0)
        finish_row(sum, shift, p, row, head);
      if (p.weights)
        weigh_row(lse2_of(sum, shift), p, head, begin, degree, lane, 32);
    }
  }
  for (int i = 0; i < 8 && first + i < p.rows; ++i) {
    const int64_t begin = offsets[first + i];
    const int degree = static_cast<int>(offsets[first + i + 1] - begin);
    if (degree <= kLongRow)
      continue;
    softmax_sum<A> sum{lowest<A>(), A(0)};
    sum_row<A, GAT, BIAS>(sum, p, first + i, head, begin, degree, threadIdx.x,
                          256);
    sum.merge_warp();
    __syncthreads();
    if (lane == 0)
      m[warp] = sum.m, l[warp] = sum.l;
    __syncthreads();
    sum = {lowest<A>(), A(0)};
    for (int k = 0; k < 8; ++k)
      sum.merge(m[k], l[k]);
    const A shift = shift_row(sum, p, head, begin, degree, threadIdx.x, 256);
    if (threadIdx.x == 0)
      finish_row(sum, shift, p, first + i, head);
    if (p.weights)
      weigh_row(lse2_of(sum, shift), p, head, begin, degree, threadIdx.x, 256);
  }
}

} // namespace dfgnn

#endif
