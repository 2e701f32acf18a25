/* reduce.c - float64 reductions by the formulas, feature by feature */
#include "kernels/reduce/reference/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/accuracy.h"
#include "kernels/message/reference/message.h"

/* The statistics of a row and head, by feature. */
typedef struct moments {
  dfgnn_ref_sum mean;
  double *variance, *minimum, *maximum, *arg_min, *arg_max;
  double *farthest; /* the largest difference from the mean, squared */
  double *drift;    /* the mean difference: 0 but for rounding */
  double *x;        /* the features of one source */
  int32_t *order;   /* a row of the matrix, sorted */
  double *buffer;
  double repeats;
} moments;

#define MOMENTS 8

static int moments_make(moments *m, int64_t dim, int64_t degree, int bounds) {
  size_t numbers = (size_t)(MOMENTS * dim) + dfgnn__ref_sum_numbers(dim);
  double *at = malloc(numbers * sizeof *at);
  *m = (moments){.buffer = at, .repeats = 1};
  m->order = malloc((size_t)(degree + 1) * sizeof *m->order);
  double **arrays[MOMENTS] = {&m->variance, &m->minimum, &m->maximum,
                              &m->arg_min,  &m->arg_max, &m->farthest,
                              &m->drift,    &m->x};
  for (int i = 0; i < MOMENTS && at; i++, at += dim)
    *arrays[i] = at;
  if (at)
    m->mean = dfgnn__ref_sum_in(at, dim, bounds);
  return m->buffer && m->order;
}

static void moments_free(moments *m) {
  free(m->order);
  free(m->buffer);
}

/* Is x before the best so far?  A NaN is before all numbers, the first of
 * equals stays. */
static int before(double x, double best, int sign) {
  return isnan(x) ? !isnan(best) : sign * x < sign * best;
}

/* The error variance of a term divided by the degree, over its square. */
#define SHARE_VARIANCE 4

static void find_extremes(moments *m, int64_t k) {
  for (int64_t d = 0; d < m->mean.width; d++) {
    double x = m->x[d];
    if (k == 0 || before(x, m->minimum[d], 1)) {
      m->minimum[d] = x;
      m->arg_min[d] = (double)k;
    }
    if (k == 0 || before(x, m->maximum[d], -1)) {
      m->maximum[d] = x;
      m->arg_max[d] = (double)k;
    }
  }
}

static void reduce_row(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                       const dfgnn_args *args, int64_t row, int64_t head,
                       moments *m) {
  int64_t begin = dfgnn__ref_offset(matrix, row), dim = problem->dim;
  int64_t degree = dfgnn__ref_offset(matrix, row + 1) - begin;
  const int32_t *indices = matrix->indices + begin;
  double share = degree ? 1 / (double)degree : 0;
  dfgnn_ref_row repeated = {NULL, degree, 1};
  if (m->mean.bounds)
    repeated = dfgnn__ref_row(indices, degree, m->order);
  m->repeats = repeated.repeats;
  for (int64_t d = 0; d < dim; d++) {
    m->variance[d] = m->minimum[d] = m->maximum[d] = 0;
    m->farthest[d] = m->drift[d] = 0;
    m->arg_min[d] = m->arg_max[d] = -1;
  }
  dfgnn__ref_sum_begin(&m->mean, degree);
  for (int64_t k = 0; k < degree; k++) {
    dfgnn__ref_load(m->x, problem, args->value, &args->value_strides,
                    indices[k], head);
    dfgnn__ref_sum_add(&m->mean, k, share,
                       SHARE_VARIANCE * share * share *
                           dfgnn__ref_repeats(&repeated, indices[k]),
                       m->x);
    find_extremes(m, k);
  }
  for (int64_t k = 0; k < degree; k++) {
    dfgnn__ref_load(m->x, problem, args->value, &args->value_strides,
                    indices[k], head);
    for (int64_t d = 0; d < dim; d++) {
      double difference = m->x[d] - m->mean.value[d];
      double square = difference * difference;
      m->variance[d] += square * share;
      m->drift[d] += difference * share;
      if (square > m->farthest[d])
        m->farthest[d] = square;
    }
  }
  /* Subtracts what the rounding of the mean added: equal values have no
   * variance. */
  for (int64_t d = 0; d < dim; d++) {
    double variance = m->variance[d] - m->drift[d] * m->drift[d];
    m->variance[d] = variance < 0 ? 0 : variance; /* a NaN stays */
  }
}

