/* reduce.c - float64 reductions by the formulas, feature by feature
 */
#include "kernels/reduce/reference/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  double *mean, *std; /* std: or the variance */
} row_state;

#define ROW_STATE 6

static row_state row_state_in(double *buffer, int64_t dim) {
  return (row_state){buffer,           buffer + dim,     buffer + 2 * dim,
                     buffer + 3 * dim, buffer + 4 * dim, buffer + 5 * dim};
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

/* Mean and variance or deviation of the rows that hold a column wanted: [N, H,
 * 2, D].  NULL without memory. */
static double *rows_moments(const dfgnn_problem *problem,
                            const dfgnn_matrix *matrix, const dfgnn_args *args,
                            const dfgnn_expected *expected) {
  int64_t rows = matrix->destinations, heads = problem->heads;
  int64_t dim = problem->dim, count = expected->column_count;
  dfgnn_matrix t = dfgnn__transposed(matrix, expected->transpose);
  char *wanted = calloc((size_t)rows + 1, 1);
  double *all = malloc((size_t)(2 * rows * heads * dim + 1) * sizeof *all);
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
    double *x = malloc((size_t)((MOMENTS + 1) * dim) * sizeof *x);
    moments m = moments_in(x ? x + dim : NULL, dim);
    failed |= x == NULL;
    int ready = !failed;
#pragma omp for schedule(dynamic, 16)
    for (int64_t i = 0; i < (ready ? rows : 0); i++)
      for (int64_t h = 0; h < heads && wanted[i]; h++) {
        double *to = all + 2 * (i * heads + h) * dim;
        reduce_row(problem, matrix, args, i, h, x, &m);
        for (int64_t d = 0; d < dim; d++) {
          to[d] = m.mean[d];
          to[dim + d] = problem->op == DFGNN_OP_REDUCE_STD
                            ? deviation(m.variance[d])
                            : m.variance[d];
        }
      }
    free(x);
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
        known + 2 * (row * problem->heads + head) * problem->dim;
    size_t bytes = (size_t)problem->dim * sizeof *from;
    memcpy(s->mean, from, bytes);
    memcpy(s->std, from + problem->dim, bytes);
  }
}

/* d std / dx = (x - mean) / (degree std), 0 where std is. */
static double through_std(double x, double mean, double std, double degree) {
  return std == 0 ? 0 : (x - mean) / (degree * std);
}

static double through(const dfgnn_problem *problem, const dfgnn_args *args,
                      const row_state *s, int64_t row, int64_t head, int64_t d,
                      double x, double degree, int64_t k) {
  double sum = 0;
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
    if (arg_at(problem, args->arg_min, row, head, d) == k)
      sum += s->grad_min[d];
    if (arg_at(problem, args->arg_max, row, head, d) == k)
      sum += s->grad_max[d];
    return sum + s->grad[d] / degree +
           s->grad_std[d] * through_std(x, s->mean[d], s->std[d], degree);
  }
}

static void reduce_column(const dfgnn_problem *problem,
                          const dfgnn_matrix *matrix, const dfgnn_args *args,
                          const dfgnn_view *view, const double *known,
                          int64_t column, int64_t head, double *buffer,
                          double *out) {
  dfgnn_matrix t = dfgnn__transposed(matrix, view);
  int64_t dim = problem->dim;
  double *x = buffer;
  row_state s = row_state_in(x + dim, dim);
  for (int64_t d = 0; d < dim; d++)
    out[d] = x[d] = 0;
  if (args->value)
    dfgnn__ref_load(x, problem, args->value, &args->value_strides, column,
                    head);
  for (int64_t k = dfgnn__ref_offset(&t, column);
       k < dfgnn__ref_offset(&t, column + 1); k++) {
    int64_t row = t.indices[k], begin = dfgnn__ref_offset(matrix, row);
    double degree = (double)(dfgnn__ref_offset(matrix, row + 1) - begin);
    load_row(problem, args, known, row, head, &s);
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
  double *value = expected->to.grad_value, *known = NULL;
  if (!value)
    return DFGNN_OK;
  if (own_moments(problem))
    known = rows_moments(problem, matrix, args, expected);
  int failed = own_moments(problem) && !known;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    double *buffer = malloc((size_t)((1 + ROW_STATE) * dim) * sizeof *buffer);
    failed |= buffer == NULL;
    int ready = !failed;
#pragma omp for schedule(dynamic, 16)
    for (int64_t c = 0; c < expected->column_count; c++)
      for (int64_t h = 0; h < heads && ready; h++)
        reduce_column(problem, matrix, args, expected->transpose, known,
                      expected->columns ? expected->columns[c] : c, h, buffer,
                      value + (c * heads + h) * dim);
    free(buffer);
  }
  free(known);
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

/* ---- as a variant -------------------------------------------------------- */

/* Doubles of one result, and where the n-th begins. */
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
      {1, &to->out, args->out, 0},
      {pna, &to->out_min, args->out_min, 0},
      {pna, &to->out_max, args->out_max, 0},
      {pna, &to->out_std, args->out_std, 0},
      {low, (void **)&to->arg_min, args->arg_min, 1},
      {high, (void **)&to->arg_max, args->arg_max, 1},
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
