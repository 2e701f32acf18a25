/* plan.h - whether CUDA kernels serve an MLP on edges, and how it is divided
 * among launches and blocks */
#ifndef DFGNN_MLP_CUDA_PLAN_H
#define DFGNN_MLP_CUDA_PLAN_H

#include "dfgnn_mlp.h"
#include "kernels/common/variant.h"
#include "kernels/engine/engine.h"
#include "kernels/mlp/cuda/params.h"

/* A checked call. */
typedef struct dfgnn_mlp_job {
  dfgnn_edge_mlp mlp;
  dfgnn_edge_mlp_args args; /* those that the pass does not use are NULL */
  dfgnn_pass pass;
  dfgnn_matrix rows;
} dfgnn_mlp_job;

typedef struct dfgnn_mlp_plan {
  int flags, units;
  int warps;                    /* of a block */
  int64_t span;                 /* tiles whose rows are summed */
  int64_t edges_of_span, spans; /* of the sums at destinations */
  int64_t edges_of_launch;
  int weight_tiles, splits; /* of the gradients of weights */
  size_t shared_bytes;
  /* Places in the workspace. */
  size_t packed, partial, grad_first, norm_partial, weight_partial;
  size_t input[DFGNN_MLP_LAYERS], grad_z[DFGNN_MLP_LAYERS];
  size_t bytes;
} dfgnn_mlp_plan;

/* The width that layer l makes; that of layer -1 is the edges' own. */
static inline int dfgnn__mlp_width(const dfgnn_edge_mlp *mlp, int l) {
  return (int)(l < 0 ? mlp->edge_dim : mlp->width[l]);
}
/* C, the width of e'. */
static inline int dfgnn__mlp_out_width(const dfgnn_edge_mlp *mlp) {
  return (int)mlp->width[mlp->layers - 1];
}
/* The way back needs no z of the last layer where there is no norm. */
static inline int64_t dfgnn__mlp_kept_width(const dfgnn_edge_mlp *mlp, int l) {
  return l + 1 < mlp->layers ||
                 (l + 1 == mlp->layers && mlp->norm != DFGNN_NORM_NONE)
             ? mlp->width[l]
             : 0;
}

/* NULL if there are kernels for it, else what is missing. */
const char *dfgnn__mlp_missing(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device);

dfgnn_mlp_plan dfgnn__mlp_plan(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device);
/* The same in launches of at most so many bytes, for tests. */
dfgnn_mlp_plan dfgnn__mlp_plan_within(const dfgnn_mlp_job *job,
                                      const dfgnn_device_info *device,
                                      int64_t launch_bytes);

int dfgnn__mlp_tiles_along(int width);

/* Fills at most DFGNN_MAX_VIEWS requests, all 0 before; returns their number.
 */
int dfgnn__mlp_views(const dfgnn_mlp_job *job, dfgnn_view_request *requests);

/* Puts the pass on the queue's stream.  views: as requested, in order;
 * workspace: plan->bytes of device memory, 256-byte aligned. */
dfgnn_status dfgnn__mlp_run(const dfgnn_mlp_job *job,
                            const dfgnn_mlp_plan *plan,
                            const dfgnn_view *const *views,
                            const dfgnn_queue *queue, void *workspace);

#endif
