/* attention_walk.h - declarations that the walks (attention_backward.c) and the
 * gradients of edge features and their projection (attention_edges.c) share */
#ifndef DFGNN_KERNELS_REFERENCE_ATTENTION_WALK_H
#define DFGNN_KERNELS_REFERENCE_ATTENTION_WALK_H

#include "kernels/reference/attention.h"

/* The factors by which an edge adds to gradients, once its rows are loaded.
 * All edges of a row share delta and its error. */
typedef struct dfgnn_ref_terms {
  dfgnn_ref_number weight; /* P r, the factor of dO in grad_value */
  dfgnn_ref_number score;  /* dS */
} dfgnn_ref_terms;

/* Sums over the edges of a row or column. */
typedef struct dfgnn_ref_sums {
  dfgnn_ref_sum values; /* [D] sum of P r dO */
  dfgnn_ref_sum along;  /* [D] or [1] sum of dS times a direction */
  dfgnn_ref_sum cosine; /* [1] AGNN: sum of dS direction.cosine */
  dfgnn_ref_sum edges;  /* [features] GT: sum of dS scale e */
  dfgnn_ref_sum scores; /* [1] sum of dS scale, the factor of b */
} dfgnn_ref_sums;

/* The totals of a call. */
enum {
  DFGNN_REF_SCORE,  /* [H D] of att, or [1] of beta */
  DFGNN_REF_WEIGHT, /* [H D F] of edge features */
  DFGNN_REF_BIAS    /* [H D] */
};

typedef struct dfgnn_ref_grads {
  dfgnn_ref_thread of;
  const dfgnn_problem *problem;
  const dfgnn_args *args;
  int bounds;
  dfgnn_ref_edge at;
  double *grad_out, *out; /* the destination's */
  double *direction;      /* the factor of dS in a gradient */
  double lse;
  dfgnn_ref_number delta;
  dfgnn_ref_sums sums;
  double *along; /* [D] GT: scale q, the factor of dS in the gradient of W e */
  double *jump;  /* [D] further error of a direction, in u: of a slope that
                  * rounding may flip */
  double *edge[3]; /* [max_degree, width] gradients of the edges of a row,
                    * all heads: value, variance, magnitude */
} dfgnn_ref_grads;

/* The relative variance, in u^2, of a term that is a product of several rounded
 * factors. */
#define DFGNN_REF_TERM_VARIANCE 16

/* The number of features of an edge that have gradients; 0: none. */
int64_t dfgnn__ref_edge_width(const dfgnn_ref_edge *e);

/* Adds edge k of a row, where the walk is, to the gradients of its features, to
 * the row's sums and to the parameters. */
void dfgnn__ref_add_edge(dfgnn_ref_grads *w, const dfgnn_ref_terms *t,
                         int64_t k, double repeats);
/* Writes the gradients of a row's edges, after a walk over all its heads. */
void dfgnn__ref_put_edges(const dfgnn_ref_grads *w, int64_t count,
                          const dfgnn_ref_result *to);

/* ---- operators: attention_score.c ---------------------------------------- */

/* The direction of an edge is the gradient of its score by x, one of the two
 * rows that the score reads; the vector is in w->direction.  The gradient of a
 * cosine has a second part, a multiple of x, which has a sum of its own. */
typedef struct dfgnn_ref_direction {
  dfgnn_ref_number cosine; /* beta cos / |x|, the factor of dS in that sum */
  double variance;         /* the relative variance of the direction */
} dfgnn_ref_direction;

/* Finds w->direction and w->jump of an edge whose rows are loaded. */
dfgnn_ref_direction dfgnn__ref_find_direction(dfgnn_ref_grads *w,
                                              int by_source);
/* Adds the edge to the gradients of the score's parameters. */
void dfgnn__ref_add_parameters(dfgnn_ref_grads *w, const dfgnn_ref_terms *t,
                               const dfgnn_ref_direction *to, double repeats);

#endif
