/* job.h - a checked MLP on edges, its tensors and a graph */
#ifndef DFGNN_KERNELS_MLP_JOB_H
#define DFGNN_KERNELS_MLP_JOB_H

#include "dfgnn_mlp.h"
#include "kernels/common/variant.h"

/* How the CPU's kernels divide a pass; 0 leaves a choice to the rule. */
typedef struct dfgnn_mlp_blocks {
  int simd;        /* 1 + the instruction set */
  int tile_bytes;  /* of a tile's values */
  int chunk_bytes; /* of what waits for sums over sources */
  int amx; /* 1: AMX's products of bf16, where dfgnn__mlp_amx_missing() is NULL
            */
} dfgnn_mlp_blocks;

typedef struct dfgnn_mlp_job {
  dfgnn_edge_mlp mlp;
  dfgnn_edge_mlp_args args; /* those that the pass does not use are NULL */
  dfgnn_pass pass;
  dfgnn_matrix rows;
  int threads;
  dfgnn_mlp_blocks blocks;
  int exact; /* for dfgnn__mlp_compare, 1: results alone are rounded to 16 bits
              * or TF32, as by the CPU's kernels; 0: operands of products and
              * rows that wait for sums over sources may be, too */
} dfgnn_mlp_job;

/* The job of a setting, whose tensors have memory in a launch alone: before,
 * those that there are are not NULL, and aligned, and nothing may read them. */
static inline void dfgnn__mlp_job_of(dfgnn_mlp_job *job,
                                     const dfgnn_setting *setting) {
  *job = *setting->mlp;
  job->rows = *setting->matrix;
  if (!job->mlp.edge_list)
    job->rows.edge_order = NULL;
  job->threads = setting->device->units > 0 ? setting->device->units : 1;
}

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
/* Numbers of a row of kept z of layer l, whole multiples of 64 bytes; 0 if the
 * way back needs no z there: behind it are neither a layer nor a norm. */
static inline int64_t dfgnn__mlp_kept_width(const dfgnn_edge_mlp *mlp, int l) {
  const int64_t group = 64 / (int64_t)dfgnn_dtype_size(mlp->dtype);
  const int read = l + 1 < mlp->layers || mlp->gate ||
                   mlp->last != DFGNN_ACTIVATION_NONE ||
                   mlp->norm != DFGNN_NORM_NONE;
  return l < mlp->layers && read ? (mlp->width[l] + group - 1) / group * group
                                 : 0;
}
static inline int dfgnn__mlp_is_extreme(dfgnn_reduce reduce) {
  return reduce == DFGNN_REDUCE_MAX || reduce == DFGNN_REDUCE_MIN;
}

dfgnn_status dfgnn__mlp_cpu(const dfgnn_mlp_job *job);
/* NULL if there are kernels for it, else what is missing. */
const char *dfgnn__mlp_cpu_missing(const dfgnn_mlp_job *job);
/* NULL if AMX may make products of the type, else why not. */
const char *dfgnn__mlp_amx_missing(dfgnn_dtype dtype);

/* How far the outputs of a job are off. */
typedef struct dfgnn_mlp_errors {
  double of_bound;   /* the largest error as a part of its bound; > 1: wrong */
  const char *where; /* the name of the tensor that has it */
  double relative;   /* of the tensor in which it is largest, the norm of the
                      * errors as a part of the tensor's norm */
} dfgnn_mlp_errors;

/* Evaluates the pass in double, and compares. */
dfgnn_status dfgnn__mlp_compare(dfgnn_mlp_errors *errors,
                                const dfgnn_mlp_job *job);

#endif
