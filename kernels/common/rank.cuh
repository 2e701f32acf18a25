/* rank.cuh - the positions of a block's keys after a stable sort by one digit
 *
 * The block's keys are in order by warp, then by item, then by lane.  A warp
 * counts its digits by itself: lanes with the same digit find each other by
 * votes, the highest of them moves the warp's counter.  Then each digit's
 * counters are summed over the warps and the digits over the block. */
#ifndef DFGNN_KERNELS_RANK_CUH
#define DFGNN_KERNELS_RANK_CUH

#include <stdint.h>

#include "kernels/common/unroll.cuh"

namespace dfgnn {

/* The lanes whose digit, of BITS bits, is the same as this lane's. */
template <int BITS> DEVICE unsigned peers_of(unsigned d) {
  unsigned peers = ~0u;
  unroll<BITS>([&](int b) {
    const bool on = d >> b & 1;
    const unsigned who = __ballot_sync(~0u, on);
    peers &= on ? who : ~who;
  });
  return peers;
}

/* rank[i] becomes the number of keys of the warp before key i that have its
 * digit; count[d], of the warp and zero before, how many keys have digit d. */
template <int BITS, int ITEMS>
DEVICE void rank_in_warp(uint32_t (&rank)[ITEMS], const uint32_t (&key)[ITEMS],
                         int shift, uint32_t mask, uint32_t *count) {
  const int lane = threadIdx.x % 32;
  const unsigned below = (1u << lane) - 1;
  unroll<ITEMS>([&](int i) {
    const uint32_t d = key[i] >> shift & mask;
    const unsigned peers = peers_of<BITS>(d);
    const int leader = 31 - __clz(int(peers));
    uint32_t before = 0;
    if (lane == leader) {
      before = count[d];
      count[d] = before + __popc(peers);
    }
    __syncwarp();
    rank[i] = __shfl_sync(~0u, before, leader) + __popc(peers & below);
  });
}

/* The sum over the threads before this one.  part is shared memory, a word for
 * each warp; a barrier must lie between its last use and the call. */
template <int THREADS, typename S> DEVICE S sum_before(S mine, S *part) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  S end = mine;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const S x = __shfl_up_sync(~0u, end, d);
    end += lane >= d ? x : 0;
  }
  if (lane == 31)
    part[warp] = end;
  __syncthreads();
  S before = end - mine;
  for (int w = 0; w < THREADS / 32; w++)
    before += w < warp ? part[w] : 0;
  return before;
}

/* Called by the thread of a digit: each warp's counter becomes the sum of the
 * warps before it; returns the number of keys that have the digit. */
template <int WARPS, int RADIX>
DEVICE uint32_t sum_warps(uint32_t (*count)[RADIX], int digit) {
  uint32_t sum = 0;
  unroll<WARPS>([&](int w) {
    const uint32_t mine = count[w][digit];
    count[w][digit] = sum;
    sum += mine;
  });
  return sum;
}

/* Shared memory of rank_in_block. */
template <int BITS, int THREADS> struct RankMemory {
  uint32_t count[THREADS / 32][1 << BITS];
  uint32_t start[1 << BITS];
  __align__(16) uint32_t part[THREADS / 32];
};

/* rank[i] becomes the position of key i among the block's keys sorted by the
 * digit.  The block may not use the memory until a barrier after the call. */
template <int BITS, int THREADS, int ITEMS>
DEVICE void rank_in_block(uint32_t (&rank)[ITEMS], const uint32_t (&key)[ITEMS],
                          int shift, uint32_t mask,
                          RankMemory<BITS, THREADS> *m) {
  constexpr int kRadix = 1 << BITS;
  static_assert(THREADS >= kRadix, "a digit has a thread");
  const int warp = threadIdx.x / 32;
  for (int d = threadIdx.x % 32; d < kRadix; d += 32)
    m->count[warp][d] = 0;
  __syncwarp();
  rank_in_warp<BITS>(rank, key, shift, mask, m->count[warp]);
  __syncthreads();
  uint32_t sum = 0;
  if (threadIdx.x < kRadix)
    sum = sum_warps<THREADS / 32, kRadix>(m->count, threadIdx.x);
  const uint32_t start = sum_before<THREADS>(sum, m->part);
  if (threadIdx.x < kRadix)
    m->start[threadIdx.x] = start;
  __syncthreads();
  unroll<ITEMS>([&](int i) {
    const uint32_t d = key[i] >> shift & mask;
    rank[i] += m->count[warp][d] + m->start[d];
  });
}

} // namespace dfgnn

#endif
