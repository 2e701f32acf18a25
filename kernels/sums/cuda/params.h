/* params.h - constants that tell the kernels of sums what to compute, and the
 * arguments of those kernels that walk no rows; for host and device code
 *
 * Passes differ, as they do on a CPU, in the tensors that are read at the
 * walked row (own) and at the node at the other end of an edge (table):
 *
 * clang-format off
 *             rows are       own        table      sums
 *   FORWARD   destinations              value      out
 *   COLUMNS   sources        value      grad_out   grad_value, grad_gate_src
 *   ROWS      destinations   grad_out   value      grad_gate_dst
 * clang-format on
 *
 * An edge sends a copy of its source's value or a message computed of it; a row
 * adds up what it gets, or finds extremes and moments.  The backward passes of
 * such reductions read, in place of grad_out alone, the backward fields of
 * gather_params. */
#ifndef DFGNN_SUMS_CUDA_PARAMS_H
#define DFGNN_SUMS_CUDA_PARAMS_H

#include "kernels/common/cuda_gather.h"

enum { SUMS_FORWARD, SUMS_COLUMNS, SUMS_ROWS };

/* The factors of gathered rows. */
enum {
  FACTOR_NONE,
  FACTOR_EDGE, /* a number an edge */
  FACTOR_HEADS /* a number an edge and head */
};

/* The results that a forward kernel finds, in one pass. */
enum {
  REDUCE_MIN = 1,
  REDUCE_MAX = 2,
  REDUCE_MOMENTS = 4, /* mean and variance */
  REDUCE_ARG = 8,     /* which edge the extremes came from */
  REDUCE_ALL = REDUCE_MIN | REDUCE_MAX | REDUCE_MOMENTS
};

/* The gradients of copies that a backward kernel gathers. */
enum {
  REDUCE_PICK,   /* the gradient where an edge was the extreme */
  REDUCE_SPREAD, /* coefficient (x - mean), of var and std */
  REDUCE_BOTH    /* all of PNA */
};

/* The bits of WHAT, which tells an instance of the kernels of messages.  With
 * neither PICK nor MOMENTS, the gradient of a message is a share of grad_out.
 */
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

enum { MERGE_THREADS = 256 }; /* of a block that merges parts of a row */

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
  void *to;                    /* gather_params.matrix */
} message_matrix_params;

#endif
