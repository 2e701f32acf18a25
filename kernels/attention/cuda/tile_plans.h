/* tile_plans.h - the host's side of attention over the TILES view, for the
 * families `dense` and `window` of either pass */
#ifndef DFGNN_ATTENTION_CUDA_TILE_PLANS_H
#define DFGNN_ATTENTION_CUDA_TILE_PLANS_H

#include "kernels/common/cuda_host.h"
#include "kernels/common/tiles.h"

/* One setting of a family. */
typedef struct tile_plan {
  int rows;   /* of a window */
  int stages; /* forward: chunks in shared memory */
  int split;  /* the most chunks of an item; 0: windows are whole */
  int dense;
} tile_plan;

/* ---- either pass --------------------------------------------------------- */

/* NULL if the device, the width and the rows are such that tiles serve them. */
const char *dfgnn__tile_limits(const dfgnn_setting *setting,
                               const tile_plan *plan);
dfgnn_view_request dfgnn__tile_request(const tile_plan *plan, int transposed);
/* What a call looks up by the numbers of edges, of enum edge_mode. */
int dfgnn__tile_edges(const dfgnn_problem *problem, const dfgnn_args *args);
/* Refuses what masks do not say all of: with bias or dropout, rows whose edges
 * are not in the order of their columns. */
dfgnn_status dfgnn__tile_prepare(const dfgnn_setting *setting);

/* ---- forward: tile_forward.c --------------------------------------------- */

const char *dfgnn__tile_refusal(const dfgnn_setting *setting,
                                const tile_plan *plan);
size_t dfgnn__tile_workspace(const dfgnn_setting *setting,
                             const tile_plan *plan);
dfgnn_status dfgnn__tile_launch(const dfgnn_launch *launch,
                                const tile_plan *plan);

/* ---- backward: tile_backward.c ------------------------------------------- */

const char *dfgnn__grad_tile_refusal(const dfgnn_setting *setting,
                                     const tile_plan *plan);
size_t dfgnn__grad_tile_workspace(const dfgnn_setting *setting,
                                  const tile_plan *plan);
int dfgnn__grad_tile_views(const tile_plan *plan, dfgnn_view_request *requests);
dfgnn_status dfgnn__grad_tile_launch(const dfgnn_launch *launch,
                                     const tile_plan *plan);

#endif
