/* sums.h - sums, reductions and messages on a CPU
 *
 * A walk (kernels/common/cpu_walk.h) folds the messages that a row's edges
 * send: copies of values or what is computed of them.  Passes differ in the
 * tensors that are read at the walked row (own) and at the node at the other
 * end of an edge (far):
 *
 * clang-format off
 *             rows are       own.first   far.first   sums
 *   FORWARD   destinations               value       out
 *   COLUMNS   sources        value       grad_out    grad_value, grad_gate_src
 *   ROWS      destinations   grad_out    value       grad_gate_dst
 * clang-format on
 *
 * Sums are multiplied by a factor of each edge and one of the row:
 * to_i = after_i sum over the edges (i, j) of factor_ij message_ij.
 *
 * Reductions find min and max with the edges from which they come, and moments
 * by chunks of a row: sums of differences from the chunk's first message,
 * joined as in Chan, Golub and LeVeque (1983), so that neither an offset common
 * to all messages nor the number of edges costs digits.  Backward, the gradient
 * of a copy reads the record of its destination, which was written before:
 *
 * clang-format off
 *   coefficient  d out_i / d (x_j - mean_i), times the gradient
 *   mean         of the row
 *   share        PNA: the gradient of the mean over the degree
 * clang-format on
 *
 * The gradient of min or max passes to the edge that arg names.  The scatter
 * family sends it from the rows instead: a task takes some features of all
 * rows, so that no two tasks write to one place.  The gradient of a computed
 * message is computed from the gradients of its row's results.
 *
 * An edge's part of a message is given by the caller, who has projected the
 * edge's features (DFGNN_EDGE_PROJECTED), or it is projected here: a matrix
 * multiplies the features of DFGNN_CPU_WINDOW edges at a time into the thread's
 * scratch, where the next rows find the parts of their edges, too.  With
 * GATE_VALUE an edge has a second part, which is added to the value.  The
 * gradients of matrix, offset and features come from a pass over blocks of
 * edges; the sums of the blocks are added in order. */
#ifndef DFGNN_SUMS_CPU_SUMS_H
#define DFGNN_SUMS_CPU_SUMS_H

#include "kernels/common/cpu_walk.h"

enum {
  DFGNN_CPU_ADD_CHUNK = 256, /* edges summed on their own before they join the
                              * sum of a row, so that it keeps its digits */
  DFGNN_CPU_CHUNK = 64,      /* the same of messages and reductions */
  DFGNN_CPU_WINDOW = 32,     /* edges that are projected together */
  DFGNN_CPU_PAD = 16,        /* rows of scalars in the workspace are padded to a
                              * multiple of this */
  DFGNN_CPU_HEAD = 64 /* bytes of a thread's scratch before its numbers: room
                       * for its window */
};

typedef enum dfgnn_cpu_pass {
  DFGNN_CPU_FORWARD,
  DFGNN_CPU_COLUMNS,
  DFGNN_CPU_ROWS,
  DFGNN_CPU_PASSES
} dfgnn_cpu_pass;

/* Bits of the results that a reduction finds. */
enum {
  DFGNN_CPU_LOW = 1,
  DFGNN_CPU_HIGH = 2,
  DFGNN_CPU_MOMENTS = 4,
  DFGNN_CPU_ARGS = 8, /* and the edges of its extremes */
  DFGNN_CPU_FOUND = 16
};

/* The gradients that copies get. */
typedef enum dfgnn_cpu_grades {
  DFGNN_CPU_PICK,   /* of min or max */
  DFGNN_CPU_SPREAD, /* of var or std */
  DFGNN_CPU_BOTH,   /* of PNA */
  DFGNN_CPU_REST,   /* of PNA without min and max */
  DFGNN_CPU_GRADES
} dfgnn_cpu_grades;

/* The edge's part of a message: none, given by the caller or projected. */
typedef enum dfgnn_cpu_edges {
  DFGNN_CPU_EDGES_NONE,
  DFGNN_CPU_EDGES_GIVEN,
  DFGNN_CPU_EDGES_PROJECTED,
  DFGNN_CPU_EDGES_KINDS
} dfgnn_cpu_edges;

