/* message.c - float64 sums of messages by the formulas, and the gradients of
 * sums and reductions
 *
 * out_i = sum_j f_ij m_ij, where f_ij is the product of SpMM's scales and a
 * mean's share.  Let G be the gradient of the message m_ij (f_ij dO_i for a
 * sum).  The gradient of a node is the sum over its edges of G times a
 * derivative of the message; that of an edge's part is one such term. */
#include "kernels/message/reference/message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/message/reference/edge.h"
#include "kernels/spmm/reference/spmm.h"

/* The error variance of a factor and its product with a message, over the
 * square of the product. */
#define FACTOR_VARIANCE 4

static double square(double x) { return x * x; }

/* The numbers of a row that the gradient of a message reads, [width] each. */
typedef struct row_grads {
  double *out, *least, *most, *std; /* gradients */
  double *mean, *deviation;         /* of PNA */
  double *arg_min, *arg_max;        /* positions of edges in the row */
} row_grads;

enum { ROW_GRADS = 8 };

/* The memory of a thread. */
typedef struct walk {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  int bounds;
  dfgnn_ref_message m;
  row_grads row;             /* of the destination */
  dfgnn_ref_numbers grad;    /* [width] the gradient of an edge's message */
  double *terms, *variances; /* [parts][width] of an edge */
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
  w->memory = malloc((message + 2 * sum + (size_t)((ROW_GRADS + 6) * width)) *
                     sizeof *w->memory);
  w->order = malloc((size_t)(degree + 1) * sizeof *w->order);
  if (!w->memory || !w->order)
    return 0;
  double *next = w->memory;
  w->m = dfgnn__ref_message(problem, args, parameters, next);
  w->value = dfgnn__ref_sum_in(next += message, width, bounds);
  w->gate = dfgnn__ref_sum_in(next += sum, width, bounds);
  next += sum;
  double **arrays[] = {&w->row.out,      &w->row.least,   &w->row.most,
                       &w->row.std,      &w->row.mean,    &w->row.deviation,
                       &w->row.arg_min,  &w->row.arg_max, &w->grad.value,
                       &w->grad.variance};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++, next += width)
    *arrays[i] = next;
  w->terms = next;
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
  dfgnn_problem problem = *w->problem;
  dfgnn_args args = *w->args;
  if (problem.op == DFGNN_OP_REDUCE_MEAN) {
    problem.op = DFGNN_OP_SPMM_MEAN;
    args.scale_dst = args.scale_src = NULL;
  }
  return dfgnn__spmm_reference_factor(&problem, w->matrix, &args, row, column,
                                      edge, 0);
}

static void put_sum(const dfgnn_ref_result *to, const dfgnn_ref_sum *sum,
                    double repeats) {
  for (int64_t i = 0; i < sum->width; i++)
    dfgnn__ref_put(to, i, sum->value[i], dfgnn__ref_sum_fixed(sum, i),
                   dfgnn__ref_sum_summed(sum, i, repeats));
}

/* Sets the gradient of every message to f. */
static void set_grads(walk *w, double f) {
  for (int64_t i = 0; i < w->m.width; i++) {
    w->grad.value[i] = f;
    w->grad.variance[i] = FACTOR_VARIANCE * square(f);
  }
}

