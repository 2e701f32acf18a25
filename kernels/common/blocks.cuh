/* blocks.cuh - the diagonal blocks of a square matrix, such as the graphs of a
 * batch: see lib/signature.h
 *
 * A block may begin at row i if no row before it reaches a column >= i and none
 * from it on reaches one < i.  Tiles of rows are reduced, the tiles scanned,
 * then each row is decided.  Steps that need the results of all thread blocks
 * are done by the last of a kernel to finish. */
#ifndef DFGNN_KERNELS_BLOCKS_CUH
#define DFGNN_KERNELS_BLOCKS_CUH

#include "kernels/common/graph_params.h"

namespace dfgnn {

using ull = unsigned long long;

constexpr int kThreads = DFGNN_GRAPH_THREADS;
constexpr int kEach = DFGNN_EACH; /* rows of a thread */
constexpr int kTile = DFGNN_BLOCK_ROWS;
constexpr int kLeast = -INT32_MAX - 1;

__device__ ull *as_ull(uint64_t *p) { return reinterpret_cast<ull *>(p); }

/* The maximum over the threads before this one, or behind it. */
template <bool BEFORE> __device__ int others_max(int x) {
  __shared__ int part[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int d = 1; d < 32; d *= 2) {
    int y = BEFORE ? __shfl_up_sync(~0u, x, d) : __shfl_down_sync(~0u, x, d);
    if (BEFORE ? lane >= d : lane + d < 32)
      x = max(x, y);
  }
  __syncthreads();
  if (lane == (BEFORE ? 31 : 0))
    part[warp] = x;
  __syncthreads();
  int y = BEFORE ? __shfl_up_sync(~0u, x, 1) : __shfl_down_sync(~0u, x, 1);
  int most = lane == (BEFORE ? 0 : 31) ? kLeast : y;
  for (int w = 0; w < kThreads / 32; w++)
    if (BEFORE ? w < warp : w > warp)
      most = max(most, part[w]);
  return most;
}

__device__ int block_max(int x) {
  __shared__ int all;
  int before = others_max<true>(x);
  if (threadIdx.x == kThreads - 1)
    all = max(before, x);
  __syncthreads();
  return all;
}

__device__ bool is_last(unsigned *ticket) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last)
    __threadfence();
  return last;
}

__device__ bool refused(const dfgnn_graph_counts *c) {
  return c->bad_offset_row || c->list.bad_dst || c->list.bad_src ||
         c->list.unsorted;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    reduce_blocks(const __grid_constant__ dfgnn_block_tiles t) {
  const int32_t *high = t.row_high, *low = t.row_low;
  const int64_t n = t.rows;
  if (refused(t.counts))
    return;
  const int64_t row = int64_t(blockIdx.x) * kTile + threadIdx.x * kEach;
  int most = -1, least = kLeast;
  for (int k = 0; k < kEach; k++)
    if (row + k < n) {
      most = max(most, high[row + k]);
      least = max(least, low[row + k]);
    }
  most = block_max(most);
  least = block_max(least);
  if (threadIdx.x == 0) {
    t.high[blockIdx.x] = most;
    t.low[blockIdx.x] = least;
  }
  if (!is_last(&t.tickets[0]))
    return;
  const int64_t share = (t.count + kThreads - 1) / kThreads;
  const int64_t begin = min(threadIdx.x * share, t.count);
  const int64_t end = min(begin + share, t.count);
  most = -1;
  least = kLeast;
  for (int64_t k = begin; k < end; k++) {
    most = max(most, __ldcg(t.high + k));
    least = max(least, __ldcg(t.low + k));
  }
  int before = max(others_max<true>(most), -1);
  int behind = others_max<false>(least);
  for (int64_t k = begin; k < end; k++) {
    int x = __ldcg(t.high + k);
    t.high[k] = before;
    before = max(before, x);
  }
  for (int64_t k = end - 1; k >= begin; k--) {
    int x = __ldcg(t.low + k);
    t.low[k] = behind;
    behind = max(behind, x);
  }
}

struct Sizes {
  ull count, largest, squared;
  __device__ void add(ull size) {
    count++;
    largest = max(largest, size);
    squared += size * size;
  }
  __device__ void give(dfgnn_graph_counts *c) {
    for (int d = 16; d > 0; d /= 2) {
      count += __shfl_xor_sync(~0u, count, d);
      squared += __shfl_xor_sync(~0u, squared, d);
      largest = max(largest, __shfl_xor_sync(~0u, largest, d));
    }
    if (threadIdx.x % 32 || count == 0)
      return;
    atomicAdd(as_ull(&c->blocks), count);
    atomicAdd(as_ull(&c->squared_blocks), squared);
    atomicMax(as_ull(&c->largest_block), largest);
  }
};

/* The size of a diagonal block is known where the next one begins. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    decide_blocks(const __grid_constant__ dfgnn_block_tiles t) {
  dfgnn_graph_counts *counts = t.counts;
  const int32_t *high = t.row_high, *low = t.row_low;
  const int64_t n = t.rows;
  if (refused(counts))
    return;
  const int64_t row = int64_t(blockIdx.x) * kTile + threadIdx.x * kEach;
  int far[kEach], near[kEach + 1], most = -1, least = kLeast;
  for (int k = 0; k < kEach; k++) {
    far[k] = row + k < n ? high[row + k] : -1;
    near[k] = row + k < n ? low[row + k] : kLeast;
    most = max(most, far[k]);
    least = max(least, near[k]);
  }
  int before = max(others_max<true>(most), t.high[blockIdx.x]);
  near[kEach] = max(others_max<false>(least), t.low[blockIdx.x]);
  for (int k = kEach - 1; k >= 0; k--)
    near[k] = max(near[k], near[k + 1]);
  bool empty = row > 0 && row <= n && high[row - 1] < 0; /* the row before */
  int begin[kEach], last = -1;
  for (int k = 0; k < kEach; k++) {
    const int64_t i = row + k;
    /* Consecutive isolated rows stay together. */
    const bool joins = far[k] < 0 && empty && before < i - 1;
    begin[k] = i < n && before < i && near[k] <= -i && !joins;
    last = begin[k] ? int(i) : last;
    before = max(before, far[k]);
    empty = far[k] < 0;
  }
  Sizes sizes = {};
  int previous = others_max<true>(last), first = kLeast;
  for (int k = 0; k < kEach; k++) {
    if (!begin[k])
      continue;
    const int i = int(row) + k;
    if (previous < 0)
      first = max(first, -i);
    else
      sizes.add(ull(i - previous));
    previous = i;
  }
  sizes.give(counts);
  first = block_max(first);
  last = block_max(last);
  if (threadIdx.x == 0) {
    t.first[blockIdx.x] = first == kLeast ? -1 : -first;
    t.last[blockIdx.x] = last;
  }
  if (!is_last(&t.tickets[1]))
    return;
  const int64_t share = (t.count + kThreads - 1) / kThreads;
  const int64_t from = min(threadIdx.x * share, t.count);
  const int64_t to = min(from + share, t.count);
  last = -1;
  for (int64_t k = from; k < to; k++)
    last = max(last, __ldcg(t.last + k));
  previous = others_max<true>(last);
  sizes = {};
  for (int64_t k = from; k < to; k++) {
    const int x = __ldcg(t.first + k);
    if (x >= 0 && previous >= 0)
      sizes.add(ull(x - previous));
    previous = max(previous, __ldcg(t.last + k));
  }
  last = block_max(last);
  if (threadIdx.x == 0)
    sizes.add(ull(n - last));
  sizes.give(counts);
}

} // namespace dfgnn

#endif
