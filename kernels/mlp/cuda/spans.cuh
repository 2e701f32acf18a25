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

/* 32 columns are staged at a time, as floats; each lane sums one of them.
 * EXTREME: rows have their largest number instead, and which edge of the row it
 * is of; minima are maxima of negated numbers. */
template <class S, int LAYER, bool EXTREME = false> struct span_sums {
  using T = typename S::T;
  static constexpr int V = S::L::V;
  static constexpr int GROUPS = 32 / S::L::GROUP; /* of a piece */
  static constexpr int PIECES = (S::groups(LAYER) + GROUPS - 1) / GROUPS;
  static constexpr int WIDTH = S::width(LAYER);

  float sum[PIECES];
  int arg[PIECES], at; /* at: of the row's edges, the tile's first */
  bool cut;            /* the row at hand began before the span */

  /* first: the span's first edge. */
  __device__ __forceinline__ void begin(const mlp_graph &graph,
                                        const mlp_sums &sums, int64_t first) {
#pragma unroll
    for (int k = 0; k < PIECES; ++k)
      clear(k);
    at = 0;
    if constexpr (EXTREME)
      at = int(first - entry(sums.offsets, sums.wide,
                             __ldg(graph.row_of_edge + first)));
    cut = first > 0 && __ldg(graph.row_of_edge + first - 1) ==
                           __ldg(graph.row_of_edge + first);
  }

  __device__ __forceinline__ void clear(int piece) {
    sum[piece] = EXTREME ? -INFINITY : 0.0f;
    arg[piece] = -1;
  }

  __device__ static __forceinline__ int column(int piece) {
    return piece * 32 + ptx::lane_id();
  }

  __device__ __forceinline__ void keep(const mlp_sums &to, int64_t span,
                                       bool tail, int piece) {
    const int64_t i = (span * 2 + tail) * S::padded(LAYER) + column(piece);
    if (column(piece) < S::padded(LAYER)) {
      to.partial[i] = sum[piece];
      if constexpr (EXTREME)
        to.partial_arg[i] = arg[piece];
    }
  }

  __device__ __forceinline__ void write(const mlp_sums &to, int row,
                                        float factor, int piece) {
    const int64_t i = int64_t(row) * WIDTH + column(piece);
    if (column(piece) < WIDTH) {
      static_cast<T *>(to.out)[i] =
          narrow<T>(EXTREME ? sum[piece] * S::SIGN : sum[piece] * factor);
      if (EXTREME && to.arg)
        to.arg[i] = arg[piece];
    }
  }

  /* Puts a chunk of group q of row g (half 0) or g + 8 into the warp's stage.
   */
  __device__ static __forceinline__ void stage(char *staged, int q, int half,
                                               const float (&x)[V]) {
    float4 *to = reinterpret_cast<float4 *>(
        staged + (row_of_lane() + 8 * half) * MLP_STAGE_ROW +
        (q % GROUPS * S::L::GROUP + chunk_of_lane() * V) * 4);
#pragma unroll
    for (int i = 0; i < V / 4; ++i)
      to[i] = float4{x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
  }

  /* Sums the rows that are staged. */
  __device__ __forceinline__ void add(const char *staged, const tile_edges &e,
                                      const mlp_sums &to, int64_t span,
                                      int piece) {
    bool began_before = cut;
    int place = at;
#pragma unroll 4 /* more code would leave the cache of instructions */
    for (int r = 0; r < MLP_TILE; ++r) {
      const float x = reinterpret_cast<const float *>(
          staged + r * MLP_STAGE_ROW)[ptx::lane_id()];
      if constexpr (EXTREME) {
        if (r < e.count &&
            (arg[piece] < 0 || x * S::SIGN > sum[piece] || x != x)) {
          sum[piece] = x * S::SIGN;
          arg[piece] = place;
        }
        ++place;
      } else {
        sum[piece] += x;
      }
      if (e.ends >> r & 1) {
        const int row = __shfl_sync(kFullMask, e.destination, r);
        if (began_before)
          keep(to, span, false, piece);
        else
          write(to, row, __shfl_sync(kFullMask, e.factor, r), piece);
        began_before = false;
        place = 0;
        clear(piece);
      }
    }
  }

  /* The tile's rows of group q, q rising from 0, are staged: all lanes of the
   * warp call it.  Rows that are not there are 0. */
  __device__ __forceinline__ void take(const char *staged, int q,
                                       const tile_edges &e, const mlp_sums &to,
                                       int64_t span) {
    if ((q + 1) % GROUPS == 0 || q + 1 == S::groups(LAYER)) {
      __syncwarp();
      add(staged, e, to, span, q / GROUPS);
      __syncwarp();
    }
  }
  __device__ __forceinline__ void end_tile(const tile_edges &e) {
    cut = cut && !e.ends;
    /* edges behind the last end belong to the row at hand */
    at = e.ends ? MLP_TILE - 1 - (31 - __clz(e.ends)) : at + MLP_TILE;
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
 * begins in it.  edges_of_span: but for the last span.  EXTREME: 1 for maxima,
 * -1 for minima, 0 for sums. */
template <typename T, int EXTREME>
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
    int arg = 0;
    if constexpr (EXTREME)
      arg = sums.partial_arg[(span * 2 + 1) * padded + c];
    for (int64_t k = span + 1; k <= last; ++k) {
      const float x = sums.partial[k * 2 * padded + c];
      if constexpr (!EXTREME) {
        sum += x;
      } else if (x > sum || x != x) {
        sum = x;
        arg = sums.partial_arg[k * 2 * padded + c];
      }
    }
    out[c] = narrow<T>(EXTREME ? sum * float(EXTREME) : sum * factor);
    if (EXTREME && sums.arg)
      sums.arg[int64_t(row) * width + c] = arg;
  }
}

} // namespace dfgnn

#endif
