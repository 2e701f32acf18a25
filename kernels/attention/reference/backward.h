/* backward.h - what the walks of backward.c and the gradients of edges,
 * projections and norms in gradients.c share */
#ifndef DFGNN_ATTENTION_REFERENCE_BACKWARD_H
#define DFGNN_ATTENTION_REFERENCE_BACKWARD_H

#include "kernels/attention/reference/attention.h"

/* What an edge contributes, once its rows are loaded.  delta errs alike in all
 * edges of a row, so its share is the product p of its variance. */
typedef struct dfgnn_ref_terms {
  dfgnn_ref_number weight; /* P r: of grad_value */
  dfgnn_ref_number score;  /* dS, of a given delta */
  double p;
} dfgnn_ref_terms;

/* Sums of a row or column, with what delta's error does to them. */
typedef struct dfgnn_ref_sums {
  dfgnn_ref_sum values; /* [D] of P r dO */
  dfgnn_ref_sum along;  /* [D] or [1] of dS times a direction */
  dfgnn_ref_sum cosine; /* [1] AGNN: of dS cos */
  dfgnn_ref_sum edges;  /* [features] GT: of dS scale times edge features */
  dfgnn_ref_sum scores; /* [1] of dS scale, which b is multiplied by */
  double *by_delta;     /* [D] the directions, by P */
  double cosine_by_delta;
  double delta_spread; /* of a column, whose rows differ in delta */
} dfgnn_ref_sums;

typedef struct dfgnn_ref_walk {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  dfgnn_ref_edge rows;
  double *grad_out, *out; /* of the destination */
  double *direction;      /* what dS is multiplied by */
  double *att_by_delta;   /* [D] of a row */
  double lse;
  dfgnn_ref_number delta;
  dfgnn_ref_sums sums;
  double *along; /* [D] what dS of an edge gives to its projection */
  double *jump;  /* [D] how far a direction may be off besides, in u: by a slope
                  * of GATv2, by the mean of LAYER */
  double *by_delta[2];   /* [D F] and [D]: of W and b, of a row */
  double *edge[3];       /* [max_degree, width] gradients of the edges of a row,
                          * all heads: value, variance, magnitude */
  dfgnn_ref_part *parts; /* [D] */
  int32_t *order;        /* a row of the matrix, sorted */
  int bounds;
} dfgnn_ref_walk;

/* What all rows add to. */
typedef struct dfgnn_ref_parameters {
  double *buffer;
  size_t numbers;
  dfgnn_ref_sum att, beta;    /* [H D], [1] */
  dfgnn_ref_sum weight, bias; /* [H D F], [H D] of edge features */
  dfgnn_ref_sum norm[2];      /* [D] of queries, of keys */
  double *norm_summed[2];     /* [D] what the order of their terms' sums does */
  double repeats;             /* the sum over the edges */
} dfgnn_ref_parameters;

#define DFGNN_REF_TERM_VARIANCE 16 /* of a product of some factors */

/* How many numbers an edge has gradients of; 0: none. */
int64_t dfgnn__ref_edge_width(const dfgnn_problem *problem);

/* Edge k of a row, the edge-th of all, to the gradients of its features, of
 * the row's sums and of the parameters. */
void dfgnn__ref_add_edge(dfgnn_ref_walk *w, const dfgnn_ref_terms *t, int64_t k,
                         int64_t edge, int64_t head, double repeats,
                         dfgnn_ref_parameters *p);
/* The errors of delta in what a row added to parameters. */
void dfgnn__ref_end_edges(dfgnn_ref_walk *w, int64_t head,
                          dfgnn_ref_parameters *p);
/* The gradients of the edges of a row, all heads of which were walked. */
void dfgnn__ref_put_edges(const dfgnn_ref_walk *w, int64_t count,
                          const dfgnn_ref_result *to);
/* w->jump of an edge of GATv2 whose slopes are not sure, and of GT, whose
 * direction is the normalised query (side 0) or key. */
void dfgnn__ref_find_jumps(dfgnn_ref_walk *w);
void dfgnn__ref_find_shifts(dfgnn_ref_walk *w, int side);
/* w->parts, gradients of normalised queries or keys, to those of what was
 * normalised, and to the gradient of the norm's weight. */
void dfgnn__ref_through_norm(dfgnn_ref_walk *w, int side,
                             dfgnn_ref_parameters *p);

/* A sum of `count` numbers that is a part of a wider one, by factor x. */
void dfgnn__ref_sum_add_at(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                           int64_t k, double factor, double variance,
                           const double *x);

#endif
