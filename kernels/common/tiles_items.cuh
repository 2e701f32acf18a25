/* tiles_items.cuh - the items of the TILES view, counted and listed */
#ifndef DFGNN_KERNELS_TILES_ITEMS_CUH
#define DFGNN_KERNELS_TILES_ITEMS_CUH

#include "kernels/common/tiles_params.h"

namespace dfgnn {
namespace tiles {

using ull = unsigned long long;
using Window = dfgnn_window;

constexpr int kThreads = DFGNN_TILES_THREADS;

__device__ ull *as_ull(uint64_t *p) { return reinterpret_cast<ull *>(p); }

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    count_items(dfgnn_tile_counts *counts, const int32_t *chunks,
                int64_t capacity, int dense) {
  const int64_t windows = dense ? int64_t(counts->windows) : capacity;
  ull sum = 0, most = 0;
  for (int64_t w = int64_t(blockIdx.x) * kThreads + threadIdx.x; w < windows;
       w += int64_t(gridDim.x) * kThreads) {
    const ull mine = ull(chunks[w]);
    sum += mine;
    most = max(most, mine);
  }
  for (int d = 16; d > 0; d /= 2) {
    sum += __shfl_xor_sync(~0u, sum, d);
    most = max(most, __shfl_xor_sync(~0u, most, d));
  }
  if (threadIdx.x % 32 == 0 && sum > 0) {
    atomicAdd(as_ull(&counts->chunks), sum);
    atomicMax(as_ull(&counts->most), most);
  }
  if (!dense && blockIdx.x == 0 && threadIdx.x == 0)
    counts->windows = uint64_t(capacity);
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    list_items(const __grid_constant__ dfgnn_list_items f) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= f.count)
    return;
  const Window w = f.windows[k];
  const int32_t chunks = dfgnn__chunks_of(w.columns);
  f.item[k] = {w.row,  w.rows,    f.chunk_end[k] - chunks,
               chunks, w.columns, w.flags,
               0,      w.first};
  f.key[k] = uint32_t(f.most - dfgnn__tile_rank(chunks));
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    order_items(const __grid_constant__ dfgnn_list_items f) {
  const int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (k < f.count)
    f.items[k] = f.item[f.order[k]];
}

} /* namespace tiles */
} /* namespace dfgnn */

#endif
