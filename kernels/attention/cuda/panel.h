/* panel.h - arguments of score_panel() and row_softmax() */
#ifndef DFGNN_ATTENTION_CUDA_PANEL_H
#define DFGNN_ATTENTION_CUDA_PANEL_H

#include "kernels/attention/cuda/lanes.h"
#include "kernels/attention/cuda/schedule.h"

/* One panel of features of one gathered table, for every edge. */
typedef struct panel_params {
  row_schedule schedule;
  int heads;
  int first, last; /* 1: it is the first, the last panel of the table */
  tensor_view query, source;
  const void *att, *beta, *inverse_dst, *inverse_src;
  int64_t att_head; /* elements between heads of att */
  void *scores;     /* [H,E] */
  int64_t edges;
  double scale, slope;
} panel_params;

typedef struct softmax_params {
  const void *offsets;
  int offsets64, rows, heads;
  int64_t edges;
  const int *indices;
  void *scores;                      /* [H,E] */
  const void *score_dst, *score_src; /* GAT */
  const void *bias;                  /* [E,H] */
  double slope;
  void *lse2, *lse, *weights; /* [N,H], [N,H] or NULL, [E,H] or NULL */
} softmax_params;

#endif
