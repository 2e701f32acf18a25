/* message.c - float64 sums of messages by the formulas, and their gradients
 *
 * out_i = sum_j f_ij m_ij, where f_ij has the scales of SpMM and a mean's share
 * in it.  With G = f_ij dO_i, the gradient of a node is the sum of G times a
 * derivative of the message over its edges, that of an edge's part is such a
 * term itself. */
#include "kernels/message/reference/message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/message/reference/edge.h"
#include "kernels/spmm/reference/spmm.h"

/* The factor, and a term of it. */
#define FACTOR_VARIANCE 4

static double square(double x) { return x * x; }

/* What a thread sums in. */
typedef struct walk {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  int bounds;
  dfgnn_ref_message m;
  double *grad;              /* [width] of the destination */
  double *terms, *variances; /* [width] of an edge */
  int32_t *order;            /* a row of the matrix, sorted */
  dfgnn_ref_sum value, gate;
  double *memory;
} walk;

static int open_walk(walk *w, const dfgnn_problem *problem,
                     const dfgnn_matrix *matrix, const dfgnn_args *args,
                     const double *parameters, int64_t degree, int bounds) {
  int64_t width = problem->heads * problem->dim;
  size_t message = dfgnn__ref_message_numbers(problem);
  size_t sum = dfgnn__ref_sum_numbers(width);
  *w = (walk){
      .problem = problem, .matrix = matrix, .args = args, .bounds = bounds};
  w->memory =
      malloc((message + 2 * sum + (size_t)(3 * width)) * sizeof *w->memory);
  w->order = malloc((size_t)(degree + 1) * sizeof *w->order);
  if (!w->memory || !w->order)
    return 0;
  double *next = w->memory;
  w->m = dfgnn__ref_message(problem, args, parameters, next);
  w->value = dfgnn__ref_sum_in(next += message, width, bounds);
  w->gate = dfgnn__ref_sum_in(next += sum, width, bounds);
  w->grad = next += sum;
  w->terms = next + width;
  w->variances = next + 2 * width;
  return 1;
}

static void close_walk(walk *w) {
  free(w->order);
  free(w->memory);
}

static dfgnn_ref_row row_of(const walk *w, const int32_t *indices,
                            int64_t count) {
  if (!w->bounds)
    return (dfgnn_ref_row){NULL, count, 1};
  return dfgnn__ref_row(indices, count, w->order);
}

static double factor(const walk *w, int64_t row, int64_t column, int64_t edge) {
  return dfgnn__spmm_reference_factor(w->problem, w->matrix, w->args, row,
                                      column, edge, 0);
}

/* Terms f g x of a sum; g NULL: 1. */
static void make_terms(walk *w, double f, const double *g,
                       const dfgnn_ref_numbers *x, double repeats) {
  for (int64_t i = 0; i < w->m.width; i++) {
    double scale = g ? f * g[i] : f;
    w->terms[i] = scale * x->value[i];
    w->variances[i] = repeats * (square(scale) * x->variance[i] +
                                 FACTOR_VARIANCE * square(scale * x->value[i]));
  }
}

static void put_sum(const dfgnn_ref_result *to, const dfgnn_ref_sum *sum,
                    double repeats) {
  for (int64_t i = 0; i < sum->width; i++)
    dfgnn__ref_put(to, i, sum->value[i], dfgnn__ref_sum_fixed(sum, i),
                   dfgnn__ref_sum_summed(sum, i, repeats));
}

/* ---- forward ------------------------------------------------------------- */

