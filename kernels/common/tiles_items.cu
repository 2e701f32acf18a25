/* tiles_items.cu - the TILES view on the device: its two steps, its items */
#include <cub/device/device_radix_sort.cuh>

#include "kernels/common/device_graph.h"
#include "kernels/common/tiles.cuh"

namespace {

using dfgnn::tiles::Window;
using ull = unsigned long long;

constexpr int kThreads = 256;
constexpr int kMostBlocks = 512;

unsigned blocks_for(int64_t count) {
  return unsigned((count + kThreads - 1) / kThreads);
}

template <class T> T *carve(void *base, size_t *at, size_t count) {
  T *p = reinterpret_cast<T *>(static_cast<char *>(base) + *at);
  *at += (count * sizeof(T) + 255) & ~size_t(255);
  return p;
}

/* What the first step leaves to the second; chunk_end[w]: chunks of the windows
 * up to w. */
struct Counted {
  dfgnn_tile_counts *counts;
  Window *windows;
  int32_t *chunk_end;
  void *scan, *dense;
  int64_t capacity; /* windows */
  size_t scan_bytes, total;
};

Counted counted_layout(const dfgnn_matrix *m, int64_t parameter, void *base) {
  const int high = dfgnn__tiles_rows(parameter);
  const int dense = dfgnn__tiles_dense(parameter);
  Counted c = {};
  c.capacity = dense ? dfgnn::tiles::dense_capacity(m, high)
                     : (m->destinations + high - 1) / high;
  c.counts = carve<dfgnn_tile_counts>(base, &c.total, 1);
  c.windows = carve<Window>(base, &c.total, size_t(c.capacity));
  c.chunk_end = carve<int32_t>(base, &c.total, size_t(c.capacity));
  dfgnn__cuda_scan_sum(nullptr, &c.scan_bytes, nullptr, nullptr, c.capacity,
                       nullptr);
  c.scan = carve<char>(base, &c.total, c.scan_bytes);
  c.dense =
      carve<char>(base, &c.total, dense ? dfgnn::tiles::dense_bytes(m) : 0);
  return c;
}

__device__ int32_t parts_of(int32_t chunks, int split) {
  return split > 0 && chunks > split ? (chunks + split - 1) / split : 1;
}

__device__ ull *as_ull(uint64_t *p) { return reinterpret_cast<ull *>(p); }

__global__ void __launch_bounds__(kThreads)
    totals_kernel(dfgnn_tile_counts *counts, const int32_t *chunks,
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

/* ---- items --------------------------------------------------------------- */

/* more[w]: items of the windows up to w beyond their first; cut[w]: how many of
 * them were cut.  Both are missing if no window can be. */
struct Filling {
  int32_t *more, *cut;
  dfgnn_tile *item;       /* window by window */
  uint32_t *key, *sorted; /* most - rank; all bits set: no item */
  int32_t *number, *order;
  void *scan, *sort;
  size_t scan_bytes, sort_bytes, total;
};

int bits_of(uint64_t x) {
  int bits = 1;
  while (bits < 32 && x >> bits)
    bits++;
  return bits;
}

cudaError_t sort_items(void *temporary, size_t *bytes, const Filling &f,
                       const dfgnn_tile_counts *counts, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(
      temporary, *bytes, f.key, f.sorted, f.number, f.order,
      int64_t(counts->items), 0, bits_of(counts->most + 1), stream);
}

Filling filling_layout(const dfgnn_tile_counts *counts, void *base) {
  const size_t items = size_t(counts->items);
  const size_t windows = counts->cuts > 0 ? size_t(counts->windows) : 0;
  Filling f = {};
  f.more = carve<int32_t>(base, &f.total, windows);
  f.cut = carve<int32_t>(base, &f.total, windows);
  f.item = carve<dfgnn_tile>(base, &f.total, items);
  f.key = carve<uint32_t>(base, &f.total, items);
  f.sorted = carve<uint32_t>(base, &f.total, items);
  f.number = carve<int32_t>(base, &f.total, items);
  f.order = carve<int32_t>(base, &f.total, items);
  if (windows > 0)
    dfgnn__cuda_scan_sum(nullptr, &f.scan_bytes, nullptr, nullptr,
                         int64_t(windows), nullptr);
  f.scan = carve<char>(base, &f.total, f.scan_bytes);
  sort_items(nullptr, &f.sort_bytes, f, counts, nullptr);
  f.sort = carve<char>(base, &f.total, f.sort_bytes);
  return f;
}

__device__ int32_t final_parts(const Window &w, int split) {
  return w.flags ? 1 : parts_of(dfgnn::tiles::chunks_of(w.columns), split);
}

__global__ void __launch_bounds__(kThreads)
    parts_kernel(Filling f, const Window *windows, int64_t count, int split) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= count)
    return;
  const int32_t parts = final_parts(windows[k], split);
  f.more[k] = parts - 1;
  f.cut[k] = parts > 1;
}