/* Kernels may take differences from any element of the row and subtract the
 * squares of their means: terms are as large as the farthest element's. */
#define SHIFTED_TERMS 6

static double variance_size(const moments *m, int64_t d) {
  return m->variance[d] + m->farthest[d];
}

static double variance_fixed(const moments *m, int64_t d) {
  double size = SHIFTED_TERMS * variance_size(m, d);
  return m->mean.bounds ? size * size : 0;
}

static double variance_summed(const moments *m, int64_t d) {
  double size = variance_size(m, d);
  return m->mean.bounds ? m->repeats * size * size : 0;
}

/* Where kernels find variances, too, the mean is a shift plus the mean of the
 * differences from it, whose sums may be as large as the farthest element makes
 * them. */
static double mean_fixed(const dfgnn_problem *problem, const moments *m,
                         int64_t d) {
  double shifted = problem->op == DFGNN_OP_REDUCE_MEAN ? 0 : 4 * m->farthest[d];
  return dfgnn__ref_sum_fixed(&m->mean, d) + (m->mean.bounds ? shifted : 0);
}

static double mean_summed(const dfgnn_problem *problem, const moments *m,
                          int64_t d) {
  double shifted = problem->op == DFGNN_OP_REDUCE_MEAN ? 0 : m->farthest[d];
  return dfgnn__ref_sum_summed(&m->mean, d, m->repeats) +
         (m->mean.bounds ? shifted : 0);
}

#define LEAST_VARIANCE 1e-5

static double deviation(double variance) {
  return variance <= LEAST_VARIANCE ? 0 : sqrt(variance); /* a NaN stays */
}

/* May rounding put a kernel's variance on the other side of LEAST_VARIANCE? */
static int near_least(const dfgnn_problem *problem, double variance,
                      double squares) {
  double unit = dfgnn__arithmetic(problem, NULL).unit;
  double bound = DFGNN_BOUND * unit * sqrt(squares);
  return fabs(variance - LEAST_VARIANCE) <= bound;
}

static void put_std(const dfgnn_problem *problem, const dfgnn_ref_result *to,
                    int64_t at, const moments *m, int64_t d, int64_t degree) {
  double unit = dfgnn__arithmetic(problem, NULL).unit;
  double variance = m->variance[d], std = deviation(variance);
  double fixed = variance_fixed(m, d), summed = variance_summed(m, d);
  double all = fixed + (double)degree * summed;
  if (m->mean.bounds && near_least(problem, variance, all)) {
    /* 0 is right, and so is the root of the variance */
    double least = LEAST_VARIANCE / (DFGNN_BOUND * DFGNN_BOUND * unit * unit);
    dfgnn__ref_put(to, at, std, 2 * least + 2 * all / LEAST_VARIANCE, 0);
  } else if (std == 0) {
    dfgnn__ref_put(to, at, std, 0, 0);
  } else {
    double slope = 1 / (4 * variance);
    dfgnn__ref_put(to, at, std, slope * fixed + 4 * variance, slope * summed);
  }
}

static void put_exact(const dfgnn_ref_result *to, int64_t at, int64_t dim,
                      const double *from) {
  for (int64_t d = 0; d < dim; d++)
    dfgnn__ref_put(to, at + d, from[d], 0, 0);
}