/* The tensors that are read at one end of an edge. */
typedef struct dfgnn_cpu_ends {
  dfgnn_cpu_table first, gate;
} dfgnn_cpu_ends;

/* The tensors by destination that a reduction writes (forward), or that the
 * gradients of its messages are computed of (backward). */
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
  const char *attr;       /* [E][fields] scalar */
  char *grad_attr;        /* its gradient; NULL: not wanted */
  const char *matrix;     /* [fields + 1][row] scalars, each row in the order of
                           * pieces; the last row is the offset */
  const char *by_feature; /* the matrix transposed, [row][padded_fields]
                           * scalars; for grad_attr */
  char *scratch;          /* the scratches of all threads */
  size_t scratch_bytes;   /* of one thread */
} dfgnn_cpu_projection;

typedef struct dfgnn_cpu_sums {
  dfgnn_op op;
  dfgnn_message message;
  dfgnn_cpu_edges part; /* what a message has of the edge */
  int found;            /* DFGNN_CPU_... bits; 0: messages are added up */
  dfgnn_cpu_pieces pieces;
  int64_t heads, dim, width; /* width: heads times dim, and the numbers of a
                              * component of a state or record */
  int64_t rows, columns;     /* of the graph */
  int offsets64;
  const void *row_offsets;    /* of the graph's rows, in every pass */
  const int32_t *row_indices; /* and its columns */
  /* what is walked */
  int64_t edges;
  const void *offsets;
  const int32_t *indices;
  const void *edge; /* the graph's edge of each walked edge, as wide as offsets;
                     * NULL: the same edge */
  int64_t prefetch; /* edges ahead; 0: none */
  dfgnn_cpu_ends own, far;
  dfgnn_cpu_table to, to_gate; /* sums; base NULL: not wanted */
  dfgnn_cpu_table attr;        /* the edges' parts that are given */
  dfgnn_cpu_table grad_attr;   /* their gradient; base NULL: not wanted */
  const void *scale;           /* factors by far node; NULL: 1 */
  const void *after;           /* factors by walked row; NULL: 1 */
  int mean;                    /* after is divided by the degree */
  const void *weight;          /* [E, H] factors; NULL: 1 */
  void *grad_weight;           /* [E, H]; NULL: not wanted */
  dfgnn_cpu_reduced reduced;
  char *record; /* [N, components, width] scalars; forward: written unless NULL
                 */
  int64_t record_bytes; /* of a row */
  int64_t record_piece; /* features of a piece in it */
  dfgnn_cpu_projection projection;
} dfgnn_cpu_sums;

/* The head of a thread's scratch: it holds the projected parts of the walked
 * edges begin .. end - 1. */
typedef struct dfgnn_cpu_window {
  int64_t begin, end;
} dfgnn_cpu_window;

/* The functions of a dfgnn_cpu_aggregate. */
typedef void dfgnn_cpu_fold(const void *job, int64_t row, int64_t piece,
                            int64_t begin, int64_t end, void *state, int whole);
typedef void dfgnn_cpu_merge(const void *job, int64_t piece, void *to,
                             const void *from, int64_t before, int64_t count);
typedef void dfgnn_cpu_finish(const void *job, int64_t row, int64_t piece,
                              void *state);

