/* reduce_reference.c - float64 reductions by the formulas, feature by feature */
#include "kernels/reduce/reference.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

/* All statistics of a row and head, by feature. */
typedef struct moments {
  double *mean, *variance, *minimum, *maximum, *arg_min, *arg_max;
} moments;

#define MOMENTS 6

static moments moments_in(double *buffer, int64_t dim) {
  return (moments){buffer,           buffer + dim,     buffer + 2 * dim,
                   buffer + 3 * dim, buffer + 4 * dim, buffer + 5 * dim};
}

/* Is x before the best so far?  A NaN is before all numbers, the first of
 * equals stays. */
static int before(double x, double best, int sign) {
  return isnan(x) ? !isnan(best) : sign * x < sign * best;
}

static void reduce_row(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                       const dfgnn_args *args, int64_t row, int64_t head,
                       double *x, const moments *m) {
  int64_t begin = dfgnn__ref_offset(matrix, row), dim = problem->dim;
  int64_t degree = dfgnn__ref_offset(matrix, row + 1) - begin;
  for (int64_t d = 0; d < dim; d++) {
    m->mean[d] = m->variance[d] = m->minimum[d] = m->maximum[d] = 0;
    m->arg_min[d] = m->arg_max[d] = -1;
  }
  for (int64_t k = 0; k < degree; k++) {
    dfgnn__ref_load(x, problem, args->value, &args->value_strides,
                    matrix->indices[begin + k], head);
    for (int64_t d = 0; d < dim; d++) {
      m->mean[d] += x[d] / (double)degree;
      if (k == 0 || before(x[d], m->minimum[d], 1)) {
        m->minimum[d] = x[d];
        m->arg_min[d] = (double)k;
      }
      if (k == 0 || before(x[d], m->maximum[d], -1)) {
        m->maximum[d] = x[d];
        m->arg_max[d] = (double)k;
      }
    }
  }
  for (int64_t k = 0; k < degree; k++) {
    dfgnn__ref_load(x, problem, args->value, &args->value_strides,
                    matrix->indices[begin + k], head);
    for (int64_t d = 0; d < dim; d++)
      m->variance[d] +=
          (x[d] - m->mean[d]) * (x[d] - m->mean[d]) / (double)degree;
  }
}

static double deviation(double variance) {
  return variance <= 1e-5 ? 0 : sqrt(variance); /* a NaN stays */
}

static void put(void *array, int64_t at, int64_t dim, const double *from) {
  for (int64_t d = 0; array && d < dim; d++)
    ((double *)array)[at + d] = from[d];
}

dfgnn_status dfgnn__reduce_reference(const dfgnn_problem *problem,
                                     const dfgnn_matrix *matrix,
                                     const dfgnn_args *args,
                                     const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  const dfgnn_args *to = &expected->to;
  int failed = 0;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    double *x = malloc((size_t)((MOMENTS + 1) * dim) * sizeof *x);
    moments m = moments_in(x + dim, dim);
    failed |= x == NULL;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < expected->row_count; r++)
      for (int64_t h = 0; h < heads && x; h++) {
        int64_t at = (r * heads + h) * dim;
        reduce_row(problem, matrix, args,
                   expected->rows ? expected->rows[r] : r, h, x, &m);
        put(to->arg_min, at, dim, m.arg_min);
        put(to->arg_max, at, dim, m.arg_max);
        put(to->out_min, at, dim, m.minimum);
        put(to->out_max, at, dim, m.maximum);
        double *out = problem->op == DFGNN_OP_REDUCE_MIN   ? m.minimum
                      : problem->op == DFGNN_OP_REDUCE_MAX ? m.maximum
                      : problem->op == DFGNN_OP_REDUCE_MEAN ||
                              problem->op == DFGNN_OP_REDUCE_PNA
                          ? m.mean
                          : m.variance;
        if (problem->op == DFGNN_OP_REDUCE_STD || to->out_std)
          for (int64_t d = 0; d < dim; d++)
            m.variance[d] = deviation(m.variance[d]);
        put(to->out_std, at, dim, m.variance);
        put(to->out, at, dim, out);
      }
    free(x);
  }
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

/* ---- backward ------------------------------------------------------------ */

/* What the gradients of a column need of one of its rows, by feature. */
typedef struct row_state {
  double *grad, *grad_min, *grad_max, *grad_std;
  moments m;
} row_state;

#define ROW_STATE (4 + MOMENTS)

static int32_t arg_at(const dfgnn_problem *problem, const int32_t *arg,
                      int64_t row, int64_t head, int64_t d) {
  int64_t at = problem->layout == DFGNN_LAYOUT_NDH
                   ? (row * problem->dim + d) * problem->heads + head
                   : (row * problem->heads + head) * problem->dim + d;
  return arg[at];
}

