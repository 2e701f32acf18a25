/* spmm.c - float64 SpMM by the formulas */
#include "kernels/spmm/reference/spmm.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/message/reference/message.h"

/* The error variance of a term, over its square: the product of scales, weight
 * and a mean's share has errors, and so has its product with x. */
#define FACTOR_VARIANCE 4

/* The memory of a thread. */
typedef struct scratch {
  double *x;      /* [2 dim] rows that are read */
  int32_t *order; /* a row of the matrix, sorted */
  dfgnn_ref_sum sum;
} scratch;

static int scratch_make(scratch *s, int64_t dim, int64_t degree, int bounds) {
  size_t numbers = (size_t)(2 * dim) + dfgnn__ref_sum_numbers(dim);
  s->x = malloc(numbers * sizeof *s->x);
  s->order = malloc((size_t)(degree + 1) * sizeof *s->order);
  if (s->x)
    s->sum = dfgnn__ref_sum_in(s->x + 2 * dim, dim, bounds);
  return s->x && s->order;
}

static void scratch_free(scratch *s) {
  free(s->order);
  free(s->x);
}

static void put_sum(const dfgnn_ref_result *to, const dfgnn_ref_sum *sum,
                    double repeats) {
  for (int64_t d = 0; d < sum->width; d++)
    dfgnn__ref_put(to, d, sum->value[d], dfgnn__ref_sum_fixed(sum, d),
                   dfgnn__ref_sum_summed(sum, d, repeats));
}

/* How often each column stands in a row; without bounds, once. */
static dfgnn_ref_row row_of(const scratch *s, const int32_t *indices,
                            int64_t count) {
  if (!s->sum.bounds)
    return (dfgnn_ref_row){NULL, count, 1};
  return dfgnn__ref_row(indices, count, s->order);
}

static void sum_row(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                    const dfgnn_args *args, int64_t row, int64_t head,
                    scratch *s, const dfgnn_ref_result *out) {
  int64_t begin = dfgnn__ref_offset(matrix, row);
  int64_t count = dfgnn__ref_offset(matrix, row + 1) - begin;
  const int32_t *indices = matrix->indices + begin;
  dfgnn_ref_row repeated = row_of(s, indices, count);
  dfgnn__ref_sum_begin(&s->sum, count);
  for (int64_t k = 0; k < count; k++) {
    int64_t j = indices[k];
    double f = dfgnn__spmm_reference_factor(problem, matrix, args, row, j,
                                            begin + k, head);
    double variance =
        FACTOR_VARIANCE * f * f * dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_load(s->x, problem, args->value, &args->value_strides, j, head);
    dfgnn__ref_sum_add(&s->sum, k, f, variance, s->x);
  }
  put_sum(out, &s->sum, repeated.repeats);
}

/* dx_j = sum_i f_ij dO_i */
static void sum_column(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                       const dfgnn_args *args, const dfgnn_view *view,
                       int64_t column, int64_t head, scratch *s,
                       const dfgnn_ref_result *out) {
  dfgnn_matrix t = dfgnn__transposed(matrix, view);
  int64_t begin = dfgnn__ref_offset(&t, column);
  int64_t count = dfgnn__ref_offset(&t, column + 1) - begin;
  const int32_t *indices = t.indices + begin;
  dfgnn_ref_row repeated = row_of(s, indices, count);
  dfgnn__ref_sum_begin(&s->sum, count);
  for (int64_t k = 0; k < count; k++) {
    int64_t i = indices[k], e = dfgnn__ref_edge(&t, view, begin + k);
    double f =
        dfgnn__spmm_reference_factor(problem, matrix, args, i, column, e, head);
    double variance =
        FACTOR_VARIANCE * f * f * dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_load(s->x, problem, args->grad_out, &args->grad_out_strides, i,
                    head);
    dfgnn__ref_sum_add(&s->sum, k, f, variance, s->x);
  }
  put_sum(out, &s->sum, repeated.repeats);
}

/* dw_ij = r_i c_j <dO_i, x_j>; grad has stride heads. */
static void weigh_row(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                      const dfgnn_args *args, int64_t row, int64_t head,
                      scratch *s, const dfgnn_ref_result *grad) {
  int64_t begin = dfgnn__ref_offset(matrix, row);
  double *x = s->x, *y = x + problem->dim;
  dfgnn__ref_load(y, problem, args->grad_out, &args->grad_out_strides, row,
                  head);
  for (int64_t e = begin; e < dfgnn__ref_offset(matrix, row + 1); e++) {
    int64_t j = matrix->indices[e];
    double f = dfgnn__spmm_reference_scale(problem, args, row, j);
    dfgnn__ref_load(x, problem, args->value, &args->value_strides, j, head);
    dfgnn_ref_product p = dfgnn__ref_product(x, y, problem->dim);
    dfgnn__ref_put(grad, (e - begin) * problem->heads, p.value * f,
                   f * f * (p.variance + FACTOR_VARIANCE * p.value * p.value),
                   0);
  }
}

