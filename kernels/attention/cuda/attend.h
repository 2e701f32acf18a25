/* attend.h - arguments of attend(), merge() and finish_weights() */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_H
#define DFGNN_ATTENTION_CUDA_ATTEND_H

#include "dfgnn_types.h"
#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/attention/cuda/edge_mode.h"
#include "kernels/attention/cuda/lanes.h"
#include "kernels/attention/cuda/schedule.h"

typedef struct attend_params {
  row_schedule schedule;
  block_share share;
  tensor_view query, key, value, out;
  const void *score_dst, *score_src, *att, *beta;
  const void *bias;              /* EDGE_BIAS: [E,H] */
  void *weights;                 /* EDGE_WEIGHTS: [E,H], in log2 units */
  dropout_params dropout;        /* EDGE_DROPOUT */
  void *partial, *partial_state; /* items' sums [slots,H,D], m, l [slots,H,2] */
  void *lse;                     /* [N,H] or NULL */
  double scale;                  /* GATv2: -1 if slope > 1, else 1 */
  double slope;
} attend_params;

/* Arguments of merge(), which adds up the partial results of split rows. */
typedef struct merge_params {
  row_schedule schedule;
  const int *heavy; /* the split rows; NULL: all */
  const void *partial, *partial_state;
  tensor_view out;
  void *lse; /* [N,H] or NULL */
  int heads, dim;
  int width; /* threads of a slice of the items, a power of two */
} merge_params;

typedef struct weights_params {
  const void *lse, *offsets;
  void *weights; /* scores in log2 units become weights */
  int offsets64, heads;
  int64_t rows, edges;
} weights_params;

/* Edges that a warp of finish_weights() takes at a time. */
enum { WEIGHTS_EDGES = 32 };

#endif
