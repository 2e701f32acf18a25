/* spmm.h - sums over gathered rows on a CPU, for SpMM and means
 *
 * Both passes are one aggregate:
 *
 *   to_i = after_i sum over the edges (i, j) of factor_ij from_j
 *
 * Forward, i is a destination, and values are gathered.  Backward walks the
 * transpose: i is a source, and the gradient of the output is gathered; the
 * gradient of an edge's weight is the dot product of the gathered row with the
 * source's own values. */
#ifndef DFGNN_SPMM_CPU_SPMM_H
#define DFGNN_SPMM_CPU_SPMM_H

#include "kernels/common/cpu_walk.h"

/* Edges summed on their own before they join the sum of a row, so that the sum
 * of a long row keeps its digits. */
#define DFGNN_CPU_SPMM_CHUNK 256

typedef struct dfgnn_cpu_spmm_kernels {
  void (*fold)(const void *job, int64_t row, int64_t piece, int64_t begin,
               int64_t end, void *state, int whole);
  void (*merge)(const void *job, int64_t piece, void *to, const void *from,
                int64_t before, int64_t count);
  void (*finish)(const void *job, int64_t row, int64_t piece, void *state);
} dfgnn_cpu_spmm_kernels;

typedef struct dfgnn_cpu_spmm {
  dfgnn_cpu_pieces pieces;
  int64_t edges, heads, dim;
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  dfgnn_cpu_table from, to; /* to: base NULL: only grad_weight is wanted */
  const void *scale;        /* factors by gathered node; NULL: 1 */
  const void *after;        /* factors by walked row; NULL: 1 */
  int mean;                 /* after is divided by the degree */
  const void *weight;       /* [E, H]; NULL: 1 */
  const void *edge; /* the graph's edge of each walked one, as wide as offsets;
                     * NULL: the same edge */
  dfgnn_cpu_table own; /* the values of a walked row, for grad_weight */
  void *grad_weight;   /* [E, H]; NULL: not wanted */
  int64_t prefetch;    /* edges ahead; 0: none */
} dfgnn_cpu_spmm;

const dfgnn_cpu_spmm_kernels *dfgnn__cpu_spmm_kernels(int simd,
                                                      dfgnn_dtype dtype);

/* These serve SpMM and, without scales, reduce-mean. */
size_t dfgnn__cpu_spmm_workspace(const dfgnn_setting *setting,
                                 dfgnn_cpu_algorithm algorithm);
dfgnn_status dfgnn__cpu_spmm_launch(const dfgnn_launch *launch,
                                    dfgnn_cpu_algorithm algorithm);

#endif
