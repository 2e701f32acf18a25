/* stored.cuh - rows of a tile in memory: edge after edge */
#ifndef DFGNN_MLP_CUDA_STORED_CUH
#define DFGNN_MLP_CUDA_STORED_CUH

#include "kernels/common/ptx.cuh"
#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* Writes rows from `edge` on; chunk_of(q, half): a lane's chunk. */
template <class S, int LAYER, class Chunk>
DEVICE void write_chunks(void *to, int64_t edge, const tile_edges &e,
                         const Chunk &chunk_of) {
  using T = typename S::T;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (e.live[half]) {
      T *row = static_cast<T *>(to) +
               (edge + row_of_lane() + 8 * half) * S::width(LAYER);
#pragma unroll
      for (int q = 0; q < S::groups(LAYER); ++q)
        store_chunk<T>(row, q * S::L::GROUP + chunk_of_lane() * S::L::V,
                       chunk_of(q, half));
    }
}
template <class S, int LAYER>
DEVICE void write_rows(void *to, int64_t edge, const rows<S> &x,
                       const tile_edges &e) {
  write_chunks<S, LAYER>(to, edge, e,
                         [&](int q, int half) { return x.x[q][half]; });
}
/* Rounds and writes the numbers of a tile. */
template <class S, int LAYER>
DEVICE void write_sums(void *to, int64_t edge, sums<S> &z,
                       const tile_edges &e) {
  write_chunks<S, LAYER>(to, edge, e,
                         [&](int q, int half) { return rounded(z, q, half); });
}

/* Rows that are not there are 0. */
template <class S, int LAYER>
DEVICE void read_rows(rows<S> &x, const void *from, int64_t edge,
                      const tile_edges &e) {
  using T = typename S::T;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T *row = static_cast<const T *>(from) +
                   (edge + (e.live[half] ? row_of_lane() + 8 * half : 0)) *
                       S::width(LAYER);
#pragma unroll
    for (int q = 0; q < S::groups(LAYER); ++q)
      x.x[q][half] =
          e.live[half]
              ? load_chunk<T>(row, q * S::L::GROUP + chunk_of_lane() * S::L::V)
              : chunk{};
  }
}

template <class S, int LAYER> DEVICE void pack_rows(rows<S> &x, sums<S> &z) {
#pragma unroll
  for (int q = 0; q < S::groups(LAYER); ++q)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      x.x[q][half] = rounded(z, q, half);
}

/* Brings rows of a tile to the cache before they are read: those of the warp's
 * next tile, which is whole, while it works on another. */
DEVICE void fetch_rows(const void *table, int64_t first, int row_bytes) {
  constexpr int LINE = 128;
  if (!table)
    return;
  const char *p = static_cast<const char *>(table) + first * row_bytes;
  for (int i = ptx::lane_id() * LINE; i < MLP_TILE * row_bytes; i += 32 * LINE)
    ptx::fetch_line(p + i);
}
template <class S, int LAYER>
DEVICE void fetch_layer(const void *table, int64_t first) {
  fetch_rows(table, first, S::width(LAYER) * int(sizeof(typename S::T)));
}
/* Which nodes the tile's edges join, and rows by edge where they are in the
 * order of the graph. */
DEVICE void fetch_edges(const mlp_graph &graph, int64_t first,
                        const void *table, int row_bytes) {
  fetch_rows(graph.row_of_edge, first, int(sizeof(int32_t)));
  fetch_rows(graph.indices, first, int(sizeof(int32_t)));
  if (!graph.edge_order)
    fetch_rows(table, first, row_bytes);
}

} // namespace mlp
} // namespace dfgnn

#endif
