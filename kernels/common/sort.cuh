/* sort.cuh - a stable radix sort of 32-bit keys with the position each key had
 *
 * One kernel counts the digits of all passes.  A pass reads keys once and
 * writes them once ("onesweep", Adinets and Merrill 2022): a tile ranks its
 * keys, learns from the tiles before it how many of theirs have each digit, and
 * puts its own behind them. */
#ifndef DFGNN_KERNELS_SORT_CUH
#define DFGNN_KERNELS_SORT_CUH

#include "kernels/common/look_back.cuh"
#include "kernels/common/rank.cuh"
#include "kernels/common/sort_params.h"
#include "kernels/common/unroll.cuh"

namespace dfgnn {

constexpr int kSortThreads = DFGNN_SORT_THREADS;
constexpr int kSortWarps = kSortThreads / 32;

/* The word of a count or state that is as wide as T. */
template <typename T> struct word_of;
template <> struct word_of<int32_t> { using type = uint32_t; };
template <> struct word_of<int64_t> { using type = ull; };

/* The two highest bits of a state say which sum the others hold; 0: none yet.
 */
template <typename S> struct State {
  static constexpr int kShift = sizeof(S) * 8 - 2;
  static constexpr S kValue = (S(1) << kShift) - 1;
  static constexpr S kOwn = S(1) << kShift; /* of the tile alone */
  static constexpr S kAll = S(2) << kShift; /* of all tiles up to it */
};

/* C: the width of counts. */
template <int BITS, typename C>
__global__ void __launch_bounds__(DFGNN_HISTOGRAM_THREADS)
    sort_histogram(const __grid_constant__ dfgnn_sort_histogram h) {
  using S = typename word_of<C>::type;
  constexpr int kRadix = 1 << BITS, kThreads = DFGNN_HISTOGRAM_THREADS;
  constexpr int kItems = DFGNN_HISTOGRAM_ITEMS;
  __shared__ uint32_t count[DFGNN_SORT_MOST_PASSES][kRadix];
  for (int i = threadIdx.x; i < h.passes * kRadix; i += kThreads)
    count[i / kRadix][i % kRadix] = 0;
  __syncthreads();
  const uint32_t mask = (1u << h.digit) - 1;
  for (int64_t tile = int64_t(blockIdx.x) * kThreads * kItems; tile < h.count;
       tile += int64_t(gridDim.x) * kThreads * kItems) {
#pragma unroll 4
    for (int i = 0; i < kItems; i++) {
      const int64_t at = tile + i * kThreads + threadIdx.x;
      const bool real = at < h.count;
      const unsigned lanes = __ballot_sync(~0u, real);
      if (!real)
        continue;
      const uint32_t key = h.key[at];
      for (int p = 0; p < h.passes; p++) {
        const uint32_t d = key >> (p * h.digit) & mask;
        int all; /* do all lanes have the same digit, as in sorted lists? */
        __match_all_sync(lanes, d, &all);
        if (!all)
          atomicAdd(&count[p][d], 1u);
        else if (threadIdx.x % 32 == 0)
          atomicAdd(&count[p][d], uint32_t(__popc(lanes)));
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < h.passes * kRadix; i += kThreads) {
    const uint32_t mine = count[i / kRadix][i % kRadix];
    if (mine)
      atomicAdd(static_cast<S *>(h.histogram) + i, S(mine));
  }
}

/* The number of keys of the tiles before this one that have the digit; kAhead
 * states are loaded at a time.  state: the digit's in tile 0. */
template <int RADIX, typename S>
DEVICE S look_back(const S *state, int64_t tile) {
  constexpr int kAhead = 4;
  S sum = 0;
  int64_t at = tile - 1;
  for (;;) {
    S x[kAhead];
    unroll<kAhead>(
        [&](int k) { x[k] = at >= k ? look(state + (at - k) * RADIX) : 0; });
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      if (!(x[k] >> State<S>::kShift))
        break;
      sum += x[k] & State<S>::kValue;
      if (x[k] & State<S>::kAll)
        return sum;
      at--;
    }
  }
}

/* V: the type of numbers; C: the width of counts. */
template <int BITS, typename V, typename C>
__global__ void __launch_bounds__(kSortThreads, 2)
    sort_pass(const __grid_constant__ dfgnn_sort_pass p) {
  using S = typename word_of<C>::type;
  constexpr int kRadix = 1 << BITS;
  constexpr int kItems =
      sizeof(V) == 8 ? DFGNN_SORT_ITEMS_WIDE : DFGNN_SORT_ITEMS;
  constexpr int kTile = kSortThreads * kItems;
  static_assert(kSortThreads >= kRadix, "a digit has a thread");
  __shared__ union {
    uint32_t count[kSortWarps][kRadix];
    uint32_t key[kTile];
    V number[kTile];
  } s;
  __shared__ uint32_t start[kRadix]; /* first position of a digit in the tile */
  __shared__ S base[kRadix];         /* its first in the result less start */
  /* The compiler sums these arrays by loads of four words.  They are aligned so
   * that no load begins in the array before, which racecheck would report. */
  __shared__ __align__(16) uint32_t part[kSortWarps];
  __shared__ __align__(16) S wide_part[kSortWarps];

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int digit = threadIdx.x;
  const bool has_digit = digit < kRadix;
  const int first = warp * 32 * kItems + lane;
  for (int d = lane; d < kRadix; d += 32)
    s.count[warp][d] = 0;
  const int64_t tile = take_ticket(p.ticket), begin = tile * kTile;
  const int items = int(p.count - begin < kTile ? p.count - begin : kTile);

  /* Positions beyond the end get the highest key, and so come last. */
  uint32_t key[kItems], rank[kItems];
  unroll<kItems>([&](int i) {
    key[i] = first + i * 32 < items ? p.key[begin + first + i * 32] : ~0u;
  });
  rank_in_warp<BITS>(rank, key, p.shift, p.mask, s.count[warp]);
  __syncthreads();

  uint32_t own = 0;
  S before = 0;
  S *state = static_cast<S *>(p.state) + digit;
  if (has_digit) {
    own = sum_warps<kSortWarps, kRadix>(s.count, digit);
    if (tile > 0)
      publish(state + tile * kRadix, State<S>::kOwn | S(own));
  }
  if (tile == 0) { /* the same for all threads of the block */
    const S all = has_digit ? static_cast<const S *>(p.histogram)[digit] : S(0);
    before = sum_before<kSortThreads>(all, wide_part);
    if (has_digit)
      publish(state, State<S>::kAll | (before + S(own)));
  }
  const uint32_t mine = sum_before<kSortThreads>(own, part);
  if (has_digit) {
    start[digit] = mine;
    if (tile > 0) {
      before = look_back<kRadix>(state, tile);
      publish(state + tile * kRadix, State<S>::kAll | (before + S(own)));
    }
    base[digit] = before - S(mine);
  }
  __syncthreads();
  unroll<kItems>([&](int i) {
    const uint32_t d = key[i] >> p.shift & p.mask;
    rank[i] += s.count[warp][d] + start[d];
  });
  V number[kItems];
  unroll<kItems>([&](int i) {
    const int64_t at = begin + first + i * 32;
    number[i] = V(at);
    if (p.number && first + i * 32 < items)
      number[i] = static_cast<const V *>(p.number)[at];
  });
  __syncthreads();

  /* Through shared memory, so that neighbours write to neighbours. */
  unroll<kItems>([&](int i) { s.key[rank[i]] = key[i]; });
  __syncthreads();
  S to[kItems];
  unroll<kItems>([&](int i) {
    const int at = i * kSortThreads + threadIdx.x;
    const uint32_t k = s.key[at];
    to[i] = base[k >> p.shift & p.mask] + S(at);
    if (p.to_key && at < items)
      p.to_key[to[i]] = k;
  });
  __syncthreads();
  unroll<kItems>([&](int i) { s.number[rank[i]] = number[i]; });
  __syncthreads();
  unroll<kItems>([&](int i) {
    const int at = i * kSortThreads + threadIdx.x;
    if (at < items)
      static_cast<V *>(p.to_number)[to[i]] = s.number[at];
  });
}

/* All passes in one block. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    sort_small(const __grid_constant__ dfgnn_sort_small p) {
  constexpr int kBits = DFGNN_SORT_SMALL_BITS, kItems = DFGNN_SORT_ITEMS;
  __shared__ union {
    RankMemory<kBits, kSortThreads> rank;
    uint32_t item[kSortThreads * kItems];
  } s;
  const int first = threadIdx.x / 32 * 32 * kItems + threadIdx.x % 32;
  uint32_t key[kItems], number[kItems], rank[kItems];
  unroll<kItems>([&](int i) {
    number[i] = first + i * 32;
    key[i] = first + i * 32 < p.count ? p.key[first + i * 32] : ~0u;
  });
  for (int shift = 0; shift < p.bits; shift += kBits) {
    const int left = p.bits - shift;
    const uint32_t mask = (1u << (left < kBits ? left : kBits)) - 1;
    rank_in_block<kBits, kSortThreads>(rank, key, shift, mask, &s.rank);
    __syncthreads();
    unroll<kItems>([&](int i) { s.item[rank[i]] = key[i]; });
    __syncthreads();
    unroll<kItems>([&](int i) { key[i] = s.item[first + i * 32]; });
    __syncthreads();
    unroll<kItems>([&](int i) { s.item[rank[i]] = number[i]; });
    __syncthreads();
    unroll<kItems>([&](int i) { number[i] = s.item[first + i * 32]; });
    __syncthreads();
  }
  unroll<kItems>([&](int i) {
    if (first + i * 32 < p.count) {
      if (p.to_key)
        p.to_key[first + i * 32] = key[i];
      p.to_number[first + i * 32] = int32_t(number[i]);
    }
  });
}

} // namespace dfgnn

#endif
