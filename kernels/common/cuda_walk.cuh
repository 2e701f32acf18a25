/* cuda_walk.cuh - the walk along the edges of a row, of attention with and
 * without features of edges, sums, reductions, messages and programs, and of
 * their gradients
 *
 * A row (a destination, a source, or an item of a split one) belongs to lanes
 * of a warp.  L lanes work on an edge, so that a row has sides, each with U
 * edges in flight.  The walk takes turns of `group` edges: each lane of a row
 * reads one edge a turn ahead of its use; lanes then tell each other by
 * shuffles.  A Row says what is done:
 */
/* clang-format off */
/*   state              what a lane keeps of a row
 *   group              the edges of a turn: at most as many as the row's lanes
 *   side(), sides(), lane_of_row(), first_lane()
 *                      the lane's place, and the number of the row's first lane
 *   first_of(w)        the place of the first edge that a lane reads: an edge's
 *                      number, or where its source stands in memory
 *   ahead              what a lane reads of an edge
 *   label, label_of(x, at, left)
 *                      what edges() needs of it, made by the lane that read it;
 *                      left: the row's edges from the side's next one on
 *   read(x, at, left)  reads it a turn ahead, if the row has it
 *   any(left)          does a row of the warp have edges left?
 *   turn(z, w, left)   comes before every turn
 *   exact()            has every lane features, so that no mask is needed where
 *                      every side has all its edges?
 *   edges<WHOLE>(z, w, label, from, left)
 *                      adds U edges of each side to the state z; lane `from` has
 *                      read the side's first, and the row has `left` edges from
 *                      that one on: edge u is live if u * sides < left.  WHOLE:
 *                      all are, and exact()
 *   turned(label)      comes after every turn */
/* clang-format on */
#ifndef DFGNN_KERNELS_CUDA_WALK_CUH
#define DFGNN_KERNELS_CUDA_WALK_CUH

#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

using ptx::lane_id;

/* A Row whose lanes all have features, and which does nothing between turns. */
struct plain_walk {
  static DEVICE bool any(int left) { return __any_sync(kFullMask, left > 0); }
  static constexpr DEVICE bool exact() { return true; }
  template <class State, class Work>
  static DEVICE void turn(State &, const Work &, int) {}
  template <class Label> static DEVICE void turned(const Label &) {}
};

/* Walks the edges of row w, EACH a turn for each side; next: what the lane has
 * read of its first.  All lanes of the warp call it. */
template <int EACH, int U, class Row, class Work>
DEVICE void walk_edges(const Row &row, typename Row::state &z, const Work &w,
                       typename Row::ahead next) {
  auto at = row.first_of(w);
  int left = w.degree - row.side(); /* edges from this side's next one on */
  while (row.any(left)) {
    const typename Row::label label = row.label_of(next, at, left);
    at += row.group;
    row.read(next, at, left);
    row.turn(z, w, left);
    int from = row.first_lane() + row.side();
#pragma unroll 1
    for (int i = 0; i < EACH / U; ++i) {
      if (!row.any(left))
        break;
      if (row.exact() && __all_sync(kFullMask, left > (U - 1) * row.sides()))
        row.template edges<true>(z, w, label, from, left);
      else
        row.template edges<false>(z, w, label, from, left);
      left -= U * row.sides();
      from += U * row.sides();
    }
    row.turned(label);
  }
}

/* Takes the next units of those that a block has left, `rows` for a warp;
 * taken: in shared memory, counts them. */
DEVICE int next_ticket(int &taken, int rows) {
  int ticket = 0;
  if (lane_id() == 0)
    ticket = atomicAdd(&taken, rows);
  return __shfl_sync(kFullMask, ticket, 0);
}

} // namespace dfgnn

#endif