static void sum_row(walk *w, int64_t row, const dfgnn_ref_result *out) {
  int64_t begin = dfgnn__ref_offset(w->matrix, row);
  int64_t count = dfgnn__ref_offset(w->matrix, row + 1) - begin;
  const int32_t *indices = w->matrix->indices + begin;
  dfgnn_ref_row repeated = row_of(w, indices, count);
  dfgnn__ref_sum_begin(&w->value, count);
  dfgnn__ref_message_destination(&w->m, row);
  for (int64_t k = 0; k < count; k++) {
    dfgnn__ref_message_source(&w->m, indices[k]);
    dfgnn__ref_message_edge(&w->m, begin + k);
    make_terms(w, factor(w, row, indices[k], begin + k), NULL, &w->m.message,
               dfgnn__ref_repeats(&repeated, indices[k]));
    dfgnn__ref_sum_add_each(&w->value, k, w->terms, w->variances);
  }
  put_sum(out, &w->value, repeated.repeats);
}

static double *convert(const dfgnn_problem *problem, const dfgnn_args *args) {
  double *parameters =
      malloc(dfgnn__ref_message_parameters(problem) * sizeof *parameters);
  if (parameters)
    dfgnn__ref_message_convert(parameters, problem, args);
  return parameters;
}

static int worth_threads(const dfgnn_problem *problem,
                         const dfgnn_matrix *matrix) {
  return matrix->edges * problem->heads * problem->dim > 20000;
}

static dfgnn_status ended(int failed) {
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

dfgnn_status dfgnn__message_reference(const dfgnn_problem *problem,
                                      const dfgnn_matrix *matrix,
                                      const dfgnn_args *args,
                                      const dfgnn_expected *expected) {
  int64_t width = problem->heads * problem->dim;
  dfgnn_ref_result out = DFGNN_REF_RESULT(expected, out);
  double *parameters = convert(problem, args);
  int failed = parameters == NULL;
#pragma omp parallel reduction(| : failed) if (worth_threads(problem, matrix))
  {
    walk w;
    int ready = open_walk(&w, problem, matrix, args, parameters,
                          matrix->max_degree, expected->bounds);
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < expected->row_count; r++) {
      dfgnn_ref_result to = dfgnn__ref_result_at(&out, r * width);
      if (ready && parameters)
        sum_row(&w, expected->rows ? expected->rows[r] : r, &to);
    }
    close_walk(&w);
  }
  free(parameters);
  return ended(failed);
}

/* ---- backward, by source ------------------------------------------------- */

static void sum_column(walk *w, const dfgnn_view *view, int64_t column,
                       const dfgnn_ref_result *value,
                       const dfgnn_ref_result *gate) {
  dfgnn_matrix t = dfgnn__transposed(w->matrix, view);
  int64_t begin = dfgnn__ref_offset(&t, column);
  int64_t count = dfgnn__ref_offset(&t, column + 1) - begin;
  const int32_t *indices = t.indices + begin;
  dfgnn_ref_row repeated = row_of(w, indices, count);
  dfgnn__ref_sum_begin(&w->value, count);
  dfgnn__ref_sum_begin(&w->gate, count);
  dfgnn__ref_message_source(&w->m, column);
  for (int64_t k = 0; k < count; k++) {
    int64_t i = indices[k], e = dfgnn__ref_edge(&t, view, begin + k);
    double f = factor(w, i, column, e);
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_message_destination(&w->m, i);
    dfgnn__ref_message_edge(&w->m, e);
    dfgnn__ref_message_load(w->grad, &w->m, w->args->grad_out,
                            &w->args->grad_out_strides, i);
    make_terms(w, f, w->grad, &w->m.by_value, repeats);
    dfgnn__ref_sum_add_each(&w->value, k, w->terms, w->variances);
    make_terms(w, f, w->grad, &w->m.by_edge, repeats);
    dfgnn__ref_sum_add_each(&w->gate, k, w->terms, w->variances);
  }
  put_sum(value, &w->value, repeated.repeats);
  put_sum(gate, &w->gate, repeated.repeats);
}

/* ---- backward, by destination and edge ----------------------------------- */

/* The gradients of matrix and offset, [width][fields + 1], over all edges. */
typedef struct parameter_sums {
  double *buffer;
  size_t numbers;
  dfgnn_ref_sum sum;
  double repeats; /* added up over the edges */
} parameter_sums;

