/* sums.h - float64 sums, extremes and moments over the messages of edges, and
 * their gradients, by the formulas: SpMM and reductions */
#ifndef DFGNN_KERNELS_REFERENCE_SUMS_H
#define DFGNN_KERNELS_REFERENCE_SUMS_H

#include "kernels/reference/message.h"

/* Computes the results of either pass. */
dfgnn_status dfgnn__sums_reference(const dfgnn_problem *problem,
                                   const dfgnn_matrix *matrix,
                                   const dfgnn_args *args,
                                   const dfgnn_expected *expected);

/* ---- shared by sums.c, grades.c and moments.c ---------------------------- */

/* All threads of a call read this.  Arrays by width have a number a head and
 * feature, heads first. */
typedef struct dfgnn_ref_known {
  double *parameters; /* W and b of the messages */
  double *moments;    /* VAR and STD, backward: [N][DFGNN_REF_KNOWN][width], of
                       * the rows that are wanted: the mean, the variance or
                       * deviation, and the error variances of a kernel's
                       * mean, and of its deviation over the deviation squared;
                       * INFINITY: a kernel's deviation may be 0 */
  char *wanted;       /* [N] */
} dfgnn_ref_known;

#define DFGNN_REF_KNOWN 4
/* A variance up to this one has the deviation 0. */
#define DFGNN_REF_LEAST_VARIANCE 1e-5

/* The numbers of a row that the gradient of a message reads, [width] each. */
typedef struct dfgnn_ref_row_grads {
  double *out, *least, *most, *std; /* gradients */
  double *mean, *deviation;         /* VAR: deviation is the variance */
  double *mean_error, *std_error;   /* see dfgnn_ref_known.moments */
  double *arg_min, *arg_max;        /* positions of edges in the row */
} dfgnn_ref_row_grads;

/* The error variance of a factor and its product with a message, over the
 * square of the product. */
#define DFGNN_REF_FACTOR_VARIANCE 4

/* Reads the tensors of a destination. */
void dfgnn__ref_load_grads(dfgnn_ref_row_grads *to, const dfgnn_ref_call *call,
                           const dfgnn_ref_message *m, int64_t row);
/* The gradient of number i of the message m of the row's edge k; of extremes
 * and moments. */
dfgnn_ref_number dfgnn__ref_grade(const dfgnn_ref_row_grads *row,
                                  const dfgnn_ref_message *m, int64_t i,
                                  int64_t k, double degree);

/* The extremes and moments of all rows that are expected; or fills
 * known->moments, which are there then. */
void dfgnn__ref_moments(dfgnn_ref_call *call);

#endif