__device__ void list_item(const Filling &f, int64_t at, const dfgnn_tile &item,
                          int64_t most) {
  f.item[at] = item;
  f.key[at] = uint32_t(most - dfgnn__tile_rank(item.chunks));
  f.number[at] = int32_t(at);
}

__global__ void __launch_bounds__(kThreads)
    items_kernel(dfgnn_tile_cut *cuts, dfgnn_tile_counts *counts, Filling f,
                 const Window *windows, const int32_t *chunk_end,
                 const int32_t *columns, int64_t count, int64_t most, int split,
                 bool may_cut) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= count)
    return;
  const Window w = windows[k];
  const int32_t chunks = dfgnn::tiles::chunks_of(w.columns);
  const int32_t first = chunk_end[k] - chunks;
  const int32_t parts = may_cut ? final_parts(w, split) : 1;
  const int32_t extra = may_cut ? f.more[k] - (parts - 1) : 0;
  const int32_t cut = may_cut ? f.cut[k] - (parts > 1) : 0;
  const int64_t at = k + extra;
  dfgnn_tile item = {w.row,     w.rows,  first, chunks,
                     w.columns, w.flags, -1,    w.first};
  if (parts == 1)
    list_item(f, at, item, most);
  for (int32_t p = 0; parts > 1 && p < parts; p++) {
    const int32_t begin = int32_t(int64_t(chunks) * p / parts);
    const int32_t end = int32_t(int64_t(chunks) * (p + 1) / parts);
    item.chunk = first + begin;
    item.chunks = end - begin;
    item.columns = (p == parts - 1 ? w.columns : end * 32) - begin * 32;
    item.flags = DFGNN_TILE_PARTIAL;
    item.slot = extra + cut + p;
    item.column = columns[size_t(item.chunk) * 32];
    list_item(f, at + p, item, most);
  }
  if (parts > 1)
    cuts[cut] = {w.row, w.rows, extra + cut, parts};
  if (k != count - 1)
    return;
  counts->items = uint64_t(at + parts);
  counts->cuts = uint64_t(cut + (parts > 1));
}

__global__ void __launch_bounds__(kThreads)
    order_kernel(dfgnn_tile *items, const dfgnn_tile_counts *counts,
                 Filling f) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k < int64_t(counts->items))
    items[k] = f.item[f.order[k]];
}

