/* transpose.cu - edges sorted by a node: the transposed matrix of a graph, and
 * the matrix of an edge list */
#include <climits>

#include <cub/device/device_radix_sort.cuh>

#include "kernels/common/device_graph.h"

namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 8192;

int blocks_for(int64_t count) {
  int64_t blocks = (count + kThreads - 1) / kThreads;
  return int(blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks);
}

size_t aligned(size_t bytes) { return (bytes + 255) & ~size_t(255); }

__device__ int64_t first_of_thread() {
  return int64_t(blockIdx.x) * kThreads + threadIdx.x;
}

__device__ int64_t step_of_grid() { return int64_t(gridDim.x) * kThreads; }

template <class T> __global__ void count_up(T *to, int64_t count) {
  for (int64_t k = first_of_thread(); k < count; k += step_of_grid())
    to[k] = T(k);
}

/* offsets[j] = how many of the sorted keys are below j, for j = 0 .. count. */
template <class O>
__global__ void offsets_of_keys(O *offsets, int64_t count, const int32_t *key,
                                int64_t keys) {
  for (int64_t j = first_of_thread(); j <= count; j += step_of_grid()) {
    int64_t low = 0, high = keys;
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (key[middle] < j)
        low = middle + 1;
      else
        high = middle;
    }
    offsets[j] = O(low);
  }
}

template <class T>
__global__ void gather(int32_t *to, const int32_t *from, const T *position,
                       int64_t count) {
  for (int64_t k = first_of_thread(); k < count; k += step_of_grid())
    to[k] = from[position[k]];
}

template <class O>
__global__ void largest_degree(unsigned long long *largest, const O *offsets,
                               int64_t count) {
  unsigned long long most = 0;
  for (int64_t j = first_of_thread(); j < count; j += step_of_grid()) {
    unsigned long long degree =
        (unsigned long long)(int64_t(offsets[j + 1]) - int64_t(offsets[j]));
    most = degree > most ? degree : most;
  }
  for (int step = 16; step; step /= 2) {
    unsigned long long other = __shfl_xor_sync(0xffffffffu, most, step);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0 && most)
    atomicMax(largest, most);
}

template <class T>
__global__ void read_edges(int32_t *dst, int32_t *src, const T *dst_from,
                           const T *src_from, int64_t edges,
                           int64_t destinations, int64_t sources,
                           dfgnn_edge_counts *counts) {
  for (int64_t e = first_of_thread(); e < edges; e += step_of_grid()) {
    int64_t i = dst_from[e], j = src_from[e];
    if (i < 0 || i >= destinations)
      atomicMin(&counts->bad_dst, (unsigned long long)e);
    if (j < 0 || j >= sources)
      atomicMin(&counts->bad_src, (unsigned long long)e);
    if (e > 0 && i < int64_t(dst_from[e - 1]))
      counts->unsorted = 1; /* every thread that writes writes the same */
    dst[e] = int32_t(i);
    src[e] = int32_t(j);
  }
}

int bits_of(int64_t x) {
  int bits = 1;
  while (bits < 31 && x >> bits)
    bits++;
  return bits;
}

template <class T>
cudaError_t sort_pairs(void *temporary, size_t *bytes, const int32_t *key,
                       int32_t *sorted, const T *value, T *order, int64_t count,
                       int64_t nodes, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(temporary, *bytes, key, sorted, value,
                                         order, count, 0, bits_of(nodes),
                                         stream);
}

template <class T> size_t sort_bytes(int64_t edges, int64_t nodes) {
  size_t bytes = 0;
  sort_pairs<T>(nullptr, &bytes, nullptr, nullptr, nullptr, nullptr, edges,
                nodes, nullptr);
  return aligned(size_t(edges) * sizeof(T)) + bytes;
}

/* A stable sort of the edges by a node. */
template <class T>
cudaError_t sort_edges(int32_t *sorted, T *order, const int32_t *key,
                       int64_t edges, int64_t nodes, void *workspace,
                       cudaStream_t stream) {
  T *number = static_cast<T *>(workspace);
  size_t part = aligned(size_t(edges) * sizeof(T));
  size_t bytes = sort_bytes<T>(edges, nodes) - part;
  if (edges == 0)
    return cudaSuccess;
  count_up<<<blocks_for(edges), kThreads, 0, stream>>>(number, edges);
  cudaError_t e = cudaGetLastError();
  if (e != cudaSuccess)
    return e;
  return sort_pairs(static_cast<char *>(workspace) + part, &bytes, key, sorted,
                    number, order, edges, nodes, stream);
}

