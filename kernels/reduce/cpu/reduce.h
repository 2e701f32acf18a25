/* reduce.h - reductions on a CPU
 *
 * Forward finds min and max with the edges from which they come, and moments by
 * chunks of a row: sums of differences from the chunk's first element, joined
 * as in Chan, Golub and LeVeque (1983), so that neither an offset common to all
 * elements nor the number of edges costs digits.
 *
 * Backward walks the transpose.  A destination i has a record, written before:
 *
 * clang-format off
 *   coefficient  d out_i / d (x_j - mean_i), times the gradient
 *   mean         of the row
 *   share        PNA: the gradient of the mean over the degree
 * clang-format on
 *
 * The gradient of min or max passes to the edge that arg names.  The scatter
 * family sends it from the rows instead: a task takes some features of all
 * rows, so that no two tasks write to one place. */
#ifndef DFGNN_REDUCE_CPU_REDUCE_H
#define DFGNN_REDUCE_CPU_REDUCE_H

#include "kernels/common/cpu_walk.h"

/* Edges of a chunk. */
#define DFGNN_CPU_REDUCE_CHUNK 64

typedef struct dfgnn_cpu_reduce {
  dfgnn_op op;
  dfgnn_cpu_pieces pieces;
  int64_t edges, width; /* width: of a state's or record's component */
  int offsets64;
  const void *offsets; /* of the rows that are walked */
  const int32_t *indices;
  int64_t prefetch; /* edges ahead; 0: none */
  dfgnn_cpu_table value;
  /* Forward: out is PNA's mean or the only result. */
  dfgnn_cpu_table out, out_min, out_max, out_std;
  dfgnn_cpu_table arg_min, arg_max; /* of int32 */
  /* Backward. */
  dfgnn_cpu_table grad_out, grad_min, grad_max, grad_std, grad_value;
  char *record; /* [N, components, width]; forward: written unless NULL */
  int64_t record_bytes;       /* of a row */
  int64_t record_piece;       /* features of a piece in it */
  const void *row_offsets;    /* of the graph's rows */
  const int32_t *row_indices; /* and its columns */
  const void *edge;           /* the graph's edge of each, as wide as offsets */
  int64_t rows, columns;      /* of the graph */
} dfgnn_cpu_reduce;

/* Kinds of inner loops. */
typedef enum dfgnn_cpu_fold {
  DFGNN_CPU_FOLD_MIN,
  DFGNN_CPU_FOLD_MAX,
  DFGNN_CPU_FOLD_MOMENTS,
  DFGNN_CPU_FOLD_PNA,
  DFGNN_CPU_FOLD_MIN_ARG,
  DFGNN_CPU_FOLD_MAX_ARG,
  DFGNN_CPU_FOLD_PNA_ARG,
  DFGNN_CPU_FOLD_BACK_SELECT,  /* min, max */
  DFGNN_CPU_FOLD_BACK_MOMENTS, /* var, std */
  DFGNN_CPU_FOLD_BACK_PNA,
  DFGNN_CPU_FOLD_BACK_PNA_REST, /* PNA without min and max */
  DFGNN_CPU_FOLDS
} dfgnn_cpu_fold;

typedef struct dfgnn_cpu_folding {
  void (*fold)(const void *job, int64_t row, int64_t piece, int64_t begin,
               int64_t end, void *state, int whole);
  void (*merge)(const void *job, int64_t piece, void *to, const void *from,
                int64_t before, int64_t count);
  void (*finish)(const void *job, int64_t row, int64_t piece, void *state);
} dfgnn_cpu_folding;

typedef struct dfgnn_cpu_reduce_kernels {
  dfgnn_cpu_folding folding[DFGNN_CPU_FOLDS];
  /* Writes PNA's records of the rows begin .. end - 1. */
  void (*record)(const dfgnn_cpu_reduce *job, int64_t begin, int64_t end);
  /* Adds grad to the scalars `to` of the columns that arg names, for the
   * features begin .. end - 1 of a piece of all rows. */
  void (*scatter)(const dfgnn_cpu_reduce *job, const dfgnn_cpu_table *to,
                  const dfgnn_cpu_table *grad, const dfgnn_cpu_table *arg,
                  int64_t piece, int64_t begin, int64_t end);
  /* Converts the scalars of the columns begin .. end - 1 to grad_value. */
  void (*narrow)(const dfgnn_cpu_reduce *job, const dfgnn_cpu_table *from,
                 int64_t begin, int64_t end);
} dfgnn_cpu_reduce_kernels;

const dfgnn_cpu_reduce_kernels *dfgnn__cpu_reduce_kernels(int simd,
                                                          dfgnn_dtype dtype);

#endif
