/* edge_walk.h - what the walks with edge features share, for a type of scalars
 *
 * kernels/cpu.am compiles a walk for float and for double, as CPU_DTYPE says.
 * Instruction sets and types of storage lie behind the tables of loops. */
#ifndef DFGNN_ATTENTION_CPU_EDGE_WALK_H
#define DFGNN_ATTENTION_CPU_EDGE_WALK_H

#include "kernels/attention/cpu/edge_backward.h"
#include "kernels/common/cpu_vector.h"

/* The distance from the scores of a head to those of the next. */
#define STRIDE (DFGNN_CPU_EDGES + 16)

/* The memory of a thread, from which arrays take their places. */
typedef struct room {
  char *memory; /* NULL: only bytes are counted */
  size_t end;
} room;

static inline void *place(room *r, size_t bytes) {
  char *at = r->memory ? r->memory + r->end : NULL;
  r->end += dfgnn__cpu_aligned(bytes + DFGNN_CPU_PADDING);
  return at;
}

static inline scalar *place_scalars(room *r, size_t count) {
  return place(r, count * sizeof(scalar));
}

/* The features of an edge and head, and the numbers of an edge. */
static inline size_t features_of(const dfgnn_problem *p) {
  return (size_t)(p->edge_dim < 0 ? p->dim : p->edge_dim);
}

static inline size_t width_of(const dfgnn_problem *p) {
  return (size_t)(p->edge_dim < 0 ? p->heads * p->dim : p->edge_dim);
}

static inline int has_edges(const dfgnn_cpu_job *job, int64_t row) {
  return dfgnn__cpu_offset(job, row) != dfgnn__cpu_offset(job, row + 1);
}

static inline void clear(scalar *x, int64_t count) {
  memset(x, 0, (size_t)count * sizeof *x);
}

/* Loads the rows of a node, all heads, as scalars. */
static inline void load_row(const dfgnn_cpu_edges *edges,
                            const dfgnn_cpu_job *job, scalar *to,
                            const dfgnn_cpu_tensor *t, int64_t node) {
  for (int64_t h = 0; h < job->heads; h++)
    edges->loops->load(to + h * job->dim,
                       t->base + node * t->node + h * t->head, t->feature,
                       job->dim);
}

/* ---- terms of edges in memory, of a backward pass ------------------------ */

static inline scalar *weights_at(const dfgnn_cpu_side *rows, int64_t head,
                                 int64_t e) {
  return (scalar *)rows->weights + head * rows->job.edges + e;
}

static inline scalar *gradients_at(const dfgnn_cpu_side *rows, int64_t head,
                                   int64_t e) {
  return (scalar *)rows->gradients + head * rows->job.edges + e;
}

/* Replaces scores and <grad_out, value> in memory by P r and dS, and writes
 * grad_bias. */
static inline void find_terms(const dfgnn_cpu_side *rows, int64_t row,
                              int64_t begin, int64_t end) {
  const dfgnn_cpu_job *job = &rows->job;
  for (int64_t h = 0; h < job->heads; h++) {
    scalar *gradients = gradients_at(rows, h, begin);
    job->kernels->terms(job, row, h, begin, end - begin,
                        weights_at(rows, h, begin), gradients);
    if (rows->grad_bias)
      job->kernels->keep((scalar *)rows->grad_bias + begin * job->heads + h,
                         gradients, end - begin, job->heads);
  }
}

#endif