template <class O>
cudaError_t transpose(O *offsets, int32_t *row, O *edge,
                      unsigned long long *largest, const dfgnn_matrix *m,
                      void *workspace, cudaStream_t stream) {
  const size_t part = aligned(size_t(m->edges) * sizeof(int32_t));
  char *base = static_cast<char *>(workspace);
  int32_t *sorted = reinterpret_cast<int32_t *>(base);
  int32_t *row_of_edge = reinterpret_cast<int32_t *>(base + part);
  char *rest = base + 2 * part;
  cudaError_t e = cudaMemsetAsync(largest, 0, sizeof *largest, stream);
  if (e == cudaSuccess)
    e = sort_edges(sorted, edge, m->indices, m->edges, m->sources, rest,
                   stream);
  if (e == cudaSuccess)
    e = dfgnn__cuda_row_of_edge(row_of_edge, m, rest, stream);
  if (e != cudaSuccess)
    return e;
  offsets_of_keys<<<blocks_for(m->sources + 1), kThreads, 0, stream>>>(
      offsets, m->sources, sorted, m->edges);
  gather<<<blocks_for(m->edges), kThreads, 0, stream>>>(row, row_of_edge, edge,
                                                        m->edges);
  largest_degree<<<blocks_for(m->sources), kThreads, 0, stream>>>(
      largest, offsets, m->sources);
  return cudaGetLastError();
}

} /* namespace */

extern "C" size_t dfgnn__cuda_transpose_bytes(const dfgnn_matrix *m) {
  size_t sort = m->offsets64 ? sort_bytes<int64_t>(m->edges, m->sources)
                             : sort_bytes<int32_t>(m->edges, m->sources);
  size_t rows = dfgnn__cuda_row_of_edge_bytes(m);
  return 2 * aligned(size_t(m->edges) * sizeof(int32_t)) +
         (sort > rows ? sort : rows);
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

extern "C" cudaError_t
dfgnn__cuda_read_edges(int32_t *dst, int32_t *src, const void *dst_from,
                       const void *src_from, int wide, int64_t edges,
                       int64_t destinations, int64_t sources,
                       dfgnn_edge_counts *counts, cudaStream_t stream) {
  cudaError_t e = cudaMemsetAsync(counts, 0xff, sizeof *counts, stream);
  if (e == cudaSuccess)
    e = cudaMemsetAsync(&counts->unsorted, 0, sizeof counts->unsorted, stream);
  if (e != cudaSuccess)
    return e;
  if (wide)
    read_edges<<<blocks_for(edges), kThreads, 0, stream>>>(
        dst, src, static_cast<const int64_t *>(dst_from),
        static_cast<const int64_t *>(src_from), edges, destinations, sources,
        counts);
  else
    read_edges<<<blocks_for(edges), kThreads, 0, stream>>>(
        dst, src, static_cast<const int32_t *>(dst_from),
        static_cast<const int32_t *>(src_from), edges, destinations, sources,
        counts);
  return cudaGetLastError();
}

extern "C" size_t dfgnn__cuda_sort_edges_bytes(int64_t edges,
                                               int64_t destinations) {
  return aligned(size_t(edges) * sizeof(int32_t)) +
         (edges > INT_MAX ? sort_bytes<int64_t>(edges, destinations)
                          : sort_bytes<int32_t>(edges, destinations));
}

extern "C" cudaError_t dfgnn__cuda_sort_edges(void *offsets, int32_t *indices,
                                              void *order, const int32_t *dst,
                                              const int32_t *src, int64_t edges,
                                              int64_t destinations,
                                              void *workspace,
                                              cudaStream_t stream) {
  int32_t *sorted = static_cast<int32_t *>(workspace);
  char *rest =
      static_cast<char *>(workspace) + aligned(size_t(edges) * sizeof(int32_t));
  const int32_t *key = dst;
  const int wide = edges > INT_MAX;
  cudaError_t e = cudaSuccess;
  if (order) {
    key = sorted;
    e = wide ? sort_edges(sorted, static_cast<int64_t *>(order), dst, edges,
                          destinations, rest, stream)
             : sort_edges(sorted, static_cast<int32_t *>(order), dst, edges,
                          destinations, rest, stream);
    if (e != cudaSuccess)
      return e;
    if (wide)
      gather<<<blocks_for(edges), kThreads, 0, stream>>>(
          indices, src, static_cast<const int64_t *>(order), edges);
    else
      gather<<<blocks_for(edges), kThreads, 0, stream>>>(
          indices, src, static_cast<const int32_t *>(order), edges);
  }
  if (wide)
    offsets_of_keys<<<blocks_for(destinations + 1), kThreads, 0, stream>>>(
        static_cast<int64_t *>(offsets), destinations, key, edges);
  else
    offsets_of_keys<<<blocks_for(destinations + 1), kThreads, 0, stream>>>(
        static_cast<int32_t *>(offsets), destinations, key, edges);
  return cudaGetLastError();
}
