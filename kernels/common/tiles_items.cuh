/* tiles_items.cuh - the items of the TILES view, counted and listed */
#ifndef DFGNN_KERNELS_TILES_ITEMS_CUH
#define DFGNN_KERNELS_TILES_ITEMS_CUH

#include "kernels/common/tiles_params.h"

namespace dfgnn {
namespace tiles {

using ull = unsigned long long;
using Window = dfgnn_window;

constexpr int kThreads = DFGNN_TILES_THREADS;

__device__ int32_t parts_of(int32_t chunks, int split) {
  return split > 0 && chunks > split ? (chunks + split - 1) / split : 1;
}

__device__ ull *as_ull(uint64_t *p) { return reinterpret_cast<ull *>(p); }

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    count_items(dfgnn_tile_counts *counts, const int32_t *chunks,
                int64_t capacity, int dense, int split) {
  const int64_t windows = dense ? int64_t(counts->windows) : capacity;
  ull sum = 0, most = 0, items = 0, cuts = 0;
  for (int64_t w = int64_t(blockIdx.x) * kThreads + threadIdx.x; w < windows;
       w += int64_t(gridDim.x) * kThreads) {
    const int32_t mine = chunks[w], parts = parts_of(mine, split);
    sum += ull(mine);
    most = max(most, ull(mine));
    items += ull(parts);
    cuts += parts > 1;
  }
  for (int d = 16; d > 0; d /= 2) {
    sum += __shfl_xor_sync(~0u, sum, d);
    most = max(most, __shfl_xor_sync(~0u, most, d));
    items += __shfl_xor_sync(~0u, items, d);
    cuts += __shfl_xor_sync(~0u, cuts, d);
  }
  if (threadIdx.x % 32 == 0 && items > 0) {
    atomicAdd(as_ull(&counts->chunks), sum);
    atomicMax(as_ull(&counts->most), most);
    atomicAdd(as_ull(&counts->items), items);
    if (cuts > 0)
      atomicAdd(as_ull(&counts->cuts), cuts);
  }
  if (!dense && blockIdx.x == 0 && threadIdx.x == 0)
    counts->windows = uint64_t(capacity);
}

__device__ int32_t final_parts(const Window &w, int split) {
  return w.flags ? 1 : parts_of(dfgnn__chunks_of(w.columns), split);
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    mark_parts(const __grid_constant__ dfgnn_list_items f) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= f.count)
    return;
  const int32_t parts = final_parts(f.windows[k], f.split);
  f.more[k] = parts - 1;
  f.cut[k] = parts > 1;
}

__device__ void list_item(const dfgnn_list_items &f, int64_t at,
                          const dfgnn_tile &item) {
  f.item[at] = item;
  f.key[at] = uint32_t(f.most - dfgnn__tile_rank(item.chunks));
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    list_items(const __grid_constant__ dfgnn_list_items f) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= f.count)
    return;
  const Window w = f.windows[k];
  const int32_t chunks = dfgnn__chunks_of(w.columns);
  const int32_t first = f.chunk_end[k] - chunks;
  const int32_t parts = f.may_cut ? final_parts(w, f.split) : 1;
  const int32_t extra = f.may_cut ? f.more[k] - (parts - 1) : 0;
  const int32_t cut = f.may_cut ? f.cut[k] - (parts > 1) : 0;
  const int64_t at = k + extra;
  dfgnn_tile item = {w.row,     w.rows,  first, chunks,
                     w.columns, w.flags, -1,    w.first};
  if (parts == 1)
    list_item(f, at, item);
  for (int32_t p = 0; parts > 1 && p < parts; p++) {
    const int32_t begin = int32_t(int64_t(chunks) * p / parts);
    const int32_t end = int32_t(int64_t(chunks) * (p + 1) / parts);
    item.chunk = first + begin;
    item.chunks = end - begin;
    item.columns = (p == parts - 1 ? w.columns : end * 32) - begin * 32;
    item.flags = DFGNN_TILE_PARTIAL;
    item.slot = extra + cut + p;
    item.column = f.columns[size_t(item.chunk) * 32];
    list_item(f, at + p, item);
  }
  if (parts > 1)
    f.cuts[cut] = {w.row, w.rows, extra + cut, parts};
  if (k != f.count - 1)
    return;
  f.counts->items = uint64_t(at + parts);
  f.counts->cuts = uint64_t(cut + (parts > 1));
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    order_items(const __grid_constant__ dfgnn_list_items f) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k < int64_t(f.counts->items))
    f.items[k] = f.item[f.order[k]];
}

} /* namespace tiles */
} /* namespace dfgnn */

#endif
