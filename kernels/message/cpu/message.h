/* message.h - sums and reductions over the messages of edges on a CPU
 *
 * Three passes are one aggregate, which differs in what is read of a walked row
 * (own) and of the node at the other end of its edges (far):
 *
 * clang-format off
 *             rows are       own.first   far.first   sums
 *   FORWARD   destinations               value       out
 *   COLUMNS   sources        value       grad_out    grad_value, grad_gate_src
 *   ROWS      destinations   grad_out    value       grad_gate_dst
 * clang-format on
 *
 * An edge's part of the message is read as it is given, or projected by a
 * matrix, DFGNN_CPU_MESSAGE_WINDOW edges at a time, into memory of the thread:
 * rows that follow find theirs there.  A value that has features of the edge,
 * too, is a second part beside it.  Gradients of matrix, offset and unprojected
 * features are made by a pass over blocks of edges, whose sums are added in
 * order.
 *
 * Reductions walk alike: forward finds extremes and moments of messages, and
 * backward gives each message the gradient that its row has for it. */
#ifndef DFGNN_MESSAGE_CPU_MESSAGE_H
#define DFGNN_MESSAGE_CPU_MESSAGE_H

#include "kernels/common/cpu_walk.h"

/* Edges summed on their own before they join the sum of a row. */
#define DFGNN_CPU_MESSAGE_CHUNK 64
/* Edges that are projected together. */
#define DFGNN_CPU_MESSAGE_WINDOW 32
/* What rows of scalars in the workspace are padded to. */
#define DFGNN_CPU_MESSAGE_PAD 16
/* Bytes of a scratch before its numbers. */
#define DFGNN_CPU_MESSAGE_HEAD 64

typedef enum dfgnn_cpu_message_pass {
  DFGNN_CPU_MESSAGE_FORWARD,
  DFGNN_CPU_MESSAGE_COLUMNS,
  DFGNN_CPU_MESSAGE_ROWS,
  DFGNN_CPU_MESSAGE_PASSES
} dfgnn_cpu_message_pass;

/* Where the edge's part comes from. */
typedef enum dfgnn_cpu_message_edges {
  DFGNN_CPU_EDGES_NONE,
  DFGNN_CPU_EDGES_GIVEN,
  DFGNN_CPU_EDGES_PROJECTED,
  DFGNN_CPU_EDGES_KINDS
} dfgnn_cpu_message_edges;

/* How messages are made. */
typedef enum dfgnn_cpu_message_kind {
  DFGNN_CPU_MESSAGE_RELU,
  DFGNN_CPU_MESSAGE_GATE,
  DFGNN_CPU_MESSAGE_GATE_VALUE,
  DFGNN_CPU_MESSAGE_KINDS
} dfgnn_cpu_message_kind;

/* What is read of a node. */
typedef struct dfgnn_cpu_message_ends {
  dfgnn_cpu_table first, gate;
} dfgnn_cpu_message_ends;

/* What a reduction of a destination writes, or what the gradient of a message
 * reads of it. */
typedef struct dfgnn_cpu_reduced {
  dfgnn_cpu_table out, least, most, std; /* or their gradients; out: PNA's mean,
                                          * else the only result */
  dfgnn_cpu_table mean, deviation;       /* PNA's, backward */
  dfgnn_cpu_table arg_min, arg_max;      /* of int32; without base: none */
} dfgnn_cpu_reduced;

/* Edge features that a matrix projects.  Rows of scalars are padded with
 * zeros; one has a part of padded_width, or two. */
typedef struct dfgnn_cpu_projection {
  int64_t fields;         /* features of an edge */
  int64_t padded_fields;  /* with one more, of the offset */
  int64_t padded_width;   /* of a part */
  int64_t row;            /* of all parts */
  const char *attr;       /* [E][fields] storage */
  char *grad_attr;        /* the same; NULL: not wanted */
  const char *matrix;     /* [fields + 1][row] scalars by field, in the order of
                           * pieces; the last row is the offset */
  const char *by_feature; /* [row][padded_fields] scalars; for grad_attr */
  char *scratch;          /* of all threads */
  size_t scratch_bytes;   /* of a thread */
} dfgnn_cpu_projection;

typedef struct dfgnn_cpu_message {
  dfgnn_cpu_pieces pieces;
  int64_t edges, width; /* heads times features */
  int64_t rows;         /* of the graph, for the pass over edges */
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  const void *edge; /* the graph's edge of each, as offsets; NULL: its own */
  dfgnn_cpu_message_ends own, far;
  dfgnn_cpu_table to, to_gate; /* sums; without base: not wanted */
  dfgnn_cpu_table attr;        /* edges as they are given */
  dfgnn_cpu_table grad_attr;   /* of those; without base: not wanted */
  const void *scale;           /* by the far end; NULL: 1 */
  const void *after;           /* by row; NULL: 1 */
  int mean;                    /* after is divided by the degree */
  int64_t prefetch;            /* edges ahead; 0: none */
  dfgnn_cpu_message_kind kind;
  dfgnn_op op;
  dfgnn_cpu_reduced reduced;
  const void *row_offsets; /* of the graph's rows */
  dfgnn_cpu_projection projection;
} dfgnn_cpu_message;

/* What is in a thread's scratch, before its numbers: the walked edges that are
 * projected. */
typedef struct dfgnn_cpu_window {
  int64_t begin, end;
} dfgnn_cpu_window;

typedef struct dfgnn_cpu_message_kernels {
  struct {
    void (*fold)(const void *job, int64_t row, int64_t piece, int64_t begin,
                 int64_t end, void *state, int whole);
  } pass[DFGNN_CPU_MESSAGE_PASSES][DFGNN_CPU_EDGES_KINDS]
        [DFGNN_CPU_MESSAGE_KINDS],
      reduced[DFGNN_CPU_MESSAGE_PASSES][DFGNN_CPU_EDGES_KINDS]
             [DFGNN_CPU_MESSAGE_KINDS];
  void (*merge)(const void *job, int64_t piece, void *to, const void *from,
                int64_t before, int64_t count);
  void (*finish)(const void *job, int64_t row, int64_t piece, void *state);
  /* The same of what reductions find. */
  void (*merge_reduced)(const void *job, int64_t piece, void *to,
                        const void *from, int64_t before, int64_t count);
  void (*finish_reduced)(const void *job, int64_t row, int64_t piece,
                         void *state);
  /* Of the graph's edges begin .. end - 1: writes grad_attr of the projection
   * and sums, [fields + 1][row], if it is not NULL.  The job is that of ROWS.
   */
  void (*edges)(const dfgnn_cpu_message *job, int64_t begin, int64_t end,
                char *scratch, void *sums);
} dfgnn_cpu_message_kernels;

/* Components of what a reduction knows of some edges, each [width]. */
#define DFGNN_CPU_MESSAGE_KNOWN 7

/* Does an operator add messages up? */
static inline int dfgnn__cpu_message_sums(dfgnn_op op) {
  return op == DFGNN_OP_SPMM_SUM || op == DFGNN_OP_SPMM_MEAN ||
         op == DFGNN_OP_REDUCE_MEAN;
}

const dfgnn_cpu_message_kernels *dfgnn__cpu_message_kernels(int simd,
                                                            dfgnn_dtype dtype);

/* The thread's number. */
int dfgnn__cpu_thread(void);

#endif
