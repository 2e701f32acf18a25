/* walk.cuh - the walk over rows that both passes of attention share
 *
 * A row of the schedule (a destination, a source, or an item of a split one)
 * belongs to `group` lanes of a warp, and its sides (lanes.cuh) have U edges
 * each in flight.  Each lane of a row reads one edge, `group` edges ahead of
 * their use; lanes then tell each other by shuffles.  A Row says what is done:
 *
 * clang-format off
 *   ahead                        what a lane read of an edge
 *   read(x, at, there)           reads it, if it is there; at: its place in the
 *                                list of the edges' sources
 *   label, label_of(x, at)       what edges() needs of it, made by the lane
 * that read it edges<WHOLE>(z, w, label, from, left) adds U edges of each side
 * to the state z; lane `from` has read the side's first, and the row has `left`
 * edges from that one on: edge u is live if u * sides < left.  WHOLE: all are
 * clang-format on
 *
 * A step in which every side has all its U edges needs no masks; most steps of
 * long rows are such. */
#ifndef DFGNN_ATTENTION_CUDA_WALK_CUH
#define DFGNN_ATTENTION_CUDA_WALK_CUH

#include "kernels/attention/cuda/lanes.cuh"
#include "kernels/attention/cuda/schedule.cuh"

namespace dfgnn {

/* Finds the row of a warp's lane, unit plus the lane's place among the rows of
 * the warp, if it is below `last`; else a row without edges. */
__device__ __forceinline__ bool find_row(row_work &w,
                                         const row_schedule &schedule,
                                         int group, int unit, int last) {
  w = row_work{0, -1, 0, schedule.indices};
  unit += lane_id() / group;
  const bool active = unit < last && has_unit(schedule, unit);
  if (active)
    w = row_of_unit(schedule, unit);
  return active;
}

/* Walks the edges of a row; next: what the lane has read of its first.  All
 * lanes of the warp call it. */
template <int L, int U, class Row>
__device__ __forceinline__ void
walk_edges(const Row &row, typename Row::state &z, const row_work &w,
           typename Row::ahead next) {
  const int *at = w.indices + row.lane_of_row();
  int left = w.degree - row.side(); /* edges from this side's next one on */
  while (__any_sync(kFullMask, left > 0)) {
    const typename Row::label label = row.label_of(next, at);
    at += row.group;
    row.read(next, at, left + row.side() - row.lane_of_row() > row.group);
    int from = (lane_id() & ~(row.group - 1)) + row.side();
#pragma unroll 1
    for (int i = 0; i < L / U; ++i) {
      if (!__any_sync(kFullMask, left > 0))
        break;
      if (__all_sync(kFullMask, left > (U - 1) * row.sides()))
        row.template edges<true>(z, w, label, from, left);
      else
        row.template edges<false>(z, w, label, from, left);
      left -= U * row.sides();
      from += U * row.sides();
    }
  }
}

/* The units of a block: those of a block_share.  Warps take tickets, `rows`
 * units each: so many rounds of `at_once` units, round_step apart. */
struct block_units {
  const block_share &p;
  int rows, at_once, first, last;
  bool several; /* does the block have more than one round? */

  __device__ __forceinline__ block_units(const block_share &share, int units)
      : p(share), rows(32 / p.group), at_once(blockDim.x / 32 * rows),
        first(blockIdx.x * p.first_step), last(min(first + p.span, units)),
        several(p.span > at_once) {}
  /* The ticket that a warp begins with. */
  __device__ __forceinline__ int own_ticket() const {
    return static_cast<int>(threadIdx.x / 32) * rows;
  }
  /* The next ticket of those that are left; taken: in shared memory, counts
   * them from at_once on. */
  __device__ __forceinline__ int next_ticket(int &taken) const {
    int ticket = 0;
    if (lane_id() == 0)
      ticket = atomicAdd(&taken, rows);
    return __shfl_sync(kFullMask, ticket, 0);
  }
  __device__ __forceinline__ int unit_of(int ticket) const {
    return first + ticket / at_once * p.round_step + ticket % at_once;
  }
};

} // namespace dfgnn

#endif
