/* walk.cuh - the walk over rows of the kernels that are made for edge programs
 *
 * generate.c writes a struct for each walk of a program
 * (kernels/program/lower.h): what is loaded, computed and reduced.  This is the
 * skeleton around it: rows over groups of lanes, edges over the sides of a
 * group with U edges in flight.  A row that is long has a block of its own,
 * whose groups take a part of its edges each.  A hub, which is longer than
 * that, is cut into pieces: blocks take them, and a second kernel merges their
 * states.  Where edges are looked at in several stages, a block takes hubs,
 * too. Reductions are joined in an order that the launch fixes, so that bits
 * repeat. A walk has
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

#include "kernels/common/cuda_walk.cuh"
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

  template <typename T> DEVICE const T *in(int i) const {
    return reinterpret_cast<const T *>(arrays[i]);
  }
  template <typename T> DEVICE T *out(int i) const {
    return reinterpret_cast<T *>(arrays[i]);
  }
  DEVICE void read_seed() { seed = p.seed ? *p.seed : p.seed_value; }
  DEVICE A far_degree(int place, int64_t far) const {
    const offsets_t offsets = {p.degrees[place], p.wide};
    return static_cast<A>(offsets[far + 1] - offsets[far]);
  }
};

/* ---- joining sides ------------------------------------------------------- */

/* Joins the sides of a group of G lanes by shuffles; of a block, those of each
 * warp, and then the warps through shared memory. */
template <typename A, int L, int G> struct join_sides {
  A *memory; /* two numbers for each thread; NULL: of a group */
  mutable int turn;

  template <class F> DEVICE void join(A &x, const F &add) const {
#pragma unroll
    for (int o = L; o < 32; o *= 2)
      if (o < G || memory)
        x = add(x, __shfl_xor_sync(kFullMask, x, o));
    if (!memory)
      return;
    A *const warps = memory + turn * blockDim.x;
    turn ^= 1; /* the next number is written before all have read this one */
    warps[threadIdx.x] = x;
    __syncthreads();
    x = warps[threadIdx.x & 31];
    for (int w = 32; w < int(blockDim.x); w += 32)
      x = add(x, warps[w + (threadIdx.x & 31)]);
  }
  DEVICE void sum(A &x) const {
    join(x, [](A a, A b) { return a + b; });
  }
  DEVICE void max(A &x) const {
    join(x, [](A a, A b) { return f_max(b, a); });
  }
};

/* ---- a row --------------------------------------------------------------- */

/* The part of some edges that a row's lanes take: each of `sides` in a warp one
 * edge after the other. */
struct share {
  int side, sides, degree;
};

