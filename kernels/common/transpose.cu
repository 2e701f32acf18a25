/* transpose.cu - edges sorted by a node: the transposed matrix of a graph, and
 * the matrix of an edge list */
#include <climits>

#include "kernels/common/device_graph.h"
#include "kernels/common/sort.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 8192;
constexpr int kEach = 4; /* edges of a thread that finds rows */
constexpr int kMostEqual = 32;

int blocks_for(int64_t count) {
  int64_t blocks = (count + kThreads - 1) / kThreads;
  return int(blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks);
}

__device__ int64_t first_of_thread() {
  return int64_t(blockIdx.x) * kThreads + threadIdx.x;
}

__device__ int64_t step_of_grid() { return int64_t(gridDim.x) * kThreads; }

/* How many of the sorted keys from low on are below j, and low. */
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

/* The row of each edge, and its number if asked for. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    fill_rows(int32_t *rows, O *number, unsigned long long *largest,
              const O *offsets, int64_t n, int64_t edges) {
  const int64_t e = first_of_thread() * kEach;
  if (largest && e == 0)
    *largest = 0;
  if (e >= edges)
    return;
  int64_t row = row_of(offsets, 0, n, e), end = offsets[row + 1];
  four<int32_t> row_of_each;
  four<O> number_of_each;
  for (int k = 0; k < kEach; k++) {
    if (e + k >= end && e + k < edges) {
      end = offsets[++row + 1];
      if (end <= e + k) {
        row = row_of(offsets, row, n, e + k);
        end = offsets[row + 1];
      }
    }
    row_of_each.item[k] = int32_t(row);
    number_of_each.item[k] = O(e + k);
  }
  if (e + kEach <= edges) {
    reinterpret_cast<four<int32_t> *>(rows)[e / kEach] = row_of_each;
    if (number)
      reinterpret_cast<four<O> *>(number)[e / kEach] = number_of_each;
    return;
  }
  for (int k = 0; e + k < edges; k++) {
    rows[e + k] = row_of_each.item[k];
    if (number)
      number[e + k] = number_of_each.item[k];
  }
}

/* The transposed matrix of one that equals it, whose rows are sorted: only
 * where the reverse of each edge is has to be found.  Else *other is set. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    mirror(O *to_offsets, int32_t *to_row, O *edge, unsigned long long *other,
           const O *offsets, const int32_t *indices, int64_t n, int64_t edges) {
  if (*static_cast<volatile unsigned long long *>(other))
    return;
  for (int64_t j = first_of_thread(); j <= n; j += step_of_grid())
    to_offsets[j] = offsets[j];
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
    int64_t same = 0; /* equal edges before it */
    while (same < kMostEqual && k - same > begin &&
           indices[k - same - 1] == column)
      same++;
    differs |= same == kMostEqual ||
               (k - same > begin && indices[k - same - 1] > column);
    const int64_t low = offsets[column], high = offsets[column + 1];
    const int64_t found = lower_bound(indices, low, high, row) + same;
    differs |= found >= high || indices[found] != row;
    to_row[k] = column;
    edge[k] = O(found);
  }
  if (differs) /* every thread that writes writes the same */
    *other = 1;
}

/* offsets[j] = how many of the sorted keys are below j, for j = 0 .. nodes, and
 * the largest difference of two if asked for. */
template <class O, class K>
__device__ void fill_offsets(O *offsets, int64_t nodes, const K *key,
                             int64_t keys, unsigned long long *largest) {
  unsigned long long most = 0;
  for (int64_t j = first_of_thread(); j <= nodes; j += step_of_grid()) {
    const int64_t low = lower_bound(key, 0, keys, j);
    offsets[j] = O(low);
    if (largest && j < nodes) {
      const unsigned long long degree =
          lower_bound(key, low, keys, j + 1) - low;
      most = degree > most ? degree : most;
    }
  }
  if (!largest)
    return;
  for (int step = 16; step; step /= 2) {
    unsigned long long other = __shfl_xor_sync(0xffffffffu, most, step);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0 && most)
    atomicMax(largest, most);
}

template <class O, class K>
__global__ void __launch_bounds__(kThreads)
    list_offsets(O *offsets, int64_t nodes, const K *key, int64_t keys) {
  fill_offsets(offsets, nodes, key, keys, nullptr);
}

