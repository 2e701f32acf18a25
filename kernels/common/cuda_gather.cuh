/* cuda_gather.cuh - the skeleton of kernels that gather rows
 *
 * L lanes work on an edge, each on C vectors of VEC features; blockIdx.y is the
 * number of a tile of L * C * VEC features.  A row belongs to `group` lanes of
 * a warp, so that group / L sides work on its edges, each with U edges in
 * flight; sides are merged at the end of the row.  The Op says what is done
 * with an edge:
 *
 * clang-format off
 *   VEC, kSize, kHeld   elements of a vector, their bytes, and the 4-byte words
 *                       that a lane keeps of a row
 *   kNotes              true: edges have notes, for instance their weights
 *   look()              the note of one edge, made by the lane that reads it
 *   pass()              the marks of U edges, made of their notes, which lanes
 *                       get by shuffles
 *   load(), fetch()     read data of an edge; fetch() comes after every load()
 *   begin()             sets the state that a lane keeps of a row
 *   start()             sees the first edge of a row, before any is added
 *   step(), add()       add U edges to the state; one edge
 *   fold()              now and then moves the state so far to `older`, so that
 *                       long sums stay exact
 *   close()             makes of the state a `total` for each feature
 *   kProducts           true: step() adds up by products of tensor cores
 *   spoilt()            whether a total of the warp is not finite, which may
 *                       have spoilt other lanes' in a product: add() then adds
 *                       the row's edges again
 *   shuffle(), merge()  another lane's total; two totals become one
 *   store(), keep()     write a row's result; a partial result
 * clang-format on
 *
 * A row is walked as cuda_walk.cuh says: each lane reads the index of one edge,
 * and what look() needs of it, `group` edges ahead of their use.  Where a warp
 * takes several rows in turn, it loads the offsets of the next row before it
 * works on the current one.
 *
 * Steps in which every side has an edge and every lane features use no masks.
 */
#ifndef DFGNN_KERNELS_CUDA_GATHER_CUH
#define DFGNN_KERNELS_CUDA_GATHER_CUH

#include "kernels/common/cuda_common.cuh"
#include "kernels/common/cuda_gather.h"
#include "kernels/common/cuda_walk.cuh"

namespace dfgnn {

constexpr int kFoldEdges = 32; /* that a lane adds between two folds */

using ptx::in_memory;

struct row_work {
  int row;
  int slot;     /* of the partial result; -1: the row is whole */
  int degree;   /* edges; until settle_row() the end of a whole row */
  int position; /* in the row, of the first edge */
  uint2 begin;  /* the first edge, in halves as edge_ahead.id */

