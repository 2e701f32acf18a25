/* spmm.c - float64 SpMM by the formulas */
#include "kernels/spmm/reference/spmm.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static double scale(const dfgnn_problem *problem, const void *scales,
                    int64_t node) {
  return scales ? dfgnn__ref_scalar(problem, scales, node) : 1;
}

/* What x_j counts in out_i, for the edge e = (i, j). */
static double factor(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                     const dfgnn_args *args, int64_t row, int64_t column,
                     int64_t edge, int64_t head) {
  double f = scale(problem, args->scale_dst, row) *
             scale(problem, args->scale_src, column);
  if (problem->op == DFGNN_OP_SPMM_WEIGHTED)
    f *= dfgnn__ref_scalar(problem, args->edge_weight,
                           edge * problem->heads + head);
  else if (problem->op == DFGNN_OP_SPMM_MEAN)
    f /= (double)(dfgnn__ref_offset(matrix, row + 1) -
                  dfgnn__ref_offset(matrix, row));
  return f;
}

static void sum_row(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                    const dfgnn_args *args, int64_t row, int64_t head,
                    double *x, double *out) {
  memset(out, 0, (size_t)problem->dim * sizeof *out);
  for (int64_t e = dfgnn__ref_offset(matrix, row);
       e < dfgnn__ref_offset(matrix, row + 1); e++) {
    int64_t j = matrix->indices[e];
    double f = factor(problem, matrix, args, row, j, e, head);
    dfgnn__ref_load(x, problem, args->value, &args->value_strides, j, head);
    for (int64_t d = 0; d < problem->dim; d++)
      out[d] += f * x[d];
  }
}

/* dx_j = sum_i f_ij dO_i */
static void sum_column(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                       const dfgnn_args *args, const dfgnn_view *view,
                       int64_t column, int64_t head, double *x, double *out) {
  dfgnn_matrix t = dfgnn__transposed(matrix, view);
  memset(out, 0, (size_t)problem->dim * sizeof *out);
  for (int64_t k = dfgnn__ref_offset(&t, column);
       k < dfgnn__ref_offset(&t, column + 1); k++) {
    int64_t i = t.indices[k], e = dfgnn__ref_edge(&t, view, k);
    double f = factor(problem, matrix, args, i, column, e, head);
    dfgnn__ref_load(x, problem, args->grad_out, &args->grad_out_strides, i,
                    head);
    for (int64_t d = 0; d < problem->dim; d++)
      out[d] += f * x[d];
  }
}

/* dw_ij = r_i c_j <dO_i, x_j>; grad has stride heads. */
static void weigh_row(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                      const dfgnn_args *args, int64_t row, int64_t head,
                      double *x, double *y, double *grad) {
  int64_t begin = dfgnn__ref_offset(matrix, row);
  dfgnn__ref_load(y, problem, args->grad_out, &args->grad_out_strides, row,
                  head);
  for (int64_t e = begin; e < dfgnn__ref_offset(matrix, row + 1); e++) {
    int64_t j = matrix->indices[e];
    double sum = 0;
    dfgnn__ref_load(x, problem, args->value, &args->value_strides, j, head);
    for (int64_t d = 0; d < problem->dim; d++)
      sum += x[d] * y[d];
    grad[(e - begin) * problem->heads] = sum *
                                         scale(problem, args->scale_dst, row) *
                                         scale(problem, args->scale_src, j);
  }
}

dfgnn_status dfgnn__spmm_reference(const dfgnn_problem *problem,
                                   const dfgnn_matrix *matrix,
                                   const dfgnn_args *args,
                                   const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  double *out = expected->to.out;
  int failed = 0;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    double *x = malloc((size_t)dim * sizeof *x);
    failed |= x == NULL;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < expected->row_count; r++)
      for (int64_t h = 0; h < heads && x; h++)
        sum_row(problem, matrix, args, expected->rows ? expected->rows[r] : r,
                h, x, out + (r * heads + h) * dim);
    free(x);
  }
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

dfgnn_status dfgnn__spmm_backward_reference(const dfgnn_problem *problem,
                                            const dfgnn_matrix *matrix,
                                            const dfgnn_args *args,
                                            const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  double *value = expected->to.grad_value;
  double *weight = expected->to.grad_edge_weight;
  int64_t *first = dfgnn__ref_first_edges(matrix, expected);
  int failed = first == NULL;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    double *x = malloc((size_t)(2 * dim) * sizeof *x);
    failed |= x == NULL;
    int ready = x && first;
#pragma omp for schedule(dynamic, 16)
    for (int64_t c = 0; c < (value ? expected->column_count : 0); c++)
      for (int64_t h = 0; h < heads && ready; h++)
        sum_column(problem, matrix, args, expected->transpose,
                   expected->columns ? expected->columns[c] : c, h, x,
                   value + (c * heads + h) * dim);
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < (weight ? expected->row_count : 0); r++)
      for (int64_t h = 0; h < heads && ready; h++)
        weigh_row(problem, matrix, args, expected->rows ? expected->rows[r] : r,
                  h, x, x + dim, weight + first[r] * heads + h);
    free(x);
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
