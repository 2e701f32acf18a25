/* walk.cuh - the rows that attention walks (cuda_walk.cuh), and how the warps
 * of a block share them out */
#ifndef DFGNN_ATTENTION_CUDA_WALK_CUH
#define DFGNN_ATTENTION_CUDA_WALK_CUH

#include "kernels/attention/cuda/lanes.cuh"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/common/cuda_walk.cuh"

namespace dfgnn {

/* Finds the row of a warp's lane, unit plus the lane's place among the rows of
 * the warp, if it is below `last`; else a row without edges. */
DEVICE bool find_row(row_edges &w, const row_schedule &schedule, int group,
                     int unit, int last) {
  w = row_edges{0, -1, 0, schedule.indices};
  unit += lane_id() / group;
  const bool active = unit < last && has_unit(schedule, unit);
  if (active)
    w = row_of_unit(schedule, unit);
  return active;
}

/* The units of a block: those of a block_share.  Warps take tickets, `rows`
 * units each: rounds of `at_once` units, round_step apart. */
struct block_units {
  const block_share &p;
  int rows, at_once, first, last;
  bool several; /* does the block have more than one round? */

  DEVICE block_units(const block_share &share, int units)
      : p(share), rows(32 / p.group), at_once(blockDim.x / 32 * rows),
        first(blockIdx.x * p.first_step), last(min(first + p.span, units)),
        several(p.span > at_once) {}
  /* The ticket that a warp begins with. */
  DEVICE int own_ticket() const {
    return static_cast<int>(threadIdx.x / 32) * rows;
  }
  DEVICE int unit_of(int ticket) const {
    return first + ticket / at_once * p.round_step + ticket % at_once;
  }
};

} // namespace dfgnn

#endif
