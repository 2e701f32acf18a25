/* message.h - constants and arguments of the kernels of sums and reductions of
 * messages, for host and device */
#ifndef DFGNN_MESSAGE_CUDA_MESSAGE_H
#define DFGNN_MESSAGE_CUDA_MESSAGE_H

#include "kernels/common/cuda_gather.h"

/* Passes differ, as they do on a CPU, in the tensors that are read at the
 * walked row (own) and at the node at the other end of an edge (far):
 *
 * clang-format off
 *             rows are       own.first   far.first   sums
 *   FORWARD   destinations               value       out
 *   COLUMNS   sources        value       grad_out    grad_value, grad_gate_src
 *   ROWS      destinations   grad_out    value       grad_gate_dst
 * clang-format on
 *
 * Reductions walk the same way; in place of grad_out their backward passes read
 * the backward fields of gather_params. */
enum { MESSAGE_FORWARD, MESSAGE_COLUMNS, MESSAGE_ROWS };

/* The bits of WHAT, which tells an instance of the kernels.  With neither PICK
 * nor MOMENTS, the gradient of a message is a share of grad_out. */
enum {
  MESSAGE_PASS = 3,     /* the mask of the pass */
  MESSAGE_GATED = 4,    /* messages are gated */
  MESSAGE_VALUE = 8,    /* the edge has a second part, added to the value */
  MESSAGE_PICK = 16,    /* only the edge of the extreme has a gradient */
  MESSAGE_MOMENTS = 32, /* the gradient of PNA */
  MESSAGE_TOGETHER = 64 /* times the features of an edge that one load reads,
                         * if they are projected */
};

/* FIELDS of edges without features, and of edges whose features the caller has
 * projected (DFGNN_EDGE_PROJECTED); else the number of features to project. */
enum { MESSAGE_EDGES_NONE = 0, MESSAGE_EDGES_GIVEN = -1 };

/* gather.table is far.first and gather.out the first sum. */
typedef struct message_params {
  gather_params gather;
  feature_tensor own, own_gate, far_gate, out_gate;
  const void *attr;   /* [E, fields]; given parts [E, width], heads first */
  void *grad_attr;    /* of given parts, [E, width]; NULL: not wanted */
  const void *matrix; /* [fields + 1][parts][width] scalars, features in the
                       * order of the layout; the last row is the offset */
} message_params;

/* ---- gradients of projections -------------------------------------------- */

/* The threads of a block; the edges and the features of its tile. */
enum { EDGES_THREADS = 256, EDGES_TILE = 64, EDGES_FEATURES = 64 };

typedef struct message_edges_params {
  int64_t edges;
  int fields, width, heads, dim, heads_inner;
  int tiles;  /* that cover the features of a part */
  int chunks; /* tiles of edges that a block takes */
  csr_offsets offsets;
  const int *indices, *row_of_edge;
  feature_tensor value, grad_out, gate_dst, gate_src;
  feature_tensor grad_min, grad_max, mean; /* PNA */
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
  void *to;                    /* message_params.matrix */
} message_matrix_params;

#endif
