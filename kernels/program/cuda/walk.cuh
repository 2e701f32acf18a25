/* walk.cuh - the walk over rows of the kernels that are made for edge programs
 *
 * generate.c writes a struct for each walk of a program
 * (kernels/program/lower.h): what is loaded, computed and reduced.  This is the
 * skeleton around it: rows over groups of lanes, edges over the sides of a
 * group with U edges in flight. Rows that have too many edges for a group are
 * cut to items, whose states are merged by a block for each row; where edges
 * are looked at in several stages, a block has such a row alone.  Reductions
 * are joined in an order that the launch fixes, so that bits repeat.  A walk
 * has
 *
 * clang-format off
 *   A                     the type of sums
 *   kLanes, kGroup        lanes of a side, and of a row: powers of two to 32
 *   kUnroll, kStages
 *   kCut, kState          the stage that has edges, if it is the only one, else
 *                         -1; numbers that a lane has of its state
 *   kOwnShared, kEdgeShared, kTotals
 *                         numbers in shared memory of a row and of a side;
 *                         numbers that a side sums over everything
 *   prepare()             reads what does not depend on a row
 *   own(stage)            values of the row before its edges are looked at
 *   begin(stage)          the state of its reductions over edges
 *   ends(e), tell()       an edge and its nodes: read, or told by another lane
 *   load(stage, x)        what an edge reads
 *   before(stage, y, x, live)  what raise() looks at
 *   raise(stage, z, y)    brings the state to the maxima of softmaxes that U
 *                         edges need
 *   edge(stage, z, y, x, live)  adds an edge to the state
 *   join(stage, z, how)   gives every number of the state to how.sum or how.max
 *   numbers(stage, z, each)  gives them to each(), in a fixed order
 *   finish(stage, z)      makes values of the row of the state
 *   store(stage)          writes them
 *   total(i)              a number that is summed over everything
 * clang-format on
 */
#ifndef DFGNN_PROGRAM_CUDA_WALK_CUH
#define DFGNN_PROGRAM_CUDA_WALK_CUH

#include "kernels/program/cuda/params.h"
#include "kernels/program/cuda/values.cuh"

