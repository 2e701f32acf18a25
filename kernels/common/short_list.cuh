/* short_list.cuh - a short edge list as a matrix and its transpose, by one
 * block
 *
 * The edges are sorted in shared memory, by destination and then, in the order
 * that this gave them, by source.  An item is a node and, below it, the number
 * of an edge, 16 bits each. */
#ifndef DFGNN_KERNELS_SHORT_LIST_CUH
#define DFGNN_KERNELS_SHORT_LIST_CUH

#include "kernels/common/edge_fault.cuh"
#include "kernels/common/graph_params.h"
#include "kernels/common/rank.cuh"

namespace dfgnn {

constexpr int kShortThreads = DFGNN_SHORT_THREADS;
constexpr int kShortWarps = kShortThreads / 32;
constexpr int kShortDigit = 8, kShortRadix = 1 << kShortDigit;
constexpr int kNumberBits = 16;
constexpr uint32_t kNumberMask = (1u << kNumberBits) - 1;

struct ShortMemory {
  uint32_t count[kShortWarps][kShortRadix];
  uint32_t start[kShortRadix];
  __align__(16) uint32_t part[kShortWarps];
  uint32_t bad; /* of the ends out of range the first, 2 e for a destination */
  uint32_t left_out, unsorted;
};

/* Calls f(at, real) for the items of this warp, in their order; all lanes make
 * as many calls. */
template <class F> __device__ void for_items_of_warp(int count, F f) {
  const int each = (count + kShortThreads - 1) / kShortThreads * 32;
  const int begin = int(threadIdx.x) / 32 * each;
  for (int k = int(threadIdx.x) % 32; k < each; k += 32)
    f(begin + k, begin + k < count);
}

/* The lanes whose item is real and has the same digit, and the last of them. */
struct Peers {
  unsigned lanes;
  int last;
};
DEVICE Peers peers_among(unsigned digit, bool real) {
  const unsigned all = __ballot_sync(~0u, real);
  const unsigned lanes = peers_of<kShortDigit>(digit) & all;
  return {lanes, real ? 31 - __clz(int(lanes)) : 0};
}

/* Moves items from one array to another, stably sorted by a digit. */
__device__ void sort_by_digit(uint32_t *to, const uint32_t *from, int count,
                              int shift, uint32_t mask, ShortMemory *m) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int d = lane; d < kShortRadix; d += 32)
    m->count[warp][d] = 0;
  __syncwarp();
  for_items_of_warp(count, [&](int at, bool real) {
    const uint32_t digit = real ? from[at] >> shift & mask : 0;
    const Peers peers = peers_among(digit, real);
    if (real && lane == peers.last)
      m->count[warp][digit] += __popc(peers.lanes);
    __syncwarp();
  });
  __syncthreads();
  uint32_t sum = 0;
  if (threadIdx.x < kShortRadix)
    sum = sum_warps<kShortWarps, kShortRadix>(m->count, threadIdx.x);
  const uint32_t start = sum_before<kShortThreads>(sum, m->part);
  if (threadIdx.x < kShortRadix)
    m->start[threadIdx.x] = start;
  __syncthreads();
  for_items_of_warp(count, [&](int at, bool real) {
    const uint32_t item = real ? from[at] : 0, digit = item >> shift & mask;
    const Peers peers = peers_among(digit, real);
    uint32_t before = 0;
    if (real && lane == peers.last) {
      before = m->count[warp][digit];
      m->count[warp][digit] = before + __popc(peers.lanes);
    }
    __syncwarp();
    before = __shfl_sync(~0u, before, peers.last);
    if (real)
      to[m->start[digit] + before + __popc(peers.lanes & ((1u << lane) - 1))] =
          item;
  });
  __syncthreads();
}

/* Sorts items by their nodes, numbers of `bits` bits, with another array's
 * help; returns the one of both that has them. */
__device__ uint32_t *sort_items(uint32_t *item, uint32_t *other, int count,
                                int bits, ShortMemory *m) {
  for (int done = 0; done < bits; done += kShortDigit) {
    const int left = bits - done;
    const uint32_t mask = (1u << (left < kShortDigit ? left : kShortDigit)) - 1;
    sort_by_digit(other, item, count, kNumberBits + done, mask, m);
    uint32_t *sorted = other;
    other = item;
    item = sorted;
  }
  return item;
}

