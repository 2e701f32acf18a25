/* reduce.c - float64 extremes and moments of messages by the formulas */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "kernels/common/accuracy.h"
#include "kernels/message/reference/edge.h"
#include "kernels/message/reference/message.h"

static double square(double x) { return x * x; }

/* The statistics of a row, [width] each. */
typedef struct known {
  double *minimum, *maximum, *arg_min, *arg_max;
  double *min_variance, *max_variance; /* of the extremes' own errors */
  double *min_unsure, *max_unsure;     /* 1: rounding may choose another edge */
  double *variance;                    /* of the messages */
  double *farthest; /* the largest difference from the mean, squared */
  double *drift;    /* the mean difference: 0 but for rounding */
  double *error;    /* the largest variance of a message's error */
} known;

enum { KNOWN = 12 };

typedef struct reduction {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  dfgnn_ref_message m;
  dfgnn_ref_sum mean;
  known row;
  double *terms, *variances;
  int32_t *order; /* a row of the matrix, sorted */
  double repeats;
  double *memory;
} reduction;

static int open_reduction(reduction *r, const dfgnn_problem *problem,
                          const dfgnn_matrix *matrix, const dfgnn_args *args,
                          const double *parameters, int bounds) {
  int64_t width = problem->heads * problem->dim;
  size_t message = dfgnn__ref_message_numbers(problem);
  size_t sum = dfgnn__ref_sum_numbers(width);
  *r = (reduction){.problem = problem, .matrix = matrix, .args = args};
  r->memory = malloc((message + sum + (size_t)((KNOWN + 2) * width)) *
                     sizeof *r->memory);
  r->order = malloc((size_t)(matrix->max_degree + 1) * sizeof *r->order);
  if (!r->memory || !r->order)
    return 0;
  double *next = r->memory;
  r->m = dfgnn__ref_message(problem, args, parameters, next);
  r->mean = dfgnn__ref_sum_in(next += message, width, bounds);
  next += sum;
  double **arrays[] = {
      &r->row.minimum,    &r->row.maximum,      &r->row.arg_min,
      &r->row.arg_max,    &r->row.min_variance, &r->row.max_variance,
      &r->row.min_unsure, &r->row.max_unsure,   &r->row.variance,
      &r->row.farthest,   &r->row.drift,        &r->row.error,
      &r->terms,          &r->variances};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++, next += width)
    *arrays[i] = next;
  return 1;
}

static void close_reduction(reduction *r) {
  free(r->order);
  free(r->memory);
}

/* ---- one row ------------------------------------------------------------- */

/* Is x before the best so far?  A NaN is before all numbers, the first of
 * equals stays. */
static int before(double x, double best, int sign) {
  return isnan(x) ? !isnan(best) : sign * x < sign * best;
}

static void find_extremes(const reduction *r, int64_t k) {
  const known *row = &r->row;
  const dfgnn_ref_numbers *m = &r->m.message;
  for (int64_t i = 0; i < r->m.width; i++) {
    if (k == 0 || before(m->value[i], row->minimum[i], 1)) {
      row->minimum[i] = m->value[i];
      row->min_variance[i] = m->variance[i];
      row->arg_min[i] = (double)k;
    }
    if (k == 0 || before(m->value[i], row->maximum[i], -1)) {
      row->maximum[i] = m->value[i];
      row->max_variance[i] = m->variance[i];
      row->arg_max[i] = (double)k;
    }
    if (m->variance[i] > row->error[i])
      row->error[i] = m->variance[i];
  }
}

/* May rounding make a message the extreme? */
static int near(const reduction *r, int64_t i, double extreme,
                double variance) {
  double reach = DFGNN_BOUND * r->m.unit *
                 (sqrt(r->m.message.variance[i]) + sqrt(variance));
  return reach > 0 && fabs(r->m.message.value[i] - extreme) <= reach;
}