cudaError_t list_items(dfgnn_tile *items, dfgnn_tile_cut *cuts,
                       const int32_t *columns, const Counted &c,
                       const dfgnn_tile_counts *counts, Filling f, int split,
                       cudaStream_t stream) {
  const int64_t windows = int64_t(counts->windows);
  const int64_t capacity = int64_t(counts->items);
  const bool may_cut = counts->cuts > 0;
  cudaError_t e = cudaSuccess;
  if (may_cut) {
    parts_kernel<<<blocks_for(windows), kThreads, 0, stream>>>(f, c.windows,
                                                               windows, split);
    e = dfgnn__cuda_scan_sum(f.scan, &f.scan_bytes, f.more, f.more, windows,
                             stream);
    if (e == cudaSuccess)
      e = dfgnn__cuda_scan_sum(f.scan, &f.scan_bytes, f.cut, f.cut, windows,
                               stream);
    /* Of windows that turned out to stay whole, no items come. */
    if (e == cudaSuccess)
      e = cudaMemsetAsync(f.key, 0xff, size_t(capacity) * sizeof *f.key,
                          stream);
    if (e == cudaSuccess)
      e = cudaMemsetAsync(f.number, 0, size_t(capacity) * sizeof *f.number,
                          stream);
  }
  if (e != cudaSuccess)
    return e;
  items_kernel<<<blocks_for(windows), kThreads, 0, stream>>>(
      cuts, c.counts, f, c.windows, c.chunk_end, columns, windows,
      int64_t(counts->most), split, may_cut);
  e = sort_items(f.sort, &f.sort_bytes, f, counts, stream);
  if (e != cudaSuccess)
    return e;
  order_kernel<<<blocks_for(capacity), kThreads, 0, stream>>>(items, c.counts,
                                                              f);
  return cudaGetLastError();
}

} /* namespace */

extern "C" size_t dfgnn__cuda_count_tiles_bytes(const dfgnn_matrix *m,
                                                int64_t parameter) {
  return counted_layout(m, parameter, nullptr).total;
}

extern "C" cudaError_t dfgnn__cuda_count_tiles(const dfgnn_matrix *m,
                                               int64_t parameter,
                                               void *workspace,
                                               cudaStream_t stream) {
  const int high = dfgnn__tiles_rows(parameter);
  const int dense = dfgnn__tiles_dense(parameter);
  Counted c = counted_layout(m, parameter, workspace);
  const int64_t blocks = blocks_for(c.capacity);
  cudaError_t e = cudaMemsetAsync(c.counts, 0, sizeof *c.counts, stream);
  if (e != cudaSuccess || m->destinations == 0)
    return e;
  e = dense
          ? dfgnn::tiles::find_dense(c.windows, c.chunk_end, &c.counts->windows,
                                     c.capacity, m, high, c.dense, stream)
          : dfgnn::tiles::count_columns(c.windows, c.chunk_end, c.capacity, m,
                                        high, stream);
  if (e != cudaSuccess)
    return e;
  totals_kernel<<<unsigned(blocks < kMostBlocks ? blocks : kMostBlocks),
                  kThreads, 0, stream>>>(c.counts, c.chunk_end, c.capacity,
                                         dense, dfgnn__tiles_split(parameter));
  e = cudaGetLastError();
  if (e != cudaSuccess)
    return e;
  return dfgnn__cuda_scan_sum(c.scan, &c.scan_bytes, c.chunk_end, c.chunk_end,
                              c.capacity, stream);
}

extern "C" size_t
dfgnn__cuda_fill_tiles_bytes(const dfgnn_tile_counts *counts) {
  return filling_layout(counts, nullptr).total;
}

extern "C" cudaError_t
dfgnn__cuda_fill_tiles(dfgnn_tile *items, int32_t *columns, uint32_t *masks,
                       dfgnn_tile_cut *cuts, const dfgnn_tile_counts *counts,
                       const dfgnn_matrix *m, int64_t parameter, void *counted,
                       void *workspace, cudaStream_t stream) {
  const int high = dfgnn__tiles_rows(parameter);
  const Counted c = counted_layout(m, parameter, counted);
  const Filling f = filling_layout(counts, workspace);
  const int64_t windows = int64_t(counts->windows);
  if (windows == 0)
    return cudaSuccess;
  cudaError_t e = cudaMemsetAsync(
      masks, 0, size_t(counts->chunks) * size_t(high) * sizeof *masks, stream);
  if (e == cudaSuccess)
    e = dfgnn__tiles_dense(parameter)
            ? dfgnn::tiles::fill_dense(columns, masks, c.windows, c.chunk_end,
                                       windows, m, high, stream)
            : dfgnn::tiles::fill_columns(columns, masks, c.windows, c.chunk_end,
                                         windows, m, high, stream);
  if (e != cudaSuccess)
    return e;
  return list_items(items, cuts, columns, c, counts, f,
                    dfgnn__tiles_split(parameter), stream);
}
