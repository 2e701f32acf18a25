/* transpose.cuh - edges in the order of a node: the transposed matrix of a
 * graph, and the matrix of an edge list */
#ifndef DFGNN_KERNELS_TRANSPOSE_CUH
#define DFGNN_KERNELS_TRANSPOSE_CUH

#include "kernels/common/edge_fault.cuh"
#include "kernels/common/graph_params.h"

namespace dfgnn {

using ull = unsigned long long;

constexpr int kThreads = DFGNN_GRAPH_THREADS;
constexpr int kEach = DFGNN_EACH;
constexpr int kMostEqual = 32;

__device__ int64_t first_of_thread() {
  return int64_t(blockIdx.x) * kThreads + threadIdx.x;
}

__device__ int64_t step_of_grid() { return int64_t(gridDim.x) * kThreads; }

/* The first position from low on whose key is not below j; keys are sorted. */
template <class K>
__device__ int64_t lower_bound(const K *key, int64_t low, int64_t keys,
                               int64_t j) {
  int64_t high = keys;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (int64_t(key[middle]) < j)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The last row that begins at or before edge e: it holds e. */
template <class O>
__device__ int64_t row_of(const O *offsets, int64_t low, int64_t n, int64_t e) {
  int64_t high = n;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (int64_t(offsets[middle]) <= e)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <class T> struct alignas(4 * sizeof(T)) four { T item[kEach]; };

/* The row of each edge. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    fill_rows(const __grid_constant__ dfgnn_fill_rows f) {
  const O *offsets = static_cast<const O *>(f.offsets);
  const int64_t n = f.count, edges = f.edges;
  const int64_t e = first_of_thread() * kEach;
  if (f.largest && e == 0)
    *f.largest = 0;
  if (e >= edges)
    return;
  int64_t row = row_of(offsets, 0, n, e), end = offsets[row + 1];
  four<int32_t> row_of_each;
  for (int k = 0; k < kEach; k++) {
    if (e + k >= end && e + k < edges) {
      end = offsets[++row + 1];
      if (end <= e + k) {
        row = row_of(offsets, row, n, e + k);
        end = offsets[row + 1];
      }
    }
    row_of_each.item[k] = int32_t(row);
  }
  if (e + kEach <= edges) {
    reinterpret_cast<four<int32_t> *>(f.rows)[e / kEach] = row_of_each;
    return;
  }
  for (int k = 0; e + k < edges; k++)
    f.rows[e + k] = row_of_each.item[k];
}

/* The transpose of a matrix that equals it and whose rows are sorted: only the
 * position of the reverse of each edge has to be found.  Sets *other if the
 * matrix is not so. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    mirror(const __grid_constant__ dfgnn_mirror m) {
  const O *offsets = static_cast<const O *>(m.offsets);
  const int32_t *indices = m.indices;
  const int64_t n = m.rows, edges = m.edges;
  if (*static_cast<volatile uint64_t *>(m.other))
    return;
  for (int64_t j = first_of_thread(); j <= n; j += step_of_grid())
    static_cast<O *>(m.to_offsets)[j] = offsets[j];
  const int64_t e = first_of_thread() * kEach;
  const int64_t stop = e + kEach < edges ? e + kEach : edges;
  bool differs = false;
  int64_t row = e < edges ? row_of(offsets, 0, n, e) : 0, begin = 0, end = 0;
  for (int64_t k = e; k < stop; k++) {
    if (k == e || k >= end) {
      if (k > e)
        row = row_of(offsets, row + 1, n, k);
      begin = offsets[row];
      end = offsets[row + 1];
    }
    const int column = indices[k];
    int64_t same = 0; /* equal edges before edge k */
    while (same < kMostEqual && k - same > begin &&
           indices[k - same - 1] == column)
      same++;
    differs |= same == kMostEqual ||
               (k - same > begin && indices[k - same - 1] > column);
    const int64_t low = offsets[column], high = offsets[column + 1];
    const int64_t found = lower_bound(indices, low, high, row) + same;
    differs |= found >= high || indices[found] != row;
    m.to_row[k] = column;
    static_cast<O *>(m.edge)[k] = O(found);
  }
  if (differs) /* every thread that writes writes the same */
    *m.other = 1;
}

/* offsets[j] = the number of sorted keys below j, for j = 0 .. nodes; *largest,
 * if not NULL, the largest number of equal keys. */
template <class O, class K>
__device__ void fill_offsets(O *offsets, int64_t nodes, const K *key,
                             int64_t keys, uint64_t *largest) {
  ull most = 0;
  for (int64_t j = first_of_thread(); j <= nodes; j += step_of_grid()) {
    const int64_t low = lower_bound(key, 0, keys, j);
    offsets[j] = O(low);
    if (largest && j < nodes) {
      const ull degree = lower_bound(key, low, keys, j + 1) - low;
      most = degree > most ? degree : most;
    }
  }
  if (!largest)
    return;
  for (int step = 16; step; step /= 2) {
    ull other = __shfl_xor_sync(0xffffffffu, most, step);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0 && most)
    atomicMax(reinterpret_cast<ull *>(largest), most);
}

template <class O, class K>
__global__ void __launch_bounds__(kThreads)
    list_offsets(const __grid_constant__ dfgnn_list_offsets l) {
  fill_offsets(static_cast<O *>(l.offsets), l.nodes,
               static_cast<const K *>(l.key), l.keys, nullptr);
}

/* After a sort: the offsets, and the other ends of the edges in their order. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    finish_edges(const __grid_constant__ dfgnn_finish_edges f) {
  fill_offsets(static_cast<O *>(f.offsets), f.nodes, f.key, f.edges, f.largest);
#pragma unroll 4
  for (int64_t k = first_of_thread(); k < f.edges; k += step_of_grid())
    f.to[k] = f.from[static_cast<const O *>(f.order)[k]];
}

/* Called by all threads, after they counted: the last block writes the first
 * fault of the list, of one edge that of its destination. */
template <class T> __device__ void tell_first(const dfgnn_read_edges &r) {
  __threadfence();
  __syncthreads();
  ull *counts = reinterpret_cast<ull *>(&r.counts->told);
  if (threadIdx.x != 0 || atomicAdd(counts, 1ull) != ull(gridDim.x) - 1)
    return;
  __threadfence();
  const ull dst = atomicAdd(reinterpret_cast<ull *>(&r.counts->bad_dst), 0ull);
  const ull src = atomicAdd(reinterpret_cast<ull *>(&r.counts->bad_src), 0ull);
  if (!dst && !src)
    return;
  const bool is_src = src > dst; /* complements: the larger is the earlier */
  const int64_t e = static_cast<int64_t>(~(is_src ? src : dst));
  write_fault(r.fault, r.list, e, is_src,
              static_cast<const T *>(is_src ? r.src_from : r.dst_from)[e],
              is_src ? r.sources : r.destinations);
}

/* T: the type of the list's node numbers. */
template <class T>
__global__ void __launch_bounds__(kThreads)
    read_edges(const __grid_constant__ dfgnn_read_edges r) {
  const T *dst_from = static_cast<const T *>(r.dst_from);
  const T *src_from = static_cast<const T *>(r.src_from);
  ull bad_dst = 0, bad_src = 0, left_out = 0;
  bool unsorted = false;
#pragma unroll 2
  for (int64_t e = first_of_thread(); e < r.edges; e += step_of_grid()) {
    int64_t i = dst_from[e], j = src_from[e];
    const ull bad = ~static_cast<ull>(e);
    const bool no_dst = i < 0 || i >= r.destinations;
    const bool no_src = j < 0 || j >= r.sources;
    if (no_dst)
      bad_dst = bad > bad_dst ? bad : bad_dst;
    if (no_src)
      bad_src = bad > bad_src ? bad : bad_src;
    if (r.fault && (no_dst || no_src))
      i = j = 0;
    unsorted |= e > 0 && i < int64_t(dst_from[e - 1]);
    const bool loop = r.loops && i == j;
    left_out += loop;
    r.src[e] = int32_t(j);
    if (r.dst)
      r.dst[e] = int32_t(loop ? r.destinations : i);
  }
  for (int64_t k = first_of_thread(); k < r.loops; k += step_of_grid())
    r.src[r.edges + k] = r.dst[r.edges + k] = int32_t(k);
  if (!r.counts)
    return;
  if (bad_dst)
    atomicMax(reinterpret_cast<ull *>(&r.counts->bad_dst), bad_dst);
  if (bad_src)
    atomicMax(reinterpret_cast<ull *>(&r.counts->bad_src), bad_src);
  if (left_out)
    atomicAdd(reinterpret_cast<ull *>(&r.counts->left_out), left_out);
  if (unsorted) /* every thread that writes writes the same */
    (r.dst ? r.counts->was_unsorted : r.counts->unsorted) = 1;
  if (r.fault)
    tell_first<T>(r);
}

} // namespace dfgnn

#endif