  DEVICE int64_t edge(int k) const {
    return static_cast<int64_t>(uint64_t(begin.y) << 32 | begin.x) + k;
  }
};

/* Loads where a row begins and ends.  Nothing is computed from the loads here,
 * so that they are not waited for. */
DEVICE row_work find_whole_row(const gather_schedule &p, int unit) {
  row_work w;
  w.slot = -1;
  w.position = 0;
  w.row = p.order ? __ldg(p.order + unit) : unit;
  if (p.offsets.wide) {
    const uint2 *at = static_cast<const uint2 *>(p.offsets.array) + w.row;
    w.begin = __ldg(at);
    w.degree = static_cast<int>(__ldg(&at[1].x));
  } else {
    const int *at = static_cast<const int *>(p.offsets.array) + w.row;
    w.begin = uint2{unsigned(__ldg(at)), 0};
    w.degree = __ldg(at + 1);
  }
  return w;
}

DEVICE row_work find_item(const gather_schedule &p, int unit) {
  row_work w;
  w.slot = -1;
  w.row = __ldg(p.item_row + unit);
  w.begin = __ldg(reinterpret_cast<const uint2 *>(p.item_first) + unit);
  const int first = __ldg(p.row_item + w.row);
  const int last = __ldg(p.row_item + w.row + 1);
  const int64_t left = p.offsets[w.row + 1] - w.edge(0);
  w.degree = static_cast<int>(min(left, int64_t(p.item_edges)));
  w.position = (unit - first) * p.item_edges;
  if (last - first > 1)
    w.slot = unit == first ? p.extra_items + unit - w.row : unit - w.row - 1;
  return w;
}

/* The slots of the partial results of a cut row's items.  The first slots are
 * those of all items but the first of each row, counted over the rows; from
 * extra_items on come the first items of cut rows. */
struct item_slots {
  int count, base, extra;
  DEVICE item_slots(const gather_schedule &s, int row)
      : count(s.row_item[row + 1] - s.row_item[row]),
        base(s.row_item[row] - row), extra(s.extra_items) {}
  DEVICE int64_t operator()(int k) const {
    return k == 0 ? extra + base : base + k - 1;
  }
};

DEVICE void settle_row(const gather_schedule &p, row_work &w) {
  if (!p.item_row)
    w.degree -= static_cast<int>(w.begin.x);
}

/* The offset of feature f within a node, in elements. */
DEVICE int64_t place_of(const gather_params &p, const feature_tensor &t,
                        int f) {
  const int inner = p.heads_inner ? p.heads : p.dim;
  const int a = f / inner, b = f - a * inner;
  return p.heads_inner ? a * t.feature + b * t.head
                       : a * t.head + b * t.feature;
}

/* The features of a lane, in rows of W features. */
template <int VEC, int L, int C, int W> struct lane_features {
  int first;

  DEVICE lane_features(const gather_params &)
      : first((blockIdx.y * C * L + (threadIdx.x & (L - 1))) * VEC) {}
  DEVICE int at(int c) const { return first + c * L * VEC; }
  DEVICE bool has(int c) const { return W % (VEC * L * C) == 0 || at(c) < W; }
  /* The first feature of vector c, or 0 where the lane has no vector c: it may
   * be read in any case. */
  DEVICE int readable(int c) const { return has(c) ? at(c) : 0; }
};

/* A lane's view of a tensor whose rows are gathered. */
template <typename T, int VEC, int L, int C, int W> struct lane_table {
  const char *lane[VEC > 1 ? 1 : C];
  unsigned node_bytes;

  DEVICE lane_table(const gather_params &p, const feature_tensor &t,
                    const lane_features<VEC, L, C, W> &f)
      : node_bytes(t.node_bytes) {
    const T *data = static_cast<const T *>(t.data);
    unroll<(VEC > 1 ? 1 : C)>([&](int c) {
      lane[c] = reinterpret_cast<const char *>(
          data +
          (VEC > 1 ? int64_t(f.readable(0)) : place_of(p, t, f.readable(c))));
    });
  }

  DEVICE const T *at(int node, int c) const {
    const T *row = reinterpret_cast<const T *>(
        node_row(lane[VEC > 1 ? 0 : c], node, node_bytes));
    return VEC > 1 ? row + c * L * VEC : row;
  }

  template <bool WHOLE>
  DEVICE void load(packed<T, VEC> &x, int node, int c, bool on) const {
    if (WHOLE) {
      x = load_written<VEC>(at(node, c));
      return;
    }
    clear(x);
    load_if<VEC>(x, at(node, c), on);
  }
};

/* Writes a vector of a row. */
template <typename T, int VEC>
DEVICE void store_row(const gather_params &p, const feature_tensor &t,
                      void *data, int row, int f,
                      const accumulator_t<T> (&x)[VEC]) {
  char *node = static_cast<char *>(data) + int64_t(row) * t.node_bytes;
  store_once<VEC>(reinterpret_cast<T *>(node) +
                      (VEC > 1 ? int64_t(f) : place_of(p, t, f)),
                  x);
}

/* Reads a vector of a row. */
template <typename T, int VEC>
DEVICE void load_row(accumulator_t<T> (&x)[VEC], const gather_params &p,
                     const feature_tensor &t, int row, int f) {
  const char *node =
      static_cast<const char *>(t.data) + int64_t(row) * t.node_bytes;
  widen(x, load_packed<VEC>(reinterpret_cast<const T *>(node) +
                            (VEC > 1 ? int64_t(f) : place_of(p, t, f))));
}

/* Feature f of number `part` of the PARTS of a partial result. */
template <int PARTS, typename A>
DEVICE A *part_of(const gather_params &p, int64_t slot, int part, int f) {
  return static_cast<A *>(p.partial) + (slot * PARTS + part) * p.width + f;
}

/* An edge as one lane reads it.  Its id is left in halves: widening it would
 * wait for the load. */
struct edge_ahead {
  int index;
  uint2 id;

