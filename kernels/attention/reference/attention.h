/* attention.h - float64 attention by the formulas, forward and backward */
#ifndef DFGNN_ATTENTION_REFERENCE_H
#define DFGNN_ATTENTION_REFERENCE_H

#include "kernels/common/reference.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out, lse and weights. */
dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected);
/* Gradients, from out and lse as forward left them. */
dfgnn_status dfgnn__attention_backward_reference(
    const dfgnn_problem *problem, const dfgnn_matrix *matrix,
    const dfgnn_args *args, const dfgnn_expected *expected);

/* ---- what both share ----------------------------------------------------- */

/* The rows of an edge, each of dim doubles. */
typedef struct dfgnn_ref_edge {
  double *destination; /* query */
  double *key;         /* what the score reads of the source */
  double *value;       /* may be key */
  double *att;
} dfgnn_ref_edge;

#define DFGNN_REF_EDGE_ROWS 4

dfgnn_ref_edge dfgnn__ref_edge_in(double *buffer, const dfgnn_problem *problem);
void dfgnn__ref_load_destination(const dfgnn_ref_edge *to,
                                 const dfgnn_problem *problem,
                                 const dfgnn_args *args, int64_t row,
                                 int64_t head);
void dfgnn__ref_load_source(const dfgnn_ref_edge *to,
                            const dfgnn_problem *problem,
                            const dfgnn_args *args, int64_t column,
                            int64_t head);
/* A number and the variance of what a kernel makes of it, in squares of the
 * unit roundoff. */
typedef struct dfgnn_ref_number {
  double value, variance;
} dfgnn_ref_number;

/* The score of an edge whose rows are loaded. */
dfgnn_ref_number dfgnn__ref_score(const dfgnn_problem *problem,
                                  const dfgnn_args *args,
                                  const dfgnn_ref_edge *loaded, int64_t row,
                                  int64_t column, int64_t edge, int64_t head);
/* The relative variance of exp(score - shift), computed as exp, exp2 or fast
 * exponentials of a rounded argument. */
double dfgnn__ref_exp_variance(const dfgnn_problem *problem,
                               const dfgnn_ref_number *score, double shift);
/* The relative variance of the norm of `dim` features. */
double dfgnn__ref_norm_variance(int64_t dim);
/* The variance of what is as small as 16 bits can hold: half the distance of
 * the subnormal numbers of f16, squared. */
double dfgnn__ref_subnormal(const dfgnn_problem *problem);
/* 0 or 1 / (1 - p) by dropout; 1 without. */
double dfgnn__ref_kept(const dfgnn_problem *problem, const dfgnn_args *args,
                       int64_t edge, int64_t head);

double dfgnn__ref_dot(const double *a, const double *b, int64_t count);
/* max(|x|, 1e-12), as torch.nn.functional.normalize divides by. */
double dfgnn__ref_norm(const double *x, int64_t count);
double dfgnn__ref_beta(const dfgnn_problem *problem, const dfgnn_args *args);

#ifdef __cplusplus
}
#endif
#endif