/* Writes the results of one row and head, from number `at` on. */
static void put_row(const dfgnn_problem *problem,
                    const dfgnn_expected *expected, int64_t at,
                    const moments *m, int64_t degree) {
  int64_t dim = problem->dim;
  dfgnn_op op = problem->op;
  dfgnn_ref_result out = DFGNN_REF_RESULT(expected, out);
  dfgnn_ref_result std = DFGNN_REF_RESULT(expected, out_std);
  dfgnn_ref_result minimum = DFGNN_REF_RESULT(expected, out_min);
  dfgnn_ref_result maximum = DFGNN_REF_RESULT(expected, out_max);
  dfgnn_ref_result arg_min = DFGNN_REF_RESULT(expected, arg_min);
  dfgnn_ref_result arg_max = DFGNN_REF_RESULT(expected, arg_max);
  put_exact(&arg_min, at, dim, m->arg_min);
  put_exact(&arg_max, at, dim, m->arg_max);
  put_exact(op == DFGNN_OP_REDUCE_MIN ? &out : &minimum, at, dim, m->minimum);
  put_exact(op == DFGNN_OP_REDUCE_MAX ? &out : &maximum, at, dim, m->maximum);
  for (int64_t d = 0; d < dim; d++) {
    if (op == DFGNN_OP_REDUCE_MEAN || op == DFGNN_OP_REDUCE_PNA)
      dfgnn__ref_put(&out, at + d, m->mean.value[d], mean_fixed(problem, m, d),
                     mean_summed(problem, m, d));
    if (op == DFGNN_OP_REDUCE_VAR)
      dfgnn__ref_put(&out, at + d, m->variance[d], variance_fixed(m, d),
                     variance_summed(m, d));
    if (op == DFGNN_OP_REDUCE_STD)
      put_std(problem, &out, at + d, m, d, degree);
    if (op == DFGNN_OP_REDUCE_PNA)
      put_std(problem, &std, at + d, m, d, degree);
  }
}

dfgnn_status dfgnn__reduce_reference(const dfgnn_problem *problem,
                                     const dfgnn_matrix *matrix,
                                     const dfgnn_args *args,
                                     const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  int failed = 0;
  if (problem->message && problem->op == DFGNN_OP_REDUCE_MEAN)
    return dfgnn__message_reference(problem, matrix, args, expected);
  if (problem->message)
    return dfgnn__message_reduce_reference(problem, matrix, args, expected);
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    moments m;
    int ready = moments_make(&m, dim, matrix->max_degree, expected->bounds);
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < expected->row_count; r++)
      for (int64_t h = 0; h < heads && ready; h++) {
        int64_t row = expected->rows ? expected->rows[r] : r;
        reduce_row(problem, matrix, args, row, h, &m);
        put_row(problem, expected, (r * heads + h) * dim, &m,
                dfgnn__ref_offset(matrix, row + 1) -
                    dfgnn__ref_offset(matrix, row));
      }
    moments_free(&m);
  }
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

/* ---- backward ------------------------------------------------------------ */

/* The numbers of a row that the gradient of a column reads, by feature. */
typedef struct row_state {
  double *grad, *grad_min, *grad_max, *grad_std;
  double *mean, *std; /* std: of REDUCE_VAR, the variance */
  double *mean_error; /* the error variance of a kernel's mean */
  double *std_error;  /* that of its std over std squared; INFINITY: a kernel's
                       * std may be 0 */
} row_state;

#define ROW_STATE 8

static row_state row_state_in(double *buffer, int64_t dim) {
  return (row_state){.grad = buffer,
                     .grad_min = buffer + dim,
                     .grad_max = buffer + 2 * dim,
                     .grad_std = buffer + 3 * dim,
                     .mean = buffer + 4 * dim,
                     .std = buffer + 5 * dim,
                     .mean_error = buffer + 6 * dim,
                     .std_error = buffer + 7 * dim};
}

static int own_moments(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_REDUCE_VAR ||
         problem->op == DFGNN_OP_REDUCE_STD;
}

static int32_t arg_at(const dfgnn_problem *problem, const int32_t *arg,
                      int64_t row, int64_t head, int64_t d) {
  int64_t at = problem->layout == DFGNN_LAYOUT_NDH
                   ? (row * problem->dim + d) * problem->heads + head
                   : (row * problem->heads + head) * problem->dim + d;
  return arg[at];
}

