/* grades.c - the gradients of messages by extremes and moments, by the formulas
 */
#include <math.h>

#include "kernels/reference/sums.h"

typedef dfgnn_ref_row_grads grads;

/* The error variance of a product of some factors, over its square. */
#define PRODUCT_VARIANCE 16

static void load_positions(double *to, const dfgnn_ref_message *m,
                           const int32_t *arg, int64_t row) {
  const dfgnn_problem *p = m->problem;
  for (int64_t i = 0; i < m->width; i++) {
    int64_t at =
        p->layout == DFGNN_LAYOUT_NDH ? i % p->dim * p->heads + i / p->dim : i;
    to[i] = arg[row * m->width + at];
  }
}

void dfgnn__ref_load_grads(dfgnn_ref_row_grads *to, const dfgnn_ref_call *call,
                           const dfgnn_ref_message *m, int64_t row) {
  const dfgnn_args *args = call->args;
  dfgnn_op op = call->problem->op;
#define LOAD(member, array, strides)                                           \
  dfgnn__ref_message_load(to->member, m, args->array, &args->strides, row)
  LOAD(out, grad_out, grad_out_strides);
  if (op == DFGNN_OP_REDUCE_MIN || op == DFGNN_OP_REDUCE_PNA)
    load_positions(to->arg_min, m, args->arg_min, row);
  if (op == DFGNN_OP_REDUCE_MAX || op == DFGNN_OP_REDUCE_PNA)
    load_positions(to->arg_max, m, args->arg_max, row);
  if (call->known->moments) {
    to->mean = call->known->moments + DFGNN_REF_KNOWN * row * m->width;
    to->deviation = to->mean + m->width;
    to->mean_error = to->mean + 2 * m->width;
    to->std_error = to->mean + 3 * m->width;
  }
  if (op != DFGNN_OP_REDUCE_PNA)
    return;
  LOAD(least, grad_out_min, grad_out_strides);
  LOAD(most, grad_out_max, grad_out_strides);
  LOAD(std, grad_out_std, grad_out_strides);
  LOAD(mean, out, out_strides);
  LOAD(deviation, out_std, out_strides);
#undef LOAD
}

static number grade_pna(const grads *row, const dfgnn_ref_message *m, int64_t i,
                        int64_t k, double degree) {
  double mean = row->mean[i], x = m->message[i].value;
  double low = row->arg_min[i] == (double)k ? row->least[i] : 0;
  double high = row->arg_max[i] == (double)k ? row->most[i] : 0;
  double share = row->out[i] / degree;
  double slope =
      row->deviation[i] == 0 ? 0 : row->std[i] / (degree * row->deviation[i]);
  double g = low + high + share + slope * (x - mean);
  double size = fabs(low) + fabs(high) + fabs(share) +
                fabs(slope) * (fabs(x - mean) + fabs(mean));
  return num(g, PRODUCT_VARIANCE * (square(g) + square(size)) +
                    square(slope) * m->message[i].fixed);
}

static number grade_var(const grads *row, const dfgnn_ref_message *m, int64_t i,
                        double degree) {
  double x = m->message[i].value, slope = 2 * row->out[i] / degree;
  double g = slope * (x - row->mean[i]);
  return num(g, PRODUCT_VARIANCE * square(g) +
                    square(slope) * (row->mean_error[i] + square(x)));
}

/* d std / dx = (x - mean) / (degree std), or 0 where std is 0. */
static number grade_std(const grads *row, const dfgnn_ref_message *m, int64_t i,
                        double degree) {
  double x = m->message[i].value, difference = x - row->mean[i];
  double std = row->deviation[i], share = row->out[i] / degree;
  double slope = std == 0 ? 0 : share / std, g = slope * difference;
  double rounded = PRODUCT_VARIANCE * square(g);
  if (isinf(row->std_error[i])) /* std may be 0, or not */
    return num(g, rounded + square(share * difference) /
                                (DFGNN_REF_LEAST_VARIANCE * square(m->unit)));
  if (std == 0)
    return num(g, rounded);
  return num(g, rounded +
                    square(slope) * (row->mean_error[i] + square(x) +
                                     square(difference) * row->std_error[i]));
}

static number grade_extreme(const grads *row, const double *arg, int64_t i,
                            int64_t k) {
  double g = arg[i] == (double)k ? row->out[i] : 0;
  return num(g, DFGNN_REF_FACTOR_VARIANCE * square(g));
}

number dfgnn__ref_grade(const grads *row, const dfgnn_ref_message *m, int64_t i,
                        int64_t k, double degree) {
  switch (m->problem->op) {
  case DFGNN_OP_REDUCE_PNA:
    return grade_pna(row, m, i, k, degree);
  case DFGNN_OP_REDUCE_VAR:
    return grade_var(row, m, i, degree);
  case DFGNN_OP_REDUCE_STD:
    return grade_std(row, m, i, degree);
  case DFGNN_OP_REDUCE_MIN:
    return grade_extreme(row, row->arg_min, i, k);
  default:
    return grade_extreme(row, row->arg_max, i, k);
  }
}
