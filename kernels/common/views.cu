/* views.cu - the views of kernels/common/variant.h, built on the device */
#include <climits>

#include <cub/device/device_radix_sort.cuh>

#include "kernels/common/device_graph.h"

namespace {

constexpr int kThreads = 256;

int blocks_for(int64_t count) {
  int64_t blocks = (count + kThreads - 1) / kThreads;
  return int(blocks < 1 ? 1 : blocks);
}

size_t aligned(size_t bytes) { return (bytes + 255) & ~size_t(255); }

template <class O>
__global__ void degree_keys(uint32_t *key, int32_t *row, const O *offsets,
                            int64_t n) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n)
    return;
  int64_t degree = int64_t(offsets[i + 1]) - int64_t(offsets[i]);
  key[i] = uint32_t(degree < UINT_MAX ? degree : UINT_MAX);
  row[i] = int32_t(i);
}

/* count[i]: items of row i; heavy_before[i]: 1 if it is heavy. */
template <class O>
__global__ void count_items(int32_t *first_item, int32_t *heavy_before,
                            const O *offsets, int64_t n, int64_t size) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i == 0)
    first_item[0] = 0;
  if (i >= n)
    return;
  int64_t degree = int64_t(offsets[i + 1]) - int64_t(offsets[i]);
  int64_t items = degree > 0 ? (degree + size - 1) / size : 1;
  first_item[i + 1] = int32_t(items);
  heavy_before[i] = items > 1;
}

__global__ void list_heavy(int32_t *heavy, int32_t *heavy_count,
                           const int32_t *heavy_before, int64_t n) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n)
    return;
  int32_t before = i > 0 ? heavy_before[i - 1] : 0;
  if (heavy_before[i] > before)
    heavy[before] = int32_t(i);
  if (i == n - 1)
    *heavy_count = heavy_before[i];
}

template <class O>
__global__ void fill_items(int32_t *row, int64_t *first_edge,
                           const int32_t *first_item, int64_t items,
                           const O *offsets, int64_t n, int64_t edges,
                           int64_t size) {
  int64_t item = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (item > items)
    return;
  if (item == items) {
    first_edge[items] = edges;
    return;
  }
  int64_t low = 0, high = n;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (first_item[middle] <= item)
      low = middle;
    else
      high = middle;
  }
  row[item] = int32_t(low);
  first_edge[item] = int64_t(offsets[low]) + (item - first_item[low]) * size;
}

__global__ void narrow_kernel(int32_t *to, const int64_t *from, int64_t count,
                              unsigned long long *bad) {
  for (int64_t e = int64_t(blockIdx.x) * kThreads + threadIdx.x; e < count;
       e += int64_t(gridDim.x) * kThreads) {
    int64_t j = from[e];
    if (j < 0 || j > INT_MAX)
      atomicMin(bad, static_cast<unsigned long long>(e));
    to[e] = int32_t(j);
  }
}

int bits_of(int64_t x) {
  int bits = 1;
  while (bits < 32 && x >> bits)
    bits++;
  return bits;
}

cudaError_t sort_degrees(void *temporary, size_t *bytes, const uint32_t *key,
                         uint32_t *sorted, const int32_t *row, int32_t *order,
                         const dfgnn_matrix *m, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairsDescending(
      temporary, *bytes, key, sorted, row, order, m->destinations, 0,
      bits_of(m->max_degree), stream);
}

} /* namespace */

extern "C" cudaError_t dfgnn__cuda_narrow(int32_t *to, const int64_t *from,
                                          int64_t count,
                                          unsigned long long *bad,
                                          cudaStream_t stream) {
  const int wide = blocks_for(count), blocks = wide < 4096 ? wide : 4096;
  cudaError_t e = cudaMemsetAsync(bad, 0xff, sizeof *bad, stream);
  if (e != cudaSuccess)
    return e;
  narrow_kernel<<<blocks, kThreads, 0, stream>>>(to, from, count, bad);
  return cudaGetLastError();
}

extern "C" size_t dfgnn__cuda_degree_order_bytes(const dfgnn_matrix *matrix) {
  size_t bytes = 0;
  sort_degrees(nullptr, &bytes, nullptr, nullptr, nullptr, nullptr, matrix,
               nullptr);
  return 3 * aligned(size_t(matrix->destinations) * 4) + bytes;
}

