/* cuda_gather_shares.cuh - the skeleton of cuda_gather.cuh over shares of equal
 * size, whatever the rows: a share may begin and end within a row
 *
 * L lanes walk the edges of their share as if it were a row; rows that end
 * among the edges of a step are written then. */
#ifndef DFGNN_KERNELS_CUDA_GATHER_SHARES_CUH
#define DFGNN_KERNELS_CUDA_GATHER_SHARES_CUH

#include "kernels/common/cuda_gather.cuh"

namespace dfgnn {

/* The number of row ends before step d of the merge of edges and row ends: the
 * end of row i comes after its edges, at step offsets[i + 1] + i. */
__device__ __forceinline__ int rows_before(const gather_schedule &p,
                                           int64_t d) {
  int low = 0, high = p.rows;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (p.offsets[int64_t(middle) + 1] + middle < d)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* L lanes take a share of the steps.  They write the rows that end in it, but
 * for the first if it began in an earlier share: its edges here become partial
 * result 2 * unit.  The edges of a row that ends in a later share become
 * partial result 2 * unit + 1. */
template <class Op, int L, int C, int U>
struct gather_share : gather_row<Op, L, C, U> {
  using rows = gather_row<Op, L, C, U>;
  using rows::lane_of_row, rows::op, rows::p;
  using typename rows::label;

  struct share {
    int64_t first;
    int degree; /* its edges */
  };
  struct state {
    typename Op::state sums;
    typename Op::older &old; /* of its own: it may lie in memory */
    int64_t edge;            /* the next one that is added */
    int64_t begin, end;      /* edges of the row in progress */
    int64_t end_after;       /* where the row behind it ends */
    int row, row_end;        /* the row; the first that a later share ends */
    int slot;                /* of the row's partial result, or -1 */
    int added, unfolded;     /* edges of the row, and since fold() */
  };

  __device__ __forceinline__ gather_share(const gather_params &params)
      : rows(params, L) {}

  __device__ __forceinline__ int64_t end_of(int row) const {
    const gather_schedule &s = p.schedule;
    return row < s.rows ? s.offsets[int64_t(row) + 1] : s.edges;
  }

  /* All lanes of the warp call it; active: is there such a unit? */
  __device__ __forceinline__ void run(int unit, bool active) const {
    const gather_schedule &s = p.schedule;
    typename Op::older old;
    state z{{}, old};
    share w{0, 0};
    if (active) {
      const int64_t steps = s.edges + s.rows;
      const int64_t d0 = int64_t(unit) * s.share;
      const int64_t d1 = min(d0 + s.share, steps);
      z.row = rows_before(s, d0);
      z.row_end = rows_before(s, d1);
      z.edge = w.first = d0 - z.row;
      w.degree = static_cast<int>(d1 - z.row_end - w.first);
      z.begin = s.offsets[z.row];
      z.end = end_of(z.row);
      z.end_after = end_of(z.row + 1);
      const bool entered = z.begin < z.edge; /* in an earlier share */
      z.slot = entered ? 2 * unit : -1;
      if (s.share_row && blockIdx.y == 0 && lane_of_row() == 0)
        s.share_row[unit] = entered && z.row < z.row_end ? z.row : -1;
      op.begin(z.sums, z.row, static_cast<int>(z.edge - z.begin));
    }
    edge_ahead next;
    this->load(next, first_of(w), lane_of_row() < w.degree);
    walk_edges<L, U>(*this, z, w, next);
    if (!active)
      return;
    while (ends(z, z.edge)) /* without edges here */
      next_row(z);
    if (z.added > 0)
      write(z, 0, 2 * unit + 1);
  }

  /* Does the row in progress end before this edge? */
  static __device__ __forceinline__ bool ends(const state &z, int64_t edge) {
    return z.row < z.row_end && edge == z.end;
  }
  __device__ __forceinline__ void next_row(state &z) const {
    write(z, static_cast<int>(z.end - z.begin), z.slot);
    ++z.row;
    z.slot = -1;
    z.added = z.unfolded = 0;
    z.begin = z.end;
    z.end = z.end_after;
    z.end_after = end_of(z.row + 1);
    op.begin(z.sums, z.row, 0);
  }
  __device__ __forceinline__ void write(state &z, int degree, int slot) const {
    typename rows::total t[C][Op::VEC];
    op.close(t, z.sums, z.old, z.added > 0);
    unroll<C>([&](int c) {
      rows::write(t[c], c, row_work{z.row, slot, degree}, true);
    });
  }

  /* ---- what walk_edges() asks for ---------------------------------------- */

  __device__ __forceinline__ int64_t first_of(const share &w) const {
    return w.first + lane_of_row();
  }
  static constexpr __device__ __forceinline__ bool exact() { return false; }
  __device__ __forceinline__ void turn(state &z, const share &, int) const {
    if (z.unfolded >= kFoldEdges) {
      op.fold(z.sums, z.old, z.added, L, L);
      z.unfolded = 0;
    }
  }

  template <bool WHOLE>
  __device__ __forceinline__ void edges(state &z, const share &, const label &a,
                                        int from, int left) const {
    typename Op::edge x[U];
    typename Op::mark m[U];
    this->template gather<WHOLE>(x, m, a, from, left);
    const int count = max(min(left, U), 0);
    for (int done = 0;;) { /* over the rows of these edges */
      const int stop = static_cast<int>(min(z.end - z.edge, int64_t(count)));
      const int position = static_cast<int>(z.edge - z.begin);
      if (stop - done == U) {
        if (z.added == 0)
          op.start(z.sums, x[0], L, L);
        op.template step<true>(z.sums, x, m, position, 1, U);
      } else {
        unroll<U>([&](int u) {
          const bool mine = u >= done && u < stop;
          if (mine && u == done && z.added == 0)
            op.start(z.sums, x[u], L, L);
          op.template add<false>(z.sums, x[u], m[u], position + u, mine);
        });
      }
      z.added += stop - done;
      z.unfolded += stop - done;
      done = stop;
      if (!ends(z, z.edge + done))
        break;
      next_row(z);
    }
    z.edge += count;
  }
};

/* The body of a kernel over balanced shares, of up to 512 threads. */
template <class Op, int L, int C, int U>
__device__ __forceinline__ void gather_shares_of(const gather_params &p) {
  const int64_t unit = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / L;
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const gather_share<Op, L, C, U> work(p);
  work.run(static_cast<int>(unit), unit < p.schedule.units);
}

} // namespace dfgnn

#endif