#define KNOWN 4

/* Writes a row's mean, its variance or deviation, and the error variances of
 * both. */
static void put_known(double *to, const dfgnn_problem *problem,
                      const moments *m, int64_t degree) {
  int64_t dim = problem->dim;
  for (int64_t d = 0; d < dim; d++) {
    double variance = m->variance[d];
    double all = variance_fixed(m, d) + (double)degree * variance_summed(m, d);
    to[d] = m->mean.value[d];
    to[dim + d] =
        problem->op == DFGNN_OP_REDUCE_STD ? deviation(variance) : variance;
    to[2 * dim + d] =
        mean_fixed(problem, m, d) + (double)degree * mean_summed(problem, m, d);
    to[3 * dim + d] = near_least(problem, variance, all) ? INFINITY
                      : variance == 0                    ? 0
                                      : all / (4 * variance * variance);
  }
}

/* Returns the results of put_known() for all rows with an edge from a wanted
 * column, [N, H, KNOWN, D]; NULL without memory. */
static double *rows_moments(const dfgnn_problem *problem,
                            const dfgnn_matrix *matrix, const dfgnn_args *args,
                            const dfgnn_expected *expected) {
  int64_t rows = matrix->destinations, heads = problem->heads;
  int64_t dim = problem->dim, count = expected->column_count;
  dfgnn_matrix t = dfgnn__transposed(matrix, expected->transpose);
  char *wanted = calloc((size_t)rows + 1, 1);
  double *all = malloc((size_t)(KNOWN * rows * heads * dim + 1) * sizeof *all);
  int failed = !wanted || !all;
  for (int64_t c = 0; c < count && !failed; c++) {
    int64_t column = expected->columns ? expected->columns[c] : c;
    for (int64_t k = dfgnn__ref_offset(&t, column);
         k < dfgnn__ref_offset(&t, column + 1); k++)
      wanted[t.indices[k]] = 1;
  }
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    moments m;
    int ready = moments_make(&m, dim, matrix->max_degree, expected->bounds) &&
                wanted && all;
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t i = 0; i < (ready ? rows : 0); i++)
      for (int64_t h = 0; h < heads && wanted[i]; h++) {
        reduce_row(problem, matrix, args, i, h, &m);
        put_known(all + KNOWN * (i * heads + h) * dim, problem, &m,
                  dfgnn__ref_offset(matrix, i + 1) -
                      dfgnn__ref_offset(matrix, i));
      }
    moments_free(&m);
  }
  free(wanted);
  if (!failed)
    return all;
  free(all);
  return NULL;
}

static void load_row(const dfgnn_problem *problem, const dfgnn_args *args,
                     const double *known, int64_t row, int64_t head,
                     const row_state *s) {
  const dfgnn_strides *strides = &args->grad_out_strides;
  dfgnn__ref_load(s->grad, problem, args->grad_out, strides, row, head);
  if (problem->op == DFGNN_OP_REDUCE_PNA) {
    dfgnn__ref_load(s->grad_min, problem, args->grad_out_min, strides, row,
                    head);
    dfgnn__ref_load(s->grad_max, problem, args->grad_out_max, strides, row,
                    head);
    dfgnn__ref_load(s->grad_std, problem, args->grad_out_std, strides, row,
                    head);
    dfgnn__ref_load(s->mean, problem, args->out, &args->out_strides, row, head);
    dfgnn__ref_load(s->std, problem, args->out_std, &args->out_strides, row,
                    head);
  } else if (own_moments(problem)) {
    const double *from =
        known + KNOWN * (row * problem->heads + head) * problem->dim;
    size_t bytes = (size_t)problem->dim * sizeof *from;
    memcpy(s->mean, from, bytes);
    memcpy(s->std, from + problem->dim, bytes);
    memcpy(s->mean_error, from + 2 * problem->dim, bytes);
    memcpy(s->std_error, from + 3 * problem->dim, bytes);
  }
}

