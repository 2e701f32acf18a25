/* analyze.cuh - validation and signature of a graph in device memory, by the
 * definitions of lib/signature.h */
#ifndef DFGNN_KERNELS_ANALYZE_CUH
#define DFGNN_KERNELS_ANALYZE_CUH

#include "kernels/common/fingerprint.h"
#include "kernels/common/graph_params.h"

namespace dfgnn {

using ull = unsigned long long;

constexpr int kThreads = DFGNN_GRAPH_THREADS;
constexpr int kGroup = DFGNN_ANALYZE_GROUP;
constexpr int kChunk = DFGNN_ANALYZE_CHUNK;
constexpr int kTargets = 3; /* percentiles */
constexpr int kExact = DFGNN_DEGREE_EXACT;
constexpr int kDigits = kExact; /* counters of a pass over the long rows */
constexpr int kShares = DFGNN_DEGREE_SHARES;
constexpr int kExactBits = DFGNN_DEGREE_EXACT_BITS;
constexpr int kCodes = DFGNN_DEGREE_CODES;
constexpr int kHashSlots = 2 * DFGNN_REUSE_EDGES;
constexpr int kLeast = -INT32_MAX - 1;

__device__ bool list_refused(const dfgnn_graph_counts *c) {
  return c->list.bad_dst || c->list.bad_src || c->list.unsorted;
}

/* Do the offsets lead out of bounds, or were they made of a bad edge list? */
__device__ bool refused(const dfgnn_graph_counts *c) {
  return c->bad_offset_row || list_refused(c);
}

__device__ ull warp_sum(ull x) {
  for (int d = 16; d > 0; d /= 2)
    x += __shfl_xor_sync(~0u, x, d);
  return x;
}

__device__ ull warp_max(ull x) {
  for (int d = 16; d > 0; d /= 2)
    x = max(x, __shfl_xor_sync(~0u, x, d));
  return x;
}

__device__ void block_add(ull *to, ull x) {
  __shared__ ull part[kThreads / 32];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0)
    part[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kThreads / 32; i++)
      x += part[i];
    if (x)
      atomicAdd(to, x);
  }
  __syncthreads();
}

__device__ ull *as_ull(uint64_t *p) { return reinterpret_cast<ull *>(p); }

