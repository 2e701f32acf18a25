/* analyze.cu - validation and signature of a graph in device memory, by the
 * definitions of lib/signature.h */
#include <climits>

#include "kernels/common/device_graph.h"
#include "lib/signature.h"

namespace {

using ull = unsigned long long;

constexpr int kThreads = 256;
constexpr int kGroup = 8;      /* lanes that walk edges together */
constexpr int kChunk = 256;    /* edges of a group */
constexpr int kDigitBits = 11; /* of one pass of the radix selection */
constexpr int kDigits = 1 << kDigitBits;
constexpr int kPasses = 4;  /* 44 bits of degree */
constexpr int kTargets = 3; /* percentiles */
constexpr int kHashSlots = 2 * DFGNN_REUSE_EDGES;
constexpr ull kNone = ~0ull;

struct Selection {
  ull prefix[kTargets], rank[kTargets];
  unsigned ticket;
  unsigned histogram[kTargets][kDigits];
};

/* The workspace.  span_end holds the largest column of each row, then its
 * prefix maximum; span_begin, from the last row to the first, minus the
 * smallest column, then its prefix maximum. */
struct Workspace {
  dfgnn_graph_counts *counts;
  Selection *selection;
  int64_t *graph_ptr;
  int32_t *span_end, *span_begin, *last_cut, *block_begin;
  void *scan;
  size_t scan_bytes, total;
};

template <class T> T *carve(char *base, size_t &at, size_t count) {
  T *p = reinterpret_cast<T *>(base + at);
  at += (count * sizeof(T) + 255) & ~size_t(255);
  return p;
}

bool finds_blocks(const dfgnn_matrix *m, int64_t graphs) {
  return graphs > 0 ||
         (m->destinations == m->sources && m->destinations > 0 && m->edges > 0);
}

Workspace layout(const dfgnn_matrix *m, int64_t graphs, void *base) {
  Workspace w = {};
  size_t at = 0;
  char *b = static_cast<char *>(base);
  w.counts = carve<dfgnn_graph_counts>(b, at, 1);
  w.selection = carve<Selection>(b, at, 1);
  w.graph_ptr = carve<int64_t>(b, at, graphs > 0 ? graphs + 1 : 0);
  if (finds_blocks(m, graphs)) {
    size_t n = size_t(m->destinations);
    w.span_end = carve<int32_t>(b, at, n);
    w.span_begin = carve<int32_t>(b, at, n);
    if (graphs <= 0) {
      w.last_cut = carve<int32_t>(b, at, n);
      w.block_begin = carve<int32_t>(b, at, n);
      dfgnn__cuda_scan_max(nullptr, &w.scan_bytes, w.span_end, w.span_end,
                           m->destinations, nullptr);
      w.scan = carve<char>(b, at, w.scan_bytes);
    }
  }
  w.total = at;
  return w;
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

template <class O>
__global__ void __launch_bounds__(kThreads)
    offsets_kernel(const O *offsets, int64_t n, int64_t m, int64_t edges,
                   Workspace w) {
  __shared__ unsigned bins[DFGNN_HISTOGRAM_BINS];
  if (threadIdx.x < DFGNN_HISTOGRAM_BINS)
    bins[threadIdx.x] = 0;
  __syncthreads();
  dfgnn_graph_counts *c = w.counts;
  ull hash = 0, squares = 0, largest = 0, bad = kNone;
  int64_t first = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (first == 0)
    hash = dfgnn__mix(uint64_t(n)) + dfgnn__mix(~uint64_t(m));
  for (int64_t i = first; i <= n; i += int64_t(gridDim.x) * kThreads) {
    int64_t begin = offsets[i];
    hash += dfgnn__offset_term(uint64_t(i), uint64_t(begin));
    if (i == n)
      break;
    if (w.span_end) {
      w.span_end[i] = -1;
      w.span_begin[n - 1 - i] = INT_MIN;
    }
    int64_t end = offsets[i + 1];
    if (begin < 0 || end < begin || end > edges || (i == 0 && begin != 0) ||
        (i == n - 1 && end != edges)) {
      bad = min(bad, ull(i));
      continue;
    }
    ull degree = ull(end - begin);
    int bin = degree == 0 ? 0 : 64 - __clzll(degree);
    atomicAdd(&bins[min(bin, DFGNN_HISTOGRAM_BINS - 1)], 1u);
    squares += degree * degree;
    largest = max(largest, degree);
  }
  block_add(as_ull(&c->fingerprint), hash);
  block_add(as_ull(&c->sum_squares), squares);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0 && largest)
    atomicMax(as_ull(&c->max_degree), largest);
  if (bad != kNone)
    atomicMin(as_ull(&c->bad_offset_row), bad);
  if (threadIdx.x < DFGNN_HISTOGRAM_BINS && bins[threadIdx.x])
    atomicAdd(as_ull(&c->histogram[threadIdx.x]), ull(bins[threadIdx.x]));
}

/* One pass of a radix selection for the three percentiles; the last block to
 * finish picks the digits. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    select_kernel(const O *offsets, int64_t n, int shift, Workspace w) {
  __shared__ unsigned bins[kTargets][kDigits];
  __shared__ bool last;
  Selection *s = w.selection;
  if (w.counts->bad_offset_row != kNone)
    return;
  if (shift > 0 && (w.counts->max_degree >> shift) == 0)
    return;
  for (int i = threadIdx.x; i < kTargets * kDigits; i += kThreads)
    (&bins[0][0])[i] = 0;
  __syncthreads();
  ull prefix[kTargets];
  for (int t = 0; t < kTargets; t++)
    prefix[t] = s->prefix[t];
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += int64_t(gridDim.x) * kThreads) {
    ull degree = ull(offsets[i + 1] - offsets[i]);
    int digit = int(degree >> shift) & (kDigits - 1);
    for (int t = 0; t < kTargets; t++)
      if ((degree >> shift >> kDigitBits) == prefix[t])
        atomicAdd(&bins[t][digit], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTargets * kDigits; i += kThreads)
    if ((&bins[0][0])[i])
      atomicAdd(&(&s->histogram[0][0])[i], (&bins[0][0])[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    last = atomicAdd(&s->ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last)
    return;
  __threadfence();
  int t = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (t < kTargets) {
    constexpr int kShare = kDigits / 32;
    const volatile unsigned *h = s->histogram[t];
    ull mine = 0;
    for (int i = 0; i < kShare; i++)
      mine += h[lane * kShare + i];
    ull before = mine;
    for (int d = 1; d < 32; d *= 2) {
      ull x = __shfl_up_sync(~0u, before, d);
      before += lane >= d ? x : 0;
    }
    before -= mine;
    ull rank = s->rank[t];
    __syncwarp();
    if (rank >= before && rank < before + mine) {
      int digit = lane * kShare;
      for (; rank >= before + h[digit]; digit++)
        before += h[digit];
      s->rank[t] = rank - before;
      s->prefix[t] = (prefix[t] << kDigitBits) | ull(digit);
      if (shift == 0)
        w.counts->percentile[t] = s->prefix[t];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTargets * kDigits; i += kThreads)
    (&s->histogram[0][0])[i] = 0;
  if (threadIdx.x == 0)
    s->ticket = 0;
}

/* Eight lanes walk 256 consecutive edges, row by row. */
template <class O>
__global__ void __launch_bounds__(kThreads)
    edges_kernel(const O *offsets, const int32_t *indices, int64_t n, int64_t m,
                 int64_t edges, Workspace w) {
  dfgnn_graph_counts *c = w.counts;
  if (c->bad_offset_row != kNone)
    return;
  const int lane = threadIdx.x % kGroup;
  const unsigned group_mask = ((1u << kGroup) - 1)
                              << (threadIdx.x % 32 / kGroup * kGroup);
  int64_t group = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kGroup;
  int64_t e = group * kChunk, stop = min(e + kChunk, edges);
  ull hash = 0;
  int64_t row = e < stop ? row_of_edge(offsets, 0, n, e) : 0;
  while (e < stop) {
    int64_t row_end = offsets[row + 1], end = min(row_end, stop);
    int low = INT_MAX, high = -1;
    for (int64_t k = e + lane; k < end; k += kGroup) {
      int j = indices[k];
      hash += dfgnn__index_term(uint64_t(k), uint64_t(uint32_t(j)));
      if (j < 0 || j >= m) {
        atomicMin(as_ull(&c->bad_index_row), ull(row));
        atomicMin(as_ull(&c->bad_index_edge), ull(k));
      }
      low = min(low, j);
      high = max(high, j);
    }
    if (w.span_end) {
      for (int d = kGroup / 2; d > 0; d /= 2) {
        low = min(low, __shfl_xor_sync(group_mask, low, d));
        high = max(high, __shfl_xor_sync(group_mask, high, d));
      }
      if (lane == 0) {
        atomicMax(&w.span_end[row], high);
        atomicMax(&w.span_begin[n - 1 - row], -low);
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
__global__ void __launch_bounds__(kThreads)
    reuse_kernel(const O *offsets, const int32_t *indices, int64_t n,
                 Workspace w) {
  __shared__ int slot[kHashSlots];
  if (w.counts->bad_offset_row != kNone)
    return;
  for (int i = threadIdx.x; i < kHashSlots; i += kThreads)
    slot[i] = -1;
  __syncthreads();
  int64_t windows = (n + 15) / 16;
  int64_t window = int64_t(blockIdx.x) * windows / gridDim.x;
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
__global__ void __launch_bounds__(kThreads)
    locality_kernel(const O *offsets, const int32_t *indices, int64_t n,
                    int64_t m, int64_t samples, Workspace w) {
  if (w.counts->bad_offset_row != kNone)
    return;
  int64_t k = int64_t(blockIdx.x) * kThreads + threadIdx.x;
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

/* graph_ptr was given: does an edge leave the block of its row? */
__global__ void __launch_bounds__(kThreads)
    inside_kernel(int64_t n, int64_t graphs, Workspace w) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n || w.counts->bad_offset_row != kNone || w.span_end[i] < 0)
    return;
  int64_t g = row_of_edge(w.graph_ptr, 0, graphs, i);
  if (w.span_end[i] >= w.graph_ptr[g + 1] ||
      -int64_t(w.span_begin[n - 1 - i]) < w.graph_ptr[g])
    atomicMin(as_ull(&w.counts->bad_block_row), ull(i));
}

/* Both spans are prefix maxima here. */
__device__ bool may_cut(const Workspace &w, int64_t n, int64_t i) {
  return i <= 0 || i >= n ||
         (w.span_end[i - 1] < i && w.span_begin[n - 1 - i] <= -i);
}

/* last_cut[i]: the last row up to i that may begin a block. */
__global__ void __launch_bounds__(kThreads)
    may_cut_kernel(int64_t n, Workspace w) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n)
    w.last_cut[i] = may_cut(w, n, i) ? int32_t(i) : 0;
}

/* Does a block begin at row i?  Consecutive isolated rows stay together. */
template <class O>
__device__ bool begins(const O *offsets, const Workspace &w, int64_t n,
                       int64_t i) {
  if (i <= 0 || i >= n)
    return true;
  return may_cut(w, n, i) && !(offsets[i + 1] == offsets[i] &&
                               offsets[w.last_cut[i - 1]] == offsets[i]);
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    begin_kernel(const O *offsets, int64_t n, Workspace w) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n)
    w.block_begin[i] = begins(offsets, w, n, i) ? int32_t(i) : 0;
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(const O *offsets, int64_t n, Workspace w) {
  ull blocks = 0, largest = 0, squared = 0;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x + 1; i <= n;
       i += int64_t(gridDim.x) * kThreads) {
    if (!begins(offsets, w, n, i))
      continue;
    ull size = ull(i - w.block_begin[i - 1]);
    blocks++;
    largest = max(largest, size);
    squared += size * size;
  }
  block_add(as_ull(&w.counts->blocks), blocks);
  block_add(as_ull(&w.counts->squared_blocks), squared);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0 && largest)
    atomicMax(as_ull(&w.counts->largest_block), largest);
}

int blocks_for(int64_t count, int64_t share) {
  int64_t blocks = (count + share - 1) / share;
  return int(blocks < 1 ? 1 : blocks);
}

cudaError_t start(const dfgnn_matrix *m, int64_t graphs,
                  const int64_t *graph_ptr, const Workspace &w,
                  cudaStream_t stream) {
  dfgnn_graph_counts counts = {};
  counts.bad_offset_row = counts.bad_index_row = counts.bad_index_edge =
      counts.bad_block_row = kNone;
  Selection s = {};
  const double share[kTargets] = {0.5, 0.9, 0.99};
  for (int t = 0; t < kTargets && m->destinations > 0; t++)
    s.rank[t] = ull(share[t] * double(m->destinations - 1));
  cudaError_t e = cudaMemcpyAsync(w.counts, &counts, sizeof counts,
                                  cudaMemcpyHostToDevice, stream);
  if (e == cudaSuccess)
    e = cudaMemcpyAsync(w.selection, &s, sizeof s, cudaMemcpyHostToDevice,
                        stream);
  if (e == cudaSuccess && graphs > 0)
    e = cudaMemcpyAsync(w.graph_ptr, graph_ptr,
                        size_t(graphs + 1) * sizeof(int64_t),
                        cudaMemcpyHostToDevice, stream);
  return e;
}

cudaError_t prefix_max(int32_t *array, int64_t n, Workspace &w,
                       cudaStream_t stream) {
  return dfgnn__cuda_scan_max(w.scan, &w.scan_bytes, array, array, n, stream);
}

template <class O>
cudaError_t find_blocks(const O *offsets, int64_t n, int wide, int few,
                        Workspace &w, cudaStream_t stream) {
  cudaError_t e = prefix_max(w.span_end, n, w, stream);
  if (e == cudaSuccess)
    e = prefix_max(w.span_begin, n, w, stream);
  if (e != cudaSuccess)
    return e;
  may_cut_kernel<<<wide, kThreads, 0, stream>>>(n, w);
  e = prefix_max(w.last_cut, n, w, stream);
  if (e != cudaSuccess)
    return e;
  begin_kernel<<<wide, kThreads, 0, stream>>>(offsets, n, w);
  e = prefix_max(w.block_begin, n, w, stream);
  if (e != cudaSuccess)
    return e;
  blocks_kernel<<<few, kThreads, 0, stream>>>(offsets, n, w);
  return cudaGetLastError();
}

template <class O>
cudaError_t run(const dfgnn_matrix *m, int64_t graphs, const int64_t *graph_ptr,
                int units, Workspace w, cudaStream_t stream) {
  const O *offsets = static_cast<const O *>(m->offsets);
  const int64_t n = m->destinations, edges = m->edges;
  cudaError_t e = start(m, graphs, graph_ptr, w, stream);
  if (e != cudaSuccess)
    return e;
  const int wide = blocks_for(n + 1, kThreads);
  const int few = wide < 4 * units ? wide : 4 * units;
  offsets_kernel<<<few, kThreads, 0, stream>>>(offsets, n, m->sources, edges,
                                               w);
  if (n == 0)
    return cudaGetLastError();
  for (int pass = kPasses - 1; pass >= 0; pass--)
    select_kernel<<<few, kThreads, 0, stream>>>(offsets, n, pass * kDigitBits,
                                                w);
  if (edges > 0) {
    edges_kernel<<<blocks_for(edges, kChunk * (kThreads / kGroup)), kThreads, 0,
                   stream>>>(offsets, m->indices, n, m->sources, edges, w);
    int64_t windows = (n + 15) / 16;
    reuse_kernel<<<int(windows < DFGNN_REUSE_WINDOWS ? windows
                                                     : DFGNN_REUSE_WINDOWS),
                   kThreads, 0, stream>>>(offsets, m->indices, n, w);
    int64_t samples = n < DFGNN_LOCALITY_ROWS ? n : DFGNN_LOCALITY_ROWS;
    locality_kernel<<<blocks_for(samples, kThreads), kThreads, 0, stream>>>(
        offsets, m->indices, n, m->sources, samples, w);
  }
  if (graphs > 0) {
    inside_kernel<<<wide, kThreads, 0, stream>>>(n, graphs, w);
  } else if (w.block_begin) {
    return find_blocks(offsets, n, wide, few, w, stream);
  }
  return cudaGetLastError();
}

} /* namespace */

extern "C" size_t dfgnn__cuda_analyze_bytes(const dfgnn_matrix *matrix,
                                            int64_t graphs) {
  return layout(matrix, graphs, nullptr).total;
}

extern "C" cudaError_t dfgnn__cuda_analyze(const dfgnn_matrix *matrix,
                                           int64_t graphs,
                                           const int64_t *graph_ptr, int units,
                                           void *workspace,
                                           cudaStream_t stream) {
  Workspace w = layout(matrix, graphs, workspace);
  return matrix->offsets64
             ? run<int64_t>(matrix, graphs, graph_ptr, units, w, stream)
             : run<int32_t>(matrix, graphs, graph_ptr, units, w, stream);
}
