/* backward.h - the two walks of the CPU families of backward attention
 *
 * A walk over rows computes the gradients of destinations and edges, a walk
 * over columns (the transposed matrix) those of sources.  Both are the same
 * code: the side that is walked has the own rows, and those of the other are
 * gathered. */
#ifndef DFGNN_ATTENTION_CPU_BACKWARD_H
#define DFGNN_ATTENTION_CPU_BACKWARD_H

#include "kernels/attention/cpu/attention.h"

/* How a walk gets the terms P r and dS of its edges. */
typedef enum dfgnn_cpu_terms {
  DFGNN_CPU_COMPUTE, /* it computes scores and products */
  DFGNN_CPU_SPILL,   /* it computes them and leaves the terms in memory */
  DFGNN_CPU_READ     /* it reads terms from memory */
} dfgnn_cpu_terms;

typedef struct dfgnn_cpu_side {
  dfgnn_cpu_job job;     /* scores: query has own rows, key gathered ones */
  dfgnn_cpu_job product; /* <grad_out, value> */
  dfgnn_cpu_job values;  /* sums of P r grad_out, to grad_value */
  dfgnn_cpu_job scores;  /* sums of dS times gathered rows, for own ones */
  dfgnn_cpu_terms terms;
  char *weights, *gradients; /* terms in memory, [heads, edges], or [edges,
                              * heads] if all_heads */
  int wanted;                /* does the walk write anything? */
  int wants_values, wants_scores, wants_gradients;
  void *grad_scalar; /* GAT: the gradient of score_dst or score_src */
  int adds;          /* grad_scalar and the output of scores are added to */
  void *grad_bias;
  void *grad_score_edge; /* GAT */
  /* The gradients of parameters, those of beta, att, W and b, are summed by
   * parts of the rows, which are the same for any number of threads; 0: no
   * sums. */
  int64_t parts;
  char *parameters;
  size_t parameter_bytes;
  void *grad_att, *grad_beta, *grad_edge_projection, *grad_edge_bias;
  int all_heads; /* the walk takes all heads of a row at once */
} dfgnn_cpu_side;

/* Lets a side take all heads of a row at once if it can.  Two sides that share
 * terms in memory have to agree. */
static inline int dfgnn__cpu_spans(dfgnn_cpu_side *side) {
  return side->all_heads = side->job.kernels->spans_side(side);
}

typedef struct dfgnn_cpu_backward {
  dfgnn_cpu_side rows, columns;
} dfgnn_cpu_backward;

/* The options of a family. */
typedef struct dfgnn_cpu_plan {
  int simd, schedule, prefetch;
  int spill; /* terms in memory: 0: none, 1: gradients, 2: weights, too */
  const struct dfgnn_cpu_edges *term;
  int pads;    /* are narrow heads padded? */
  int64_t dim; /* of heads without the padding that the problem has; 0: it has
                * none */
} dfgnn_cpu_plan;

size_t dfgnn__cpu_backward_workspace(const dfgnn_setting *setting,
                                     const dfgnn_cpu_plan *plan);
/* Requests the transposed matrix. */
int dfgnn__cpu_backward_views(const dfgnn_setting *setting,
                              dfgnn_view_request *requests);
/* Fills b, and computes packed copies, norms and ends before the walks. */
void dfgnn__cpu_backward_begin(dfgnn_cpu_backward *b,
                               const dfgnn_launch *launch,
                               const dfgnn_cpu_plan *plan);
void dfgnn__cpu_backward_walk(const dfgnn_cpu_side *side, int schedule);

/* Bytes of a thread for a walk. */
size_t dfgnn__cpu_backward_thread(const dfgnn_setting *setting);

#endif
