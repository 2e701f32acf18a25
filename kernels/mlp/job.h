/* job.h - a checked MLP on edges, its tensors and a graph */
#ifndef DFGNN_KERNELS_MLP_JOB_H
#define DFGNN_KERNELS_MLP_JOB_H

#include "dfgnn_mlp.h"
#include "kernels/common/variant.h"

typedef struct dfgnn_mlp_job {
  dfgnn_edge_mlp mlp;
  dfgnn_edge_mlp_args args; /* those that the pass does not use are NULL */
  dfgnn_pass pass;
  dfgnn_matrix rows;
  int threads;
} dfgnn_mlp_job;

/* C, the width of e'. */
static inline int64_t dfgnn__mlp_out_width(const dfgnn_edge_mlp *mlp) {
  return mlp->width[mlp->layers - 1] / (mlp->gate ? 2 : 1);
}
/* The width that layer l reads: Ce for the first. */
static inline int64_t dfgnn__mlp_in_width(const dfgnn_edge_mlp *mlp, int l) {
  return l ? mlp->width[l - 1] : mlp->edge_dim;
}
/* Has layer l a product, and so a weight? */
static inline int dfgnn__mlp_has_weight(const dfgnn_edge_mlp *mlp, int l) {
  return l || mlp->edge_dim;
}
static inline int dfgnn__mlp_is_extreme(dfgnn_reduce reduce) {
  return reduce == DFGNN_REDUCE_MAX || reduce == DFGNN_REDUCE_MIN;
}

dfgnn_status dfgnn__mlp_cpu(const dfgnn_mlp_job *job);

/* Evaluates the pass in double, and compares: dfgnn_edge_mlp_check. */
dfgnn_status dfgnn__mlp_compare(double *worst, const char **where,
                                const dfgnn_mlp_job *job);

#endif