/* d std / dx = (x - mean) / (degree std), or 0 where std is 0. */
static double through_std(double x, double mean, double std, double degree) {
  return std == 0 ? 0 : (x - mean) / (degree * std);
}

/* Returns the term that edge k of the row adds to its column's gradient.
 * *extremes becomes the sum of the magnitudes of the parts of PNA's min and
 * max, which the other parts may cancel. */
static double through(const dfgnn_problem *problem, const dfgnn_args *args,
                      const row_state *s, int64_t row, int64_t head, int64_t d,
                      double x, double degree, int64_t k, double *extremes) {
  double low, high;
  *extremes = 0;
  switch (problem->op) {
  case DFGNN_OP_REDUCE_MIN:
    return arg_at(problem, args->arg_min, row, head, d) == k ? s->grad[d] : 0;
  case DFGNN_OP_REDUCE_MAX:
    return arg_at(problem, args->arg_max, row, head, d) == k ? s->grad[d] : 0;
  case DFGNN_OP_REDUCE_MEAN:
    return s->grad[d] / degree;
  case DFGNN_OP_REDUCE_VAR:
    return s->grad[d] * 2 * (x - s->mean[d]) / degree;
  case DFGNN_OP_REDUCE_STD:
    return s->grad[d] * through_std(x, s->mean[d], s->std[d], degree);
  default: /* DFGNN_OP_REDUCE_PNA */
    low =
        arg_at(problem, args->arg_min, row, head, d) == k ? s->grad_min[d] : 0;
    high =
        arg_at(problem, args->arg_max, row, head, d) == k ? s->grad_max[d] : 0;
    *extremes = fabs(low) + fabs(high);
    return low + high + s->grad[d] / degree +
           s->grad_std[d] * through_std(x, s->mean[d], s->std[d], degree);
  }
}

/* The error variance of a product of some factors, over its square. */
#define TERM_VARIANCE 16

/* The error variance of the term of through(), with that of mean and std. */
static double through_variance(const dfgnn_problem *problem, const row_state *s,
                               int64_t d, double x, double degree, double term,
                               double extremes) {
  double difference = fabs(x - s->mean[d]), slope, grad;
  double rounded = TERM_VARIANCE * term * term;
  double unit = dfgnn__arithmetic(problem, NULL).unit;
  switch (problem->op) {
  case DFGNN_OP_REDUCE_VAR:
    slope = 2 * s->grad[d] / degree;
    return rounded + slope * slope * (s->mean_error[d] + x * x);
  case DFGNN_OP_REDUCE_STD:
    grad = fabs(s->grad[d]) / degree;
    if (isinf(s->std_error[d])) /* std may be 0, or not */
      return rounded + grad * grad * difference * difference /
                           (LEAST_VARIANCE * unit * unit);
    if (s->std[d] == 0)
      return rounded;
    slope = grad / s->std[d];
    return rounded + slope * slope *
                         (s->mean_error[d] + x * x +
                          difference * difference * s->std_error[d]);
  case DFGNN_OP_REDUCE_PNA:
    grad = extremes + fabs(s->grad[d]) / degree +
           (s->std[d] == 0
                ? 0
                : fabs(s->grad_std[d]) * (difference + fabs(s->mean[d])) /
                      (degree * s->std[d]));
    return rounded + TERM_VARIANCE * grad * grad;
  default:
    return rounded;
  }
}

/* The memory of a thread that sums columns. */
typedef struct column_sum {
  double *x, *terms, *variances; /* [D] */
  row_state row;
  dfgnn_ref_sum sum;
  int32_t *order;
} column_sum;

