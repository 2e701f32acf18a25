/* views.cuh - the views of kernels/common/variant.h, built on the device */
#ifndef DFGNN_KERNELS_VIEWS_CUH
#define DFGNN_KERNELS_VIEWS_CUH

#include "kernels/common/graph_params.h"
#include "kernels/common/rank.cuh"

namespace dfgnn {

constexpr int kThreads = DFGNN_GRAPH_THREADS;

template <class O>
__global__ void order_keys(const __grid_constant__ dfgnn_order_keys d) {
  const O *offsets = static_cast<const O *>(d.offsets);
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= d.rows)
    return;
  const int64_t begin = offsets[i], degree = int64_t(offsets[i + 1]) - begin;
  if (d.indices)
    d.key[i] = degree > 0 ? uint32_t(d.indices[begin]) : d.most;
  else
    d.key[i] = d.most - uint32_t(degree < int64_t(d.most) ? degree : d.most);
}

/* A thread takes a row, and looks for each cut behind the one before. */
template <class O>
__global__ void cut_rows(const __grid_constant__ dfgnn_cut_rows c) {
  const O *offsets = static_cast<const O *>(c.offsets);
  O *first = static_cast<O *>(c.first);
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= c.rows)
    return;
  int64_t at = offsets[i];
  const int64_t end = offsets[i + 1];
  first[i] = O(at);
  for (int k = 1; k < c.slices; k++) {
    for (int64_t high = end; at < high;) {
      const int64_t middle = (at + high) / 2;
      if (c.indices[middle] < k * c.width)
        at = middle + 1;
      else
        high = middle;
    }
    first[k * c.rows + i] = O(at);
  }
  first[c.slices * c.rows + i] = O(end);
}

/* first_item[i + 1] becomes the items of row i, heavy_before[i] 1 if there are
 * several; both are summed up later. */
template <class O>
__global__ void count_items(const __grid_constant__ dfgnn_count_items c) {
  const O *offsets = static_cast<const O *>(c.offsets);
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i == 0)
    c.first_item[0] = 0;
  if (i >= c.rows)
    return;
  int64_t degree = int64_t(offsets[i + 1]) - int64_t(offsets[i]);
  int64_t items = degree > 0 ? (degree + c.size - 1) / c.size : 1;
  c.first_item[i + 1] = int32_t(items);
  c.heavy_before[i] = items > 1;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    list_heavy(int32_t *heavy, int32_t *heavy_count,
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
__global__ void fill_items(const __grid_constant__ dfgnn_fill_items f) {
  const O *offsets = static_cast<const O *>(f.offsets);
  int64_t item = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (item > f.items)
    return;
  if (item == f.items) {
    f.first_edge[item] = f.edges;
    return;
  }
  int64_t low = 0, high = f.rows;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (f.first_item[middle] <= item)
      low = middle;
    else
      high = middle;
  }
  f.row[item] = int32_t(low);
  f.first_edge[item] =
      int64_t(offsets[low]) + (item - f.first_item[low]) * f.size;
}

/* The items of a row beyond the first, and 1 for a heavy row in the upper half,
 * so that one sum counts both. */
template <class O>
DEVICE uint64_t count_of_row(const dfgnn_pad_items &p, int64_t i) {
  const O *offsets = static_cast<const O *>(p.offsets);
  const int64_t degree = int64_t(offsets[i + 1]) - int64_t(offsets[i]);
  const uint64_t more = degree > p.size ? (degree - 1) / p.size : 0;
  return more | uint64_t(more > 0) << 32;
}

/* A thread takes a row.  Each block counts the items of all rows before its
 * own, which few rows allow, so that no launch has to come before. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    pad_items(const __grid_constant__ dfgnn_pad_items p) {
  __shared__ uint64_t part[2][kThreads / 32];
  __shared__ uint64_t end; /* the counts of all rows, in the last block */
  const O *offsets = static_cast<const O *>(p.offsets);
  const int64_t begin = int64_t(blockIdx.x) * kThreads, i = begin + threadIdx.x;
  uint64_t before = 0, mine = 0;
  for (int64_t r = threadIdx.x; r < begin; r += kThreads)
    before += count_of_row<O>(p, r);
  const uint64_t earlier = sum_before<kThreads>(before, part[0]) + before;
  if (threadIdx.x == kThreads - 1)
    end = earlier;
  __syncthreads();
  before = end;
  if (i < p.rows)
    mine = count_of_row<O>(p, i);
  before += sum_before<kThreads>(mine, part[1]);
  if (i < p.rows) {
    const int64_t first = i + int64_t(uint32_t(before));
    p.first_item[i] = int32_t(first);
    for (int64_t k = 0; k <= int64_t(uint32_t(mine)); k++) {
      p.row[first + k] = int32_t(i);
      p.first_edge[first + k] = int64_t(offsets[i]) + k * p.size;
    }
    if (mine)
      p.heavy[before >> 32] = int32_t(i);
  }
  if (begin + kThreads < p.rows)
    return;
  if (threadIdx.x == kThreads - 1)
    end = before + mine;
  __syncthreads();
  const int64_t items = p.rows + int64_t(uint32_t(end));
  if (threadIdx.x == 0)
    p.first_item[p.rows] = int32_t(items);
  for (int64_t k = items + threadIdx.x; k <= p.most_items; k += kThreads) {
    p.first_edge[k] = p.edges;
    if (k < p.most_items)
      p.row[k] = -1;
  }
  for (int64_t k = int64_t(end >> 32) + threadIdx.x; k < p.most_heavy;
       k += kThreads)
    p.heavy[k] = -1;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    narrow_indices(int32_t *to, const int64_t *from, int64_t count,
                   unsigned long long *bad) {
  for (int64_t e = int64_t(blockIdx.x) * kThreads + threadIdx.x; e < count;
       e += int64_t(gridDim.x) * kThreads) {
    int64_t j = from[e];
    if (j < 0 || j > INT32_MAX)
      atomicMin(bad, static_cast<unsigned long long>(e));
    to[e] = int32_t(j);
  }
}

} // namespace dfgnn

#endif
