/* tiles.cuh - the rows of a window, for the device builders of the TILES view
 */
#ifndef DFGNN_KERNELS_TILES_CUH
#define DFGNN_KERNELS_TILES_CUH

#include "kernels/common/tiles_params.h"
#include "kernels/common/unroll.cuh"

namespace dfgnn {
namespace tiles {

using Window = dfgnn_window;

/* The edges of a window's rows, which one block walks. */
template <class O> struct Rows {
  const int32_t *indices;
  int64_t begin, edges;
  int rows;
  /* first[r], relative to begin, in shared memory */
  int64_t *first;

  __device__ Rows(const O *offsets, const int32_t *all, const Window &w,
                  int64_t *shared)
      : begin(offsets[w.row]), rows(w.rows), first(shared) {
    indices = all + begin;
    edges = int64_t(offsets[int64_t(w.row) + w.rows]) - begin;
    for (int r = threadIdx.x; r < rows; r += blockDim.x)
      first[r] = int64_t(offsets[int64_t(w.row) + r]) - begin;
    __syncthreads();
  }

  __device__ int row_of(int64_t edge) const {
    int low = 0, high = rows;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      if (first[middle] <= edge)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

/* Calls f(edge, column) for each edge of a window; kAhead loads are under way.
 */
template <int THREADS, class F>
DEVICE void for_edges(const int32_t *indices, int64_t edges, F f) {
  constexpr int kAhead = 4;
  for (int64_t e = threadIdx.x; e < edges; e += kAhead * THREADS) {
    int32_t j[kAhead];
    unroll<kAhead>([&](int k) {
      j[k] = e + k * THREADS < edges ? __ldg(indices + e + k * THREADS) : 0;
    });
    unroll<kAhead>([&](int k) {
      if (e + k * THREADS < edges)
        f(e + k * THREADS, j[k]);
    });
  }
}

/* Sets the bit of a place among a window's columns; true if it was set. */
DEVICE bool set_bit(uint32_t *mask, int high, int row, uint32_t place) {
  const uint32_t bit = 1u << (place & 31);
  return atomicOr(mask + size_t(place >> 5) * size_t(high) + row, bit) & bit;
}

} /* namespace tiles */
} /* namespace dfgnn */

#endif