static void load_row(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                     const dfgnn_args *args, int64_t row, int64_t head,
                     double *x, const row_state *s) {
  const dfgnn_strides *strides = &args->grad_out_strides;
  int pna = problem->op == DFGNN_OP_REDUCE_PNA;
  dfgnn__ref_load(s->grad, problem, args->grad_out, strides, row, head);
  if (pna) {
    dfgnn__ref_load(s->grad_min, problem, args->grad_out_min, strides, row,
                    head);
    dfgnn__ref_load(s->grad_max, problem, args->grad_out_max, strides, row,
                    head);
    dfgnn__ref_load(s->grad_std, problem, args->grad_out_std, strides, row,
                    head);
  }
  if (pna) {
    dfgnn__ref_load(s->m.mean, problem, args->out, &args->out_strides, row,
                    head);
    dfgnn__ref_load(s->m.variance, problem, args->out_std, &args->out_strides,
                    row, head);
  } else if (problem->op == DFGNN_OP_REDUCE_VAR ||
             problem->op == DFGNN_OP_REDUCE_STD) {
    reduce_row(problem, matrix, args, row, head, x, &s->m);
    for (int64_t d = 0; d < problem->dim && problem->op == DFGNN_OP_REDUCE_STD;
         d++)
      s->m.variance[d] = deviation(s->m.variance[d]);
  }
}

/* d std / dx = (x - mean) / (degree std), 0 where std is. */
static double through_std(double x, double mean, double std, double degree) {
  return std == 0 ? 0 : (x - mean) / (degree * std);
}

static double through(const dfgnn_problem *problem, const dfgnn_args *args,
                      const row_state *s, int64_t row, int64_t head, int64_t d,
                      double x, double degree, int64_t k) {
  const moments *m = &s->m;
  double sum = 0;
  switch (problem->op) {
  case DFGNN_OP_REDUCE_MIN:
    return arg_at(problem, args->arg_min, row, head, d) == k ? s->grad[d] : 0;
  case DFGNN_OP_REDUCE_MAX:
    return arg_at(problem, args->arg_max, row, head, d) == k ? s->grad[d] : 0;
  case DFGNN_OP_REDUCE_MEAN:
    return s->grad[d] / degree;
  case DFGNN_OP_REDUCE_VAR:
    return s->grad[d] * 2 * (x - m->mean[d]) / degree;
  case DFGNN_OP_REDUCE_STD:
    return s->grad[d] * through_std(x, m->mean[d], m->variance[d], degree);
  default: /* DFGNN_OP_REDUCE_PNA */
    if (arg_at(problem, args->arg_min, row, head, d) == k)
      sum += s->grad_min[d];
    if (arg_at(problem, args->arg_max, row, head, d) == k)
      sum += s->grad_max[d];
    return sum + s->grad[d] / degree +
           s->grad_std[d] * through_std(x, m->mean[d], m->variance[d], degree);
  }
}

static void reduce_column(const dfgnn_problem *problem,
                          const dfgnn_matrix *matrix, const dfgnn_args *args,
                          const dfgnn_view *view, int64_t column, int64_t head,
                          double *buffer, double *out) {
  dfgnn_matrix t = dfgnn__transposed(matrix, view);
  int64_t dim = problem->dim;
  double *x = buffer, *other = x + dim, *b = other + dim;
  row_state s = {b, b + dim, b + 2 * dim, b + 3 * dim,
                 moments_in(b + 4 * dim, dim)};
  for (int64_t d = 0; d < dim; d++)
    out[d] = x[d] = 0;
  if (args->value)
    dfgnn__ref_load(x, problem, args->value, &args->value_strides, column,
                    head);
  for (int64_t k = dfgnn__ref_offset(&t, column);
       k < dfgnn__ref_offset(&t, column + 1); k++) {
    int64_t row = t.indices[k], begin = dfgnn__ref_offset(matrix, row);
    double degree = (double)(dfgnn__ref_offset(matrix, row + 1) - begin);
    load_row(problem, matrix, args, row, head, other, &s);
    for (int64_t d = 0; d < dim; d++)
      out[d] += through(problem, args, &s, row, head, d, x[d], degree,
                        dfgnn__ref_edge(&t, view, k) - begin);
  }
}

dfgnn_status dfgnn__reduce_backward_reference(const dfgnn_problem *problem,
                                              const dfgnn_matrix *matrix,
                                              const dfgnn_args *args,
                                              const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  double *value = expected->to.grad_value;
  int failed = 0;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    double *buffer = malloc((size_t)((2 + ROW_STATE) * dim) * sizeof *buffer);
    failed |= buffer == NULL;
#pragma omp for schedule(dynamic, 16)
    for (int64_t c = 0; c < (value ? expected->column_count : 0); c++)
      for (int64_t h = 0; h < heads && buffer; h++)
        reduce_column(problem, matrix, args, expected->transpose,
                      expected->columns ? expected->columns[c] : c, h, buffer,
                      value + (c * heads + h) * dim);
    free(buffer);
  }
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}