static void reduce_column(const dfgnn_problem *problem,
                          const dfgnn_matrix *matrix, const dfgnn_args *args,
                          const dfgnn_view *view, const double *known,
                          int64_t column, int64_t head, column_sum *c,
                          const dfgnn_ref_result *out) {
  dfgnn_matrix t = dfgnn__transposed(matrix, view);
  int64_t dim = problem->dim, first = dfgnn__ref_offset(&t, column);
  int64_t count = dfgnn__ref_offset(&t, column + 1) - first;
  const int32_t *indices = t.indices + first;
  dfgnn_ref_row repeated = {NULL, count, 1};
  if (c->sum.bounds)
    repeated = dfgnn__ref_row(indices, count, c->order);
  for (int64_t d = 0; d < dim; d++)
    c->x[d] = 0;
  if (args->value)
    dfgnn__ref_load(c->x, problem, args->value, &args->value_strides, column,
                    head);
  dfgnn__ref_sum_begin(&c->sum, count);
  for (int64_t k = 0; k < count; k++) {
    int64_t row = indices[k], begin = dfgnn__ref_offset(matrix, row);
    double degree = (double)(dfgnn__ref_offset(matrix, row + 1) - begin);
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    load_row(problem, args, known, row, head, &c->row);
    for (int64_t d = 0; d < dim; d++) {
      double extremes;
      double term =
          through(problem, args, &c->row, row, head, d, c->x[d], degree,
                  dfgnn__ref_edge(&t, view, first + k) - begin, &extremes);
      c->terms[d] = term;
      c->variances[d] = repeats * through_variance(problem, &c->row, d, c->x[d],
                                                   degree, term, extremes);
    }
    dfgnn__ref_sum_add_each(&c->sum, k, c->terms, c->variances);
  }
  for (int64_t d = 0; d < dim; d++)
    dfgnn__ref_put(out, d, c->sum.value[d], dfgnn__ref_sum_fixed(&c->sum, d),
                   dfgnn__ref_sum_summed(&c->sum, d, repeated.repeats));
}

static int column_sum_make(column_sum *c, int64_t dim, int64_t degree,
                           int bounds) {
  size_t numbers =
      (size_t)((3 + ROW_STATE) * dim) + dfgnn__ref_sum_numbers(dim);
  double *at = malloc(numbers * sizeof *at);
  *c = (column_sum){.x = at};
  c->order = malloc((size_t)(degree + 1) * sizeof *c->order);
  if (at) {
    c->terms = at + dim;
    c->variances = at + 2 * dim;
    c->row = row_state_in(at + 3 * dim, dim);
    c->sum = dfgnn__ref_sum_in(at + (3 + ROW_STATE) * dim, dim, bounds);
  }
  return c->x && c->order;
}

dfgnn_status dfgnn__reduce_backward_reference(const dfgnn_problem *problem,
                                              const dfgnn_matrix *matrix,
                                              const dfgnn_args *args,
                                              const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  dfgnn_ref_result value = DFGNN_REF_RESULT(expected, grad_value);
  double *known = NULL;
  if (problem->message)
    return dfgnn__message_backward_reference(problem, matrix, args, expected);
  if (!value.value)
    return DFGNN_OK;
  if (own_moments(problem))
    known = rows_moments(problem, matrix, args, expected);
  int failed = own_moments(problem) && !known;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    column_sum c;
    int made =
        column_sum_make(&c, dim, expected->transpose->extra, expected->bounds);
    int ready = made && (known || !own_moments(problem));
    failed |= !made;
#pragma omp for schedule(dynamic, 16)
    for (int64_t j = 0; j < expected->column_count; j++)
      for (int64_t h = 0; h < heads && ready; h++) {
        dfgnn_ref_result to =
            dfgnn__ref_result_at(&value, (j * heads + h) * dim);
        reduce_column(problem, matrix, args, expected->transpose, known,
                      expected->columns ? expected->columns[j] : j, h, &c, &to);
      }
    free(c.order);
    free(c.x);
  }
  free(known);
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

/* ---- as a variant -------------------------------------------------------- */

/* The number of doubles of one result. */
static size_t result_count(const dfgnn_setting *setting) {
  const dfgnn_matrix *m = setting->matrix;
  int64_t nodes = setting->problem->pass == DFGNN_PASS_FORWARD ? m->destinations
                                                               : m->sources;
  return (size_t)(nodes * setting->problem->heads * setting->problem->dim);
}