extern "C" cudaError_t dfgnn__cuda_degree_order(int32_t *order,
                                                const dfgnn_matrix *matrix,
                                                void *workspace,
                                                cudaStream_t stream) {
  const int64_t n = matrix->destinations;
  const size_t part = aligned(size_t(n) * 4);
  char *base = static_cast<char *>(workspace);
  uint32_t *key = reinterpret_cast<uint32_t *>(base);
  uint32_t *sorted = reinterpret_cast<uint32_t *>(base + part);
  int32_t *row = reinterpret_cast<int32_t *>(base + 2 * part);
  size_t bytes = dfgnn__cuda_degree_order_bytes(matrix) - 3 * part;
  if (n == 0)
    return cudaSuccess;
  if (matrix->offsets64)
    degree_keys<<<blocks_for(n), kThreads, 0, stream>>>(
        key, row, static_cast<const int64_t *>(matrix->offsets), n);
  else
    degree_keys<<<blocks_for(n), kThreads, 0, stream>>>(
        key, row, static_cast<const int32_t *>(matrix->offsets), n);
  cudaError_t e = cudaGetLastError();
  if (e != cudaSuccess)
    return e;
  return sort_degrees(base + 3 * part, &bytes, key, sorted, row, order, matrix,
                      stream);
}

extern "C" size_t dfgnn__cuda_count_items_bytes(const dfgnn_matrix *matrix) {
  size_t bytes = 0;
  dfgnn__cuda_scan_sum(nullptr, &bytes, nullptr, nullptr,
                       matrix->destinations + 1, nullptr);
  return aligned(size_t(matrix->destinations) * sizeof(int32_t)) + bytes;
}

extern "C" cudaError_t
dfgnn__cuda_count_items(int32_t *first_item, int32_t *heavy,
                        int32_t *heavy_count, const dfgnn_matrix *matrix,
                        int64_t size, void *workspace, cudaStream_t stream) {
  const int64_t n = matrix->destinations;
  const size_t part = aligned(size_t(n) * sizeof(int32_t));
  int32_t *heavy_before = static_cast<int32_t *>(workspace);
  void *temporary = static_cast<char *>(workspace) + part;
  size_t bytes = dfgnn__cuda_count_items_bytes(matrix) - part;
  cudaError_t e = cudaMemsetAsync(heavy_count, 0, sizeof *heavy_count, stream);
  if (e != cudaSuccess)
    return e;
  if (matrix->offsets64)
    count_items<<<blocks_for(n), kThreads, 0, stream>>>(
        first_item, heavy_before, static_cast<const int64_t *>(matrix->offsets),
        n, size);
  else
    count_items<<<blocks_for(n), kThreads, 0, stream>>>(
        first_item, heavy_before, static_cast<const int32_t *>(matrix->offsets),
        n, size);
  e = cudaGetLastError();
  if (e != cudaSuccess || n == 0)
    return e;
  e = dfgnn__cuda_scan_sum(temporary, &bytes, first_item, first_item, n + 1,
                           stream);
  if (e == cudaSuccess)
    e = dfgnn__cuda_scan_sum(temporary, &bytes, heavy_before, heavy_before, n,
                             stream);
  if (e != cudaSuccess)
    return e;
  list_heavy<<<blocks_for(n), kThreads, 0, stream>>>(heavy, heavy_count,
                                                     heavy_before, n);
  return cudaGetLastError();
}

extern "C" cudaError_t dfgnn__cuda_fill_items(
    int32_t *row, int64_t *first_edge, const int32_t *first_item, int64_t items,
    const dfgnn_matrix *matrix, int64_t size, cudaStream_t stream) {
  const int64_t n = matrix->destinations;
  if (matrix->offsets64)
    fill_items<<<blocks_for(items + 1), kThreads, 0, stream>>>(
        row, first_edge, first_item, items,
        static_cast<const int64_t *>(matrix->offsets), n, matrix->edges, size);
  else
    fill_items<<<blocks_for(items + 1), kThreads, 0, stream>>>(
        row, first_edge, first_item, items,
        static_cast<const int32_t *>(matrix->offsets), n, matrix->edges, size);
  return cudaGetLastError();
}