namespace dfgnn {
namespace edge_program {

template <int S> struct stage {};

/* An edge, by its number in the graph, and its nodes that are not the row. */
struct edge_ends {
  int64_t id;
  int dst, src, rel;
};

/* Every walk has a position: the row and the edge that it works on. */
template <typename A> struct position {
  const program_walk &p;
  const unsigned long long *arrays;
  int lane;       /* of the side */
  int group_lane; /* of the row */
  A *own_shared, *edge_shared;
  int64_t row;
  int degree;
  bool active; /* is there a row? */
  bool writer; /* is it this side that writes its values? */
  uint64_t seed;

  template <typename T> __device__ __forceinline__ const T *in(int i) const {
    return reinterpret_cast<const T *>(arrays[i]);
  }
  template <typename T> __device__ __forceinline__ T *out(int i) const {
    return reinterpret_cast<T *>(arrays[i]);
  }
  __device__ __forceinline__ void read_seed() {
    seed = p.seed ? *p.seed : p.seed_value;
  }
  __device__ __forceinline__ A far_degree(int place, int64_t far) const {
    const offsets_t offsets = {p.degrees[place], p.wide};
    return static_cast<A>(offsets[far + 1] - offsets[far]);
  }
};

/* ---- joining sides ------------------------------------------------------- */

/* Sides of a group, by shuffles. */
template <typename A, int L, int G> struct join_sides {
  __device__ __forceinline__ void sum(A &x) const {
#pragma unroll
    for (int o = L; o < G; o *= 2)
      x += __shfl_xor_sync(kFullMask, x, o);
  }
  __device__ __forceinline__ void max(A &x) const {
#pragma unroll
    for (int o = L; o < G; o *= 2)
      x = f_max(__shfl_xor_sync(kFullMask, x, o), x);
  }
};

/* The warps of a block, too, through shared memory. */
template <typename A, int L> struct join_block {
  A *memory; /* a number for each thread */
  join_sides<A, L, 32> sides;

  __device__ __forceinline__ A &of(int warp) const {
    return memory[warp * 32 + (threadIdx.x & 31)];
  }
  template <class F>
  __device__ __forceinline__ void over_warps(A &x, const F &add) const {
    __syncthreads();
    of(threadIdx.x / 32) = x;
    __syncthreads();
    A y = of(0);
    for (int w = 1; w < int(blockDim.x / 32); ++w)
      y = add(y, of(w));
    x = y;
  }
  __device__ __forceinline__ void sum(A &x) const {
    sides.sum(x);
    over_warps(x, [](A a, A b) { return a + b; });
  }
  __device__ __forceinline__ void max(A &x) const {
    sides.max(x);
    over_warps(x, [](A a, A b) { return f_max(b, a); });
  }
};

/* ---- a row --------------------------------------------------------------- */

/* The part of some edges that a side takes: from `first` on, `step` apart.
 * It is one of `sides` in its warp that take edges of the row side by side. */
struct share {
  int side, sides;
  int first, step, count;
};

/* Adds N edges of a side, whose leaves are there. */
template <int S, int N, class W, class Z, class X>
__device__ __forceinline__ void add(W &w, Z &z, const X *x, const bool *live) {
  constexpr stage<S> s = {};
  decltype(w.work(s)) y[N];
#pragma unroll
  for (int u = 0; u < N; ++u)
    w.before(s, y[u], x[u], live[u]);
  w.template raise<N>(s, z, y);
#pragma unroll
  for (int u = 0; u < N; ++u)
    w.edge(s, z, y[u], x[u], live[u]);
}

/* Loads and adds the side's next U edges, the first of which is number k;
 * ends(u, e) tells the ends of edge e. */
template <int S, class W, class Z, class F>
__device__ __forceinline__ void add_step(W &w, Z &z, int64_t begin, share part,
                                         int k, const F &ends) {
  constexpr int U = W::kUnroll;
  constexpr stage<S> s = {};
  decltype(w.leaf(s)) x[U];
  bool live[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int at = k + u * part.step;
    live[u] = at < part.count;
    x[u].ends = ends(u, live[u] ? begin + at : 0, live[u]);
  }
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (live[u])
      w.load(s, x[u]);
  if constexpr (W::kEdgeShared == 0) {
    add<S, U>(w, z, x, live);
  } else { /* a side has the memory of one edge */
#pragma unroll
    for (int u = 0; u < U; ++u)
      add<S, 1>(w, z, x + u, live + u);
  }
}

/* The state of a stage after a side's edges.  Each lane of the warp's sides
 * reads the ends of one edge of kLanes steps, ahead of their use, and lanes
 * then tell each other. */
template <int S, class W>
__device__ __forceinline__ auto add_edges(W &w, int64_t begin, share part) {
  constexpr int L = W::kLanes, U = W::kUnroll;
  auto z = w.begin(stage<S>{});
  if constexpr (L % U == 0) {
    const int lane = threadIdx.x & 31, place = lane & (part.sides * L - 1);
    const int mine = part.first - part.side + place % part.sides +
                     place / part.sides * part.step;
    edge_ends next = {};
    if (mine < part.count)
      next = w.ends(begin + mine);
    for (int k = part.first; __any_sync(kFullMask, k < part.count);) {
      const edge_ends here = next;
      const int ahead = mine + (k - part.first) + L * part.step;
      if (ahead < part.count)
        next = w.ends(begin + ahead);
      for (int t = 0; t < L && __any_sync(kFullMask, k < part.count);
           t += U, k += U * part.step)
        add_step<S>(w, z, begin, part, k, [&](int u, int64_t e, bool) {
          return w.tell(here, lane - place + (t + u) * part.sides + part.side,
                        e);
        });
    }
  } else {
    for (int k = part.first; __any_sync(kFullMask, k < part.count);
         k += U * part.step)
      add_step<S>(w, z, begin, part, k, [&](int, int64_t e, bool live) {
        return live ? w.ends(e) : edge_ends{};
      });
  }
  return z;
}

template <int S, class W, class J>
__device__ __forceinline__ void walk_stage(W &w, int64_t begin, share part,
                                           const J &how) {
  if constexpr (S < W::kStages) {
    constexpr stage<S> s = {};
    w.own(s);
    if constexpr (W::has_edges(S)) {
      auto z = add_edges<S>(w, begin, part);
      w.join(s, z, how);
      w.finish(s, z);
    }
    w.store(s);
    walk_stage<S + 1>(w, begin, part, how);
  }
}

template <class W>
__device__ __forceinline__ void place(W &w, typename W::A *memory, int warps) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  w.lane = lane & (W::kLanes - 1);
  w.group_lane = lane & (W::kGroup - 1);
  const int groups = warps * (32 / W::kGroup);
  const int group = warp * (32 / W::kGroup) + lane / W::kGroup;
  const int side = warp * (32 / W::kLanes) + lane / W::kLanes;
  w.own_shared = memory + group * W::kOwnShared;
  w.edge_shared = memory + groups * W::kOwnShared + side * W::kEdgeShared;
}

/* Stores the sums over everything of a warp's sides in the slot of the warp. */
template <class W>
__device__ __forceinline__ void store_totals(W &w, int64_t slot) {
  if constexpr (W::kTotals > 0) {
    typename W::A *to =
        static_cast<typename W::A *>(w.p.partial) + slot * W::kTotals;
    w.totals(to, join_sides<typename W::A, W::kLanes, 32>{},
             (threadIdx.x & 31) < W::kLanes);
  }
}

/* ---- kernels ------------------------------------------------------------- */

/* Rows over groups of lanes; those of more than p.long_row edges are left. */
template <class W>
__device__ __forceinline__ void walk_rows(const program_walk &p,
                                          const unsigned long long *arrays) {
  extern __shared__ __align__(16) char memory[];
  using A = typename W::A;
  constexpr int kRows = 32 / W::kGroup;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
  const offsets_t offsets = {p.offsets, p.wide};
  W w = {{p, arrays}};
  place(w, reinterpret_cast<A *>(memory), warps);
  w.prepare();
  constexpr int kSides = W::kGroup / W::kLanes;
  const int side = w.group_lane / W::kLanes;
  share part = {side, kSides, side, kSides, 0};
  const int64_t step = int64_t(gridDim.x) * warps * kRows;
  for (int64_t unit = (int64_t(blockIdx.x) * warps + warp) * kRows;
       unit < p.rows; unit += step) {
    const int64_t row = unit + (threadIdx.x & 31) / W::kGroup;
    int64_t begin = 0, end = 0;
    w.row = row < p.rows ? row : 0;
    begin = offsets[w.row];
    end = offsets[w.row + 1];
    w.active = row < p.rows && end - begin <= p.long_row;
    w.degree = w.active ? static_cast<int>(end - begin) : 0;
    w.writer = w.active && side == 0;
    part.count = w.degree;
    walk_stage<0>(w, begin, part, join_sides<A, W::kLanes, W::kGroup>{});
  }
  store_totals(w, int64_t(blockIdx.x) * warps + warp);
}

/* A block for each row of more than p.long_row edges, in their order. */
template <class W>
__device__ __forceinline__ void walk_long(const program_walk &p,
                                          const unsigned long long *arrays) {
  extern __shared__ __align__(16) char memory[];
  __shared__ unsigned char is_long[1024];
  using A = typename W::A;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
  const offsets_t offsets = {p.offsets, p.wide};
  W w = {{p, arrays}};
  A *const joined = reinterpret_cast<A *>(memory);
  place(w, joined + blockDim.x, warps);
  w.prepare();
  constexpr int kSides = 32 / W::kLanes;
  const int side = (threadIdx.x & 31) / W::kLanes;
  share part = {side, kSides, warp * kSides + side, warps * kSides, 0};
  const join_block<A, W::kLanes> how = {joined, {}};
  const int64_t round = int64_t(gridDim.x) * blockDim.x;
  for (int64_t first = blockIdx.x; first < p.rows; first += round) {
    const int64_t mine = first + int64_t(threadIdx.x) * gridDim.x;
    __syncthreads();
    is_long[threadIdx.x] =
        mine < p.rows && offsets[mine + 1] - offsets[mine] > p.long_row;
    __syncthreads();
    for (int t = 0; t < int(blockDim.x); ++t) {
      if (!is_long[t])
        continue;
      w.row = first + int64_t(t) * gridDim.x;
      const int64_t begin = offsets[w.row];
      w.degree = static_cast<int>(offsets[w.row + 1] - begin);
      w.active = true;
      w.writer = warp == 0 && side == 0;
      part.count = w.degree;
      walk_stage<0>(w, begin, part, how);
    }
  }
  store_totals(w, p.long_slots + int64_t(blockIdx.x) * warps + warp);
}

/* ---- items of long rows -------------------------------------------------- */

/* The edges are cut to pieces of p.item, and a long row has more than that.  So
 * a piece has edges of two long rows at most, that of its first edge and that
 * of its last: item 2 k is of the first in piece k, item 2 k + 1 of one that
 * begins within it. */
struct item_of_row {
  int64_t row, begin, end; /* no edges: there is no such item */
};

/* The row that has an edge: the last that begins there or before. */
__device__ __forceinline__ int64_t row_of(const program_walk &p,
                                          offsets_t offsets, int64_t edge) {
  int64_t low = 0, high = p.rows;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (offsets[middle] <= edge)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ __forceinline__ item_of_row find_item(const program_walk &p,
                                                 int64_t item) {
  const offsets_t offsets = {p.offsets, p.wide};
  const int64_t edges = offsets[p.rows], first = item / 2 * p.item;
  const int64_t last = min(first + p.item, edges);
  if (first >= edges)
    return {0, 0, 0};
  const int64_t row = row_of(p, offsets, item & 1 ? last - 1 : first);
  const int64_t begin = offsets[row], end = offsets[row + 1];
  if (end - begin <= p.long_row || (item & 1 && begin <= first))
    return {0, 0, 0};
  return {row, max(begin, first), min(end, last)};
}

/* Where a row's k-th item is. */
__device__ __forceinline__ int64_t item_slot(const program_walk &p,
                                             int64_t begin, int64_t k) {
  const int64_t piece = begin / p.item + k;
  return 2 * piece + (piece * p.item < begin);
}

/* Writes, or reads, the numbers of a state that a lane has. */
template <typename A, int L> struct keep_numbers {
  A *to;
  int lane;
  bool live;
  __device__ __forceinline__ void operator()(A &x, int k) const {
    if (live)
      to[k * L + lane] = x;
  }
};
template <typename A, int L> struct take_numbers {
  const A *from;
  int lane;
  bool live;
  __device__ __forceinline__ void operator()(A &x, int k) const {
    if (live)
      x = from[k * L + lane];
  }
};

/* Values of a row before the edges of its stage with edges. */
template <int S, class W> __device__ __forceinline__ void until_cut(W &w) {
  if constexpr (S <= W::kCut) {
    w.own(stage<S>{});
    if constexpr (S < W::kCut)
      w.store(stage<S>{});
    until_cut<S + 1>(w);
  }
}

/* Items over groups of lanes. */
template <class W>
__device__ __forceinline__ void walk_items(const program_walk &p,
                                           const unsigned long long *arrays) {
  if constexpr (W::kCut >= 0) {
    extern __shared__ __align__(16) char memory[];
    using A = typename W::A;
    constexpr int kRows = 32 / W::kGroup;
    constexpr stage<W::kCut> cut = {};
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const offsets_t offsets = {p.offsets, p.wide};
    W w = {{p, arrays}};
    place(w, reinterpret_cast<A *>(memory), warps);
    w.prepare();
    constexpr int kSides = W::kGroup / W::kLanes;
    const int side = w.group_lane / W::kLanes;
    const int64_t step = int64_t(gridDim.x) * warps * kRows;
    for (int64_t unit = (int64_t(blockIdx.x) * warps + warp) * kRows;
         unit < p.items; unit += step) {
      const int64_t number = unit + (threadIdx.x & 31) / W::kGroup;
      item_of_row item = {0, 0, 0};
      if (number < p.items)
        item = find_item(p, number);
      const share part = {side, kSides, side, kSides,
                          static_cast<int>(item.end - item.begin)};
      if (!__any_sync(kFullMask, part.count > 0))
        continue;
      w.row = item.row;
      w.active = part.count > 0;
      w.degree = static_cast<int>(offsets[w.row + 1] - offsets[w.row]);
      w.writer = false;
      until_cut<0>(w);
      auto z = add_edges<W::kCut>(w, item.begin, part);
      w.join(cut, z, join_sides<A, W::kLanes, W::kGroup>{});
      A *const state =
          static_cast<A *>(p.states) + number * int64_t(W::kState * W::kLanes);
      w.numbers(
          cut, z,
          keep_numbers<A, W::kLanes>{state, w.lane, w.active && side == 0});
      if constexpr (W::kOwnShared > 0)
        __syncwarp();
    }
    store_totals(w, p.item_slots + int64_t(blockIdx.x) * warps + warp);
  }
}

/* The state of a row from those of its items, in their order: each side takes
 * one, and the first side what is joined so far. */
template <class W, class J>
__device__ __forceinline__ auto merge_items(W &w, int64_t begin, int64_t end,
                                            int side, int sides, const J &how) {
  using A = typename W::A;
  constexpr stage<W::kCut> cut = {};
  const int64_t count = (end - 1) / w.p.item - begin / w.p.item + 1;
  auto z = w.begin(cut);
  for (int64_t next = 0; next < count;) {
    const int first = next > 0; /* the side of item `next` */
    const int64_t mine = next + side - first;
    if (side >= first) {
      z = w.begin(cut);
      const bool live = mine < count;
      const A *state = static_cast<const A *>(w.p.states) +
                       item_slot(w.p, begin, live ? mine : 0) *
                           int64_t(W::kState * W::kLanes);
      w.numbers(cut, z, take_numbers<A, W::kLanes>{state, w.lane, live});
    }
    w.join(cut, z, how);
    next += sides - first;
  }
  return z;
}

/* A block for each row that has items. */
template <class W>
__device__ __forceinline__ void walk_merge(const program_walk &p,
                                           const unsigned long long *arrays) {
  if constexpr (W::kCut >= 0) {
    extern __shared__ __align__(16) char memory[];
    __shared__ unsigned char is_long[1024];
    using A = typename W::A;
    constexpr stage<W::kCut> cut = {};
    constexpr int kSides = 32 / W::kLanes;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const int side = warp * kSides + (threadIdx.x & 31) / W::kLanes;
    const offsets_t offsets = {p.offsets, p.wide};
    W w = {{p, arrays}};
    A *const joined = reinterpret_cast<A *>(memory);
    place(w, joined + blockDim.x, warps);
    w.prepare();
    const join_block<A, W::kLanes> how = {joined, {}};
    const int64_t round = int64_t(gridDim.x) * blockDim.x;
    for (int64_t first = blockIdx.x; first < p.rows; first += round) {
      const int64_t mine = first + int64_t(threadIdx.x) * gridDim.x;
      __syncthreads();
      is_long[threadIdx.x] =
          mine < p.rows && offsets[mine + 1] - offsets[mine] > p.long_row;
      __syncthreads();
      for (int t = 0; t < int(blockDim.x); ++t) {
        if (!is_long[t])
          continue;
        w.row = first + int64_t(t) * gridDim.x;
        const int64_t begin = offsets[w.row], end = offsets[w.row + 1];
        w.degree = static_cast<int>(end - begin);
        w.active = true;
        w.writer = side == 0;
        until_cut<0>(w);
        auto z = merge_items(w, begin, end, side, warps * kSides, how);
        w.finish(cut, z);
        w.store(cut);
        walk_stage<W::kCut + 1>(w, begin, share{0, 1, 0, 1, 0}, how);
      }
    }
    store_totals(w, p.long_slots + int64_t(blockIdx.x) * warps + warp);
  }
}

/* Adds up what the warps have summed, a block for each number. */
template <typename A>
__device__ __forceinline__ void add_totals(const program_totals &p) {
  __shared__ double sums[256];
  const A *from = static_cast<const A *>(p.partial) + blockIdx.x;
  double sum = 0;
  for (int64_t slot = threadIdx.x; slot < p.slots; slot += 256)
    sum += from[slot * p.totals];
  sums[threadIdx.x] = sum;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < half)
      sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0)
    static_cast<A *>(p.to)[blockIdx.x] = static_cast<A>(sums[0]);
}

} // namespace edge_program
} // namespace dfgnn

#endif
