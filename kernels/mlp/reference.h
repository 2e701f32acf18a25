/* reference.h - an edge of an MLP in double, with how far a kernel may be off
 *
 * A number has its value and an error, which a kernel's result for it exceeds
 * ERRORS times only by mischance: roundings inside an edge are taken for
 * independent, so that the squares of their effects add up; errors of different
 * edges may all have one sign, as those of rounded weights do, and are added as
 * they are. */
#ifndef DFGNN_KERNELS_MLP_REFERENCE_H
#define DFGNN_KERNELS_MLP_REFERENCE_H

#include "kernels/common/number.h"
#include "kernels/mlp/job.h"

#define DFGNN_MLP_ERRORS 6

typedef struct dfgnn_mlp_numbers {
  double *x, *e; /* values and errors */
} dfgnn_mlp_numbers;

typedef struct dfgnn_mlp_reference {
  const dfgnn_mlp_job *job;
  double unit;    /* roundoff of sums */
  double operand; /* roundoff of what products read, 0: none */
  int operands;   /* how many of two operands are rounded */
  double *weight[DFGNN_MLP_LAYERS], *bias[DFGNN_MLP_LAYERS]; /* NULL: none */
  double *norm_weight, *norm_bias;
  /* of the edge at hand; value: a(z), of the last layer z; slope: a'(z) */
  dfgnn_mlp_numbers edge, value[DFGNN_MLP_LAYERS], slope[DFGNN_MLP_LAYERS];
  dfgnn_mlp_numbers z[DFGNN_MLP_LAYERS]; /* of layers that are kept */
  dfgnn_mlp_numbers out, normal, grad_edge;
  dfgnn_mlp_numbers grad[DFGNN_MLP_LAYERS]; /* with respect to z */
  dfgnn_mlp_numbers grad_out;               /* with respect to e' */
  double inverse, inverse_error;            /* of the norm; relative error */
  double *memory;
} dfgnn_mlp_reference;

dfgnn_status dfgnn__mlp_reference_make(dfgnn_mlp_reference *r,
                                       const dfgnn_mlp_job *job);
void dfgnn__mlp_reference_free(dfgnn_mlp_reference *r);

/* reference_forward.c: values of the edge whose place in the list is `place`.
 */
void dfgnn__mlp_reference_forward(dfgnn_mlp_reference *r, int64_t place,
                                  int64_t destination, int64_t source);
/* reference_backward.c: r->grad and r->grad_edge, from r->grad_out, which
 * changes, of the same edge. */
void dfgnn__mlp_reference_backward(dfgnn_mlp_reference *r);

/* to = from W^T (W of [out, in]), or from W if transposed (then `from` has out
 * numbers); adds to what is in `to`. */
void dfgnn__mlp_reference_product(const dfgnn_mlp_reference *r,
                                  dfgnn_mlp_numbers to, dfgnn_mlp_numbers from,
                                  const double *weight, int64_t out, int64_t in,
                                  int transposed);

/* f(x) or, of order 1, f'(x). */
double dfgnn__mlp_activation(dfgnn_activation kind, double slope, int order,
                             double x);

#endif
