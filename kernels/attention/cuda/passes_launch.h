/* passes_launch.h - host code around the separate passes */
#ifndef DFGNN_ATTENTION_CUDA_PASSES_LAUNCH_H
#define DFGNN_ATTENTION_CUDA_PASSES_LAUNCH_H

#include "kernels/attention/cuda/passes.h"
#include "kernels/common/cuda_host.h"

/* Fills the arguments of a call and returns the elements of a load.  The scores
 * are the workspace, row_of_edge is the first view if there is one. */
int dfgnn__passes_fill(dfgnn_passes *passes, const dfgnn_launch *launch);

/* Bytes of all scores. */
size_t dfgnn__passes_score_bytes(const dfgnn_setting *setting);

/* Lanes that score an edge: enough to keep the row in registers, and no fewer
 * than make whole sectors. */
int dfgnn__passes_lanes(const dfgnn_problem *problem, int vector);

/* Launches the scores of all edges, shared out evenly. */
dfgnn_status dfgnn__passes_scores(const dfgnn_passes *passes,
                                  const dfgnn_setting *setting, int vector);
/* Launches the softmax of rows, their sums, or both; steps: DFGNN_ROWS_... */
dfgnn_status dfgnn__passes_rows(const dfgnn_passes *passes,
                                const dfgnn_setting *setting, int vector,
                                int steps);

#endif