/* Computes the terms g x of part `part`; g is the gradient of the message. */
static void make_terms(walk *w, int part, const dfgnn_ref_numbers *x,
                       double repeats) {
  double *terms = w->terms + part * w->m.width;
  double *variances = w->variances + part * w->m.width;
  for (int64_t i = 0; i < w->m.width; i++) {
    double g = w->grad.value[i];
    terms[i] = g * x->value[i];
    variances[i] = repeats * (square(g) * x->variance[i] +
                              w->grad.variance[i] * square(x->value[i]));
  }
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
    set_grads(w, factor(w, row, indices[k], begin + k));
    make_terms(w, 0, &w->m.message, dfgnn__ref_repeats(&repeated, indices[k]));
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

/* ---- the gradients of messages ------------------------------------------- */

static int is_sum(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_SUM ||
         problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}

static void load_positions(double *to, const walk *w, const int32_t *arg,
                           int64_t row) {
  const dfgnn_problem *p = w->problem;
  for (int64_t i = 0; i < w->m.width; i++) {
    int64_t at =
        p->layout == DFGNN_LAYOUT_NDH ? i % p->dim * p->heads + i / p->dim : i;
    to[i] = arg[row * w->m.width + at];
  }
}

/* Reads the tensors of a destination. */
static void load_row(walk *w, int64_t row) {
  const dfgnn_args *args = w->args;
  const row_grads *to = &w->row;
  dfgnn_op op = w->problem->op;
#define LOAD(member, array, strides)                                           \
  dfgnn__ref_message_load(to->member, &w->m, args->array, &args->strides, row)
  LOAD(out, grad_out, grad_out_strides);
  if (op == DFGNN_OP_REDUCE_MIN || op == DFGNN_OP_REDUCE_PNA)
    load_positions(to->arg_min, w, args->arg_min, row);
  if (op == DFGNN_OP_REDUCE_MAX || op == DFGNN_OP_REDUCE_PNA)
    load_positions(to->arg_max, w, args->arg_max, row);
  if (op != DFGNN_OP_REDUCE_PNA)
    return;
  LOAD(least, grad_out_min, grad_out_strides);
  LOAD(most, grad_out_max, grad_out_strides);
  LOAD(std, grad_out_std, grad_out_strides);
  LOAD(mean, out, out_strides);
  LOAD(deviation, out_std, out_strides);
#undef LOAD
}

/* The error variance of a product of some factors, over its square. */
#define PRODUCT_VARIANCE 16

/* PNA's gradient of message i of edge k of a row. */
static void grade_moments(walk *w, int64_t i, int64_t k, double degree) {
  const row_grads *row = &w->row;
  double mean = row->mean[i], m = w->m.message.value[i];
  double low = row->arg_min[i] == (double)k ? row->least[i] : 0;
  double high = row->arg_max[i] == (double)k ? row->most[i] : 0;
  double share = row->out[i] / degree;
  double slope =
      row->deviation[i] == 0 ? 0 : row->std[i] / (degree * row->deviation[i]);
  double g = low + high + share + slope * (m - mean);
  double size = fabs(low) + fabs(high) + fabs(share) +
                fabs(slope) * (fabs(m - mean) + fabs(mean));
  w->grad.value[i] = g;
  w->grad.variance[i] = PRODUCT_VARIANCE * (square(g) + square(size)) +
                        square(slope) * w->m.message.variance[i];
}

/* Computes the gradients of an edge's messages; the messages and the row's
 * tensors are there already. */
static void grade_edge(walk *w, int64_t row, int64_t column, int64_t edge) {
  int64_t begin = dfgnn__ref_offset(w->matrix, row), k = edge - begin;
  double degree = (double)(dfgnn__ref_offset(w->matrix, row + 1) - begin);
  dfgnn_op op = w->problem->op;
  double f = is_sum(w->problem) ? factor(w, row, column, edge) : 0;
  for (int64_t i = 0; i < w->m.width; i++) {
    const double *arg =
        op == DFGNN_OP_REDUCE_MIN ? w->row.arg_min : w->row.arg_max;
    if (op == DFGNN_OP_REDUCE_PNA) {
      grade_moments(w, i, k, degree);
    } else if (is_sum(w->problem)) {
      w->grad.value[i] = f * w->row.out[i];
      w->grad.variance[i] = FACTOR_VARIANCE * square(f * w->row.out[i]);
    } else {
      w->grad.value[i] = arg[i] == (double)k ? w->row.out[i] : 0;
      w->grad.variance[i] = FACTOR_VARIANCE * square(w->grad.value[i]);
    }
  }
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
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_message_destination(&w->m, i);
    dfgnn__ref_message_edge(&w->m, e);
    load_row(w, i);
    grade_edge(w, i, column, e);
    make_terms(w, 0, &w->m.by_value, repeats);
    dfgnn__ref_sum_add_each(&w->value, k, w->terms, w->variances);
    make_terms(w, 0, &w->m.by_edge, repeats);
    dfgnn__ref_sum_add_each(&w->gate, k, w->terms, w->variances);
  }
  put_sum(value, &w->value, repeated.repeats);
  put_sum(gate, &w->gate, repeated.repeats);
}

/* ---- backward, by destination and edge ----------------------------------- */

/* The gradients of matrix and offset, [parts][width][fields + 1], over all
 * edges. */
typedef struct parameter_sums {
  double *buffer;
  size_t numbers;
  dfgnn_ref_sum sum;
  double repeats; /* added up over the edges */
} parameter_sums;

static int open_parameters(parameter_sums *p, const dfgnn_ref_message *m,
                           int64_t edges, int bounds) {
  int64_t count = m->matrix ? m->parts * m->width * (m->fields + 1) : 0;
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
  for (int64_t i = 0; i < w->m.parts * w->m.width; i++)
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

/* The gradient of an edge's features is W^T times that of its parts. */
static void put_projected(const walk *w, int64_t k,
                          const dfgnn_ref_result *attr) {
  int64_t width = w->m.parts * w->m.width, fields = w->m.fields;
  for (int64_t f = 0; f < fields; f++) {
    double value = 0, size = 0, squares = 0, spread = 0;
    for (int64_t i = 0; i < width; i++) {
      double x = w->m.matrix[i * fields + f], term = x * w->terms[i];
      value += term;
      size += fabs(term);
      squares += square(term);
      spread += square(x) * w->variances[i];
    }
    /* the variance of a product, as in dfgnn__ref_product */
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
  load_row(w, row);
  for (int64_t k = 0; k < count; k++) {
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_message_source(&w->m, indices[k]);
    dfgnn__ref_message_edge(&w->m, begin + k);
    grade_edge(w, row, indices[k], begin + k);
    make_terms(w, 0, &w->m.by_edge, repeats);
    if (w->m.parts > 1)
      make_terms(w, 1, &w->m.by_value, repeats);
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

/* One thread walks all rows: the sums of parameters add all edges in order. */
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