/* Adds N edges of a side, whose leaves are there. */
template <int S, int N, class W, class Z, class X>
DEVICE void add(W &w, Z &z, const X *x, const bool *live) {
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

/* A row as walk_edges() walks it.  Each lane of its sides reads the ends of an
 * edge, unless more are in flight than a side has lanes. */
template <int S, class W> struct program_row : plain_walk {
  static constexpr int U = W::kUnroll;
  static constexpr bool kTold = W::kLanes % U == 0;
  static constexpr int kEach = kTold ? W::kLanes : U;
  using state = decltype(static_cast<W *>(nullptr)->begin(stage<S>{}));
  using ahead = edge_ends;
  using label = edge_ends;
  W &w;
  int64_t first;
  share part;
  int group, lane; /* edges of a turn; the number of this lane in the row */

  DEVICE program_row(W &walk, int64_t begin, share of)
      : w(walk), first(begin), part(of), group(of.sides * kEach),
        lane(lane_id() & (of.sides * W::kLanes - 1)) {}
  DEVICE int side() const { return part.side; }
  DEVICE int sides() const { return part.sides; }
  DEVICE int first_lane() const { return lane_id() - lane; }
  DEVICE int first_of(const share &) const { return lane; }
  DEVICE void read(ahead &x, int at, int) const {
    if (kTold && at < part.degree)
      x = w.ends(first + at);
  }
  DEVICE label label_of(const ahead &x, int, int) const { return x; }

  template <bool WHOLE>
  DEVICE void edges(state &z, const share &, const label &told, int from,
                    int left) const {
    constexpr stage<S> s = {};
    decltype(w.leaf(s)) x[U];
    bool live[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int after = u * part.sides;
      live[u] = WHOLE || after < left;
      const int64_t e = live[u] ? first + part.degree - left + after : 0;
      if constexpr (kTold)
        x[u].ends = w.tell(told, from + after, e);
      else
        x[u].ends = live[u] ? w.ends(e) : edge_ends{};
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
};

/* The state of a stage after a side's edges. */
template <int S, class W>
DEVICE auto add_edges(W &w, int64_t begin, share part) {
  using row_of = program_row<S, W>;
  auto z = w.begin(stage<S>{});
  const row_of row(w, begin, part);
  edge_ends next = {};
  row.read(next, row.lane, 0);
  walk_edges<row_of::kEach, W::kUnroll>(row, z, part, next);
  return z;
}

/* Writes, or reads, the numbers of a state that a lane has. */
template <typename A, int L> struct keep_numbers {
  A *to;
  int lane;
  DEVICE void operator()(A &x, int k) const { to[k * L + lane] = x; }
};
template <typename A, int L> struct take_numbers {
  const A *from;
  int lane;
  DEVICE void operator()(A &x, int k) const { x = from[k * L + lane]; }
};

/* Walks the edges of `part`.  state: a piece of a hub leaves its reductions
 * there; NULL: the row is whole. */
template <int S, class W, class J>
DEVICE void walk_stage(W &w, int64_t begin, share part, const J &how,
                       typename W::A *state) {
  if constexpr (S < W::kStages) {
    constexpr stage<S> s = {};
    w.own(s);
    if constexpr (W::has_edges(S)) {
      auto z = add_edges<S>(w, begin, part);
      w.join(s, z, how);
      if constexpr (S == W::kCut) {
        if (state) {
          if (threadIdx.x < W::kLanes)
            w.numbers(s, z,
                      keep_numbers<typename W::A, W::kLanes>{state, w.lane});
          return;
        }
      }
      w.finish(s, z);
    }
    w.store(s);
    walk_stage<S + 1>(w, begin, part, how, state);
  }
}

template <class W> DEVICE void place(W &w, typename W::A *memory, int warps) {
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
template <class W> DEVICE void store_totals(W &w, int64_t slot) {
  if constexpr (W::kTotals > 0) {
    typename W::A *to =
        static_cast<typename W::A *>(w.p.partial) + slot * W::kTotals;
    w.totals(to, join_sides<typename W::A, W::kLanes, 32>{nullptr, 0},
             (threadIdx.x & 31) < W::kLanes);
  }
}

/* ---- kernels ------------------------------------------------------------- */

/* The state of piece k of a hub, whose edges begin at `begin`: those of hubs
 * before it end below, since a hub has more than p.piece edges. */
template <class W>
DEVICE typename W::A *state_of(const program_walk &p, int64_t hub,
                               int64_t begin, int64_t k) {
  return static_cast<typename W::A *>(p.states) +
         (begin / p.piece + hub + k) * int64_t(W::kState * W::kLanes);
}

DEVICE int64_t in_list(const int32_t *list, int64_t i) {
  return list ? __ldg(list + i) : i;
}

/* Where the numbers of join_sides are, behind the values of a block's warps. */
template <class W>
DEVICE typename W::A *joined(typename W::A *memory, int warps) {
  return memory + warps * (32 / W::kGroup * W::kOwnShared +
                           32 / W::kLanes * W::kEdgeShared);
}

/* The first blocks take a piece of a hub each, p.hub_blocks for each hub, those
 * after them long rows, and the others as many rows as they have groups. */
template <class W>
DEVICE void walk_rows(const program_walk &p, const unsigned long long *arrays) {
  extern __shared__ __align__(16) char memory[];
  using A = typename W::A;
  constexpr int kRows = 32 / W::kGroup, kSides = W::kGroup / W::kLanes;
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
  const int groups = warps * kRows, group = threadIdx.x / W::kGroup;
  const int64_t of_hubs = p.hub_count * p.hub_blocks;
  const int64_t before = of_hubs + p.long_blocks, block = blockIdx.x;
  const bool is_piece = block < of_hubs, alone = block < before;
  const int64_t hub = is_piece ? block / p.hub_blocks : 0;
  const offsets_t offsets = {p.offsets, p.wide};
  W w = {{p, arrays}};
  place(w, reinterpret_cast<A *>(memory), warps);
  w.prepare();
  const int side = w.group_lane / W::kLanes;
  share part = {side, kSides, 0};
  const join_sides<A, W::kLanes, W::kGroup> how = {
      alone ? joined<W>(reinterpret_cast<A *>(memory), warps) : nullptr, 0};
  int64_t at, last, step;
  if (is_piece) {
    at = block % p.hub_blocks;
    last = INT64_MAX; /* until there is no such piece */
    step = p.hub_blocks;
  } else if (alone) {
    at = block - of_hubs;
    last = p.long_count;
    step = p.long_blocks;
  } else {
    at = (block - before) * groups + warp * kRows;
    last = p.light_rows;
    step = (gridDim.x - before) * groups;
  }
  for (; at < last; at += step) {
    A *state = nullptr;
    int64_t begin;
    if (alone) {
      w.row = in_list(is_piece ? p.hubs : p.long_rows, is_piece ? hub : at);
      begin = offsets[w.row];
      w.active = true;
      w.degree = static_cast<int>(offsets[w.row + 1] - begin);
      w.writer = !is_piece && threadIdx.x < W::kLanes;
      int count = w.degree;
      if (is_piece) {
        if (at * p.piece >= count)
          break;
        state = state_of<W>(p, hub, begin, at);
        begin += at * p.piece;
        count = static_cast<int>(min(p.piece, count - at * p.piece));
      } else if (p.hub_count && count > p.piece) {
        continue;
      }
      const int each = (count + groups - 1) / groups;
      const int first = min(group * each, count);
      begin += first;
      part.degree = min(each, count - first);
    } else {
      const int64_t row = at + (threadIdx.x & 31) / W::kGroup;
      w.row = row < last ? in_list(p.order, row) : 0;
      begin = offsets[w.row];
      const int64_t degree = offsets[w.row + 1] - begin;
      w.active = row < last && degree <= p.long_row;
      w.degree = w.active ? static_cast<int>(degree) : 0;
      w.writer = w.active && side == 0;
      part.degree = w.degree;
    }
    walk_stage<0>(w, begin, part, how, state);
  }
  store_totals(w, p.first_slot + block * warps + warp);
}

/* Values of a row before the edges of its stage with edges. */
template <int S, class W> DEVICE void until_cut(W &w) {
  if constexpr (S <= W::kCut) {
    w.own(stage<S>{});
    if constexpr (S < W::kCut)
      w.store(stage<S>{});
    until_cut<S + 1>(w);
  }
}

/* The state of a hub from those of its pieces, in their order: each side takes
 * one, and the first side what is joined so far. */
template <class W, class J>
DEVICE auto merge_pieces(W &w, int64_t hub, int64_t begin, const J &how) {
  using A = typename W::A;
  constexpr stage<W::kCut> cut = {};
  const int side = threadIdx.x / W::kLanes, sides = blockDim.x / W::kLanes;
  const int64_t count = (w.degree + w.p.piece - 1) / w.p.piece;
  auto z = w.begin(cut);
  for (int64_t next = 0; next < count;) {
    const int first = next > 0; /* the side of piece `next` */
    const int64_t mine = next + side - first;
    if (side >= first) {
      z = w.begin(cut);
      if (mine < count)
        w.numbers(cut, z,
                  take_numbers<A, W::kLanes>{state_of<W>(w.p, hub, begin, mine),
                                             w.lane});
    }
    w.join(cut, z, how);
    next += sides - first;
  }
  return z;
}

/* A block for each hub. */
template <class W>
DEVICE void walk_merge(const program_walk &p,
                       const unsigned long long *arrays) {
  if constexpr (W::kCut >= 0) {
    extern __shared__ __align__(16) char memory[];
    using A = typename W::A;
    constexpr stage<W::kCut> cut = {};
    ptx::wait_for_previous();
    ptx::let_next_begin();
    const int warps = blockDim.x / 32;
    const int64_t hub = blockIdx.x;
    const offsets_t offsets = {p.offsets, p.wide};
    W w = {{p, arrays}};
    place(w, reinterpret_cast<A *>(memory), warps);
    w.prepare();
    const join_sides<A, W::kLanes, W::kGroup> how = {
        joined<W>(reinterpret_cast<A *>(memory), warps), 0};
    w.row = in_list(p.hubs, hub);
    const int64_t begin = offsets[w.row];
    w.degree = static_cast<int>(offsets[w.row + 1] - begin);
    w.active = true;
    w.writer = threadIdx.x < W::kLanes;
    until_cut<0>(w);
    auto z = merge_pieces(w, hub, begin, how);
    w.finish(cut, z);
    w.store(cut);
    walk_stage<W::kCut + 1>(w, begin, share{0, 1, 0}, how, nullptr);
    store_totals(w, p.first_slot + hub * warps + threadIdx.x / 32);
  }
}

/* Adds up what the warps have summed, a block for each number. */
template <typename A> DEVICE void add_totals(const program_totals &p) {
  __shared__ double sums[256];
  ptx::wait_for_previous();
  ptx::let_next_begin();
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
