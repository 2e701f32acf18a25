/* rows.cuh - rows whose width is that of a call: their numbers, and the
 * gradient with respect to e' */
#ifndef DFGNN_MLP_CUDA_ROWS_CUH
#define DFGNN_MLP_CUDA_ROWS_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* VEC numbers of a row of `width` from a column on; those behind it are 0.
 * VECTOR: VEC divides the width, and rows are aligned. */
template <typename T, int VEC, bool VECTOR>
__device__ __forceinline__ void read_few(float (&x)[VEC], const T *row,
                                         int column, int width) {
  if constexpr (VECTOR && VEC > 1) {
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      x[i] = 0.0f;
    if (column < width)
      widen(x, load_packed<VEC>(row + column));
  } else {
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      x[i] = column + i < width ? widen(row[column + i]) : 0.0f;
  }
}

template <typename T, int VEC, bool VECTOR>
__device__ __forceinline__ void write_few(T *row, int column, int width,
                                          const float (&x)[VEC]) {
  if constexpr (VECTOR && VEC > 1) {
    if (column < width)
      store_packed<VEC>(row + column, x);
  } else {
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      if (column + i < width)
        row[column + i] = narrow<T>(x[i]);
  }
}

/* What the kernels of a block of edges know of each. */
struct block_edges {
  int64_t place[MLP_ROWS]; /* in the caller's list */
  int row[MLP_ROWS], source[MLP_ROWS];

  /* first: of the graph.  Threads from 0 to MLP_ROWS - 1 call it. */
  __device__ __forceinline__ void read(const mlp_graph &graph, int64_t first,
                                       int count) {
    const int i = int(threadIdx.x);
    if (i >= count)
      return;
    row[i] = __ldg(graph.row_of_edge + first + i);
    source[i] = __ldg(graph.indices + first + i);
    place[i] = graph.edge_order ? entry(graph.edge_order, graph.wide, first + i)
                                : first + i;
  }
};

/* The gradient with respect to e' of an edge: the sum of its own, and of those
 * of the reductions. */
template <typename T> struct output_gradient_of {
  const T *own, *destination, *source;         /* NULL: zero */
  const int32_t *arg_destination, *arg_source; /* of extremes, else NULL */
  float destination_factor, source_factor;
  int at_destination, at_source; /* for extremes: which edge of its row */

  /* factors: of the edge, too.  i: of the block, whose first edge is `first` of
   * the graph. */
  __device__ __forceinline__ void begin(const mlp_streamed_params &p,
                                        const block_edges &e, int64_t first,
                                        int i, bool factors) {
    const mlp_backward_params &b = p.pass;
    const mlp_graph &graph = b.forward.graph;
    const int64_t width = p.out_width;
    own = b.grad_edge_out
              ? static_cast<const T *>(b.grad_edge_out) + e.place[i] * width
              : nullptr;
    destination = b.grad_out_dst ? static_cast<const T *>(b.grad_out_dst) +
                                       int64_t(e.row[i]) * width
                                 : nullptr;
    source = b.grad_out_src ? static_cast<const T *>(b.grad_out_src) +
                                  int64_t(e.source[i]) * width
                            : nullptr;
    arg_destination = destination && b.arg_dst
                          ? b.arg_dst + int64_t(e.row[i]) * width
                          : nullptr;
    arg_source = source && p.arg_src ? p.arg_src + int64_t(e.source[i]) * width
                                     : nullptr;
    destination_factor = source_factor = 1.0f;
    if (destination)
      destination_factor = mean_factor(b.dst_offsets, graph.wide, e.row[i]);
    if (source)
      source_factor = mean_factor(b.src_offsets, graph.wide, e.source[i]);
    if (factors) {
      destination_factor *= edge_factor<T>(b.forward.dst_factor, e.place[i]);
      source_factor *= edge_factor<T>(b.forward.src_factor, e.place[i]);
    }
    if (arg_destination)
      at_destination =
          int(first + i - entry(b.row_offsets, graph.wide, e.row[i]));
    if (arg_source)
      at_source = p.position[first + i];
  }

  template <int VEC, bool VECTOR>
  __device__ __forceinline__ static void
  add(float (&y)[VEC], const T *row, const int32_t *arg, int at, float factor,
      int column, int width) {
    float x[VEC];
    if (!row)
      return;
    read_few<T, VEC, VECTOR>(x, row, column, width);
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      if (!arg || (column + i < width && __ldg(arg + column + i) == at))
        y[i] += x[i] * factor;
  }

  template <int VEC, bool VECTOR>
  __device__ __forceinline__ void get(float (&y)[VEC], int column,
                                      int width) const {
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      y[i] = 0.0f;
    add<VEC, VECTOR>(y, own, nullptr, 0, 1.0f, column, width);
    add<VEC, VECTOR>(y, destination, arg_destination, at_destination,
                     destination_factor, column, width);
    add<VEC, VECTOR>(y, source, arg_source, at_source, source_factor, column,
                     width);
  }
};

} // namespace mlp
} // namespace dfgnn

#endif