dfgnn_status dfgnn__spmm_reference(const dfgnn_problem *problem,
                                   const dfgnn_matrix *matrix,
                                   const dfgnn_args *args,
                                   const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  dfgnn_ref_result out = DFGNN_REF_RESULT(expected, out);
  int failed = 0;
  if (problem->message)
    return dfgnn__message_reference(problem, matrix, args, expected);
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    scratch s;
    int ready = scratch_make(&s, dim, matrix->max_degree, expected->bounds);
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < expected->row_count; r++)
      for (int64_t h = 0; h < heads && ready; h++) {
        dfgnn_ref_result to = dfgnn__ref_result_at(&out, (r * heads + h) * dim);
        sum_row(problem, matrix, args, expected->rows ? expected->rows[r] : r,
                h, &s, &to);
      }
    scratch_free(&s);
  }
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

dfgnn_status dfgnn__spmm_backward_reference(const dfgnn_problem *problem,
                                            const dfgnn_matrix *matrix,
                                            const dfgnn_args *args,
                                            const dfgnn_expected *expected) {
  if (problem->message)
    return dfgnn__message_backward_reference(problem, matrix, args, expected);
  int64_t heads = problem->heads, dim = problem->dim;
  dfgnn_ref_result value = DFGNN_REF_RESULT(expected, grad_value);
  dfgnn_ref_result weight = DFGNN_REF_RESULT(expected, grad_edge_weight);
  int64_t *first = dfgnn__ref_first_edges(matrix, expected);
  int64_t degree = expected->transpose ? expected->transpose->extra : 0;
  int failed = first == NULL;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    scratch s;
    int made = scratch_make(&s, dim, degree, expected->bounds);
    int ready = made && first;
    failed |= !made;
#pragma omp for schedule(dynamic, 16)
    for (int64_t c = 0; c < (value.value ? expected->column_count : 0); c++)
      for (int64_t h = 0; h < heads && ready; h++) {
        dfgnn_ref_result to =
            dfgnn__ref_result_at(&value, (c * heads + h) * dim);
        sum_column(problem, matrix, args, expected->transpose,
                   expected->columns ? expected->columns[c] : c, h, &s, &to);
      }
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < (weight.value ? expected->row_count : 0); r++)
      for (int64_t h = 0; h < heads && ready; h++) {
        dfgnn_ref_result to =
            dfgnn__ref_result_at(&weight, first[r] * heads + h);
        weigh_row(problem, matrix, args, expected->rows ? expected->rows[r] : r,
                  h, &s, &to);
      }
    scratch_free(&s);
  }
  free(first);
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

/* ---- as a variant -------------------------------------------------------- */

static size_t feature_bytes(const dfgnn_setting *setting) {
  const dfgnn_matrix *m = setting->matrix;
  int64_t nodes = setting->problem->pass == DFGNN_PASS_FORWARD ? m->destinations
                                                               : m->sources;
  return (size_t)(nodes * setting->problem->heads * setting->problem->dim) *
         sizeof(double);
}

static size_t workspace(const dfgnn_setting *setting) {
  return feature_bytes(setting) +
         (size_t)(setting->matrix->edges * setting->problem->heads) *
             sizeof(double);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return setting->problem->pass == DFGNN_PASS_BACKWARD;
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  double *features = launch->workspace;
  double *weights = features + feature_bytes(&launch->setting) / sizeof(double);
  dfgnn_expected expected = {.row_count = matrix->destinations,
                             .column_count = matrix->sources};
  dfgnn_status status;
  if (problem->pass == DFGNN_PASS_FORWARD) {
    expected.to.out = features;
    status = dfgnn__spmm_reference(problem, matrix, args, &expected);
    if (!status)
      dfgnn__ref_store_nodes(problem, args->out, &args->out_strides,
                             matrix->destinations, features);
    return status;
  }
  expected.transpose = launch->views[0];
  expected.to.grad_value = args->grad_value ? features : NULL;
  expected.to.grad_edge_weight = args->grad_edge_weight ? weights : NULL;
  status = dfgnn__spmm_backward_reference(problem, matrix, args, &expected);
  if (status)
    return status;
  if (args->grad_value)
    dfgnn__ref_store_nodes(problem, args->grad_value, &args->grad_value_strides,
                           matrix->sources, features);
  for (int64_t i = 0;
       args->grad_edge_weight && i < matrix->edges * problem->heads; i++)
    dfgnn__ref_set_scalar(problem, args->grad_edge_weight, i, weights[i]);
  return DFGNN_OK;
}

#define REFERENCE(pass_name, pass_value)                                       \
  {                                                                            \
    .name = "cpu.spmm." pass_name ".reference", .algorithm = "reference",      \
    .backend = "cpu", .ops = DFGNN_OPS_SPMM, .passes = DFGNN_BIT(pass_value),  \
    .dtypes = DFGNN_DTYPES_ALL, .revision = 1, .deterministic = 1,             \
    .reference = 1, .workspace = workspace, .views = views, .launch = launch   \
  }

DFGNN_FAMILIES(spmm_reference_spmm) = {
    REFERENCE("fwd", DFGNN_PASS_FORWARD),
    REFERENCE("bwd", DFGNN_PASS_BACKWARD),
    DFGNN_FAMILIES_END,
};
