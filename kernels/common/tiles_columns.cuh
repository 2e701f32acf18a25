/* tiles_columns.cuh - the columns that windows of a fixed height touch
 *
 * A block works on a window.  Where its columns span few nodes, they are marked
 * in a bit map in shared memory, whose prefix counts are their places.  Where
 * they span more, the columns are sorted if shared memory holds the window's
 * edges, else marked panel by panel. */
#ifndef DFGNN_KERNELS_TILES_COLUMNS_CUH
#define DFGNN_KERNELS_TILES_COLUMNS_CUH

#include "kernels/common/rank.cuh"
#include "kernels/common/tiles.cuh"

namespace dfgnn {
namespace tiles {

constexpr int kThreads = DFGNN_COLUMNS_THREADS;
constexpr int kWarps = kThreads / 32;
constexpr int kStretch = DFGNN_COLUMNS_STRETCH;
constexpr int kPanel = DFGNN_COLUMNS_PANEL;
constexpr int kKeys = 8; /* keys that a thread sorts */
constexpr int kSorted = kThreads * kKeys;
constexpr int kSortBits = 8; /* bits of a pass */

struct Panel {
  uint32_t word[kPanel];
  uint16_t before[kPanel]; /* bits of the words before, in a warp's stretch */
  uint32_t base[kWarps];
};

struct Sorted {
  union {
    RankMemory<kSortBits, kThreads> rank;
    uint32_t key[kSorted];
  };
  uint32_t last[kThreads], base[kWarps];
};

union Shared {
  Panel panel;
  Sorted sorted;
  int32_t least[kWarps * 2];
};

__device__ uint32_t warp_inclusive(uint32_t x) {
  const int lane = threadIdx.x % 32;
  for (int d = 1; d < 32; d *= 2) {
    uint32_t below = __shfl_up_sync(~0u, x, d);
    x += lane >= d ? below : 0;
  }
  return x;
}

/* part[w] becomes the sum of the warps before w; the sum of all is returned.
 * The call begins and ends with a barrier. */
__device__ uint32_t scan_warps(uint32_t *part) {
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const uint32_t mine = lane < kWarps ? part[lane] : 0;
  const uint32_t end = warp_inclusive(mine);
  __syncthreads();
  if (threadIdx.x < kWarps)
    part[threadIdx.x] = end - mine;
  __syncthreads();
  return __shfl_sync(~0u, end, 31);
}

__device__ uint32_t block_sum(uint32_t x, uint32_t *part) {
  for (int d = 16; d > 0; d /= 2)
    x += __shfl_xor_sync(~0u, x, d);
  if (threadIdx.x % 32 == 0)
    part[threadIdx.x / 32] = x;
  return scan_warps(part);
}

__device__ void span_of(int32_t *first, int32_t *last, const int32_t *indices,
                        int64_t edges, Shared *s) {
  int32_t low = INT32_MAX, high = 0;
  for_edges<kThreads>(indices, edges, [&](int64_t, int32_t j) {
    low = min(low, j);
    high = max(high, j);
  });
  for (int d = 16; d > 0; d /= 2) {
    low = min(low, __shfl_xor_sync(~0u, low, d));
    high = max(high, __shfl_xor_sync(~0u, high, d));
  }
  if (threadIdx.x % 32 == 0) {
    s->least[threadIdx.x / 32] = low;
    s->least[threadIdx.x / 32 + kWarps] = high;
  }
  __syncthreads();
  for (int k = 0; k < kWarps; k++) {
    low = min(low, s->least[k]);
    high = max(high, s->least[k + kWarps]);
  }
  *first = low;
  *last = high;
  __syncthreads();
}

/* Marks the columns first + 32 * panel ... of the window. */
__device__ void mark(Panel *p, const int32_t *indices, int64_t edges,
                     int32_t first, int64_t panel, int words) {
  for (int i = threadIdx.x; i < words; i += kThreads)
    p->word[i] = 0;
  __syncthreads();
  const uint32_t start = uint32_t(first + panel * 32), bits = 32u * words;
  for_edges<kThreads>(indices, edges, [&](int64_t, int32_t j) {
    const uint32_t at = uint32_t(j) - start; /* huge if below */
    if (at < bits)
      atomicOr(&p->word[at >> 5], 1u << (at & 31));
  });
  __syncthreads();
}

/* Counts the bits before each word; returns the number of all. */
__device__ uint32_t rank(Panel *p, int words) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t running = 0;
  for (int k = 0; k < kStretch && warp * kStretch + k < words; k += 32) {
    const int i = warp * kStretch + k + lane;
    const uint32_t mine = i < words ? __popc(p->word[i]) : 0;
    const uint32_t end = warp_inclusive(mine);
    if (i < words)
      p->before[i] = uint16_t(running + end - mine);
    running += __shfl_sync(~0u, end, 31);
  }
  if (lane == 0)
    p->base[warp] = running;
  return scan_warps(p->base);
}

/* Sorts the keys of all threads, kKeys each, by their lowest bits; a thread
 * then holds the keys from position kKeys * threadIdx.x on. */
__device__ void sort_keys(uint32_t (&key)[kKeys], Sorted *s, int bits) {
  const int first = threadIdx.x / 32 * 32 * kKeys + threadIdx.x % 32;
  uint32_t rank[kKeys];
  for (int shift = 0; shift < bits; shift += kSortBits) {
    const bool last = shift + kSortBits >= bits;
    const uint32_t mask = (1u << (last ? bits - shift : int(kSortBits))) - 1;
    rank_in_block<kSortBits, kThreads>(rank, key, shift, mask, &s->rank);
    __syncthreads();
    unroll<kKeys>([&](int k) { s->key[rank[k]] = key[k]; });
    __syncthreads();
    unroll<kKeys>([&](int k) {
      key[k] = s->key[last ? threadIdx.x * kKeys + k : first + k * 32];
    });
    __syncthreads();
  }
}

/* Sorts the window's columns; s->key becomes the distinct ones, whose number is
 * returned. */
__device__ uint32_t sort_columns(Sorted *s, const int32_t *indices,
                                 int64_t edges, uint32_t sources, int bits) {
  uint32_t key[kKeys], heads = 0;
  unroll<kKeys>([&](int k) {
    const int e = k * kThreads + threadIdx.x;
    key[k] = e < edges ? uint32_t(indices[e]) : sources;
  });
  sort_keys(key, s, bits);
  s->last[threadIdx.x] = key[kKeys - 1];
  __syncthreads();
  uint32_t previous = threadIdx.x > 0 ? s->last[threadIdx.x - 1] : sources;
  unroll<kKeys>([&](int k) {
    const uint32_t mine = key[k];
    heads |= uint32_t(mine != previous && mine != sources) << k;
    previous = mine;
  });
  const uint32_t mine = __popc(heads), end = warp_inclusive(mine);
  if (threadIdx.x % 32 == 31)
    s->base[threadIdx.x / 32] = end;
  const uint32_t distinct = scan_warps(s->base);
  uint32_t at = s->base[threadIdx.x / 32] + end - mine;
  unroll<kKeys>([&](int k) {
    if (heads >> k & 1)
      s->key[at++] = key[k];
  });
  __syncthreads();
  return distinct;
}

/* The place of a column among the distinct ones of s->key. */
__device__ uint32_t place_of(const Sorted *s, uint32_t distinct, uint32_t j) {
  uint32_t low = 0, high = distinct;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    if (s->key[middle] <= j)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ int64_t words_of(const Window &w) {
  return (int64_t(w.last) - w.first) / 32 + 1;
}

template <class O, bool SORTS>
__global__ void __launch_bounds__(kThreads)
    count_columns(const __grid_constant__ dfgnn_count_columns c) {
  __shared__ Shared s;
  const O *offsets = static_cast<const O *>(c.offsets);
  const int32_t *indices = c.indices;
  const int64_t row = int64_t(blockIdx.x) * c.high;
  const int rows = int(min(int64_t(c.high), c.rows - row));
  const int64_t begin = offsets[row], edges = offsets[row + rows] - begin;
  Window w = {int32_t(row), rows, 0, 0, 0, 0};
  indices += begin;
  if (edges > 0) {
    span_of(&w.first, &w.last, indices, edges, &s);
    const int64_t words = words_of(w);
    if (SORTS && words > kPanel && edges <= kSorted) {
      w.columns = int32_t(
          sort_columns(&s.sorted, indices, edges, uint32_t(c.sources), c.bits));
    } else {
      uint32_t mine = 0;
      for (int64_t panel = 0; panel < words; panel += kPanel) {
        const int count = int(min(int64_t(kPanel), words - panel));
        mark(&s.panel, indices, edges, w.first, panel, count);
        for (int i = threadIdx.x; i < count; i += kThreads)
          mine += __popc(s.panel.word[i]);
        __syncthreads();
      }
      w.columns = int32_t(block_sum(mine, s.panel.base));
    }
  }
  if (threadIdx.x == 0) {
    c.windows[blockIdx.x] = w;
    c.chunks[blockIdx.x] = dfgnn__chunks_of(w.columns);
  }
}

template <class O, bool SORTS>
__global__ void __launch_bounds__(kThreads)
    fill_columns(const __grid_constant__ dfgnn_fill_columns f) {
  __shared__ Shared s;
  __shared__ int64_t first[DFGNN_TILE_MOST_ROWS];
  const int high = f.high;
  const Window w = f.windows[blockIdx.x];
  if (w.columns == 0)
    return;
  const int32_t chunk = f.chunk_end[blockIdx.x] - dfgnn__chunks_of(w.columns);
  int32_t *column = f.columns + size_t(chunk) * 32;
  uint32_t *mask = f.masks + size_t(chunk) * size_t(high);
  const Rows<O> rows(static_cast<const O *>(f.offsets), f.indices, w, first);
  const int64_t words = words_of(w);
  bool twice = false;
  if (SORTS && words > kPanel && rows.edges <= kSorted) {
    const uint32_t distinct = sort_columns(&s.sorted, rows.indices, rows.edges,
                                           uint32_t(f.sources), f.bits);
    for (uint32_t k = threadIdx.x; k < distinct; k += kThreads)
      column[k] = int32_t(s.sorted.key[k]);
    for_edges<kThreads>(rows.indices, rows.edges, [&](int64_t e, int32_t j) {
      twice |= set_bit(mask, high, rows.row_of(e),
                       place_of(&s.sorted, distinct, uint32_t(j)));
    });
  } else {
    uint32_t before = 0;
    for (int64_t panel = 0; panel < words; panel += kPanel) {
      const int count = int(min(int64_t(kPanel), words - panel));
      const int32_t start = int32_t(w.first + panel * 32);
      Panel *p = &s.panel;
      mark(p, rows.indices, rows.edges, w.first, panel, count);
      const uint32_t found = rank(p, count);
      for (int i = threadIdx.x; i < count; i += kThreads) {
        uint32_t at = before + p->base[i / kStretch] + p->before[i];
        for (uint32_t left = p->word[i]; left; left &= left - 1)
          column[at++] = start + i * 32 + __ffs(int(left)) - 1;
      }
      for_edges<kThreads>(rows.indices, rows.edges, [&](int64_t e, int32_t j) {
        const uint32_t at = uint32_t(j) - uint32_t(start);
        if (at >= 32u * count)
          return;
        const uint32_t i = at >> 5;
        const uint32_t place = before + p->base[i / kStretch] + p->before[i] +
                               __popc(p->word[i] & ((1u << (at & 31)) - 1));
        twice |= set_bit(mask, high, rows.row_of(e), place);
      });
      before += found;
      __syncthreads();
    }
  }
  for (int k = w.columns + threadIdx.x; k < dfgnn__chunks_of(w.columns) * 32;
       k += kThreads)
    column[k] = w.last;
  if (__syncthreads_or(twice) && threadIdx.x == 0)
    f.windows[blockIdx.x].flags = DFGNN_TILE_DUPLICATES;
}

} /* namespace tiles */
} /* namespace dfgnn */

#endif
