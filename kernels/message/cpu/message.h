/* message.h - sums and reductions over the messages of edges on a CPU
 *
 * Three passes share one aggregate.  They differ in the tensors that are read
 * at the walked row (own) and at the node at the other end of an edge (far):
 *
 * clang-format off
 *             rows are       own.first   far.first   sums
 *   FORWARD   destinations               value       out
 *   COLUMNS   sources        value       grad_out    grad_value, grad_gate_src
 *   ROWS      destinations   grad_out    value       grad_gate_dst
 * clang-format on
 *
 * An edge's part of the message is given by the caller, who has projected the
 * edge's features (DFGNN_EDGE_PROJECTED), or it is projected here: a matrix
 * multiplies the features of DFGNN_CPU_MESSAGE_WINDOW edges at a time into the
 * thread's scratch, where the next rows find the parts of their edges, too.
 * With GATE_VALUE an edge has a second part, which is added to the value.  The
 * gradients of matrix, offset and features come from a pass over blocks of
 * edges; the sums of the blocks are added in order.
 *
 * Reductions walk the same way: forward finds extremes and moments of messages;
 * backward computes the gradient of each message from the gradients of its
 * row's results. */
#ifndef DFGNN_MESSAGE_CPU_MESSAGE_H
#define DFGNN_MESSAGE_CPU_MESSAGE_H

#include "kernels/common/cpu_walk.h"

/* Edges summed on their own before they join the sum of a row. */
#define DFGNN_CPU_MESSAGE_CHUNK 64
/* Edges that are projected together. */
#define DFGNN_CPU_MESSAGE_WINDOW 32
/* Rows of scalars in the workspace are padded to a multiple of this. */
#define DFGNN_CPU_MESSAGE_PAD 16
/* Bytes of a thread's scratch before its numbers: room for its window. */
#define DFGNN_CPU_MESSAGE_HEAD 64

typedef enum dfgnn_cpu_message_pass {
  DFGNN_CPU_MESSAGE_FORWARD,
  DFGNN_CPU_MESSAGE_COLUMNS,
  DFGNN_CPU_MESSAGE_ROWS,
  DFGNN_CPU_MESSAGE_PASSES
} dfgnn_cpu_message_pass;

/* The edge's part of a message: none, given by the caller or projected. */
typedef enum dfgnn_cpu_message_edges {
  DFGNN_CPU_EDGES_NONE,
  DFGNN_CPU_EDGES_GIVEN,
  DFGNN_CPU_EDGES_PROJECTED,
  DFGNN_CPU_EDGES_KINDS
} dfgnn_cpu_message_edges;

/* The formulas of messages, named as in dfgnn_message. */
typedef enum dfgnn_cpu_message_kind {
  DFGNN_CPU_MESSAGE_RELU,
  DFGNN_CPU_MESSAGE_GATE,
  DFGNN_CPU_MESSAGE_GATE_VALUE,
  DFGNN_CPU_MESSAGE_KINDS
} dfgnn_cpu_message_kind;

/* The tensors that are read at one end of an edge. */
typedef struct dfgnn_cpu_message_ends {
  dfgnn_cpu_table first, gate;
} dfgnn_cpu_message_ends;

/* The tensors by destination that a reduction writes (forward), or that the
 * gradient of a message reads (backward). */
typedef struct dfgnn_cpu_reduced {
  dfgnn_cpu_table out, least, most, std; /* results, or backward their
                                          * gradients; out: PNA's mean, else the
                                          * only result */
  dfgnn_cpu_table mean, deviation;       /* PNA's results, read backward */
  dfgnn_cpu_table arg_min, arg_max;      /* of int32; base NULL: none */
} dfgnn_cpu_reduced;

/* Edge features that a matrix projects.  Rows of scalars are padded with
 * zeros; a projected row has one part of padded_width numbers, or two. */
typedef struct dfgnn_cpu_projection {
  int64_t fields;         /* features of an edge */
  int64_t padded_fields;  /* fields + 1, for the offset, padded */
  int64_t padded_width;   /* the width of a part, padded */
  int64_t row;            /* the width of all parts */
  const char *attr;       /* [E][fields] storage */
  char *grad_attr;        /* its gradient; NULL: not wanted */
  const char *matrix;     /* [fields + 1][row] scalars, each row in the order of
                           * pieces; the last row is the offset */
  const char *by_feature; /* the matrix transposed, [row][padded_fields]
                           * scalars; for grad_attr */
  char *scratch;          /* the scratches of all threads */
  size_t scratch_bytes;   /* of one thread */
} dfgnn_cpu_projection;

typedef struct dfgnn_cpu_message {
  dfgnn_cpu_pieces pieces;
  int64_t edges, width; /* heads times features */
  int64_t rows;         /* of the graph, for the pass over edges */
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  const void *edge; /* the graph's edge of each walked edge, as wide as offsets;
                     * NULL: the same edge */
  dfgnn_cpu_message_ends own, far;
  dfgnn_cpu_table to, to_gate; /* sums; base NULL: not wanted */
  dfgnn_cpu_table attr;        /* the edges' parts that are given */
  dfgnn_cpu_table grad_attr;   /* their gradient; base NULL: not wanted */
  const void *scale;           /* factors by far node; NULL: 1 */
  const void *after;           /* factors by walked row; NULL: 1 */
  int mean;                    /* after is divided by the degree */
  int64_t prefetch;            /* edges ahead; 0: none */
  dfgnn_cpu_message_kind kind;
  dfgnn_op op;
  dfgnn_cpu_reduced reduced;
  const void *row_offsets; /* of the graph's rows, in every pass */
  dfgnn_cpu_projection projection;
} dfgnn_cpu_message;

/* The head of a thread's scratch: it holds the projected parts of the walked
 * edges begin .. end - 1. */
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
  /* The same for the states of reductions. */
  void (*merge_reduced)(const void *job, int64_t piece, void *to,
                        const void *from, int64_t before, int64_t count);
  void (*finish_reduced)(const void *job, int64_t row, int64_t piece,
                         void *state);
  /* For the graph's edges begin .. end - 1, writes grad_attr of the projection,
   * if it is wanted, and adds the gradients of matrix and offset to sums,
   * [fields + 1][row], unless it is NULL.  The job is one of the pass ROWS. */
  void (*edges)(const dfgnn_cpu_message *job, int64_t begin, int64_t end,
                char *scratch, void *sums);
} dfgnn_cpu_message_kernels;

/* Components of a reduction's state, [width] each: see reduce.h. */
#define DFGNN_CPU_MESSAGE_KNOWN 7

/* Does an operator add messages up? */
static inline int dfgnn__cpu_message_sums(dfgnn_op op) {
  return op == DFGNN_OP_SPMM_SUM || op == DFGNN_OP_SPMM_MEAN ||
         op == DFGNN_OP_REDUCE_MEAN;
}

const dfgnn_cpu_message_kernels *dfgnn__cpu_message_kernels(int simd,
                                                            dfgnn_dtype dtype);

#endif