typedef struct dfgnn_cpu_sums_kernels {
  dfgnn_cpu_fold *add;                     /* copies, forward and backward */
  dfgnn_cpu_fold *find[DFGNN_CPU_FOUND];   /* results of copies */
  dfgnn_cpu_fold *grade[DFGNN_CPU_GRADES]; /* their gradients */
  dfgnn_cpu_fold *add_messages[DFGNN_CPU_PASSES][DFGNN_CPU_EDGES_KINDS]
                              [DFGNN_MESSAGE_COUNT];
  dfgnn_cpu_fold *find_relu[DFGNN_CPU_PASSES];
  dfgnn_cpu_fold *find_gates[DFGNN_CPU_PASSES];
  dfgnn_cpu_merge *merge_sums, *merge_found;
  dfgnn_cpu_finish *finish_sums, *finish_found;
  /* Writes PNA's records of the rows begin .. end - 1. */
  void (*record)(const dfgnn_cpu_sums *job, int64_t begin, int64_t end);
  /* Adds grad to the scalars `to` of the columns that arg names, for the
   * features begin .. end - 1 of a piece of all rows. */
  void (*scatter)(const dfgnn_cpu_sums *job, const dfgnn_cpu_table *to,
                  const dfgnn_cpu_table *grad, const dfgnn_cpu_table *arg,
                  int64_t piece, int64_t begin, int64_t end);
  /* For the graph's edges begin .. end - 1, writes grad_attr of the projection,
   * if it is wanted, and adds the gradients of matrix and offset to sums,
   * [fields + 1][row], unless it is NULL.  The job is one of the pass ROWS. */
  void (*edges)(const dfgnn_cpu_sums *job, int64_t begin, int64_t end,
                char *scratch, void *sums);
} dfgnn_cpu_sums_kernels;

const dfgnn_cpu_sums_kernels *dfgnn__cpu_sums_kernels(int simd,
                                                      dfgnn_dtype dtype);

/* ---- calls --------------------------------------------------------------- */

/* The offsets of the parts of the workspace. */
typedef struct dfgnn_cpu_sums_layout {
  size_t scales;     /* scales by destination, for the gradients of means */
  size_t records;    /* for the gradients of moments */
  size_t matrix;     /* of the projection */
  size_t by_feature; /* its transpose, for gradients */
  size_t scratch, scratch_bytes;
  size_t sums, sums_bytes; /* of the blocks of edges */
  size_t list;             /* by edge of a column, its place in the list */
  size_t walk;
} dfgnn_cpu_sums_layout;

typedef struct dfgnn_cpu_sums_call {
  const dfgnn_launch *launch;
  const dfgnn_cpu_sums_kernels *kernels;
  dfgnn_cpu_algorithm algorithm;
  dfgnn_cpu_sums_layout layout;
  char *memory;                      /* the workspace */
  const void *scale_src, *scale_dst; /* backward, dst has a mean's share */
  dfgnn_cpu_table value, grad_out, gate_dst, gate_src;
  dfgnn_cpu_sums job; /* what all passes have in common */
} dfgnn_cpu_sums_call;

/* Bytes of all of it. */
size_t dfgnn__cpu_sums_workspace(const dfgnn_setting *setting,
                                 dfgnn_cpu_algorithm algorithm);
/* Fills a call and its job. */
void dfgnn__cpu_sums_begin(dfgnn_cpu_sums_call *call,
                           const dfgnn_launch *launch,
                           dfgnn_cpu_algorithm algorithm);
/* Writes the records of the rows, if gradients read them. */
void dfgnn__cpu_sums_record(dfgnn_cpu_sums_call *call);
/* Computes the gradients of the columns.  rest: without min and max. */
void dfgnn__cpu_sums_columns(const dfgnn_cpu_sums_call *call, int rest);

/* Workspace of a projection, from `next` on. */
void dfgnn__cpu_project_place(dfgnn_cpu_sums_layout *layout, size_t *next,
                              const dfgnn_setting *setting);
/* Fills the job's projection. */
void dfgnn__cpu_project_begin(dfgnn_cpu_sums_call *call);
/* Forgets what the threads' windows hold, before a walk. */
void dfgnn__cpu_project_forget(const dfgnn_cpu_sums_call *call);
/* Writes the gradients of features, matrix and offset that are wanted; by_row:
 * a job of the pass ROWS. */
void dfgnn__cpu_project_grade(const dfgnn_cpu_sums_call *call,
                              const dfgnn_cpu_sums *by_row);

/* ---- scalars of every type ----------------------------------------------- */

static inline double dfgnn__cpu_scalar_at(const void *array, int64_t i,
                                          int wide) {
  return wide ? ((const double *)array)[i] : ((const float *)array)[i];
}

static inline void dfgnn__cpu_set_scalar(void *array, int64_t i, double x,
                                         int wide) {
  if (wide)
    ((double *)array)[i] = x;
  else
    ((float *)array)[i] = (float)x;
}

#endif