static int open_parameters(parameter_sums *p, const dfgnn_ref_message *m,
                           int64_t edges, int bounds) {
  int64_t count = m->matrix ? m->width * (m->fields + 1) : 0;
  p->numbers = dfgnn__ref_sum_numbers(count);
  p->buffer = calloc(p->numbers + 1, sizeof *p->buffer);
  p->sum = dfgnn__ref_sum_in(p->buffer, count, bounds);
  p->sum.terms = edges;
  p->repeats = 0;
  return p->buffer != NULL;
}

static void add_parameters(parameter_sums *p, const walk *w, int64_t edge) {
  int64_t fields = w->m.fields;
  double *cell = p->sum.bounds && p->sum.terms > DFGNN_REF_LONG
                     ? dfgnn__ref_sum_cell(&p->sum, edge)
                     : NULL;
  for (int64_t i = 0; i < w->m.width; i++)
    for (int64_t f = 0; f <= fields; f++) {
      int64_t at = i * (fields + 1) + f;
      double x = f < fields ? w->m.attr[f] : 1, term = w->terms[i] * x;
      p->sum.value[at] += term;
      if (!p->sum.bounds)
        continue;
      p->sum.size[at] += fabs(term);
      p->sum.spread[at] += w->variances[i] * square(x) + square(term);
      if (cell)
        cell[at] += term;
    }
}

/* The gradient of an edge's features is W^T times that of its part. */
static void put_projected(const walk *w, int64_t k,
                          const dfgnn_ref_result *attr) {
  int64_t width = w->m.width, fields = w->m.fields;
  for (int64_t f = 0; f < fields; f++) {
    double value = 0, size = 0, squares = 0, spread = 0;
    for (int64_t i = 0; i < width; i++) {
      double x = w->m.matrix[i * fields + f], term = x * w->terms[i];
      value += term;
      size += fabs(term);
      squares += square(term);
      spread += square(x) * w->variances[i];
    }
    /* as dfgnn__ref_product has it */
    double order = (double)width * (size + fabs(value)) / 2 * size + squares;
    dfgnn__ref_put(attr, k * fields + f, value, order + spread, 0);
  }
}

typedef struct row_results {
  dfgnn_ref_result gate, attr;
  parameter_sums *parameters; /* NULL: not wanted */
} row_results;

static void walk_row(walk *w, int64_t row, const row_results *to) {
  int64_t begin = dfgnn__ref_offset(w->matrix, row);
  int64_t count = dfgnn__ref_offset(w->matrix, row + 1) - begin;
  const int32_t *indices = w->matrix->indices + begin;
  dfgnn_ref_row repeated = row_of(w, indices, count);
  dfgnn__ref_sum_begin(&w->gate, count);
  dfgnn__ref_message_destination(&w->m, row);
  dfgnn__ref_message_load(w->grad, &w->m, w->args->grad_out,
                          &w->args->grad_out_strides, row);
  for (int64_t k = 0; k < count; k++) {
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_message_source(&w->m, indices[k]);
    dfgnn__ref_message_edge(&w->m, begin + k);
    make_terms(w, factor(w, row, indices[k], begin + k), w->grad, &w->m.by_edge,
               repeats);
    dfgnn__ref_sum_add_each(&w->gate, k, w->terms, w->variances);
    if (to->attr.value && w->m.matrix)
      put_projected(w, k, &to->attr);
    for (int64_t i = 0; to->attr.value && !w->m.matrix && i < w->m.width; i++)
      dfgnn__ref_put(&to->attr, k * w->m.width + i, w->terms[i],
                     w->variances[i], 0);
    if (to->parameters)
      add_parameters(to->parameters, w, begin + k);
  }
  if (to->parameters)
    to->parameters->repeats += repeated.repeats * (double)count;
  put_sum(&to->gate, &w->gate, repeated.repeats);
}

