/* backward.h - declarations that the walks (backward.c) and the gradients of
 * edge features, their projection and norms (gradients.c) share */
#ifndef DFGNN_ATTENTION_REFERENCE_BACKWARD_H
#define DFGNN_ATTENTION_REFERENCE_BACKWARD_H

#include "kernels/attention/reference/attention.h"

/* The factors by which an edge adds to gradients, once its rows are loaded.
 * All edges of a row share delta and its error, so the variance of `score` is
 * without it; that error adds p^2 times the variance of delta. */
typedef struct dfgnn_ref_terms {
  dfgnn_ref_number weight; /* P r, the factor of dO in grad_value */
  dfgnn_ref_number score;  /* dS */
  double p;                /* P */
} dfgnn_ref_terms;

/* Sums over the edges of a row or column, and the derivatives of a row's sums
 * by delta, up to their sign. */
typedef struct dfgnn_ref_sums {
  dfgnn_ref_sum values; /* [D] sum of P r dO */
  dfgnn_ref_sum along;  /* [D] or [1] sum of dS times a direction */
  dfgnn_ref_sum cosine; /* [1] AGNN: sum of dS direction.cosine */
  dfgnn_ref_sum edges;  /* [features] GT: sum of dS scale e */
  dfgnn_ref_sum scores; /* [1] sum of dS scale, the factor of b */
  double *by_delta;     /* [D] sum of P times a direction */
  double cosine_by_delta;
} dfgnn_ref_sums;

typedef struct dfgnn_ref_walk {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  dfgnn_ref_edge rows;
  double *grad_out, *out; /* the destination's */
  double *direction;      /* the factor of dS in a gradient */
  double *att_by_delta;   /* [D] the derivative by delta of a row's part of
                           * grad_att; [0] of grad_beta */
  double lse;
  dfgnn_ref_number delta;
  dfgnn_ref_sums sums;
  double *along; /* [D] GT: scale q, the factor of dS in the gradient of W e */
  double *jump; /* [D] further error of a direction, in u: a slope of GATv2 that
                 * rounding may flip, or the mean of LAYER */
  double *by_delta[2];   /* [D F] and [D]: derivatives by delta of a row's part
                          * of the gradients of W and b */
  double *edge[3];       /* [max_degree, width] gradients of the edges of a row,
                          * all heads: value, variance, magnitude */
  dfgnn_ref_part *parts; /* [D] */
  int32_t *order;        /* a row of the matrix, sorted */
  int bounds;
} dfgnn_ref_walk;

/* Gradients of the parameters, to which all rows add. */
typedef struct dfgnn_ref_parameters {
  double *buffer;
  size_t numbers;
  dfgnn_ref_sum att, beta;    /* [H D], [1] */
  dfgnn_ref_sum weight, bias; /* [H D F], [H D] of edge features */
  dfgnn_ref_sum norm[2];      /* [D] of queries, of keys */
  double *norm_summed[2];     /* [D] the summed^2 that their terms bring */
  double repeats;             /* the sum of the repeats of all edges */
} dfgnn_ref_parameters;

/* The relative variance, in u^2, of a term that is a product of several rounded
 * factors. */
#define DFGNN_REF_TERM_VARIANCE 16

/* The number of features of an edge that have gradients; 0: none. */
int64_t dfgnn__ref_edge_width(const dfgnn_problem *problem);

/* Adds edge k of a row, number `edge` of the matrix, to the gradients of its
 * features, to the row's sums and to the parameters. */
void dfgnn__ref_add_edge(dfgnn_ref_walk *w, const dfgnn_ref_terms *t, int64_t k,
                         int64_t edge, int64_t head, double repeats,
                         dfgnn_ref_parameters *p);
/* Adds the error of a row's delta to the bounds of the gradients of W and b. */
void dfgnn__ref_end_edges(dfgnn_ref_walk *w, int64_t head,
                          dfgnn_ref_parameters *p);
/* Writes the gradients of a row's edges, after a walk over all its heads. */
void dfgnn__ref_put_edges(const dfgnn_ref_walk *w, int64_t count,
                          const dfgnn_ref_result *to);
/* Find w->jump: for GATv2 where rounding may change a slope; for GT, whose
 * direction is the normalised query (side 0) or key (side 1), by the error of
 * the mean. */
void dfgnn__ref_find_jumps(dfgnn_ref_walk *w);
void dfgnn__ref_find_shifts(dfgnn_ref_walk *w, int side);
/* Turns w->parts from the gradient of a normalised query (side 0) or key (side
 * 1) into that of the vector before the norm, and adds to the gradient of the
 * norm's weight. */
void dfgnn__ref_through_norm(dfgnn_ref_walk *w, int side,
                             dfgnn_ref_parameters *p);

/* Adds factor x[count], the k-th term, to numbers `at` and following of a wider
 * sum. */
void dfgnn__ref_sum_add_at(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                           int64_t k, double factor, double variance,
                           const double *x);

#endif
