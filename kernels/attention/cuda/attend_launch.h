/* attend_launch.h - host code around attend() */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_LAUNCH_H
#define DFGNN_ATTENTION_CUDA_ATTEND_LAUNCH_H

#include "kernels/attention/cuda/attend.h"
#include "kernels/attention/cuda/layout.h"

/* The parameters of a variant, by name. */
typedef struct attend_plan {
  int lanes;  /* lanes of an edge */
  int unroll; /* edges in flight */
  int warps;  /* a block */
  int rows;   /* a warp, side by side */
  int heads;  /* lane_heads */
  row_span span;
  int by_degree;   /* rows by falling degree */
  int item_edges;  /* rows are cut into items of at most these; 0: whole */
  int norms_table; /* AGNN's norms come from a table */
} attend_plan;

/* NULL if a plan serves the setting, else the reason. */
const char *dfgnn__attend_refusal(const dfgnn_setting *setting,
                                  const attend_plan *plan);
size_t dfgnn__attend_workspace(const dfgnn_setting *setting,
                               const attend_plan *plan);
int dfgnn__attend_views(const attend_plan *plan, dfgnn_view_request *request);
/* Forward attention as a plan says. */
dfgnn_status dfgnn__attend_launch(const dfgnn_launch *launch,
                                  const attend_plan *plan);

/* ---- for launches of other kinds ----------------------------------------- */

/* Merges the partial results of split rows. */
dfgnn_status dfgnn__attend_merge(const attend_params *p, int64_t dim,
                                 const dfgnn_view *items,
                                 const dfgnn_launch *launch);
/* Turns `weights` [E,H] from scores in log2 units into weights; lse: [N,H]. */
dfgnn_status dfgnn__attend_weights(void *weights, const void *lse,
                                   const dfgnn_launch *launch);

#endif