/* After a sort: the offsets, and what belongs to the edges in their order. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    finish(O *offsets, int64_t nodes, const int32_t *key, int64_t edges,
           unsigned long long *largest, int32_t *to, const int32_t *from,
           const O *order) {
  fill_offsets(offsets, nodes, key, edges, largest);
#pragma unroll 4
  for (int64_t k = first_of_thread(); k < edges; k += step_of_grid())
    to[k] = from[order[k]];
}

template <class T, class O>
__global__ void __launch_bounds__(kThreads)
    read_edges(int32_t *src, int32_t *dst, O *number, const T *dst_from,
               const T *src_from, int64_t edges, int64_t destinations,
               int64_t sources, dfgnn_edge_counts *counts) {
  unsigned long long bad_dst = 0, bad_src = 0;
  bool unsorted = false;
#pragma unroll 2
  for (int64_t e = first_of_thread(); e < edges; e += step_of_grid()) {
    const int64_t i = dst_from[e], j = src_from[e];
    const unsigned long long bad = ~static_cast<unsigned long long>(e);
    if (i < 0 || i >= destinations)
      bad_dst = bad > bad_dst ? bad : bad_dst;
    if (j < 0 || j >= sources)
      bad_src = bad > bad_src ? bad : bad_src;
    unsorted |= e > 0 && i < int64_t(dst_from[e - 1]);
    src[e] = int32_t(j);
    if (dst) {
      dst[e] = int32_t(i);
      number[e] = O(e);
    }
  }
  using ull = unsigned long long;
  if (bad_dst)
    atomicMax(reinterpret_cast<ull *>(&counts->bad_dst), bad_dst);
  if (bad_src)
    atomicMax(reinterpret_cast<ull *>(&counts->bad_src), bad_src);
  if (unsorted) /* every thread that writes writes the same */
    (dst ? counts->was_unsorted : counts->unsorted) = 1;
}

/* ---- by the width of offsets -----------------------------------------------
 */

template <class O>
cudaError_t mirrored(O *offsets, int32_t *row, O *edge,
                     unsigned long long *other, const dfgnn_matrix *m,
                     cudaStream_t stream) {
  const int64_t edges = m->edges;
  cudaError_t e = cudaMemsetAsync(other, 0, sizeof *other, stream);
  if (e != cudaSuccess)
    return e;
  mirror<<<unsigned(edges / (kThreads * kEach) + 1), kThreads, 0, stream>>>(
      offsets, row, edge, other, static_cast<const O *>(m->offsets), m->indices,
      m->destinations, edges);
  return cudaGetLastError();
}

template <class O>
cudaError_t transpose(O *offsets, int32_t *row, O *edge,
                      unsigned long long *largest, const dfgnn_matrix *m,
                      void *workspace, cudaStream_t stream) {
  const int64_t edges = m->edges;
  const size_t keys = dfgnn::aligned(size_t(edges) * sizeof(int32_t));
  char *base = static_cast<char *>(workspace);
  int32_t *sorted = reinterpret_cast<int32_t *>(base);
  int32_t *rows = reinterpret_cast<int32_t *>(base + keys);
  O *number = reinterpret_cast<O *>(base + 2 * keys);
  char *rest = base + 2 * keys + dfgnn::aligned(size_t(edges) * sizeof(O));
  fill_rows<<<unsigned(edges / (kThreads * kEach) + 1), kThreads, 0, stream>>>(
      rows, number, largest, static_cast<const O *>(m->offsets),
      m->destinations, edges);
  cudaError_t e = cudaGetLastError();
  if (e == cudaSuccess)
    e = dfgnn::sort_pairs(rest, m->indices, sorted, number, edge, edges,
                          m->sources, stream);
  if (e != cudaSuccess)
    return e;
  finish<<<blocks_for(edges > m->sources ? edges : m->sources + 1), kThreads, 0,
           stream>>>(offsets, m->sources, sorted, edges, largest, row, rows,
                     edge);
  return cudaGetLastError();
}

template <class O>
cudaError_t sort_list(O *offsets, int32_t *indices, O *order,
                      const int32_t *dst, const int32_t *src, const O *number,
                      int64_t edges, int64_t destinations, void *workspace,
                      cudaStream_t stream) {
  int32_t *sorted = static_cast<int32_t *>(workspace);
  char *rest = static_cast<char *>(workspace) +
               dfgnn::aligned(size_t(edges) * sizeof(int32_t));
  cudaError_t e = dfgnn::sort_pairs(rest, dst, sorted, number, order, edges,
                                    destinations, stream);
  if (e != cudaSuccess)
    return e;
  finish<<<blocks_for(edges > destinations ? edges : destinations + 1),
           kThreads, 0, stream>>>(offsets, destinations, sorted, edges,
                                  static_cast<unsigned long long *>(nullptr),
                                  indices, src, order);
  return cudaGetLastError();
}

template <class T>
cudaError_t read_list(int32_t *src, int32_t *dst, void *number,
                      const void *dst_from, const void *src_from, int64_t edges,
                      int64_t destinations, int64_t sources,
                      dfgnn_edge_counts *counts, cudaStream_t stream) {
  const T *i = static_cast<const T *>(dst_from);
  const T *j = static_cast<const T *>(src_from);
  if (edges > INT_MAX)
    read_edges<<<blocks_for(edges), kThreads, 0, stream>>>(
        src, dst, static_cast<int64_t *>(number), i, j, edges, destinations,
        sources, counts);
  else
    read_edges<<<blocks_for(edges), kThreads, 0, stream>>>(
        src, dst, static_cast<int32_t *>(number), i, j, edges, destinations,
        sources, counts);
  return cudaGetLastError();
}

