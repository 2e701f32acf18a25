/* finish_rows.cuh - e' of the last layer's z: norm, residual, and sums at
 * destinations */
#ifndef DFGNN_MLP_CUDA_FINISH_ROWS_CUH
#define DFGNN_MLP_CUDA_FINISH_ROWS_CUH

#include "kernels/mlp/cuda/lane_rows.cuh"

namespace dfgnn {
namespace mlp {

/* Writes or keeps the sum of a row of destinations over a span's edges. */
template <class S>
__device__ __forceinline__ void end_sum(const lane_row<S> &sum,
                                        const mlp_sums &to, int row,
                                        int64_t span, bool whole, bool tail) {
  using T = typename S::T;
  const float factor = whole ? mean_factor(to.offsets, to.wide, row) : 1.0f;
  each_chunk<S>([&](int k, int column) {
    float y[S::VEC];
#pragma unroll
    for (int i = 0; i < S::VEC; ++i)
      y[i] = sum.x[k][i] * factor;
    if (whole)
      store_packed<S::VEC>(
          static_cast<T *>(to.out) + int64_t(row) * S::WIDTH + column, y);
    else
      store_packed<S::VEC>(to.partial + (span * 2 + tail) * S::WIDTH + column,
                           y);
  });
}

/* e' of the edge at a place of the caller's list: y is its row before the norm.
 */
template <class S>
__device__ __forceinline__ void
finish_row(lane_row<S> &y, const mlp_forward_params &f,
           const lane_row<S> &weight, const lane_row<S> &bias, int64_t place) {
  using T = typename S::T;
  lane_row<S> own;
  if constexpr (S::RESIDUAL)
    read_row<S>(own, static_cast<const T *>(f.edge) + place * S::WIDTH);
  norm_row<S>(y, f.epsilon);
  each_chunk<S>([&](int k, int column) {
#pragma unroll
    for (int j = 0; j < S::VEC; ++j) {
      if constexpr (S::NORM != MLP_NORM_NONE)
        y.x[k][j] = y.x[k][j] * weight.x[k][j] + bias.x[k][j];
      if constexpr (S::RESIDUAL)
        y.x[k][j] += own.x[k][j];
    }
    if (f.edge_out)
      store_packed<S::VEC>(
          static_cast<T *>(f.edge_out) + place * S::WIDTH + column, y.x[k]);
  });
}

/* A span: edges begin to end of the block, which has at least one. */
template <class S>
__device__ __forceinline__ void walk_span(const mlp_rows_params &p,
                                          const block_edges &e, int64_t from,
                                          int begin, int end) {
  const mlp_forward_params &f = p.pass.forward;
  const int64_t first = p.first + from; /* of the graph */
  const int64_t span = (first + begin) / MLP_ROW_SPAN;
  lane_row<S> weight, bias, sum = {};
  if constexpr (S::NORM != MLP_NORM_NONE) {
    read_norm<S>(weight, p.norm_weight, 1.0f);
    read_norm<S>(bias, p.norm_bias, 0.0f);
  }
  bool cut = first + begin > 0 &&
             __ldg(f.graph.row_of_edge + first + begin - 1) == e.row[begin];
  for (int i = begin; i < end; ++i) {
    lane_row<S> y;
    read_row<S>(y, last_row<S>(p, from + i));
    finish_row<S>(y, f, weight, bias, e.place[i]);
    if (!f.sums.out)
      continue;
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int j = 0; j < S::VEC; ++j)
        sum.x[k][j] += y.x[k][j];
    });
    const int row = e.row[i];
    const int next = i + 1 < end ? e.row[i + 1]
                     : first + i + 1 < f.graph.edges
                         ? __ldg(f.graph.row_of_edge + first + i + 1)
                         : -1;
    if (next == row && i + 1 < end)
      continue;
    end_sum<S>(sum, f.sums, row, span, next != row && !cut, !cut);
    sum = {};
    cut = false;
  }
}

} // namespace mlp

/* A block for each 128 edges, a warp for each span of them. */
template <typename T, int FLAGS, int NORM, int WIDTH>
__global__ void __launch_bounds__(MLP_ROWS)
    mlp_finish_rows(const mlp_rows_params p) {
  using S = mlp::last_shape<T, FLAGS, NORM, WIDTH, 4>;
  __shared__ mlp::block_edges edges;
  const int64_t from = int64_t(blockIdx.x) * MLP_ROWS;
  const int count = int(min(p.edges - from, int64_t(MLP_ROWS)));
  edges.read(p.pass.forward.graph, p.first + from, count);
  __syncthreads();
  const int begin = int(threadIdx.x) / 32 * MLP_ROW_SPAN;
  if (begin < count)
    mlp::walk_span<S>(p, edges, from, begin, min(begin + MLP_ROW_SPAN, count));
}

} // namespace dfgnn

#endif
