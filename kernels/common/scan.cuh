/* scan.cuh - inclusive sums or maxima of an int32 array, in one pass */
#ifndef DFGNN_KERNELS_SCAN_CUH
#define DFGNN_KERNELS_SCAN_CUH

#include "kernels/common/look_back.cuh"
#include "kernels/common/sort_params.h"
#include "kernels/common/unroll.cuh"

namespace dfgnn {

template <int OP> struct Scan {
  static constexpr int32_t kNothing = OP == DFGNN_SCAN_SUM ? 0 : -INT32_MAX - 1;
  /* Sums wrap around as unsigned numbers do. */
  static DEVICE int32_t join(int32_t a, int32_t b) {
    return OP == DFGNN_SCAN_SUM ? int32_t(uint32_t(a) + uint32_t(b))
                                : (a > b ? a : b);
  }
};

/* A state's low half is the value. */
constexpr ull kScanOwn = 1ull << 32, kScanAll = 2ull << 32;

/* Called by one warp: joins all tiles before, 32 of them at a time. */
template <int OP>
__device__ int32_t scan_look_back(const ull *state, int64_t tile) {
  const int lane = threadIdx.x % 32;
  int32_t sum = Scan<OP>::kNothing;
  for (int64_t at = tile - 1;; at -= 32) {
    ull x = kScanAll | uint32_t(Scan<OP>::kNothing);
    if (at >= lane)
      while (!((x = look(state + (at - lane))) >> 32))
        ;
    __syncwarp();
    const unsigned all = __ballot_sync(~0u, (x & kScanAll) != 0);
    const int last = all ? __ffs(int(all)) - 1 : 31;
    int32_t mine = lane <= last ? int32_t(uint32_t(x)) : Scan<OP>::kNothing;
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
      mine = Scan<OP>::join(mine, __shfl_xor_sync(~0u, mine, d));
    sum = Scan<OP>::join(sum, mine);
    if (all)
      return sum;
  }
}

template <int OP>
__global__ void __launch_bounds__(DFGNN_SCAN_THREADS)
    scan(const __grid_constant__ dfgnn_scan p) {
  constexpr int kItems = DFGNN_SCAN_ITEMS, kWarps = DFGNN_SCAN_THREADS / 32;
  __shared__ int32_t part[kWarps], earlier;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t tile = gridDim.x > 1 ? take_ticket(p.ticket) : 0;
  const int64_t first = tile * DFGNN_SCAN_TILE + warp * 32 * kItems + lane;
  int32_t x[kItems], sum = Scan<OP>::kNothing;
  unroll<kItems>([&](int i) {
    x[i] =
        first + i * 32 < p.count ? p.from[first + i * 32] : Scan<OP>::kNothing;
  });
  unroll<kItems>([&](int i) {
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int32_t before = __shfl_up_sync(~0u, x[i], d);
      x[i] = lane >= d ? Scan<OP>::join(x[i], before) : x[i];
    }
    x[i] = Scan<OP>::join(x[i], sum);
    sum = __shfl_sync(~0u, x[i], 31);
  });
  if (lane == 0)
    part[warp] = sum;
  __syncthreads();
  int32_t before = Scan<OP>::kNothing, own = Scan<OP>::kNothing;
  for (int w = 0; w < kWarps; w++) {
    before = w < warp ? Scan<OP>::join(before, part[w]) : before;
    own = Scan<OP>::join(own, part[w]);
  }
  if (gridDim.x > 1) { /* the same for all threads */
    if (warp == 0) {
      ull *state = reinterpret_cast<ull *>(p.state);
      int32_t all = own;
      if (tile > 0) {
        if (lane == 0)
          publish(state + tile, kScanOwn | uint32_t(own));
        const int32_t found = scan_look_back<OP>(state, tile);
        all = Scan<OP>::join(found, own);
        if (lane == 0)
          earlier = found;
      } else if (lane == 0) {
        earlier = Scan<OP>::kNothing;
      }
      if (lane == 0)
        publish(state + tile, kScanAll | uint32_t(all));
    }
    __syncthreads();
    before = Scan<OP>::join(before, earlier);
  }
  unroll<kItems>([&](int i) {
    if (first + i * 32 < p.count)
      p.to[first + i * 32] = Scan<OP>::join(x[i], before);
  });
}

} // namespace dfgnn

#endif
