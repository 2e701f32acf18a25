/* message_host.h - sums and reductions of messages on a GPU: what the families
 * share */
#ifndef DFGNN_MESSAGE_CUDA_MESSAGE_HOST_H
#define DFGNN_MESSAGE_CUDA_MESSAGE_HOST_H

#include "kernels/common/cuda_gather_host.h"
#include "kernels/message/cuda/message.h"

/* The shapes that are worth tuning for. */
extern const gather_choice dfgnn__message_shapes[];

/* Features of an edge that a block of gradients holds in shared memory. */
enum { DFGNN_MESSAGE_FIELDS = 64 };

/* Why no shape serves the setting, or NULL. */
const char *dfgnn__message_refusal(gather_shape *shape,
                                   const dfgnn_setting *setting, int lanes,
                                   int vectors, int unroll);

/* Where the parts of the workspace begin. */
typedef struct message_layout {
  size_t scales;  /* by destination, of the gradients of means */
  size_t matrix;  /* of projections, as scalars */
  size_t sums;    /* of blocks of edges, of the gradient of the matrix */
  int blocks;     /* of those */
  size_t tables;  /* by destination, of the gradients of PNA: two of them */
  size_t partial; /* results of items; of the largest pass */
  size_t bytes;
} message_layout;

/* item_edges: 0 if rows are whole. */
message_layout dfgnn__message_layout(const dfgnn_setting *setting,
                                     int item_edges);

/* How the passes of a call are scheduled.  Views are NULL if they are not
 * asked for. */
typedef struct message_call {
  const dfgnn_launch *launch;
  gather_shape shape;
  message_layout layout;
  int warps, rows;
  gather_span span;
  const dfgnn_view *transpose, *row_of_edge; /* backward */
  const dfgnn_view *order;     /* DEGREE_ORDER of FORWARD, or of COLUMNS */
  const dfgnn_view *items;     /* WORK_ITEMS of the same; NULL: whole rows */
  const dfgnn_view *row_items; /* and of ROWS */
  const void *scale_dst, *scale_src; /* of SpMM; with a mean's share */
  void *coefficient, *offset;        /* PNA's tables, in the workspace */
  const void *matrix;                /* in the workspace */
} message_call;

/* Requests the views that backward wants beside those of the schedule, from
 * position `count` on; returns how many there are then. */
int dfgnn__message_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests, int count);
dfgnn_status dfgnn__message_run(message_call *call);

/* Bits of MESSAGE_... that a problem has in each of its passes. */
int dfgnn__message_what(const dfgnn_problem *problem);
/* The positions of the extremes that come first: the least, if there are
 * two. */
const int *dfgnn__message_arg(const dfgnn_problem *problem,
                              const dfgnn_args *args);

/* Writes args->grad_edge_attr, grad_edge_weight and grad_edge_bias of a
 * projection. */
dfgnn_status dfgnn__message_grade_projection(const message_call *call);
/* Converts the matrix of a projection into call->matrix. */
dfgnn_status dfgnn__message_convert(const message_call *call);
/* Blocks that share out the edges, whose sums are kept apart. */
int dfgnn__message_blocks(const dfgnn_setting *setting);

#endif
