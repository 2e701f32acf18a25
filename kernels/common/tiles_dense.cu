/* tiles_dense.cu - windows along the diagonal blocks of a square matrix
 *
 * A block may begin at row i where no row below i has a column from i on and no
 * row from i on has one below: two running maxima say so. */
#include <climits>

#include <cub/device/device_scan.cuh>

#include "kernels/common/device_graph.h"
#include "kernels/common/tiles.cuh"

namespace dfgnn {
namespace tiles {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 8; /* lanes that read a row */

struct Largest {
  __host__ __device__ int32_t operator()(int32_t a, int32_t b) const {
    return a > b ? a : b;
  }
};

/* high: the largest column of each row, then of it and those below; low: minus
 * the least of each row, from the last row to the first, then of it and those
 * above.  begin: of each row's block; end: of the block that begins there. */
struct Workspace {
  int32_t *high, *low, *begin, *end, *number;
  void *scan;
  size_t scan_bytes, total;
};

cudaError_t scan_largest(void *temporary, size_t *bytes, int32_t *array,
                         int64_t count, cudaStream_t stream) {
  return cub::DeviceScan::InclusiveScan(temporary, *bytes, array, array,
                                        Largest(), count, stream);
}

Workspace layout(int64_t n, void *base) {
  Workspace w = {};
  int32_t **const arrays[] = {&w.high, &w.low, &w.begin, &w.end, &w.number};
  size_t sum = 0;
  for (int32_t **array : arrays) {
    *array = reinterpret_cast<int32_t *>(static_cast<char *>(base) + w.total);
    w.total += (size_t(n) * sizeof(int32_t) + 255) & ~size_t(255);
  }
  scan_largest(nullptr, &w.scan_bytes, nullptr, n, nullptr);
  dfgnn__cuda_scan_sum(nullptr, &sum, nullptr, nullptr, n, nullptr);
  w.scan_bytes = w.scan_bytes > sum ? w.scan_bytes : sum;
  w.scan = static_cast<char *>(base) + w.total;
  w.total += (w.scan_bytes + 255) & ~size_t(255);
  return w;
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    spans_kernel(Workspace w, const O *offsets, const int32_t *indices,
                 int64_t n) {
  const int64_t row = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kGroup;
  int32_t high = -1, low = INT_MAX;
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

__device__ bool may_cut(const Workspace &w, int64_t n, int64_t i) {
  return i <= 0 || i >= n || (w.high[i - 1] < i && w.low[n - 1 - i] <= -i);
}

__global__ void __launch_bounds__(kThreads)
    begins_kernel(Workspace w, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n)
    w.begin[i] = may_cut(w, n, i) ? int32_t(i) : 0;
}

__global__ void __launch_bounds__(kThreads)
    ends_kernel(Workspace w, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x + 1;
  if (i <= n && (i == n || w.begin[i] == i))
    w.end[w.begin[i - 1]] = int32_t(i);
}

/* Does a window begin at row i? */
__device__ bool begins_window(const Workspace &w, int64_t i, int high) {
  const int64_t begin = w.begin[i], rows = w.end[begin] - begin, at = i - begin;
  const int half = high / 2;
  if (rows <= half)
    return at == 0 && (i == 0 || w.begin[i - 1] / half != i / half);
  const int64_t units = (rows + 15) / 16, parts = (rows + high - 1) / high;
  const int64_t unit = at / 16, part = (unit * parts + units - 1) / units;
  return at % 16 == 0 && part * units < (unit + 1) * parts;
}

__global__ void __launch_bounds__(kThreads)
    mark_kernel(Workspace w, int64_t n, int high) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n)
    w.number[i] = begins_window(w, i, high);
}

/* number: of windows up to a row. */
__global__ void __launch_bounds__(kThreads)
    rows_kernel(Window *windows, uint64_t *count, Workspace w, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n)
    return;
  const int32_t number = w.number[i], before = i > 0 ? w.number[i - 1] : 0;
  if (number > before)
    windows[before].row = int32_t(i);
  if (i == n - 1)
    *count = uint64_t(number);
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    windows_kernel(Window *windows, int32_t *chunks, const uint64_t *count,
                   int64_t capacity, Workspace w, const O *offsets, int64_t n) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t number = int64_t(*count);
  if (k >= capacity)
    return;
  chunks[k] = 0;
  if (k >= number)
    return;
  const int64_t row = windows[k].row;
  const int64_t end = k + 1 < number ? windows[k + 1].row : n;
  const int32_t first = w.begin[row], stop = w.end[w.begin[end - 1]];
  const int32_t columns = offsets[row] < offsets[end] ? stop - first : 0;
  windows[k].rows = int32_t(end - row);
  windows[k].first = columns > 0 ? first : 0;
  windows[k].last = columns > 0 ? stop - 1 : 0;
  windows[k].columns = columns;
  windows[k].flags = 0;
  chunks[k] = chunks_of(columns);
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(int32_t *columns, uint32_t *masks, Window *windows,
                const int32_t *chunk_end, const O *offsets,
                const int32_t *indices, int high) {
  __shared__ int64_t first[DFGNN_TILE_MOST_ROWS];
  const Window w = windows[blockIdx.x];
  if (w.columns == 0)
    return;
  const int32_t chunk = chunk_end[blockIdx.x] - chunks_of(w.columns);
  int32_t *column = columns + size_t(chunk) * 32;
  uint32_t *mask = masks + size_t(chunk) * size_t(high);
  const Rows<O> rows(offsets, indices, w, first);
  bool twice = false;
  for (int64_t k = threadIdx.x; k < int64_t(chunks_of(w.columns)) * 32;
       k += kThreads)
    column[k] = int32_t(min(w.first + k, int64_t(w.last)));
  for_edges<kThreads>(rows.indices, rows.edges, [&](int64_t e, int32_t j) {
    twice |= set_bit(mask, high, rows.row_of(e), uint32_t(j - w.first));
  });
  if (__syncthreads_or(twice) && threadIdx.x == 0)
    windows[blockIdx.x].flags = DFGNN_TILE_DUPLICATES;
}

unsigned blocks_for(int64_t count) {
  return unsigned((count + kThreads - 1) / kThreads);
}

template <class O>
cudaError_t find(Window *windows, int32_t *chunks, uint64_t *count,
                 int64_t capacity, const dfgnn_matrix *m, int high, Workspace w,
                 cudaStream_t stream) {
  const int64_t n = m->destinations;
  const O *offsets = static_cast<const O *>(m->offsets);
  const unsigned wide = blocks_for(n);
  spans_kernel<O><<<blocks_for(n * kGroup), kThreads, 0, stream>>>(
      w, offsets, m->indices, n);
  cudaError_t e = scan_largest(w.scan, &w.scan_bytes, w.high, n, stream);
  if (e == cudaSuccess)
    e = scan_largest(w.scan, &w.scan_bytes, w.low, n, stream);
  if (e != cudaSuccess)
    return e;
  begins_kernel<<<wide, kThreads, 0, stream>>>(w, n);
  e = scan_largest(w.scan, &w.scan_bytes, w.begin, n, stream);
  if (e != cudaSuccess)
    return e;
  ends_kernel<<<wide, kThreads, 0, stream>>>(w, n);
  mark_kernel<<<wide, kThreads, 0, stream>>>(w, n, high);
  e = dfgnn__cuda_scan_sum(w.scan, &w.scan_bytes, w.number, w.number, n,
                           stream);
  if (e != cudaSuccess)
    return e;
  rows_kernel<<<wide, kThreads, 0, stream>>>(windows, count, w, n);
  windows_kernel<O><<<blocks_for(capacity), kThreads, 0, stream>>>(
      windows, chunks, count, capacity, w, offsets, n);
  return cudaGetLastError();
}

} /* namespace */

