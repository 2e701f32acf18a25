/* cuda_walk.cuh - the walk along the edges of a row, of attention, sums,
 * reductions and messages, and of their gradients
 *
 * A row (a destination, a source, or an item of a split one) belongs to `group`
 * lanes of a warp.  L lanes work on an edge, so the row has group / L sides,
 * each with U edges in flight.  Each lane of a row reads one edge, `group`
 * edges ahead of their use; lanes then tell each other by shuffles.  A Row says
 * what is done:
 */
/* clang-format off */
/*   state              what a lane keeps of a row
 *   first_of(w)        the place of the first edge that a lane reads: an edge's
 *                      number, or where its source stands in memory
 *   ahead              what a lane reads of an edge
 *   read(x, at, there) reads it, if it is there
 *   label, label_of(x, at, left)
 *                      what edges() needs of it, made by the lane that read it;
 *                      left: the row's edges from the side's next one on
 *   turn(z, w, left)   comes before every `group` edges
 *   exact()            has every lane features, so that no mask is needed where
 *                      every side has all its edges?
 *   edges<WHOLE>(z, w, label, from, left)
 *                      adds U edges of each side to the state z; lane `from` has
 *                      read the side's first, and the row has `left` edges from
 *                      that one on: edge u is live if u * sides < left.  WHOLE:
 *                      all are, and exact() */
/* clang-format on */
#ifndef DFGNN_KERNELS_CUDA_WALK_CUH
#define DFGNN_KERNELS_CUDA_WALK_CUH

#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

using ptx::lane_id;

/* A Row whose lanes all have features, and which does nothing now and then. */
struct plain_walk {
  static constexpr __device__ __forceinline__ bool exact() { return true; }
  template <class State, class Work>
  static __device__ __forceinline__ void turn(State &, const Work &, int) {}
};

/* Walks the edges of row w; next: what the lane has read of its first.  All
 * lanes of the warp call it. */
template <int L, int U, class Row, class Work>
__device__ __forceinline__ void
walk_edges(const Row &row, typename Row::state &z, const Work &w,
           typename Row::ahead next) {
  auto at = row.first_of(w);
  int left = w.degree - row.side(); /* edges from this side's next one on */
  while (__any_sync(kFullMask, left > 0)) {
    const typename Row::label label = row.label_of(next, at, left);
    at += row.group;
    row.read(next, at, left + row.side() - row.lane_of_row() > row.group);
    row.turn(z, w, left);
    int from = (row.lane() & ~(row.group - 1)) + row.side();
#pragma unroll 1
    for (int i = 0; i < L / U; ++i) {
      if (!__any_sync(kFullMask, left > 0))
        break;
      if (row.exact() && __all_sync(kFullMask, left > (U - 1) * row.sides()))
        row.template edges<true>(z, w, label, from, left);
      else
        row.template edges<false>(z, w, label, from, left);
      left -= U * row.sides();
      from += U * row.sides();
    }
  }
}

/* Takes the next units of those that a block has left, `rows` for a warp;
 * taken: in shared memory, counts them. */
__device__ __forceinline__ int next_ticket(int &taken, int rows) {
  int ticket = 0;
  if (lane_id() == 0)
    ticket = atomicAdd(&taken, rows);
  return __shfl_sync(kFullMask, ticket, 0);
}

} // namespace dfgnn

#endif
