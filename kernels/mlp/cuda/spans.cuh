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

/* 32 columns are staged at a time, as floats; each lane sums one of them. */
template <class S, int LAYER> struct span_sums {
  using T = typename S::T;
  static constexpr int V = S::L::V;
  static_assert(S::L::GROUP == 32, "a lane has a column of a group");
  static constexpr int PIECES = S::groups(LAYER);
  static constexpr int WIDTH = S::width(LAYER);

  float sum[PIECES];
  bool cut; /* the row at hand began before the span */

  /* first: the span's first edge. */
  DEVICE void begin(const mlp_graph &graph, int64_t first) {
#pragma unroll
    for (int k = 0; k < PIECES; ++k)
      sum[k] = 0.0f;
    cut = first > 0 && __ldg(graph.row_of_edge + first - 1) ==
                           __ldg(graph.row_of_edge + first);
  }

  __device__ static __forceinline__ int column(int piece) {
    return piece * 32 + ptx::lane_id();
  }

  DEVICE void keep(const mlp_sums &to, int64_t span, bool tail, int piece) {
    to.partial[(span * 2 + tail) * WIDTH + column(piece)] = sum[piece];
  }

  DEVICE void write(const mlp_sums &to, int row, float factor, int piece) {
    static_cast<T *>(to.out)[int64_t(row) * WIDTH + column(piece)] =
        narrow<T>(sum[piece] * factor);
  }

  /* Puts a chunk of a group of row g (half 0) or g + 8 into the warp's stage.
   */
  __device__ static __forceinline__ void stage(char *staged, int half,
                                               const float (&x)[V]) {
    float4 *to = reinterpret_cast<float4 *>(
        staged + (row_of_lane() + 8 * half) * MLP_STAGE_ROW +
        chunk_of_lane() * V * 4);
#pragma unroll
    for (int i = 0; i < V / 4; ++i)
      to[i] = float4{x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
  }

  /* Sums the rows that are staged. */
  DEVICE void add(const char *staged, const tile_edges &e, const mlp_sums &to,
                  int64_t span, int piece) {
    bool began_before = cut;
#pragma unroll 4 /* more code would leave the cache of instructions */
    for (int r = 0; r < MLP_TILE; ++r) {
      sum[piece] += reinterpret_cast<const float *>(
          staged + r * MLP_STAGE_ROW)[ptx::lane_id()];
      if (e.ends >> r & 1) {
        const int row = __shfl_sync(kFullMask, e.destination, r);
        if (began_before)
          keep(to, span, false, piece);
        else
          write(to, row, __shfl_sync(kFullMask, e.factor, r), piece);
        began_before = false;
        sum[piece] = 0.0f;
      }
    }
  }

  /* The tile's rows of group q, q rising from 0, are staged: all lanes of the
   * warp call it.  Rows that are not there are 0. */
  DEVICE void take(const char *staged, int q, const tile_edges &e,
                   const mlp_sums &to, int64_t span) {
    __syncwarp();
    add(staged, e, to, span, q);
    __syncwarp();
  }
  DEVICE void end_tile(const tile_edges &e) { cut = cut && !e.ends; }

  /* end: the edge behind the span's last. */
  DEVICE void end(const mlp_graph &graph, const mlp_sums &to, int64_t span,
                  int64_t end) {
    if (end < graph.edges &&
        __ldg(graph.row_of_edge + end - 1) == __ldg(graph.row_of_edge + end))
#pragma unroll
      for (int k = 0; k < PIECES; ++k)
        keep(to, span, !cut, k);
  }
};

} // namespace mlp

/* Rows that spans cut: a warp for each span at whose end a row goes on that
 * begins in it.  edges_of_span: except of the last span. */
template <typename T>
__global__ void mlp_merge(mlp_graph graph, mlp_sums sums, int64_t spans,
                          int64_t edges_of_span, int width) {
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
    float sum = sums.partial[(span * 2 + 1) * width + c];
    for (int64_t k = span + 1; k <= last; ++k)
      sum += sums.partial[k * 2 * width + c];
    out[c] = narrow<T>(sum * factor);
  }
}

} // namespace dfgnn

#endif
