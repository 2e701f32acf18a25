/* message.h - what the kernels of sums and reductions of messages share with
 * the host */
#ifndef DFGNN_MESSAGE_CUDA_MESSAGE_H
#define DFGNN_MESSAGE_CUDA_MESSAGE_H

#include "kernels/common/cuda_gather.h"

/* As on a CPU, passes differ in what is read of a row (own) and of the nodes
 * that its edges lead to (far):
 *
 * clang-format off
 *             rows are       own.first   far.first   sums
 *   FORWARD   destinations               value       out
 *   COLUMNS   sources        value       grad_out    grad_value, grad_gate_src
 *   ROWS      destinations   grad_out    value       grad_gate_dst
 * clang-format on
 *
 * Reductions walk alike; what backward reads of a destination in place of its
 * grad_out is in the fields of gather_params for their gradients. */
enum { MESSAGE_FORWARD, MESSAGE_COLUMNS, MESSAGE_ROWS };

/* What an instance of the kernels does: its pass; whether messages are gated,
 * and the value has features of the edge, too; what the gradient of a message
 * is, beside a share of grad_out: where the edge was the extreme (PICK), or all
 * of PNA (MOMENTS); and TOGETHER times how many features of an edge are read
 * together, if they are projected. */
enum {
  MESSAGE_PASS = 3,
  MESSAGE_GATED = 4,
  MESSAGE_VALUE = 8,
  MESSAGE_PICK = 16,
  MESSAGE_MOMENTS = 32,
  MESSAGE_TOGETHER = 64
};

/* Fields of edges beside those that a matrix projects. */
enum { MESSAGE_EDGES_NONE = 0, MESSAGE_EDGES_GIVEN = -1 };

/* gather.table is far.first and gather.out the first sum. */
typedef struct message_params {
  gather_params gather;
  feature_tensor own, own_gate, far_gate, out_gate;
  const void *attr;   /* [E, fields], or [E, width] heads first */
  void *grad_attr;    /* of the latter; NULL: not wanted */
  const void *matrix; /* [fields + 1][parts][width] scalars, features in the
                       * order of the layout; the last row is the offset */
} message_params;

/* ---- gradients of projections -------------------------------------------- */

/* Blocks of so many threads take so many edges and features at a time. */
enum { EDGES_THREADS = 256, EDGES_TILE = 64, EDGES_FEATURES = 64 };

typedef struct message_edges_params {
  int64_t edges;
  int fields, width, heads, dim, heads_inner;
  int tiles;  /* of the features of a part */
  int chunks; /* tiles of edges of a block */
  csr_offsets offsets;
  const int *indices, *row_of_edge;
  feature_tensor value, grad_out, gate_dst, gate_src;
  feature_tensor grad_min, grad_max, mean; /* of PNA */
  const int *arg, *arg2;                   /* as in gather_params */
  const void *coefficient, *offset;
  const void *scale_dst, *scale_src; /* NULL: 1 */
  const void *attr, *matrix;
  void *grad_attr; /* [E, fields] */
  void *sums;      /* [blocks][fields + 1][parts][width] scalars */
} message_edges_params;

typedef struct message_parameters_params {
  int blocks, fields, parts, width, heads, dim, heads_inner;
  const void *sums;
  void *grad_matrix, *grad_offset; /* scalars, heads first; NULL: not wanted */
} message_parameters_params;

typedef struct message_matrix_params {
  int fields, parts, width, heads, dim, heads_inner;
  const void *matrix, *offset; /* [parts][width][fields] and [parts][width]
                                * storage */
  void *to;
} message_matrix_params;

#endif