  DEVICE void clear() {
    index = 0;
    id = uint2{0, 0};
  }
  template <bool NOTES> DEVICE void read(const gather_params &p, int64_t e) {
    index = __ldcs(p.schedule.indices + e);
    if constexpr (NOTES) {
      if (!p.edge_ids.array)
        id = uint2{unsigned(e), unsigned(uint64_t(e) >> 32)};
      else if (p.edge_ids.wide)
        id = __ldcs(static_cast<const uint2 *>(p.edge_ids.array) + e);
      else
        id.x = __ldcs(static_cast<const unsigned *>(p.edge_ids.array) + e);
    }
  }
  DEVICE int64_t edge() const {
    return static_cast<int64_t>(uint64_t(id.y) << 32 | id.x);
  }
};

/* An Op whose sums come from no products. */
struct plain_op {
  static constexpr bool kProducts = false;
};

template <class Op, int L, int C, int U> struct gather_row : plain_walk {
  using total = typename Op::total;
  static constexpr int VEC = Op::VEC;

  const gather_params &p;
  const Op op;
  const int group; /* lanes of a row */

  /* The loads of a row that are issued before its turn comes. */
  struct early {
    row_work w;
    bool active;
    edge_ahead first;
  };

  DEVICE gather_row(const gather_params &params, int lanes_of_row)
      : p(params), op(params), group(lanes_of_row) {}

  static DEVICE int lane() { return threadIdx.x & 31; }
  DEVICE int lane_of_row() const { return threadIdx.x & (group - 1); }
  DEVICE int first_lane() const { return lane() & ~(group - 1); }
  DEVICE int side() const { return unsigned(lane_of_row()) / L; }
  DEVICE int sides() const { return unsigned(group) / L; }

  DEVICE void find_row(early &e, int unit, int last) const {
    e.w = row_work{0, -1, 0, 0, uint2{0, 0}};
    unit += lane() >> p.schedule.group_bits;
    e.active = unit < last;
    if (e.active)
      e.w = p.schedule.item_row ? find_item(p.schedule, unit)
                                : find_whole_row(p.schedule, unit);
  }

  DEVICE void fetch_row(early &e) const {
    settle_row(p.schedule, e.w);
    fetch_first(e);
  }
  /* Reads the lane's first edge of the row. */
  DEVICE void fetch_first(early &e) const {
    load(e.first, first_of(e.w), lane_of_row() < e.w.degree);
  }

  /* Works on the row of e; e becomes the row at `unit`, if that is below
   * `last`.  Every lane of the warp calls this; without a row, its degree is 0.
   */
  DEVICE void run(early &e, int unit, int last) const {
    const row_work w = e.w;
    const bool active = e.active;
    const edge_ahead first = e.first;
    typename Op::older old;
    state z{{}, old, 0, false};
    op.begin(z.sums, w.row, w.position + side());
    find_row(e, unit, last);
    walk_edges<L, U>(*this, z, w, first);
    total t[C][VEC];
    op.close(t, z.sums, old, side() < w.degree);
    if constexpr (Op::kProducts) {
      if (op.spoilt(t)) {
        edge_ahead again;
        load(again, first_of(w), lane_of_row() < w.degree);
        z.unfolded = 0;
        z.by_edge = true;
        op.begin(z.sums, w.row, w.position + side());
        walk_edges<L, U>(*this, z, w, again);
        op.close(t, z.sums, old, side() < w.degree);
      }
    }
    fetch_row(e);
    merge_sides<C>(t, L, 0, w, active);
  }

  /* ---- what walk_edges() asks for ---------------------------------------- */

  struct state {
    typename Op::state sums;
    typename Op::older &old; /* of its own: it may lie in memory */
    int unfolded;            /* edges of the lane since fold() */
    bool by_edge;            /* add() in place of step() */
  };
  using ahead = edge_ahead;
  struct label {
    int index;
    typename Op::note note;
  };
  DEVICE int64_t first_of(const row_work &w) const {
    return w.edge(lane_of_row());
  }
  DEVICE void read(edge_ahead &a, int64_t edge, int left) const {
    load(a, edge, left + side() - lane_of_row() > group);
  }
  DEVICE void load(edge_ahead &a, int64_t edge, bool there) const {
    a.clear();
    if (there)
      a.template read<Op::kNotes>(p, edge);
  }
  DEVICE label label_of(const edge_ahead &a, int64_t, int left) const {
    return {a.index, op.look(a, left + side() - lane_of_row() > 0)};
  }
  DEVICE void turn(state &z, const row_work &w, int left) const {
    if (z.unfolded >= kFoldEdges) {
      op.fold(z.sums, z.old, w.degree - max(left, 0) - side(), L, group);
      z.unfolded = 0;
    }
    z.unfolded += L;
  }
  DEVICE bool exact() const { return p.exact; }

  /* Reads U edges of the side. */
  template <bool WHOLE>
  DEVICE void gather(typename Op::edge (&x)[U], typename Op::mark (&m)[U],
                     const label &a, int from, int left) const {
    int j[U];
    unroll<U>([&](int u) {
      j[u] = __shfl_sync(kFullMask, a.index, from + u * sides());
    });
    unroll<U>([&](int u) {
      op.template load<WHOLE>(x[u], j[u], u * sides() < left);
    });
    op.pass(m, a.note, from, sides());
    unroll<U>([&](int u) {
      op.template fetch<WHOLE>(x[u], j[u], m[u], u * sides() < left);
    });
  }

  template <bool WHOLE>
  DEVICE void edges(state &z, const row_work &w, const label &a, int from,
                    int left) const {
    typename Op::edge x[U];
    typename Op::mark m[U];
    gather<WHOLE>(x, m, a, from, left);
    const int done = w.degree - left;
    if (done == side())
      op.start(z.sums, x[0], L, group);
    if constexpr (Op::kProducts) {
      if (z.by_edge) {
        unroll<U>([&](int u) {
          op.template add<false>(z.sums, x[u], m[u],
                                 w.position + done + u * sides(),
                                 u * sides() < left);
        });
        return;
      }
    }
    op.template step<WHOLE>(z.sums, x, m, w.position + done, sides(), left);
  }

  /* While a lane holds more than one vector, each of a pair of lanes keeps one
   * half of them. */
  template <int LEFT>
  DEVICE void merge_sides(total (&t)[C][VEC], int o, int first,
                          const row_work &w, bool active) const {
    if (o >= group) {
      unroll<LEFT>([&](int c) { write(t[c], first + c, w, active); });
      return;
    }
    if constexpr (LEFT > 1) {
      const bool upper = (threadIdx.x & o) != 0;
      unroll<LEFT / 2, VEC>([&](int c, int i) {
        const total low = t[c][i], high = t[c + LEFT / 2][i];
        t[c][i] = upper ? high : low;
        Op::merge(t[c][i], Op::shuffle(upper ? low : high, o));
      });
      merge_sides<LEFT / 2>(t, o * 2, upper ? first + LEFT / 2 : first, w,
                            active);
    } else {
      bool writer = active;
      for (; o < group; o <<= 1) {
        const bool upper = (threadIdx.x & o) != 0;
        writer = writer && !upper;
        unroll<VEC>(
            [&](int i) { Op::merge(t[0][i], Op::shuffle(t[0][i], o)); });
      }
      write(t[0], first, w, writer);
    }
  }

  DEVICE void write(const total (&t)[VEC], int c, const row_work &w,
                    bool writer) const {
    if (!writer || !op.features.has(c))
      return;
    if (w.slot >= 0)
      op.keep(t, w.slot, op.features.at(c));
    else
      op.store(t, w.row, w.degree, op.features.at(c));
  }
};

/* Blocks of GATHER_PIECE_WARPS warps that a multiprocessor has at once, by the
 * words that a lane holds: 5, 4, 3 or 2 blocks leave a lane 48, 64, 80 or 128
 * registers. */
template <class Op, int C, int U> constexpr int gather_blocks() {
  constexpr int words = Op::kHeld + C * U * Op::VEC * Op::kSize / 4;
  return words <= 18 ? 5 : words <= 32 ? 4 : words <= 48 ? 3 : 2;
}

/* The body of a kernel over rows; gather_blocks() is for its launch bounds. */
template <class Op, int L, int C, int U>
DEVICE void gather_rows(const gather_params &p) {
  __shared__ int taken;
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const int rows = 32 >> p.schedule.group_bits,
            at_once = blockDim.x / 32 * rows;
  const int first = blockIdx.x * p.schedule.span;
  const int last = static_cast<int>(
      min(int64_t(first) + p.schedule.span, int64_t(p.schedule.units)));
  const bool several = p.schedule.span > at_once;
  if (several) {
    if (threadIdx.x == 0)
      taken = at_once;
    __syncthreads();
  }
  using row_t = gather_row<Op, L, C, U>;
  const row_t work(p, p.schedule.group);
  int unit = first + static_cast<int>(threadIdx.x / 32) * rows;
  if (unit >= last)
    return;
  typename row_t::early e;
  work.find_row(e, unit, last);
  work.fetch_row(e);
  while (unit < last) {
    const int next = several ? first + next_ticket(taken, rows) : last;
    work.run(e, next, last);
    unit = next;
  }
}

} // namespace dfgnn

#endif
