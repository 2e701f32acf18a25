/* cuda_gather_shares.cuh - the skeleton of cuda_gather.cuh over shares of equal
 * size, whatever the rows: a share may begin and end within a row
 *
 * It asks the same of an Op, but takes marks() in place of pass(): L lanes walk
 * the edges of their share, and each reads all U of them. */
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
template <class Op, int L, int C, int U> struct gather_share {
  static constexpr int VEC = Op::VEC;
  const gather_params &p;
  const Op op;

  __device__ __forceinline__ gather_share(const gather_params &params)
      : p(params), op(params) {}

  __device__ __forceinline__ void write(typename Op::state &z,
                                        typename Op::older &old, int row,
                                        int degree, int slot, bool any) const {
    typename Op::total t[C][VEC];
    op.close(t, z, old, any);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      if (!op.features.has(c))
        continue;
      if (slot >= 0)
        op.keep(t[c], slot, op.features.at(c));
      else
        op.store(t[c], row, degree, op.features.at(c));
    }
  }

  __device__ __forceinline__ void run(int unit) const {
    const gather_schedule &s = p.schedule;
    const int64_t steps = s.edges + s.rows;
    const int64_t d0 = int64_t(unit) * s.share;
    const int64_t d1 = min(d0 + s.share, steps);
    int row = rows_before(s, d0);
    const int row_end = rows_before(s, d1);
    int64_t e = d0 - row;
    const int64_t e_end = d1 - row_end;
    /* The row's first edge, and the one after its last. */
    int64_t begin = s.offsets[row];
    int64_t end = end_of(row);
    const bool entered = begin < e; /* in an earlier share */
    if (s.share_row && blockIdx.y == 0 && (threadIdx.x & (L - 1)) == 0)
      s.share_row[unit] = entered && row < row_end ? row : -1;

    typename Op::state z;
    typename Op::older old;
    int slot = entered ? 2 * unit : -1, added = 0, unfolded = 0;
    edge_ahead next[U];
    int64_t end_after = end_of(row + 1);
    fetch_edges(next, e, e_end);
    op.begin(z, row, static_cast<int>(e - begin));
    for (;;) {
      typename Op::edge x[U];
      typename Op::note note[U];
      typename Op::mark m[U];
      int j[U], done = 0;
      const int count = static_cast<int>(min(e_end - e, int64_t(U)));
      unroll<U>([&](int u) {
        j[u] = next[u].index;
        note[u] = op.look(next[u], u < count);
      });
      fetch_edges(next, e + U, e_end);
      unroll<U>([&](int u) { op.template load<false>(x[u], j[u], u < count); });
      op.marks(m, note);
      unroll<U>([&](int u) {
        op.template fetch<false>(x[u], j[u], m[u], u < count);
      });
      for (;;) { /* over the rows of these edges */
        const int stop = static_cast<int>(min(end - e, int64_t(count)));
        const int position = static_cast<int>(e - begin);
        if (stop - done == U) {
          if (added == 0)
            op.start(z, x[0], L, L);
          op.template step<true>(z, x, m, position, 1, U);
        } else {
          unroll<U>([&](int u) {
            const bool mine = u >= done && u < stop;
            if (mine && u == done && added == 0)
              op.start(z, x[u], L, L);
            op.template add<false>(z, x[u], m[u], position + u, mine);
          });
        }
        added += stop - done;
        unfolded += stop - done;
        done = stop;
        if (row >= row_end || e + done != end)
          break;
        write(z, old, row, static_cast<int>(end - begin), slot, added > 0);
        ++row;
        slot = -1;
        added = unfolded = 0;
        begin = end;
        end = end_after;
        end_after = end_of(row + 1);
        op.begin(z, row, 0);
      }
      if (unfolded >= kFoldEdges) {
        op.fold(z, old, added, L, L);
        unfolded = 0;
      }
      e += count;
      if (e >= e_end)
        break;
    }
    if (added > 0)
      write(z, old, row, 0, 2 * unit + 1, true);
  }

  __device__ __forceinline__ int64_t end_of(int row) const {
    const gather_schedule &s = p.schedule;
    return row < s.rows ? s.offsets[int64_t(row) + 1] : s.edges;
  }

  __device__ __forceinline__ void fetch_edges(edge_ahead (&next)[U], int64_t e,
                                              int64_t e_end) const {
    unroll<U>([&](int u) {
      next[u].clear();
      if (e + u < e_end)
        next[u].template read<Op::kNotes>(p, e + u);
    });
  }
};

/* The body of a kernel over balanced shares, of up to 512 threads. */
template <class Op, int L, int C, int U>
__device__ __forceinline__ void gather_shares_of(const gather_params &p) {
  const int64_t unit = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / L;
  const gather_share<Op, L, C, U> work(p);
  if (unit < p.schedule.units)
    work.run(static_cast<int>(unit));
}

} // namespace dfgnn

#endif