/* A shared window begins in a half of its own, and a block of over half a
 * window has at most 3 n / R of them. */
int64_t dense_capacity(const dfgnn_matrix *m, int high) {
  return 5 * m->destinations / high + 2;
}

size_t dense_bytes(const dfgnn_matrix *m) {
  return layout(m->destinations, nullptr).total;
}

cudaError_t find_dense(Window *windows, int32_t *chunks, uint64_t *count,
                       int64_t capacity, const dfgnn_matrix *m, int high,
                       void *workspace, cudaStream_t stream) {
  const Workspace w = layout(m->destinations, workspace);
  return m->offsets64 ? find<int64_t>(windows, chunks, count, capacity, m, high,
                                      w, stream)
                      : find<int32_t>(windows, chunks, count, capacity, m, high,
                                      w, stream);
}

cudaError_t fill_dense(int32_t *columns, uint32_t *masks, Window *windows,
                       const int32_t *chunk_end, int64_t count,
                       const dfgnn_matrix *m, int high, cudaStream_t stream) {
  if (count == 0)
    return cudaSuccess;
  if (m->offsets64)
    fill_kernel<int64_t><<<unsigned(count), kThreads, 0, stream>>>(
        columns, masks, windows, chunk_end,
        static_cast<const int64_t *>(m->offsets), m->indices, high);
  else
    fill_kernel<int32_t><<<unsigned(count), kThreads, 0, stream>>>(
        columns, masks, windows, chunk_end,
        static_cast<const int32_t *>(m->offsets), m->indices, high);
  return cudaGetLastError();
}

} /* namespace tiles */
} /* namespace dfgnn */
