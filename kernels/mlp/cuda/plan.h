/* plan.h - how an MLP on edges is divided among kernels, launches and blocks */
#ifndef DFGNN_MLP_CUDA_PLAN_H
#define DFGNN_MLP_CUDA_PLAN_H

#include "engine/engine.h"
#include "kernels/mlp/job.h"

/* These may be tuned; 0 leaves a choice to the rule. */
typedef struct dfgnn_mlp_tuning {
  int warps;            /* of a block */
  int span;             /* tiles of 16 edges whose rows are summed together */
  int64_t launch_bytes; /* backward: what the kernels of a launch leave for each
                         * other, at most */
} dfgnn_mlp_tuning;

typedef struct dfgnn_mlp_plan {
  const dfgnn_mlp_job *job;
  int flags, warps, units;
  int64_t span, spans;      /* tiles of a span, spans of all */
  int64_t spans_of_launch;  /* backward */
  int weight_tiles, splits; /* of the gradients of weights */
  size_t packed_bytes, shared_bytes;
  /* Places in the workspace. */
  size_t packed, partial, partial_arg, edge_rows, grad_first, norm_partial,
      weight_partial;
  size_t input[DFGNN_MLP_LAYERS], grad_z[DFGNN_MLP_LAYERS];
  size_t z[DFGNN_MLP_LAYERS];
  size_t bytes;
} dfgnn_mlp_plan;

/* Numbers of 16 bytes, of a group of columns; padded widths. */
static inline int dfgnn__mlp_group(dfgnn_dtype dtype) {
  return 64 / (int)dfgnn_dtype_size(dtype);
}
static inline int dfgnn__mlp_padded(const dfgnn_edge_mlp *mlp, int l) {
  const int group = dfgnn__mlp_group(mlp->dtype);
  const int64_t width = l < 0 ? mlp->edge_dim : mlp->width[l];
  return (int)((width + group - 1) / group) * group;
}

/* Is the gradient of any weight or bias asked for? */
int dfgnn__mlp_wants_weights(const dfgnn_mlp_job *job);
int dfgnn__mlp_wants_norm(const dfgnn_mlp_job *job);
/* Are rows of e copied for the gradient of the first weight? */
int dfgnn__mlp_copies_edges(const dfgnn_mlp_plan *plan);

dfgnn_mlp_plan dfgnn__mlp_plan(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device,
                               const dfgnn_mlp_tuning *tuning);

#endif
