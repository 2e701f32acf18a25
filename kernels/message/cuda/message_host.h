/* message_host.h - host functions that the GPU families of messages share */
#ifndef DFGNN_MESSAGE_CUDA_MESSAGE_HOST_H
#define DFGNN_MESSAGE_CUDA_MESSAGE_HOST_H

#include "kernels/common/cuda_gather_host.h"
#include "kernels/message/cuda/message.h"

/* The shapes that are worth tuning for. */
extern const gather_choice dfgnn__message_shapes[];

/* The most features of an edge that blocks of the gradient kernels hold in
 * shared memory. */
enum { DFGNN_MESSAGE_FIELDS = 64 };

/* Returns NULL and the shape that serves the setting, or why none does. */
const char *dfgnn__message_refusal(gather_shape *shape,
                                   const dfgnn_setting *setting, int lanes,
                                   int vectors, int unroll);

/* The offsets of the parts of the workspace. */
typedef struct message_layout {
  size_t scales;  /* scales by destination, for the gradients of means */
  size_t matrix;  /* the projection's matrix as scalars */
  size_t sums;    /* each block's gradients of matrix and offset */
  int blocks;     /* the number of these blocks of edges */
  size_t tables;  /* coefficients and offsets of PNA's gradients */
  size_t partial; /* partial results of items; room for the largest pass */
  size_t bytes;   /* of all */
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
  int bits; /* the MESSAGE_... bits that all passes of a problem have */
  const int *extreme; /* the positions of the only extreme, or of PNA's least */
  const dfgnn_view *transpose, *row_of_edge; /* backward */
  const dfgnn_view *order;     /* DEGREE_ORDER for FORWARD or COLUMNS */
  const dfgnn_view *items;     /* WORK_ITEMS for the same; NULL: whole rows */
  const dfgnn_view *row_items; /* WORK_ITEMS for ROWS */
  const void *scale_dst, *scale_src; /* SpMM's; backward, scale_dst has a mean's
                                      * share */
  void *coefficient, *offset;        /* PNA's tables, in the workspace */
  const void *matrix;                /* in the workspace */
} message_call;

/* Requests the views that backward needs beside those of the schedule, from
 * position `count` on; returns the number of requests so far. */
int dfgnn__message_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests, int count);
dfgnn_status dfgnn__message_run(message_call *call);

/* Writes args->grad_edge_attr, grad_edge_weight and grad_edge_bias of a
 * projection. */
dfgnn_status dfgnn__message_grade_projection(const message_call *call);
/* Converts the matrix of a projection into call->matrix. */
dfgnn_status dfgnn__message_convert(const message_call *call);
/* The number of blocks of edges, each with sums of its own. */
int dfgnn__message_blocks(const dfgnn_setting *setting);

#endif