static void look_again(const reduction *r, int64_t k, double share) {
  const known *row = &r->row;
  for (int64_t i = 0; i < r->m.width; i++) {
    double difference = r->m.message.value[i] - r->mean.value[i];
    row->variance[i] += square(difference) * share;
    row->drift[i] += difference * share;
    if (square(difference) > row->farthest[i])
      row->farthest[i] = square(difference);
    if ((double)k != row->arg_min[i] &&
        near(r, i, row->minimum[i], row->min_variance[i]))
      row->min_unsure[i] = 1;
    if ((double)k != row->arg_max[i] &&
        near(r, i, row->maximum[i], row->max_variance[i]))
      row->max_unsure[i] = 1;
  }
}

/* The error variance of a term divided by the degree, over its square. */
#define SHARE_VARIANCE 4

static void reduce_row(reduction *r, int64_t row) {
  int64_t begin = dfgnn__ref_offset(r->matrix, row), width = r->m.width;
  int64_t degree = dfgnn__ref_offset(r->matrix, row + 1) - begin;
  const int32_t *indices = r->matrix->indices + begin;
  double share = degree ? 1 / (double)degree : 0;
  dfgnn_ref_row repeated = {NULL, degree, 1};
  known *all = &r->row;
  if (r->mean.bounds)
    repeated = dfgnn__ref_row(indices, degree, r->order);
  r->repeats = repeated.repeats;
  for (int64_t i = 0; i < width; i++) {
    all->minimum[i] = all->maximum[i] = all->variance[i] = 0;
    all->min_variance[i] = all->max_variance[i] = all->error[i] = 0;
    all->min_unsure[i] = all->max_unsure[i] = 0;
    all->farthest[i] = all->drift[i] = 0;
    all->arg_min[i] = all->arg_max[i] = -1;
  }
  dfgnn__ref_sum_begin(&r->mean, degree);
  dfgnn__ref_message_destination(&r->m, row);
  for (int64_t k = 0; k < degree; k++) {
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_message_source(&r->m, indices[k]);
    dfgnn__ref_message_edge(&r->m, begin + k);
    for (int64_t i = 0; i < width; i++) {
      double term = share * r->m.message.value[i];
      r->terms[i] = term;
      r->variances[i] = repeats * (square(share) * r->m.message.variance[i] +
                                   SHARE_VARIANCE * square(term));
    }
    dfgnn__ref_sum_add_each(&r->mean, k, r->terms, r->variances);
    find_extremes(r, k);
  }
  for (int64_t k = 0; k < degree; k++) {
    dfgnn__ref_message_source(&r->m, indices[k]);
    dfgnn__ref_message_edge(&r->m, begin + k);
    look_again(r, k, share);
  }
  /* Subtracts what the rounding of the mean added: equal values have no
   * variance. */
  for (int64_t i = 0; i < width; i++) {
    double variance = all->variance[i] - square(all->drift[i]);
    all->variance[i] = variance < 0 ? 0 : variance; /* a NaN stays */
  }
}

/* ---- results ------------------------------------------------------------- */

/* Kernels may take differences from any message of the row and subtract the
 * squares of their means: terms are as large as those of the farthest message.
 * A message's own error counts by twice its difference. */
#define SHIFTED_TERMS 6

static double variance_fixed(const reduction *r, int64_t i) {
  double size = SHIFTED_TERMS * (r->row.variance[i] + r->row.farthest[i]);
  double error = r->row.error[i];
  return square(size) + 4 * r->row.farthest[i] * error +
         square(r->m.unit * error);
}

static double variance_summed(const reduction *r, int64_t i) {
  return r->repeats * square(r->row.variance[i] + r->row.farthest[i]);
}

#define LEAST_VARIANCE 1e-5

static double deviation(double variance) {
  return variance <= LEAST_VARIANCE ? 0 : sqrt(variance); /* a NaN stays */
}

