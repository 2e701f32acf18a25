/* edge_backward.h - the walks of the gradients with edge features
 *
 * A walk over rows computes P r and dS of every edge and head, leaves them in
 * memory for the columns, and writes the gradients of rows and edges.  Those of
 * W, b, att and the query's norm are summed by parts of the rows, which are the
 * same for any number of threads. */
#ifndef DFGNN_ATTENTION_CPU_EDGE_BACKWARD_H
#define DFGNN_ATTENTION_CPU_EDGE_BACKWARD_H

#include "kernels/attention/cpu/backward.h"
#include "kernels/attention/cpu/edges.h"

typedef struct dfgnn_cpu_edge_backward {
  dfgnn_cpu_edges edges;
  dfgnn_cpu_backward nodes;
  const dfgnn_problem *problem;
  const dfgnn_args *args; /* as given: not normalised */
  char *parts;            /* of part_bytes each */
  int64_t part_count;
  size_t part_bytes;
} dfgnn_cpu_edge_backward;

/* Sums of a part; NULL: not wanted. */
typedef struct dfgnn_cpu_edge_sums {
  char *weight; /* [heads dim, F] */
  char *bias;   /* [heads dim] */
  char *att;    /* [heads dim] GATv2 */
  char *norm;   /* [dim] of queries */
} dfgnn_cpu_edge_sums;

dfgnn_cpu_edge_sums dfgnn__cpu_edge_part(const dfgnn_cpu_edge_backward *w,
                                         int64_t part);
static inline int dfgnn__cpu_edge_sums_wanted(const dfgnn_cpu_edge_sums *p) {
  return p->weight || p->bias;
}

/* Loads the rows of a node, all heads, as scalars. */
void dfgnn__cpu_edge_load_row(const dfgnn_cpu_edge_backward *w, char *to,
                              const dfgnn_cpu_tensor *t, int64_t node);
/* The addresses of the terms of a head and edge. */
static inline char *dfgnn__cpu_edge_weights(const dfgnn_cpu_edge_backward *w,
                                            int64_t head, int64_t e) {
  return dfgnn__cpu_at(&w->edges, w->nodes.rows.weights,
                       head * w->nodes.rows.job.edges + e);
}
static inline char *dfgnn__cpu_edge_gradients(const dfgnn_cpu_edge_backward *w,
                                              int64_t head, int64_t e) {
  return dfgnn__cpu_at(&w->edges, w->nodes.rows.gradients,
                       head * w->nodes.rows.job.edges + e);
}
/* Replaces scores and <grad_out, value> in memory by P r and dS, and writes
 * grad_bias. */
void dfgnn__cpu_edge_terms(const dfgnn_cpu_edge_backward *w, int64_t row,
                           int64_t begin, int64_t end);

/* Walk the rows begin .. end - 1 of a part; bytes of memory of a thread. */
size_t dfgnn__cpu_edge_rows_gt_bytes(const dfgnn_setting *setting);
void dfgnn__cpu_edge_rows_gt(const dfgnn_cpu_edge_backward *w, char *memory,
                             int64_t begin, int64_t end,
                             const dfgnn_cpu_edge_sums *sums);
size_t dfgnn__cpu_edge_rows_gatv2_bytes(const dfgnn_setting *setting);
void dfgnn__cpu_edge_rows_gatv2(const dfgnn_cpu_edge_backward *w, char *memory,
                                int64_t begin, int64_t end,
                                const dfgnn_cpu_edge_sums *sums);
/* GATv2: walks the columns begin .. end - 1. */
void dfgnn__cpu_edge_columns(const dfgnn_cpu_job *job, void *data, char *memory,
                             int64_t begin, int64_t end);

#endif
