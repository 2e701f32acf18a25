/* backward.h - what the CPU families of backward attention share
 *
 * Two walks: over rows for what belongs to destinations and edges, over columns
 * (the transposed matrix) for what belongs to sources.  Both are the same code:
 * the side that is walked has the own rows, the other is gathered. */
#ifndef DFGNN_ATTENTION_CPU_BACKWARD_H
#define DFGNN_ATTENTION_CPU_BACKWARD_H

#include "kernels/attention/cpu/attention.h"

/* Where a walk has the terms P r and dS of its edges from. */
typedef enum dfgnn_cpu_terms {
  DFGNN_CPU_COMPUTE, /* scores and products anew */
  DFGNN_CPU_SPILL,   /* the same, and leaves them in memory */
  DFGNN_CPU_READ     /* from memory */
} dfgnn_cpu_terms;

typedef struct dfgnn_cpu_side {
  dfgnn_cpu_job job;     /* of scores: query the own rows, key the gathered */
  dfgnn_cpu_job product; /* <grad_out, value> */
  dfgnn_cpu_job values;  /* sums of P r grad_out, to grad_value */
  dfgnn_cpu_job scores;  /* sums of dS, to the gradient of what scores read */
  dfgnn_cpu_terms terms;
  char *weights, *gradients; /* terms in memory, [heads, edges] */
  int wanted;                /* does the walk write anything? */
  int wants_values, wants_scores, wants_gradients;
  void *grad_scalar; /* GAT: of the score's own part */
  int adds; /* grad_scalar and the sums of scores add to what is there */
  void *grad_bias;
  void *grad_score_edge;   /* GAT */
  const dfgnn_view *items; /* rows are cut into these; NULL: they are not */
  char *partials;          /* of rows of several items */
  size_t partial_bytes;
  /* Sums of parameters, first beta's, then att's, by parts of the rows that are
   * the same for any number of threads; 0: none are wanted. */
  int64_t parts;
  char *parameters;
  size_t parameter_bytes;
  void *grad_att, *grad_beta;
} dfgnn_cpu_side;

typedef struct dfgnn_cpu_backward {
  dfgnn_cpu_side rows, columns;
} dfgnn_cpu_backward;

/* What a family asks for. */
typedef struct dfgnn_cpu_plan {
  int simd, schedule, prefetch;
  int spill;     /* arrays of terms: 0, 1 of gradients, 2 of weights too */
  int64_t split; /* edges of an item; 0: whole rows */
} dfgnn_cpu_plan;

size_t dfgnn__cpu_backward_workspace(const dfgnn_setting *setting,
                                     const dfgnn_cpu_plan *plan);
/* The transposed matrix, and items of both sides if they are split. */
int dfgnn__cpu_backward_views(const dfgnn_cpu_plan *plan,
                              dfgnn_view_request *requests);
/* Fills b and does what comes before the walks: packed copies, norms, ends. */
void dfgnn__cpu_backward_begin(dfgnn_cpu_backward *b,
                               const dfgnn_launch *launch,
                               const dfgnn_cpu_plan *plan);
void dfgnn__cpu_backward_walk(const dfgnn_cpu_side *side, int schedule);

/* Bytes of a thread for a walk, and of a partial result. */
size_t dfgnn__cpu_backward_thread(const dfgnn_setting *setting);
size_t dfgnn__cpu_backward_partial(const dfgnn_problem *problem);

#endif
