/* finish_rows.cuh - e' of the last layer's z: activation, gate, norm, residual,
 * and sums at destinations */
#ifndef DFGNN_MLP_CUDA_FINISH_ROWS_CUH
#define DFGNN_MLP_CUDA_FINISH_ROWS_CUH

#include "kernels/mlp/cuda/lane_rows.cuh"

namespace dfgnn {
namespace mlp {

/* Sums of a row of destinations over a span's edges.  EXTREME: the largest
 * numbers instead (spans.cuh). */
template <class S> struct row_sums {
  using T = typename S::T;
  lane_row<S> sum;
  int arg[S::CHUNKS][S::VEC];

  __device__ __forceinline__ void clear() {
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int i = 0; i < S::VEC; ++i) {
        sum.x[k][i] = S::EXTREME ? -INFINITY : 0.0f;
        arg[k][i] = -1;
      }
    });
  }
  __device__ __forceinline__ void add(const lane_row<S> &y, float factor,
                                      int place) {
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int i = 0; i < S::VEC; ++i) {
        const float x = y.x[k][i];
        if constexpr (S::EXTREME) {
          if (arg[k][i] < 0 || x * S::SIGN > sum.x[k][i] || x != x) {
            sum.x[k][i] = x * S::SIGN;
            arg[k][i] = place;
          }
        } else {
          sum.x[k][i] += x * factor;
        }
      }
    });
  }
  __device__ __forceinline__ void write(const mlp_sums &to, int row) const {
    const float factor =
        S::EXTREME ? S::SIGN : mean_factor(to.offsets, to.wide, row);
    const int64_t at = int64_t(row) * S::WIDTH;
    each_chunk<S>([&](int k, int column) {
      float y[S::VEC];
#pragma unroll
      for (int i = 0; i < S::VEC; ++i) {
        y[i] = sum.x[k][i] * factor;
        if (S::EXTREME && to.arg)
          to.arg[at + column + i] = arg[k][i];
      }
      write_chunk<S>(static_cast<T *>(to.out) + at, column, y);
    });
  }
  __device__ __forceinline__ void keep(const mlp_sums &to, int64_t span,
                                       bool tail, int padded) const {
    const int64_t at = (span * 2 + tail) * padded;
    each_chunk<S>([&](int k, int column) {
      write_chunk<S>(to.partial + at, column, sum.x[k]);
      if constexpr (S::EXTREME)
#pragma unroll
        for (int i = 0; i < S::VEC; ++i)
          to.partial_arg[at + column + i] = arg[k][i];
    });
  }
};

/* e' of edge i of the block: y is its row before the norm. */
template <class S>
__device__ __forceinline__ void
finish_row(lane_row<S> &y, const mlp_streamed_params &p, const block_edges &e,
           const lane_row<S> &weight, const lane_row<S> &bias, int64_t from,
           int i) {
  using T = typename S::T;
  const mlp_forward_params &f = p.pass.forward;
  const int64_t place = e.place[i];
  lane_row<S> own;
  if constexpr (S::RESIDUAL)
    read_row<S>(own, static_cast<const T *>(f.edge) + place * S::WIDTH);
  norm_row<S>(y, f.epsilon);
  const float factor = f.edge_rows ? edge_factor<T>(f.src_factor, place) : 1.0f;
  each_chunk<S>([&](int k, int column) {
#pragma unroll
    for (int j = 0; j < S::VEC; ++j) {
      if constexpr (S::NORM != MLP_NORM_NONE)
        y.x[k][j] = y.x[k][j] * weight.x[k][j] + bias.x[k][j];
      if constexpr (S::RESIDUAL)
        y.x[k][j] += own.x[k][j];
    }
    if (f.edge_out)
      write_chunk<S>(static_cast<T *>(f.edge_out) + place * S::WIDTH, column,
                     y.x[k]);
    if (f.edge_rows) {
      float weighted[S::VEC];
#pragma unroll
      for (int j = 0; j < S::VEC; ++j)
        weighted[j] = y.x[k][j] * factor;
      write_chunk<S>(static_cast<T *>(f.edge_rows) +
                         (p.first + from + i) * p.last_stride,
                     column, weighted);
    }
  });
}

/* A span: edges begin to end of the block, which has at least one. */
template <class S>
__device__ __forceinline__ void walk_span(const mlp_streamed_params &p,
                                          const block_edges &e, int64_t from,
                                          int begin, int end) {
  using T = typename S::T;
  const mlp_forward_params &f = p.pass.forward;
  const int64_t first = p.first + from; /* of the graph */
  const int64_t span = (first + begin) / MLP_ROW_SPAN;
  lane_row<S> weight, bias;
  if constexpr (S::NORM != MLP_NORM_NONE) {
    read_norm<S>(weight, p.norm_weight, 1.0f);
    read_norm<S>(bias, p.norm_bias, 0.0f);
  }
  row_sums<S> sums;
  sums.clear();
  bool cut = first + begin > 0 &&
             __ldg(f.graph.row_of_edge + first + begin - 1) == e.row[begin];
  for (int i = begin; i < end; ++i) {
    lane_row<S> y;
    read_before_norm<S>(y, last_row<S>(p, from + i), f.slope);
    finish_row<S>(y, p, e, weight, bias, from, i);
    if (!f.sums.out)
      continue;
    const int row = e.row[i];
    const int next = i + 1 < end ? e.row[i + 1]
                     : first + i + 1 < f.graph.edges
                         ? __ldg(f.graph.row_of_edge + first + i + 1)
                         : -1;
    sums.add(y, edge_factor<T>(f.dst_factor, e.place[i]),
             S::EXTREME
                 ? int(first + i - entry(f.sums.offsets, f.sums.wide, row))
                 : 0);
    if (next == row && i + 1 < end)
      continue;
    if (next == row || cut)
      sums.keep(f.sums, span, !cut, p.last_stride);
    else
      sums.write(f.sums, row);
    sums.clear();
    cut = false;
  }
}

} // namespace mlp

/* A block for each 128 edges, a warp for each span of them. */
template <typename T, int FLAGS, int LAST, int NORM, int WIDTH>
__global__ void __launch_bounds__(MLP_ROWS)
    mlp_finish_rows(const mlp_streamed_params p) {
  using S = mlp::last_shape<T, FLAGS, LAST, NORM, WIDTH>;
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