static void put_std(const reduction *r, const dfgnn_ref_result *to, int64_t i,
                    int64_t degree) {
  double variance = r->row.variance[i], std = deviation(variance);
  double fixed = r->mean.bounds ? variance_fixed(r, i) : 0;
  double summed = r->mean.bounds ? variance_summed(r, i) : 0;
  double all = fixed + (double)degree * summed;
  double reach = DFGNN_BOUND * r->m.unit;
  if (r->mean.bounds && fabs(variance - LEAST_VARIANCE) <= reach * sqrt(all)) {
    /* 0 is right, and so is the root of the variance */
    double least = LEAST_VARIANCE / square(reach);
    dfgnn__ref_put(to, i, std, 2 * least + 2 * all / LEAST_VARIANCE, 0);
  } else if (std == 0) {
    dfgnn__ref_put(to, i, std, 0, 0);
  } else {
    double slope = 1 / (4 * variance);
    dfgnn__ref_put(to, i, std, slope * fixed + 4 * variance, slope * summed);
  }
}

static void put_extreme(const reduction *r, const dfgnn_ref_result *to,
                        const double *from) {
  for (int64_t i = 0; i < r->m.width; i++)
    dfgnn__ref_put(to, i, from[i], r->row.error[i], 0);
}

/* Where rounding may choose the extreme, any edge of the row is right. */
static void put_arg(const reduction *r, const dfgnn_ref_result *to,
                    const double *from, const double *unsure, int64_t degree) {
  for (int64_t i = 0; i < r->m.width; i++)
    dfgnn__ref_put(to, i, from[i], unsure[i] * square((double)degree), 0);
}

static void put_row(const reduction *r, const dfgnn_expected *expected,
                    int64_t at, int64_t degree) {
#define RESULT(name, field)                                                    \
  dfgnn_ref_result name##_all = DFGNN_REF_RESULT(expected, field),             \
                   name = dfgnn__ref_result_at(&name##_all, at)
  RESULT(out, out);
  RESULT(std, out_std);
  RESULT(least, out_min);
  RESULT(most, out_max);
  RESULT(arg_min, arg_min);
  RESULT(arg_max, arg_max);
#undef RESULT
  dfgnn_op op = r->problem->op;
  put_arg(r, &arg_min, r->row.arg_min, r->row.min_unsure, degree);
  put_arg(r, &arg_max, r->row.arg_max, r->row.max_unsure, degree);
  put_extreme(r, op == DFGNN_OP_REDUCE_MIN ? &out : &least, r->row.minimum);
  put_extreme(r, op == DFGNN_OP_REDUCE_MAX ? &out : &most, r->row.maximum);
  for (int64_t i = 0; op == DFGNN_OP_REDUCE_PNA && i < r->m.width; i++) {
    /* Kernels add a shift and the mean of the differences from it. */
    double far = r->mean.bounds ? r->row.farthest[i] : 0;
    dfgnn__ref_put(&out, i, r->mean.value[i],
                   dfgnn__ref_sum_fixed(&r->mean, i) + 4 * far,
                   dfgnn__ref_sum_summed(&r->mean, i, r->repeats) + far);
    put_std(r, &std, i, degree);
  }
}

dfgnn_status dfgnn__message_reduce_reference(const dfgnn_problem *problem,
                                             const dfgnn_matrix *matrix,
                                             const dfgnn_args *args,
                                             const dfgnn_expected *expected) {
  int64_t width = problem->heads * problem->dim;
  double *parameters =
      malloc(dfgnn__ref_message_parameters(problem) * sizeof *parameters);
  int failed = parameters == NULL;
  if (parameters)
    dfgnn__ref_message_convert(parameters, problem, args);
#pragma omp parallel reduction(| : failed) if (matrix->edges * width > 20000)
  {
    reduction r;
    int ready =
        open_reduction(&r, problem, matrix, args, parameters, expected->bounds);
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t k = 0; k < expected->row_count; k++) {
      int64_t row = expected->rows ? expected->rows[k] : k;
      if (!ready || !parameters)
        continue;
      reduce_row(&r, row);
      put_row(&r, expected, k * width,
              dfgnn__ref_offset(matrix, row + 1) -
                  dfgnn__ref_offset(matrix, row));
    }
    close_reduction(&r);
  }
  free(parameters);
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}