/* The last row that begins at or before edge e: it holds e. */
template <class O>
__device__ int64_t row_of_edge(const O *offsets, int64_t low, int64_t n,
                               int64_t e) {
  int64_t high = n;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (int64_t(offsets[middle]) <= e)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* The counter of a degree: its own below kExact; beyond, an octave of degrees
 * has kShares counters. */
__device__ int code_of(ull degree) {
  if (degree < kExact)
    return int(degree);
  int octave = 63 - __clzll(degree);
  return kExact + (octave - kExactBits) * kShares +
         int(degree >> (octave - 5) & (kShares - 1));
}

__device__ ull first_of_code(int code) {
  return ull(dfgnn__first_of_code(code));
}

/* Called by a warp: returns the counter that the rank falls in, or -1, and
 * makes *rank the rank within that counter. */
__device__ int counter_of_rank(const unsigned *counters, int count, ull *rank) {
  const int lane = threadIdx.x % 32, share = (count + 31) / 32;
  const int first = min(lane * share, count), end = min(first + share, count);
  ull mine = 0, within = 0;
  int found = -1;
  for (int i = first; i < end; i++)
    mine += counters[i];
  ull before = mine;
  for (int d = 1; d < 32; d *= 2) {
    ull x = __shfl_up_sync(~0u, before, d);
    before += lane >= d ? x : 0;
  }
  before -= mine;
  if (*rank >= before && *rank < before + mine) {
    for (found = first; *rank >= before + counters[found]; found++)
      before += counters[found];
    within = *rank - before;
  }
  const unsigned who = __ballot_sync(~0u, found >= 0);
  if (!who)
    return -1;
  *rank = __shfl_sync(~0u, within, __ffs(who) - 1);
  return __shfl_sync(~0u, found, __ffs(who) - 1);
}

/* Called by a block: finds, digit by digit, the degree at a rank among the rows
 * that one counter has. */
__device__ ull select_heavy(const dfgnn_analysis &w, int code, ull rank,
                            unsigned *digits) {
  __shared__ ull chosen, left;
  const ull least = first_of_code(code);
  const int bits = kExactBits + (code - kExact) / kShares - 5;
  const int64_t count = min(int64_t(w.degrees->heavy), w.heavy_capacity);
  ull prefix = 0;
  for (int shift = (bits - 1) / kExactBits * kExactBits; shift >= 0;
       shift -= kExactBits) {
    for (int i = threadIdx.x; i < kDigits; i += kThreads)
      digits[i] = 0;
    __syncthreads();
    for (int64_t k = threadIdx.x; k < count; k += kThreads) {
      const ull degree = __ldcg(as_ull(w.heavy) + k), above = degree - least;
      if (code_of(degree) == code && (above >> shift >> kExactBits) == prefix)
        atomicAdd(&digits[above >> shift & (kDigits - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      const int digit = counter_of_rank(digits, kDigits, &rank);
      if (threadIdx.x == 0) {
        chosen = prefix << kExactBits | ull(max(digit, 0));
        left = rank;
      }
    }
    __syncthreads();
    prefix = chosen;
    rank = left;
    __syncthreads();
  }
  return least + prefix;
}

/* The last block to finish makes histogram and percentiles. */
__device__ void select_degrees(const dfgnn_analysis &w, int64_t n,
                               unsigned *counters) {
  __shared__ int code[kTargets];
  __shared__ ull rank[kTargets], bins[DFGNN_HISTOGRAM_BINS];
  const double share[kTargets] = {0.5, 0.9, 0.99};
  const int t = threadIdx.x / 32;
  if (threadIdx.x < DFGNN_HISTOGRAM_BINS)
    bins[threadIdx.x] = 0;
#pragma unroll 5
  for (int i = threadIdx.x; i < kCodes; i += kThreads)
    counters[i] = __ldcg(w.degrees->rows + i);
  __syncthreads();
  for (int i = threadIdx.x; i < kCodes; i += kThreads) {
    if (counters[i] == 0)
      continue;
    ull degree = first_of_code(i);
    int bin = degree == 0 ? 0 : 64 - __clzll(degree);
    atomicAdd(&bins[min(bin, DFGNN_HISTOGRAM_BINS - 1)], ull(counters[i]));
  }
  if (t < kTargets) {
    ull r = ull(share[t] * double(n - 1));
    int c = counter_of_rank(counters, kCodes, &r);
    if (threadIdx.x % 32 == 0) {
      code[t] = c;
      rank[t] = r;
    }
  }
  __syncthreads();
  if (threadIdx.x < DFGNN_HISTOGRAM_BINS)
    w.counts->histogram[threadIdx.x] = bins[threadIdx.x];
  for (int k = 0; k < kTargets; k++) {
    ull degree = code[k] < kExact ? ull(max(code[k], 0))
                                  : select_heavy(w, code[k], rank[k], counters);
    if (threadIdx.x == 0)
      w.counts->percentile[k] = degree;
  }
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    analyze_offsets(const __grid_constant__ dfgnn_analysis w) {
  const O *offsets = static_cast<const O *>(w.offsets);
  const int64_t n = w.rows, m = w.columns, edges = w.edges;
  __shared__ unsigned counters[kCodes];
  __shared__ bool last;
  dfgnn_graph_counts *c = w.counts;
  if (list_refused(c))
    return;
  for (int i = threadIdx.x; i < kCodes; i += kThreads)
    counters[i] = 0;
  __syncthreads();
  ull hash = 0, squares = 0, largest = 0, bad = 0;
  int64_t first = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t j = first; j < m; j += int64_t(gridDim.x) * kThreads)
    w.column_degree[j] = 0;
  if (first == 0)
    hash = dfgnn__mix(uint64_t(n)) + dfgnn__mix(~uint64_t(m));
  for (int64_t i = first; i <= n; i += int64_t(gridDim.x) * kThreads) {
    int64_t begin = offsets[i];
    hash += dfgnn__offset_term(uint64_t(i), uint64_t(begin));
    if (i == n)
      break;
    if (w.high) {
      w.high[i] = -1;
      w.low[i] = kLeast;
    }
    int64_t end = offsets[i + 1];
    if (begin < 0 || end < begin || end > edges || (i == 0 && begin != 0) ||
        (i == n - 1 && end != edges)) {
      bad = max(bad, ~ull(i));
      continue;
    }
    ull degree = ull(end - begin);
    atomicAdd(&counters[code_of(degree)], 1u);
    if (degree >= kExact) {
      unsigned at = atomicAdd(&w.degrees->heavy, 1u);
      if (at < w.heavy_capacity)
        w.heavy[at] = degree;
    }
    squares += degree * degree;
    largest = max(largest, degree);
  }
  block_add(as_ull(&c->fingerprint), hash);
  block_add(as_ull(&c->sum_squares), squares);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0 && largest)
    atomicMax(as_ull(&c->max_degree), largest);
  if (bad)
    atomicMax(as_ull(&c->bad_offset_row), bad);
  for (int i = threadIdx.x; i < kCodes; i += kThreads)
    if (counters[i])
      atomicAdd(&w.degrees->rows[i], counters[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    last = atomicAdd(&w.degrees->tickets[0], 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last)
    return;
  __threadfence();
  if (n > 0 && !__ldcg(as_ull(&c->bad_offset_row)))
    select_degrees(w, n, counters);
}

/* Eight lanes walk 256 consecutive edges, row by row. */
template <class O>
__device__ void walk_edges(int64_t block, const O *offsets,
                           const int32_t *indices, int64_t n, int64_t m,
                           int64_t edges, const dfgnn_analysis &w) {
  dfgnn_graph_counts *c = w.counts;
  const int lane = threadIdx.x % kGroup;
  const unsigned group_mask = ((1u << kGroup) - 1)
                              << (threadIdx.x % 32 / kGroup * kGroup);
  int64_t group = (block * kThreads + threadIdx.x) / kGroup;
  int64_t e = group * kChunk, stop = min(e + kChunk, edges);
  ull hash = 0;
  int64_t row = e < stop ? row_of_edge(offsets, 0, n, e) : 0;
  while (e < stop) {
    int64_t row_end = offsets[row + 1], end = min(row_end, stop);
    int low = INT32_MAX, high = -1;
    for (int64_t k = e + lane; k < end; k += kGroup) {
      int j = indices[k];
      hash += dfgnn__index_term(uint64_t(k), uint64_t(uint32_t(j)));
      if (j < 0 || j >= m) {
        atomicMax(as_ull(&c->bad_index_row), ~ull(row));
        atomicMax(as_ull(&c->bad_index_edge), ~ull(k));
      } else {
        atomicAdd(&w.column_degree[j], 1u);
      }
      low = min(low, j);
      high = max(high, j);
    }
    if (w.high) {
      for (int d = kGroup / 2; d > 0; d /= 2) {
        low = min(low, __shfl_xor_sync(group_mask, low, d));
        high = max(high, __shfl_xor_sync(group_mask, high, d));
      }
      if (lane == 0) {
        atomicMax(&w.high[row], high);
        atomicMax(&w.low[row], -low);
      }
    }
    e = end;
    if (e < stop) {
      row++;
      if (int64_t(offsets[row + 1]) <= e)
        row = row_of_edge(offsets, row, n, e);
    }
  }
  block_add(as_ull(&c->fingerprint), hash);
}

template <class O>
__device__ void sample_reuse(int block, int blocks, const O *offsets,
                             const int32_t *indices, int64_t n,
                             const dfgnn_analysis &w) {
  __shared__ int slot[kHashSlots];
  for (int i = threadIdx.x; i < kHashSlots; i += kThreads)
    slot[i] = -1;
  __syncthreads();
  int64_t windows = (n + 15) / 16;
  int64_t window = int64_t(block) * windows / blocks;
  int64_t begin = offsets[window * 16];
  int64_t end = offsets[min(window * 16 + 16, n)];
  end = min(end, begin + DFGNN_REUSE_EDGES);
  ull distinct = 0;
  for (int64_t e = begin + threadIdx.x; e < end; e += kThreads) {
    int j = indices[e];
    if (j < 0)
      continue;
    unsigned at = (unsigned(j) * 2654435761u) % kHashSlots;
    for (;; at = (at + 1) % kHashSlots) {
      int old = atomicCAS(&slot[at], -1, j);
      distinct += old == -1;
      if (old == -1 || old == j)
        break;
    }
  }
  block_add(as_ull(&w.counts->reuse_distinct), distinct);
  if (threadIdx.x == 0)
    atomicAdd(as_ull(&w.counts->reuse_edges), ull(end - begin));
}

template <class O>
__device__ void sample_locality(int block, const O *offsets,
                                const int32_t *indices, int64_t n, int64_t m,
                                int64_t samples, const dfgnn_analysis &w) {
  int64_t k = int64_t(block) * kThreads + threadIdx.x;
  ull taken = 0, hits = 0;
  if (k < samples) {
    int64_t i = k * n / samples, begin = offsets[i];
    int64_t degree = int64_t(offsets[i + 1]) - begin;
    if (degree > 0) {
      int64_t at[2] = {begin, begin + degree / 2},
              centre = int64_t(double(i) * double(m) / double(n));
      for (int64_t e : at) {
        taken++;
        hits += llabs(centre - indices[e]) <= DFGNN_LOCALITY_SPAN;
      }
    }
  }
  block_add(as_ull(&w.counts->local_samples), taken);
  block_add(as_ull(&w.counts->local_hits), hits);
}

/* The first blocks take the samples, the others walk. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    analyze_edges(const __grid_constant__ dfgnn_analysis w) {
  const O *offsets = static_cast<const O *>(w.offsets);
  const int32_t *indices = w.indices;
  const int64_t n = w.rows, m = w.columns, edges = w.edges;
  const int windows = w.windows, samples = w.samples;
  if (refused(w.counts))
    return;
  const int sampling = windows + (samples + kThreads - 1) / kThreads;
  const int block = blockIdx.x;
  if (block < windows)
    sample_reuse(block, windows, offsets, indices, n, w);
  else if (block < sampling)
    sample_locality(block - windows, offsets, indices, n, m, samples, w);
  else
    walk_edges(int64_t(block) - sampling, offsets, indices, n, m, edges, w);
}

/* The last block to finish finds percentiles of the columns' degrees. */
__device__ void select_columns(const dfgnn_analysis &w, unsigned *counters) {
  const double share[2] = {0.5, 0.99};
  const int t = threadIdx.x / 32;
  for (int i = threadIdx.x; i < kCodes; i += kThreads)
    counters[i] = __ldcg(w.degrees->columns + i);
  __syncthreads();
  if (threadIdx.x == 0)
    w.counts->isolated_sources = counters[0];
  if (t < 2) {
    ull rank = ull(share[t] * double(w.columns - 1));
    int code = counter_of_rank(counters, kCodes, &rank);
    if (threadIdx.x % 32 == 0)
      w.counts->source_percentile[t] = first_of_code(max(code, 0));
  }
}

/* Counts the degrees of columns, once the edges have been walked. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    analyze_columns(const __grid_constant__ dfgnn_analysis w) {
  __shared__ unsigned counters[kCodes];
  __shared__ bool last;
  dfgnn_graph_counts *c = w.counts;
  if (refused(c))
    return;
  for (int i = threadIdx.x; i < kCodes; i += kThreads)
    counters[i] = 0;
  __syncthreads();
  ull squares = 0, largest = 0;
  for (int64_t j = int64_t(blockIdx.x) * kThreads + threadIdx.x; j < w.columns;
       j += int64_t(gridDim.x) * kThreads) {
    ull degree = w.column_degree[j];
    atomicAdd(&counters[code_of(degree)], 1u);
    squares += degree * degree;
    largest = max(largest, degree);
  }
  block_add(as_ull(&c->source_squares), squares);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0 && largest)
    atomicMax(as_ull(&c->max_source_degree), largest);
  for (int i = threadIdx.x; i < kCodes; i += kThreads)
    if (counters[i])
      atomicAdd(&w.degrees->columns[i], counters[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    last = atomicAdd(&w.degrees->column_ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last)
    return;
  __threadfence();
  select_columns(w, counters);
}

/* graph_ptr was given: does an edge leave the block of its row? */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    analyze_inside(const __grid_constant__ dfgnn_analysis w) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.rows || refused(w.counts) || w.high[i] < 0)
    return;
  int64_t g = row_of_edge(w.graph_ptr, 0, w.graphs, i);
  if (w.high[i] >= w.graph_ptr[g + 1] || -int64_t(w.low[i]) < w.graph_ptr[g])
    atomicMax(as_ull(&w.counts->bad_block_row), ~ull(i));
}

} // namespace dfgnn

#endif
