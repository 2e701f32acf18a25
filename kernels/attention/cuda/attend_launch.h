/* attend_launch.h - host code around attend() */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_LAUNCH_H
#define DFGNN_ATTENTION_CUDA_ATTEND_LAUNCH_H

#include "kernels/attention/cuda/attend.h"
#include "kernels/attention/cuda/plans.h"

size_t dfgnn__attend_workspace(const dfgnn_setting *setting,
                               const row_plan *plan);
/* Forward attention as a plan says. */
dfgnn_status dfgnn__attend_launch(const dfgnn_launch *launch,
                                  const row_plan *plan);

/* ---- for launches of other kinds ----------------------------------------- */

/* Merges the partial results of split rows, those of a view of items, or NULL:
 * all. */
dfgnn_status dfgnn__attend_merge(const attend_params *p, int64_t dim,
                                 const dfgnn_view *items,
                                 const dfgnn_launch *launch);
/* Turns `weights` [E,H] from scores in log2 units into weights; lse: [N,H]. */
dfgnn_status dfgnn__attend_weights(void *weights, const void *lse,
                                   const dfgnn_launch *launch);

#endif
