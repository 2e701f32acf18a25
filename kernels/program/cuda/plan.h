/* plan.h - where the values of a walk are while its kernel runs */
#ifndef DFGNN_PROGRAM_CUDA_PLAN_H
#define DFGNN_PROGRAM_CUDA_PLAN_H

#include "kernels/program/cuda/generate.h"

/* The shape of a value beside the widest of its walk. */
typedef enum value_class {
  CLASS_ONE,   /* a number: every lane has it */
  CLASS_HEADS, /* a number for each head */
  CLASS_MAIN,  /* the widest shape */
  CLASS_OTHER  /* in shared memory */
} value_class;

typedef struct walk_plan {
  const dfgnn_program_job *job;
  const dfgnn_dag *dag;
  const dfgnn_lowered *lowered;
  dfgnn_walk *walk; /* with steps of its own: reread.c and soften.c */
  const dfgnn_generated *generated;
  int64_t shape[DFGNN_DAG_AXES]; /* the widest */
  int64_t heads;
  int vector, lanes, group, unroll;
  int own_shared, edge_shared;
  /* for each node: */
  uint8_t *made;    /* 1 + level of a value that the walk makes; 0: it reads */
  uint8_t *spilled; /* a value that is read by other lanes, too */
  uint8_t *kept;    /* a leaf that a row, or all rows, read once */
  uint64_t *loaded; /* the stages whose edges load a leaf */
  int32_t *slot;    /* of made values in shared memory; -1 */
  int32_t *soft;    /* the weight exp(x - lse) of a sum that goes along with
                     * its lse: dfgnn__plan_soften; -1 */
  int32_t *reread;  /* the output that is read in place of a value; -1 */
} walk_plan;

static inline const dfgnn_extent *plan_extent(const walk_plan *p, int32_t n) {
  return &p->job->extents[n];
}
value_class dfgnn__plan_class_of(const walk_plan *p, const dfgnn_extent *e);
static inline value_class plan_class(const walk_plan *p, int32_t n) {
  return dfgnn__plan_class_of(p, plan_extent(p, n));
}

/* Does a step add edges to a reduction? */
int dfgnn__plan_reduces_edges(const walk_plan *p, const dfgnn_step *step);
/* Does it look at the row alone? */
int dfgnn__plan_is_own(const walk_plan *p, const dfgnn_step *step);
/* Can a value of class `to` read argument a, of the same axes, from its own
 * lane? */
int dfgnn__plan_aligned(const walk_plan *p, value_class to, int32_t a);
/* Is it the sum or maximum of the features of a head, over lanes? */
int dfgnn__plan_folds_lanes(const walk_plan *p, int32_t n);

/* The logsumexp of a weight exp(score - lse). */
int32_t dfgnn__plan_lse_of(const walk_plan *p, int32_t weight);

/* soften.c: a softmax takes one look at the edges.  sum(exp(x - lse) y) is made
 * while lse is: the sum is relative to the maximum so far, as that of lse is,
 * and divided by it in the end. */
void dfgnn__plan_soften(walk_plan *p);

/* The widest shape and its lanes, then where values are; dfgnn__plan_soften
 * comes between them.  The arrays are the caller's, of dag->count each. */
void dfgnn__plan_layout(walk_plan *p, const dfgnn_program_tuning *tuning);
dfgnn_status dfgnn__plan_memory(walk_plan *p);

#endif
