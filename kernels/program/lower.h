/* lower.h - a program as walks over a graph
 *
 * A walk visits destinations with their in-edges (rows), sources with their
 * out-edges (columns), or relations with the edges that have them.  Its own
 * place is the one whose nodes it visits; values of the other places, far, are
 * gathered by edges.  A reduction over the walk's
 * own edges is ready for the later stages of the same walk, so that a softmax
 * and the sum that it weights are one walk; everything else that a later walk
 * needs is stored, one row a node, or computed again from what is.  A value of
 * every edge is stored only where it is a number for each head, as a softmax's
 * weights and the gradients of its scores are, which walks of a gradient
 * share.  On GPUs a walk sums the rows of edges that an earlier one has written
 * as an output: reread.c. */
#ifndef DFGNN_PROGRAM_LOWER_H
#define DFGNN_PROGRAM_LOWER_H

#include "kernels/program/bind.h"

enum { DFGNN_WALK_STAGES = 60, DFGNN_WALKS = 64 };

typedef enum dfgnn_level {
  DFGNN_LEVEL_PARAM, /* once */
  DFGNN_LEVEL_OWN,   /* for each node that is visited */
  DFGNN_LEVEL_EDGE
} dfgnn_level;

typedef enum dfgnn_step_kind {
  DFGNN_STEP_COMPUTE, /* a value, or a reduction into it */
  DFGNN_STEP_KEEP,  /* a value of the own place or of edges, for later walks */
  DFGNN_STEP_OUTPUT /* .node is the number of an output */
} dfgnn_step_kind;

typedef struct dfgnn_step {
  uint8_t kind, level, stage;
  int32_t node;
  uint64_t stages; /* a bit for each stage whose sums over edges need it */
} dfgnn_step;

typedef struct dfgnn_walk {
  dfgnn_place own; /* DST, SRC or REL */
  int stages;
  int edges; /* does any step look at edges? */
  int count;
  dfgnn_step *steps; /* by stage, arguments first */
} dfgnn_walk;

typedef struct dfgnn_lowered {
  dfgnn_dag *dag; /* the program with products of two */
  int walk_count;
  dfgnn_walk walks[DFGNN_WALKS];
  /* Nodes of PARAM level are computed before walk before[n] (walk_count: after
   * all), if they are needed. */
  uint8_t *needed, *stored, *fused, *exact;
  int32_t *before;
} dfgnn_lowered;

/* fused[n]: a product that the sum which alone uses it computes.
 * exact[n]: a maximum over edges is made of the value, or a comparison with
 * one, as in the maximum's gradient: it has to have the same bits in any
 * program and walk, so that nothing rounds a product and a sum together, or
 * adds in an order that depends on lanes. */
dfgnn_status dfgnn__lower(dfgnn_lowered **lowered, const dfgnn_dag *dag);
void dfgnn__lowered_free(dfgnn_lowered *lowered);

/* Are there values of relations, which a walk may visit? */
int dfgnn__program_needs_relations(const dfgnn_lowered *lowered);

/* Puts a walk's steps in their order. */
void dfgnn__walk_sort(dfgnn_walk *walk);
/* The step that computes a node; NULL: the walk does not. */
dfgnn_step *dfgnn__walk_step(const dfgnn_walk *walk, int32_t n);
/* Sets the stages of a walk's steps, and needs[n] to those whose sums over
 * edges need node n.  A node with outputs[n] >= 0 is not computed; NULL: all
 * are. */
void dfgnn__walk_needs(dfgnn_walk *walk, uint64_t *needs,
                       const dfgnn_lowered *lowered, const int32_t *outputs);

/* pairs.c: the same program whose products have two factors, those first that
 * are cheapest to multiply.  Sizes that are names count as 64. */
dfgnn_dag *dfgnn__dag_pairs(const dfgnn_dag *dag);

/* The node whose value a step computes, stores or writes. */
static inline int32_t dfgnn__step_value(const dfgnn_dag *dag,
                                        const dfgnn_step *step) {
  return step->kind == DFGNN_STEP_OUTPUT ? dag->outputs[step->node].node
                                         : step->node;
}

/* Where a node of that place is computed in a walk. */
static inline dfgnn_level dfgnn__level(int place, int own) {
  if (place == own)
    return DFGNN_LEVEL_OWN;
  return place <= DFGNN_PLACE_PARAM ? DFGNN_LEVEL_PARAM : DFGNN_LEVEL_EDGE;
}

#endif