static size_t workspace(const dfgnn_setting *setting) {
  int results = setting->problem->pass == DFGNN_PASS_BACKWARD ? 1
                : setting->problem->op == DFGNN_OP_REDUCE_PNA ? 6
                                                              : 2;
  return (size_t)results * result_count(setting) * sizeof(double);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return setting->problem->pass == DFGNN_PASS_BACKWARD;
}

static void store_args(const dfgnn_problem *problem, int32_t *to, int64_t nodes,
                       const double *from) {
  for (int64_t i = 0; to && i < nodes * problem->heads; i++)
    for (int64_t d = 0; d < problem->dim; d++) {
      int64_t row = i / problem->heads, head = i % problem->heads;
      int64_t at = problem->layout == DFGNN_LAYOUT_NDH
                       ? (row * problem->dim + d) * problem->heads + head
                       : i * problem->dim + d;
      to[at] = (int32_t)from[i * problem->dim + d];
    }
}

static dfgnn_status forward(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  int pna = problem->op == DFGNN_OP_REDUCE_PNA;
  int low = pna || problem->op == DFGNN_OP_REDUCE_MIN;
  int high = pna || problem->op == DFGNN_OP_REDUCE_MAX;
  size_t count = result_count(&launch->setting);
  double *next = launch->workspace;
  dfgnn_expected expected = {.row_count = matrix->destinations};
  dfgnn_args *to = &expected.to;
  const struct {
    int wanted;
    void **expected;
    void *array;
    int index;
  } results[] = {
#define RESULT(condition, field, is_index)                                     \
  {.wanted = condition,                                                        \
   .expected = (void **)&to->field,                                            \
   .array = args->field,                                                       \
   .index = is_index}
      RESULT(1, out, 0),       RESULT(pna, out_min, 0),
      RESULT(pna, out_max, 0), RESULT(pna, out_std, 0),
      RESULT(low, arg_min, 1), RESULT(high, arg_max, 1),
#undef RESULT
  };
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i].wanted) {
      *results[i].expected = next;
      next += count;
    }
  dfgnn_status status =
      dfgnn__reduce_reference(problem, matrix, args, &expected);
  for (size_t i = 0; i < sizeof results / sizeof *results && !status; i++) {
    if (results[i].wanted && results[i].index)
      store_args(problem, results[i].array, matrix->destinations,
                 *results[i].expected);
    else if (results[i].wanted)
      dfgnn__ref_store_nodes(problem, results[i].array, &args->out_strides,
                             matrix->destinations, *results[i].expected);
  }
  return status;
}

static dfgnn_status backward(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  dfgnn_expected expected = {.column_count = matrix->sources,
                             .transpose = launch->views[0]};
  expected.to.grad_value = launch->workspace;
  dfgnn_status status =
      dfgnn__reduce_backward_reference(problem, matrix, args, &expected);
  if (!status)
    dfgnn__ref_store_nodes(problem, args->grad_value, &args->grad_value_strides,
                           matrix->sources, launch->workspace);
  return status;
}

#define REFERENCE(pass_name, pass_value, function)                             \
  {                                                                            \
    .name = "cpu.reduce." pass_name ".reference", .algorithm = "reference",    \
    .backend = "cpu", .ops = DFGNN_OPS_REDUCE,                                 \
    .passes = DFGNN_BIT(pass_value), .dtypes = DFGNN_DTYPES_ALL,               \
    .revision = 1, .deterministic = 1, .reference = 1, .workspace = workspace, \
    .views = views, .launch = function                                         \
  }

DFGNN_FAMILIES(reduce_reference_reduce) = {
    REFERENCE("fwd", DFGNN_PASS_FORWARD, forward),
    REFERENCE("bwd", DFGNN_PASS_BACKWARD, backward),
    DFGNN_FAMILIES_END,
};