/* offsets[j] = the number of sorted items whose node is below j. */
__device__ void write_offsets(int32_t *offsets, int nodes, const uint32_t *item,
                              int count) {
  for (int j = threadIdx.x; j <= nodes; j += kShortThreads) {
    int low = 0, high = count;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (int(item[middle] >> kNumberBits) < j)
        low = middle + 1;
      else
        high = middle;
    }
    offsets[j] = low;
  }
}

struct Ends {
  int dst, src;
};

/* The ends of an edge of the matrix.  One out of range becomes an edge between
 * the first nodes, so that all that reads the matrix stays in its arrays; one
 * that a loop takes the place of has no destination and no source. */
template <class T> DEVICE Ends ends_of(const dfgnn_short_list &l, int e) {
  if (e >= l.edges)
    return {e - l.edges, e - l.edges};
  const int64_t i = static_cast<const T *>(l.dst_from)[e];
  const int64_t j = static_cast<const T *>(l.src_from)[e];
  if (i < 0 || i >= l.destinations || j < 0 || j >= l.sources)
    return {0, 0};
  if (l.loops && i == j)
    return {l.destinations, l.sources};
  return {int(i), int(j)};
}

/* Checks an edge of the list. */
template <class T>
__device__ void check_edge(const dfgnn_short_list &l, int e, ShortMemory *m) {
  const T *dst = static_cast<const T *>(l.dst_from);
  const int64_t i = dst[e], j = static_cast<const T *>(l.src_from)[e];
  const bool bad_dst = i < 0 || i >= l.destinations;
  if (bad_dst || j < 0 || j >= l.sources)
    atomicMin(&m->bad, 2u * e + !bad_dst);
  else if (l.loops && i == j)
    atomicAdd(&m->left_out, 1u);
  if (e > 0 && i < int64_t(dst[e - 1]))
    m->unsorted = 1; /* every thread that writes writes the same */
}

/* Called by one thread, after all edges were checked. */
template <class T>
__device__ void tell(const dfgnn_short_list &l, const ShortMemory *m) {
  const uint32_t bad = m->bad;
  const bool is_src = bad & 1;
  if (l.counts) {
    dfgnn_edge_counts found = {};
    if (bad != ~0u)
      (is_src ? found.bad_src : found.bad_dst) = ~uint64_t(bad / 2);
    found.was_unsorted = m->unsorted;
    found.left_out = m->left_out;
    *l.counts = found;
  }
  if (l.fault && bad != ~0u)
    write_fault(
        l.fault, l.list, bad / 2, is_src,
        static_cast<const T *>(is_src ? l.src_from : l.dst_from)[bad / 2],
        is_src ? l.sources : l.destinations);
}

/* T: the type of the list's node numbers. */
template <class T>
__global__ void __launch_bounds__(kShortThreads)
    short_list(const __grid_constant__ dfgnn_short_list l) {
  extern __shared__ uint32_t short_items[];
  __shared__ ShortMemory m;
  const int count = l.edges + l.loops;
  uint32_t *one = short_items, *two = short_items + count;
  if (threadIdx.x == 0) {
    m.bad = ~0u;
    m.left_out = m.unsorted = 0;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < count; e += kShortThreads) {
    if (e < l.edges)
      check_edge<T>(l, e, &m);
    one[e] = uint32_t(ends_of<T>(l, e).dst) << kNumberBits | e;
  }
  __syncthreads();
  if (threadIdx.x == 0)
    tell<T>(l, &m);

  uint32_t *rows = sort_items(one, two, count, l.dst_bits, &m);
  uint32_t *columns = rows == one ? two : one;
  for (int k = threadIdx.x; k < count; k += kShortThreads) {
    const int e = rows[k] & kNumberMask, src = ends_of<T>(l, e).src;
    l.to.order[k] = e;
    l.to.indices[k] = src;
    columns[k] = uint32_t(src) << kNumberBits | k;
  }
  write_offsets(l.to.offsets, l.destinations, rows, count);
  __syncthreads();

  columns = sort_items(columns, rows, count, l.src_bits, &m);
  for (int k = threadIdx.x; k < count; k += kShortThreads) {
    const int at = columns[k] & kNumberMask;
    l.to.column_edges[k] = at;
    l.to.column_rows[k] = ends_of<T>(l, l.to.order[at]).dst;
  }
  write_offsets(l.to.column_offsets, l.sources, columns, count);
}

} // namespace dfgnn

#endif
