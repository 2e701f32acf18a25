/* tiles_dense.cuh - windows along the diagonal blocks of a square matrix
 *
 * A block may begin at row i where no row before i has a column from i on and
 * no row from i on a column before i: two running maxima say so. */
#ifndef DFGNN_KERNELS_TILES_DENSE_CUH
#define DFGNN_KERNELS_TILES_DENSE_CUH

#include "kernels/common/tiles.cuh"

namespace dfgnn {
namespace tiles {

constexpr int kThreads = DFGNN_TILES_THREADS;
constexpr int kGroup = DFGNN_DENSE_GROUP;

template <class O>
__global__ void __launch_bounds__(kThreads)
    dense_spans(const __grid_constant__ dfgnn_dense_windows w) {
  const O *offsets = static_cast<const O *>(w.offsets);
  const int32_t *indices = w.indices;
  const int64_t n = w.rows;
  const int64_t row = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kGroup;
  int32_t high = -1, low = INT32_MAX;
  if (row < n)
    for (int64_t e = int64_t(offsets[row]) + threadIdx.x % kGroup,
                 end = offsets[row + 1];
         e < end; e += kGroup) {
      const int32_t j = __ldg(indices + e);
      high = max(high, j);
      low = min(low, j);
    }
  for (int d = kGroup / 2; d > 0; d /= 2) {
    high = max(high, __shfl_xor_sync(~0u, high, d));
    low = min(low, __shfl_xor_sync(~0u, low, d));
  }
  if (row < n && threadIdx.x % kGroup == 0) {
    w.high[row] = high;
    w.low[n - 1 - row] = -low;
  }
}

__device__ bool may_cut(const dfgnn_dense_windows &w, int64_t n, int64_t i) {
  return i <= 0 || i >= n || (w.high[i - 1] < i && w.low[n - 1 - i] <= -i);
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    dense_begins(const __grid_constant__ dfgnn_dense_windows w) {
  const int64_t n = w.rows;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n)
    w.begin[i] = may_cut(w, n, i) ? int32_t(i) : 0;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    dense_ends(const __grid_constant__ dfgnn_dense_windows w) {
  const int64_t n = w.rows;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x + 1;
  if (i <= n && (i == n || w.begin[i] == i))
    w.end[w.begin[i - 1]] = int32_t(i);
}

/* Does a window begin at row i? */
__device__ bool begins_window(const dfgnn_dense_windows &w, int64_t i,
                              int high) {
  const int64_t begin = w.begin[i], rows = w.end[begin] - begin, at = i - begin;
  const int half = high / 2;
  if (rows <= half)
    return at == 0 && (i == 0 || w.begin[i - 1] / half != i / half);
  const int64_t units = (rows + 15) / 16, parts = (rows + high - 1) / high;
  const int64_t unit = at / 16, part = (unit * parts + units - 1) / units;
  return at % 16 == 0 && part * units < (unit + 1) * parts;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    dense_marks(const __grid_constant__ dfgnn_dense_windows w) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < w.rows)
    w.number[i] = begins_window(w, i, w.window_rows);
}

/* w.number is the number of windows up to a row. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    dense_rows(const __grid_constant__ dfgnn_dense_windows w) {
  const int64_t n = w.rows;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n)
    return;
  const int32_t number = w.number[i], before = i > 0 ? w.number[i - 1] : 0;
  if (number > before)
    w.windows[before].row = int32_t(i);
  if (i == n - 1)
    *w.count = uint64_t(number);
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    dense_windows(const __grid_constant__ dfgnn_dense_windows w) {
  const O *offsets = static_cast<const O *>(w.offsets);
  Window *windows = w.windows;
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t number = int64_t(*w.count);
  if (k >= w.capacity)
    return;
  w.chunks[k] = 0;
  if (k >= number)
    return;
  const int64_t row = windows[k].row;
  const int64_t end = k + 1 < number ? windows[k + 1].row : w.rows;
  const int32_t first = w.begin[row], stop = w.end[w.begin[end - 1]];
  const int32_t columns = offsets[row] < offsets[end] ? stop - first : 0;
  windows[k].rows = int32_t(end - row);
  windows[k].first = columns > 0 ? first : 0;
  windows[k].last = columns > 0 ? stop - 1 : 0;
  windows[k].columns = columns;
  windows[k].flags = 0;
  w.chunks[k] = dfgnn__chunks_of(columns);
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    fill_dense(const __grid_constant__ dfgnn_fill_columns f) {
  __shared__ int64_t first[DFGNN_TILE_MOST_ROWS];
  const int high = f.high;
  const Window w = f.windows[blockIdx.x];
  if (w.columns == 0)
    return;
  const int32_t chunk = f.chunk_end[blockIdx.x] - dfgnn__chunks_of(w.columns);
  int32_t *column = f.columns + size_t(chunk) * 32;
  uint32_t *mask = f.masks + size_t(chunk) * size_t(high);
  const Rows<O> rows(static_cast<const O *>(f.offsets), f.indices, w, first);
  bool twice = false;
  for (int64_t k = threadIdx.x; k < int64_t(dfgnn__chunks_of(w.columns)) * 32;
       k += kThreads)
    column[k] = int32_t(min(w.first + k, int64_t(w.last)));
  for_edges<kThreads>(rows.indices, rows.edges, [&](int64_t e, int32_t j) {
    twice |= set_bit(mask, high, rows.row_of(e), uint32_t(j - w.first));
  });
  if (__syncthreads_or(twice) && threadIdx.x == 0)
    f.windows[blockIdx.x].flags = DFGNN_TILE_DUPLICATES;
}

} /* namespace tiles */
} /* namespace dfgnn */

#endif