static void put_parameters(const parameter_sums *p, const walk *w,
                           const dfgnn_ref_result *matrix,
                           const dfgnn_ref_result *offset) {
  int64_t fields = w->m.fields, edges = w->matrix->edges;
  double repeats = edges ? p->repeats / (double)edges : 1;
  for (int64_t at = 0; at < p->sum.width; at++) {
    int64_t i = at / (fields + 1), f = at % (fields + 1);
    dfgnn__ref_put(f < fields ? matrix : offset,
                   f < fields ? i * fields + f : i, p->sum.value[at],
                   dfgnn__ref_sum_fixed(&p->sum, at),
                   dfgnn__ref_sum_summed(&p->sum, at, repeats));
  }
}

/* ---- backward ------------------------------------------------------------ */

static int walk_columns(const dfgnn_problem *problem,
                        const dfgnn_matrix *matrix, const dfgnn_args *args,
                        const dfgnn_expected *expected,
                        const double *parameters) {
  int64_t width = problem->heads * problem->dim;
  dfgnn_ref_result value = DFGNN_REF_RESULT(expected, grad_value);
  dfgnn_ref_result gate = DFGNN_REF_RESULT(expected, grad_gate_src);
  int failed = 0;
  if (!value.value && !gate.value)
    return 0;
#pragma omp parallel reduction(| : failed) if (worth_threads(problem, matrix))
  {
    walk w;
    int ready = open_walk(&w, problem, matrix, args, parameters,
                          expected->transpose->extra, expected->bounds);
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t c = 0; c < expected->column_count; c++) {
      dfgnn_ref_result to = dfgnn__ref_result_at(&value, c * width);
      dfgnn_ref_result to_gate = dfgnn__ref_result_at(&gate, c * width);
      if (ready)
        sum_column(&w, expected->transpose,
                   expected->columns ? expected->columns[c] : c, &to, &to_gate);
    }
    close_walk(&w);
  }
  return failed;
}

/* One thread: the sums of parameters are long, and added in order. */
static int walk_rows(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                     const dfgnn_args *args, const dfgnn_expected *expected,
                     const double *parameters) {
  int64_t width = problem->heads * problem->dim;
  int64_t numbers = problem->edge_dim > 0 ? problem->edge_dim : width;
  dfgnn_ref_result gate = DFGNN_REF_RESULT(expected, grad_gate_dst);
  dfgnn_ref_result attr = DFGNN_REF_RESULT(expected, grad_edge_attr);
  dfgnn_ref_result weight = DFGNN_REF_RESULT(expected, grad_edge_weight);
  dfgnn_ref_result bias = DFGNN_REF_RESULT(expected, grad_edge_bias);
  int sums = weight.value || bias.value;
  int64_t *first = dfgnn__ref_first_edges(matrix, expected);
  parameter_sums p = {.buffer = NULL};
  walk w = {.problem = NULL};
  int ready = first && open_walk(&w, problem, matrix, args, parameters,
                                 matrix->max_degree, expected->bounds);
  ready = ready &&
          (!sums || open_parameters(&p, &w.m, matrix->edges, expected->bounds));
  for (int64_t r = 0; ready && r < expected->row_count; r++) {
    row_results to = {dfgnn__ref_result_at(&gate, r * width),
                      dfgnn__ref_result_at(&attr, first[r] * numbers),
                      sums ? &p : NULL};
    walk_row(&w, expected->rows ? expected->rows[r] : r, &to);
  }
  if (ready && sums)
    put_parameters(&p, &w, &weight, &bias);
  free(p.buffer);
  close_walk(&w);
  free(first);
  return !ready;
}

dfgnn_status dfgnn__message_backward_reference(const dfgnn_problem *problem,
                                               const dfgnn_matrix *matrix,
                                               const dfgnn_args *args,
                                               const dfgnn_expected *expected) {
  double *parameters = convert(problem, args);
  int failed = parameters == NULL;
  if (!failed && expected->transpose)
    failed |= walk_columns(problem, matrix, args, expected, parameters);
  if (!failed)
    failed |= walk_rows(problem, matrix, args, expected, parameters);
  free(parameters);
  return ended(failed);
}
