/* tile_edges.cuh - what a lane reads of a chunk of 32 columns, and bias and
 * dropout over tiles, by the number of an edge
 *
 * A bit of a mask does not say which edge it is.  Where the edges of a row are
 * in the order of their columns, the number of bits below it does; for a
 * problem with bias or dropout dfgnn__tile_prepare() refuses other matrices. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_EDGES_CUH
#define DFGNN_ATTENTION_CUDA_TILE_EDGES_CUH

#include "kernels/attention/cuda/dropout.cuh"
#include "kernels/attention/cuda/edge_mode.h"
#include "kernels/common/cuda_common.cuh"
#include "kernels/common/tile.h"

namespace dfgnn {

/* The lane's column of chunk i of an item. */
template <class Params>
DEVICE int tile_column(const Params &p, const dfgnn_tile &item, int i,
                       int lane) {
  const int at = i * DFGNN_TILE_COLUMNS + lane;
  return p.dense
             ? item.column + min(at, item.columns - 1)
             : __ldg(p.columns + int64_t(item.chunk) * DFGNN_TILE_COLUMNS + at);
}

/* The mask of a row of the item's window, which has `rows`, in chunk i. */
template <class Params>
DEVICE unsigned tile_mask(const Params &p, int rows, const dfgnn_tile &item,
                          int i, int row) {
  return __ldg(p.masks + int64_t(item.chunk + i) * rows + row);
}

/* The bias of an edge and head in log2 units; 0 without. */
template <int EDGES, class Params>
DEVICE float bias_of(const Params &p, int64_t edge, int head) {
  if constexpr (EDGES & EDGE_BIAS)
    return __ldg(static_cast<const float *>(p.bias) + edge * p.heads + head) *
           float(kLog2e);
  return 0.0f;
}

template <int EDGES, class Params> DEVICE uint64_t edge_key(const Params &p) {
  if constexpr (EDGES & EDGE_DROPOUT)
    return dropout_key(p.dropout);
  return 0;
}

/* The factor of a weight by dropout; 1 without. */
template <int EDGES, class Params>
DEVICE float edge_kept(const Params &p, uint64_t key, int64_t edge, int head) {
  if constexpr (EDGES & EDGE_DROPOUT)
    return kept_of(p.dropout, float(p.dropout.keep), key, edge, p.heads, head);
  return 1.0f;
}

/* The number in the CSR matrix of the edge that is at place `at` of the matrix
 * that a pass of backward walks over. */
template <bool COLUMNS, int EDGES, class Params>
DEVICE int64_t edge_number(const Params &p, int64_t at) {
  if constexpr (COLUMNS && EDGES)
    return offsets_t{p.edge_of, p.schedule.offsets64}[at];
  return at;
}

/* Bit k of the result: is the weight of a row's edge first + k kept, for k <
 * count?  The row's four adjacent lanes share the edges out; all lanes of the
 * warp call it. */
template <bool COLUMNS, int EDGES, class Params>
DEVICE unsigned kept_edges(const Params &p, uint64_t key, int64_t first,
                           int count, int head) {
  unsigned bits = 0;
  if constexpr (EDGES & EDGE_DROPOUT) {
#pragma unroll 1
    for (int k = threadIdx.x & 3; k < count; k += 4)
      bits |= unsigned(kept_of(p.dropout, 1.0f, key,
                               edge_number<COLUMNS, EDGES>(p, first + k),
                               p.heads, head) != 0)
              << k;
    bits |= __shfl_xor_sync(kFullMask, bits, 1);
    bits |= __shfl_xor_sync(kFullMask, bits, 2);
  }
  return bits;
}

/* Writes the gradient of an edge's bias, which is dS. */
template <bool COLUMNS, int EDGES, class Params>
DEVICE void emit_edge(const Params &p, int64_t edge, int head, float score) {
  if constexpr (!COLUMNS && (EDGES & EDGE_BIAS) != 0)
    if (p.grad_bias)
      static_cast<float *>(p.grad_bias)[edge * p.heads + head] = score;
}

} // namespace dfgnn

#endif
