/* backward.h - arguments of the kernels of backward
 *
 * A pass walks rows (of the CSR matrix: destinations) or columns (rows of its
 * transpose: sources).  "Own" tensors belong to the row of the walk, "far"
 * tensors are gathered by its edges:
 *
 *             own             far           gives
 *   rows      q, dO [, O]     k, v          grad_query, grad_score_dst, ...
 *   columns   k, v            q, dO         grad_key, grad_value, ...
 *
 * In AGNN and GATv2 k and v are one tensor; GAT has neither q nor k.  Columns
 * also gather the log-sum-exp and delta = <dO, O> of a destination from
 * `stats`, where the walk over rows leaves them; without such a walk a small
 * kernel does. */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_H

#include <stdint.h>

#include "dfgnn_types.h"
#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/attention/cuda/edge_mode.h"
#include "kernels/attention/cuda/lanes.h"
#include "kernels/attention/cuda/schedule.h"
#include "kernels/attention/operators.h"

/* The mode of a walk is bits of enum edge_mode, or GRAD_GIVEN for a walk over
 * rows that reads dS, which the walk over columns spilled. */
enum { GRAD_GIVEN = 8 };

/* Bits that gradient() takes beside the mode: the walk adds to its outputs, and
 * GATv2's slope is not 0 .. 1. */
enum { GRAD_ADDS = 16, GRAD_ANY_SLOPE = 32 };

/* The numbers of `stats` for a destination and head: lse (in log2 units; +inf
 * for -inf), delta, and a scalar of the score: AGNN's inverse norm, GAT's
 * score. */
enum { STAT_LSE = 0, STAT_DELTA = 1, STAT_EXTRA = 2 };
#define GRAD_STATS(op) (DFGNN_HAS_NORMS(op) || DFGNN_HAS_SCALARS(op) ? 4 : 2)

/* The number of tensors that a walk writes: the score's comes first, that of
 * values last. */
#define GRAD_SUMS(op, columns)                                                 \
  ((columns) ? (DFGNN_HAS_KEY(op) ? 2 : 1) : DFGNN_HAS_SCALARS(op) ? 0 : 1)

typedef struct grad_params {
  row_schedule schedule;
  block_share share;
  int32_t heads, dim;
  int32_t adds; /* the walk adds to `to` and to_scalar */
  tensor_view own[2], far[2], to[2];
  tensor_view out;        /* rows */
  const void *lse;        /* rows: [N,H] */
  const void *grad_lse;   /* rows: [N,H], subtracted from delta; or NULL */
  void *stats;            /* [N,H,GRAD_STATS]: rows write, columns read */
  const void *own_scalar; /* GAT: score of the own node, [rows,H] */
  const void *far_scalar; /* rows: AGNN inverse norm, GAT score, [M,H] */
  void *to_scalar;        /* GAT: [rows,H] */
  const void *att, *beta;
  const void *edge_of; /* columns: numbers of edges, as wide as offsets */
  const void *bias;    /* [E,H] or NULL, like all that follow */
  void *grad_bias, *spill;
  dropout_params dropout;
  void *partial, *partial_scalar; /* [slots,tensors,H,D], [slots,H] */
  void
      *totals; /* rows: [blocks,H,D] of grad_att, [blocks,tiles] of grad_beta */
  double scale, slope;
} grad_params;

/* Arguments of the small kernels around the walks: backward_sums.cuh. */

typedef struct grad_stats_params {
  tensor_view query, grad_out, out;
  const void *lse, *grad_lse, *score;
  void *stats;
  int64_t pairs;
  int32_t heads, dim, lanes, count;
} grad_stats_params;

typedef struct grad_merge_params {
  row_schedule schedule;
  tensor_view to[2];
  void *to_scalar;
  const void *partial, *partial_scalar;
  const int32_t *heavy; /* the split rows; NULL: all */
  int32_t tensors, heads, dim, width, adds;
} grad_merge_params;

typedef struct grad_totals_params {
  void *to;
  const void *totals;
  int64_t rows, width;
} grad_totals_params;

typedef struct grad_row_sums_params {
  void *to;
  const void *spill;
  const void *offsets;
  int32_t offsets64, heads, lanes, adds;
  int64_t pairs;
} grad_row_sums_params;

#endif
