/* tile_plans.h - host code of attention over the TILES view, for the families
 * `dense`, `window` and `direct` of either pass */
#ifndef DFGNN_ATTENTION_CUDA_TILE_PLANS_H
#define DFGNN_ATTENTION_CUDA_TILE_PLANS_H

#include "kernels/common/cuda_host.h"
#include "kernels/common/tiles.h"

/* The parameters of a variant, by name. */
typedef struct tile_plan {
  int rows;   /* rows of a window */
  int stages; /* forward: chunks in shared memory */
  int dense;  /* 1: the columns of an item follow each other */
  int direct; /* 1: by fragments.cuh, if the arguments are aligned */
} tile_plan;

/* ---- either pass --------------------------------------------------------- */

/* NULL if tiles serve the device, the width and the rows, else the reason. */
const char *dfgnn__tile_limits(const dfgnn_setting *setting,
                               const tile_plan *plan);
/* NULL if fragments.cuh serves the problem, else the reason. */
const char *dfgnn__direct_limits(const dfgnn_problem *problem);
/* The number of heads of a block, which has at most 8 warps. */
int dfgnn__direct_heads(int heads, int rows);
dfgnn_view_request dfgnn__tile_request(const tile_plan *plan, int transposed);
/* The bits of enum edge_mode for a call. */
int dfgnn__tile_edges(const dfgnn_problem *problem, const dfgnn_args *args);
/* Refuses matrices whose masks do not tell the numbers of edges: with bias or
 * dropout, rows whose edges are not in the order of their columns. */
dfgnn_status dfgnn__tile_prepare(void **state, const dfgnn_setting *setting,
                                 const dfgnn_view *const *views);

/* ---- forward: tile_forward.c --------------------------------------------- */

const char *dfgnn__tile_refusal(const dfgnn_setting *setting,
                                const tile_plan *plan);
size_t dfgnn__tile_workspace(const dfgnn_setting *setting,
                             const tile_plan *plan);
int dfgnn__tile_views(const dfgnn_setting *setting, const tile_plan *plan,
                      dfgnn_view_request *requests);
dfgnn_status dfgnn__tile_launch(const dfgnn_launch *launch,
                                const tile_plan *plan);

/* ---- backward: tile_backward.c ------------------------------------------- */

const char *dfgnn__grad_tile_refusal(const dfgnn_setting *setting,
                                     const tile_plan *plan);
size_t dfgnn__grad_tile_workspace(const dfgnn_setting *setting,
                                  const tile_plan *plan);
int dfgnn__grad_tile_views(const dfgnn_setting *setting, const tile_plan *plan,
                           dfgnn_view_request *requests);
dfgnn_status dfgnn__grad_tile_launch(const dfgnn_launch *launch,
                                     const tile_plan *plan);

#endif
