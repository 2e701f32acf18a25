/* attention.h - float64 attention by the formulas, forward and backward */
#ifndef DFGNN_KERNELS_REFERENCE_ATTENTION_H
#define DFGNN_KERNELS_REFERENCE_ATTENTION_H

#include "kernels/attention/operators.h"
#include "kernels/reference/number.h"

/* Computes out, lse and weights; or the gradients, from out and lse as forward
 * left them. */
dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected);
/* The gradients. */
void dfgnn__ref_attend_backward(dfgnn_ref_call *call);

/* ---- an edge in one head: attention_rows.c ------------------------------- */

/* An edge and its inputs.  Vectors have dim doubles unless their comment says
 * otherwise. */
typedef struct dfgnn_ref_edge {
  const dfgnn_problem *problem;
  const dfgnn_args *args;
  double narrow; /* the variance of rounding a term to 16 bits, or 0 */
  int64_t head, row, column, edge;
  double *destination; /* query */
  double *key;         /* the source's row that the score reads */
  double *value;       /* may be key */
  double *att;
  double *leaky;     /* leaky ReLU of GATv2, once its score is computed */
  int64_t features;  /* F of the edge; dim if they are projected; 0: none */
  double *attr;      /* [features] e */
  double *weight;    /* [dim, features] W, unless e is projected already */
  double *bias;      /* b */
  double *projected; /* W e + b */
  double *magnitude; /* |W| |e| + |b| */
} dfgnn_ref_edge;

dfgnn_ref_edge dfgnn__ref_edge_in(dfgnn_ref_memory *memory,
                                  const dfgnn_problem *problem,
                                  const dfgnn_args *args);
/* Go to another head, which is the first of these; to a destination, a source
 * and an edge; and load what belongs to it. */
void dfgnn__ref_at_head(dfgnn_ref_edge *e, int64_t head);
void dfgnn__ref_at_destination(dfgnn_ref_edge *e, int64_t row);
void dfgnn__ref_at_source(dfgnn_ref_edge *e, int64_t column);
void dfgnn__ref_at_edge(dfgnn_ref_edge *e, int64_t edge);

/* <a, W e + b>.  A kernel may compute <W^T a, e> instead, so the variance
 * covers both. */
dfgnn_ref_number dfgnn__ref_edge_product(const dfgnn_ref_edge *e,
                                         const double *a);
/* Number d of W times a sum of edge features. */
dfgnn_ref_number dfgnn__ref_project(const dfgnn_ref_edge *e,
                                    const dfgnn_ref_sum *sum, int64_t d,
                                    double repeats);
/* Number d of W e + b. */
dfgnn_ref_number dfgnn__ref_projected(const dfgnn_ref_edge *e, int64_t d);

/* The factor of a weight by dropout: 0 or 1 / (1 - p); 1 without dropout. */
double dfgnn__ref_kept(const dfgnn_ref_edge *e);
/* The variance of rounding a subnormal number of f16: the square of half the
 * distance between two of them; 0 for other types. */
double dfgnn__ref_subnormal(const dfgnn_problem *problem);

/* Do edge features go into the keys, and into the values? */
static inline int dfgnn__ref_edge_keys(const dfgnn_problem *problem) {
  return problem->edge_dim && DFGNN_HAS_KEY(problem->op) &&
         problem->edge_use != DFGNN_EDGE_VALUES;
}
static inline int dfgnn__ref_edge_values(const dfgnn_problem *problem) {
  return problem->edge_dim && DFGNN_HAS_KEY(problem->op) &&
         problem->edge_use != DFGNN_EDGE_KEYS;
}

/* ---- scores: attention_score.c ------------------------------------------- */

dfgnn_ref_number dfgnn__ref_score(const dfgnn_ref_edge *e);
/* exp(score - shift) */
static inline dfgnn_ref_number
dfgnn__ref_exp(const dfgnn_ref_edge *e, dfgnn_ref_number score, double shift) {
  return num_exp(score, shift, 2 * e->narrow);
}
/* max(|x|, 1e-12), as torch.nn.functional.normalize divides by. */
double dfgnn__ref_norm(const double *x, int64_t count);
/* The relative variance of the norms of two rows. */
double dfgnn__ref_norms_variance(const dfgnn_problem *problem);

#endif
