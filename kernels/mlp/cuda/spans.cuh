/* spans.cuh - rows of edges are summed at their destination
 *
 * A warp walks a span of tiles and sums in the order of the graph.  A row that
 * lies inside of the span is written; of one that the span's begin or end cuts
 * the part is kept, and mlp_merge adds the parts in order. */
#ifndef DFGNN_MLP_CUDA_SPANS_CUH
#define DFGNN_MLP_CUDA_SPANS_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* One over the edges of a row if sums are to be means. */
__device__ __forceinline__ float mean_factor(const void *offsets, int wide,
                                             int64_t row) {
  if (!offsets)
    return 1.0f;
  const int64_t n = entry(offsets, wide, row + 1) - entry(offsets, wide, row);
  return n > 0 ? 1.0f / float(n) : 0.0f;
}

/* Groups are staged two at a time; of a staged row each lane sums a word. */
template <class S, int LAYER> struct span_sums {
  using T = typename S::T;
  static constexpr int WORD = 4 / int(sizeof(T)); /* numbers of a lane */
  static constexpr int PIECES = (S::groups(LAYER) + 1) / 2;
  static constexpr int WIDTH = S::width(LAYER);

  float sum[PIECES][WORD];
  bool cut; /* the row at hand began before the span */

  /* first: the span's first edge. */
  __device__ __forceinline__ void begin(const mlp_graph &graph, int64_t first) {
#pragma unroll
    for (int k = 0; k < PIECES; ++k)
#pragma unroll
      for (int i = 0; i < WORD; ++i)
        sum[k][i] = 0.0f;
    cut = first > 0 && __ldg(graph.row_of_edge + first - 1) ==
                           __ldg(graph.row_of_edge + first);
  }

  __device__ static __forceinline__ int column(int piece) {
    return piece * 2 * S::L::GROUP + ptx::lane_id() * WORD;
  }

  __device__ __forceinline__ void keep(const mlp_sums &to, int64_t span,
                                       bool tail, int piece) {
    float *part =
        to.partial + (span * 2 + tail) * S::padded(LAYER) + column(piece);
#pragma unroll
    for (int i = 0; i < WORD; ++i)
      if (column(piece) + i < S::padded(LAYER))
        part[i] = sum[piece][i];
  }

  __device__ __forceinline__ void write(const mlp_sums &to, int row,
                                        int piece) {
    T *out = static_cast<T *>(to.out) + int64_t(row) * WIDTH + column(piece);
    const float factor = mean_factor(to.offsets, to.wide, row);
    if constexpr (WORD == 2 && S::VECTOR && WIDTH % 2 == 0) {
      if (column(piece) < WIDTH)
        *reinterpret_cast<unsigned *>(out) =
            pack_pair<T>(sum[piece][0] * factor, sum[piece][1] * factor);
    } else {
#pragma unroll
      for (int i = 0; i < WORD; ++i)
        if (column(piece) + i < WIDTH)
          out[i] = narrow<T>(sum[piece][i] * factor);
    }
  }

  /* Puts a chunk of group q of the lane's rows into the warp's stage. */
  __device__ static __forceinline__ void stage(char *staged, int q,
                                               const chunk (&x)[2]) {
    const int lane = ptx::lane_id();
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<uint4 *>(staged +
                                 ((lane >> 2) + 8 * half) * MLP_STAGE_ROW +
                                 (q % 2) * 64 + (lane & 3) * MLP_CHUNK) =
          uint4{x[half].w[0], x[half].w[1], x[half].w[2], x[half].w[3]};
  }

  /* Sums the rows that are staged. */
  __device__ __forceinline__ void add(const char *staged, const tile_edges &e,
                                      const mlp_sums &to, int64_t span,
                                      int piece) {
    bool began_before = cut;
#pragma unroll
    for (int r = 0; r < MLP_TILE; ++r) {
      const unsigned word = *reinterpret_cast<const unsigned *>(
          staged + r * MLP_STAGE_ROW + ptx::lane_id() * 4);
      if constexpr (WORD == 1) {
        sum[piece][0] += __uint_as_float(word);
      } else {
        T low, high;
        low.bits = static_cast<unsigned short>(word);
        high.bits = static_cast<unsigned short>(word >> 16);
        sum[piece][0] += widen(low);
        sum[piece][1] += widen(high);
      }
      if (e.ends >> r & 1) {
        const int row = __shfl_sync(kFullMask, e.destination, r);
        if (began_before)
          keep(to, span, false, piece);
        else
          write(to, row, piece);
        began_before = false;
#pragma unroll
        for (int i = 0; i < WORD; ++i)
          sum[piece][i] = 0.0f;
      }
    }
  }

  /* A chunk of group q of the tile's rows, q rising from 0; rows that are not
   * there are 0.  All lanes of the warp call it. */
  __device__ __forceinline__ void take(char *staged, int q, const chunk (&x)[2],
                                       const tile_edges &e, const mlp_sums &to,
                                       int64_t span) {
    stage(staged, q, x);
    if (q % 2 || q + 1 == S::groups(LAYER)) {
      __syncwarp();
      add(staged, e, to, span, q / 2);
      __syncwarp();
    }
  }
  __device__ __forceinline__ void end_tile(const tile_edges &e) {
    cut = cut && !e.ends;
  }

  /* end: the edge behind the span's last. */
  __device__ __forceinline__ void
  end(const mlp_graph &graph, const mlp_sums &to, int64_t span, int64_t end) {
    if (end < graph.edges &&
        __ldg(graph.row_of_edge + end - 1) == __ldg(graph.row_of_edge + end))
#pragma unroll
      for (int k = 0; k < PIECES; ++k)
        keep(to, span, !cut, k);
  }
};

} // namespace mlp

/* Rows that spans cut: a warp for each span at whose end a row goes on that
 * begins in it.  edges_of_span: but for the last span. */
template <typename T>
__global__ void mlp_merge(mlp_graph graph, mlp_sums sums, int64_t spans,
                          int64_t edges_of_span, int width, int padded) {
  const int64_t span =
      int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (span + 1 >= spans)
    return;
  const int64_t end = (span + 1) * edges_of_span;
  const int row = graph.row_of_edge[end - 1];
  const int64_t begin = end - edges_of_span;
  if (graph.row_of_edge[end] != row ||
      (begin > 0 && graph.row_of_edge[begin - 1] == row))
    return;
  int64_t last = span + 1; /* the span in which the row ends */
  while ((last + 1) * edges_of_span < graph.edges &&
         graph.row_of_edge[(last + 1) * edges_of_span] == row)
    ++last;
  const float factor = mlp::mean_factor(sums.offsets, sums.wide, row);
  T *out = static_cast<T *>(sums.out) + int64_t(row) * width;
  for (int c = ptx::lane_id(); c < width; c += 32) {
    float sum = sums.partial[(span * 2 + 1) * padded + c];
    for (int64_t k = span + 1; k <= last; ++k)
      sum += sums.partial[k * 2 * padded + c];
    out[c] = narrow<T>(sum * factor);
  }
}

} // namespace dfgnn

#endif