template <class K>
cudaError_t offsets_of(void *offsets, const void *dst_from, int64_t edges,
                       int64_t destinations, cudaStream_t stream) {
  const K *key = static_cast<const K *>(dst_from);
  const int blocks = blocks_for(destinations + 1);
  if (edges > INT_MAX)
    list_offsets<<<blocks, kThreads, 0, stream>>>(
        static_cast<int64_t *>(offsets), destinations, key, edges);
  else
    list_offsets<<<blocks, kThreads, 0, stream>>>(
        static_cast<int32_t *>(offsets), destinations, key, edges);
  return cudaGetLastError();
}

} /* namespace */

extern "C" cudaError_t dfgnn__cuda_row_of_edge(int32_t *rows,
                                               const dfgnn_matrix *m,
                                               cudaStream_t stream) {
  const unsigned blocks = unsigned(m->edges / (kThreads * kEach) + 1);
  unsigned long long *none = nullptr;
  if (m->offsets64)
    fill_rows<<<blocks, kThreads, 0, stream>>>(
        rows, static_cast<int64_t *>(nullptr), none,
        static_cast<const int64_t *>(m->offsets), m->destinations, m->edges);
  else
    fill_rows<<<blocks, kThreads, 0, stream>>>(
        rows, static_cast<int32_t *>(nullptr), none,
        static_cast<const int32_t *>(m->offsets), m->destinations, m->edges);
  return cudaGetLastError();
}

extern "C" size_t dfgnn__cuda_transpose_bytes(const dfgnn_matrix *m) {
  const size_t edges = size_t(m->edges);
  return 2 * dfgnn::aligned(edges * sizeof(int32_t)) +
         dfgnn::aligned(edges * (m->offsets64 ? 8 : 4)) +
         dfgnn::sort_bytes(m->edges, m->sources, m->offsets64);
}

extern "C" cudaError_t
dfgnn__cuda_transpose(void *offsets, int32_t *row, void *edge,
                      unsigned long long *largest, const dfgnn_matrix *m,
                      void *workspace, cudaStream_t stream) {
  if (m->offsets64)
    return transpose(static_cast<int64_t *>(offsets), row,
                     static_cast<int64_t *>(edge), largest, m, workspace,
                     stream);
  return transpose(static_cast<int32_t *>(offsets), row,
                   static_cast<int32_t *>(edge), largest, m, workspace, stream);
}

extern "C" cudaError_t dfgnn__cuda_mirror(void *offsets, int32_t *row,
                                          void *edge, unsigned long long *other,
                                          const dfgnn_matrix *m,
                                          cudaStream_t stream) {
  if (m->offsets64)
    return mirrored(static_cast<int64_t *>(offsets), row,
                    static_cast<int64_t *>(edge), other, m, stream);
  return mirrored(static_cast<int32_t *>(offsets), row,
                  static_cast<int32_t *>(edge), other, m, stream);
}

extern "C" cudaError_t
dfgnn__cuda_read_edges(int32_t *src, int32_t *dst, void *number,
                       const void *dst_from, const void *src_from, int wide,
                       int64_t edges, int64_t destinations, int64_t sources,
                       dfgnn_edge_counts *counts, cudaStream_t stream) {
  return wide ? read_list<int64_t>(src, dst, number, dst_from, src_from, edges,
                                   destinations, sources, counts, stream)
              : read_list<int32_t>(src, dst, number, dst_from, src_from, edges,
                                   destinations, sources, counts, stream);
}

extern "C" cudaError_t dfgnn__cuda_list_offsets(void *offsets,
                                                const void *dst_from, int wide,
                                                int64_t edges,
                                                int64_t destinations,
                                                cudaStream_t stream) {
  return wide ? offsets_of<int64_t>(offsets, dst_from, edges, destinations,
                                    stream)
              : offsets_of<int32_t>(offsets, dst_from, edges, destinations,
                                    stream);
}

extern "C" size_t dfgnn__cuda_sort_edges_bytes(int64_t edges,
                                               int64_t destinations) {
  return dfgnn::aligned(size_t(edges) * sizeof(int32_t)) +
         dfgnn::sort_bytes(edges, destinations, edges > INT_MAX);
}

extern "C" cudaError_t
dfgnn__cuda_sort_edges(void *offsets, int32_t *indices, void *order,
                       const int32_t *dst, const int32_t *src,
                       const void *number, int64_t edges, int64_t destinations,
                       void *workspace, cudaStream_t stream) {
  if (edges > INT_MAX)
    return sort_list(static_cast<int64_t *>(offsets), indices,
                     static_cast<int64_t *>(order), dst, src,
                     static_cast<const int64_t *>(number), edges, destinations,
                     workspace, stream);
  return sort_list(static_cast<int32_t *>(offsets), indices,
                   static_cast<int32_t *>(order), dst, src,
                   static_cast<const int32_t *>(number), edges, destinations,
                   workspace, stream);
}
