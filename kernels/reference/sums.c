/* sums.c - float64 sums of messages by the formulas, and the gradients of sums
 * and reductions
 *
 * out_i = sum_j f_ij m_ij, where f_ij is the product of SpMM's scales with a
 * weight or a mean's share.  Let G be the gradient of the message m_ij (f_ij
 * dO_i for a sum).  The gradient of a node is the sum over its edges of G times
 * a derivative of the message; that of an edge's part is one such term. */
#include "kernels/reference/sums.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/common/accuracy.h"
#include "lib/base/error.h"

/* The error variance of a factor and its product with a message, over the
 * square of the product. */
#define FACTOR_VARIANCE DFGNN_REF_FACTOR_VARIANCE

/* ---- the memory of a thread ---------------------------------------------- */

enum { ARRAYS = 12 };

typedef struct walk {
  const dfgnn_ref_call *call;
  dfgnn_ref_message m;
  dfgnn_ref_row_grads row;   /* of the destination */
  dfgnn_ref_numbers grad;    /* [width] the gradient of an edge's message */
  double *terms, *variances; /* [parts][width] of an edge */
  dfgnn_ref_sum value, gate;
  dfgnn_ref_sum totals;
  double *repeats; /* [1] */
} walk;

static int64_t total_count(const dfgnn_ref_call *c) {
  return (int64_t)dfgnn__ref_message_parameters(c->problem);
}

static size_t numbers_of(const dfgnn_ref_call *c) {
  return dfgnn__ref_message_numbers(c->problem) +
         2 * dfgnn__ref_sum_numbers(c->width) +
         (size_t)((ARRAYS + 4) * c->width) + 1;
}

/* The gradients of W and b come last: forward has no memory for them. */
static walk walk_in(const dfgnn_ref_call *c, double *memory) {
  walk w = {.call = c};
  int bounds = c->expected->bounds;
  dfgnn_ref_row_grads *r = &w.row;
  w.m = dfgnn__ref_message(c->problem, c->args, c->parameters, &memory);
  w.value = dfgnn__ref_sum_in(&memory, c->width, bounds);
  w.gate = dfgnn__ref_sum_in(&memory, c->width, bounds);
  double **arrays[ARRAYS] = {&r->out,        &r->least,     &r->most,
                             &r->std,        &r->mean,      &r->deviation,
                             &r->mean_error, &r->std_error, &r->arg_min,
                             &r->arg_max,    &w.grad.value, &w.grad.variance};
  for (int i = 0; i < ARRAYS; i++)
    *arrays[i] = dfgnn__ref_take(&memory, c->width);
  w.terms = dfgnn__ref_take(&memory, 2 * c->width);
  w.variances = dfgnn__ref_take(&memory, 2 * c->width);
  w.repeats = dfgnn__ref_take(&memory, 1);
  w.totals = dfgnn__ref_sum_in(&memory, total_count(c), bounds);
  w.totals.terms = c->matrix->edges;
  return w;
}

/* ---- factors ------------------------------------------------------------- */

static int is_sum(dfgnn_op op) {
  return DFGNN_OPS_SPMM >> op & 1 || op == DFGNN_OP_REDUCE_MEAN;
}

/* The product of both ends' scales; 1 without them. */
static double scale(const dfgnn_ref_call *c, int64_t row, int64_t column) {
  const dfgnn_problem *p = c->problem;
  double f = 1;
  if (DFGNN_OPS_SPMM >> p->op & 1 && c->args->scale_dst)
    f *= dfgnn__ref_scalar(p, c->args->scale_dst, row);
  if (DFGNN_OPS_SPMM >> p->op & 1 && c->args->scale_src)
    f *= dfgnn__ref_scalar(p, c->args->scale_src, column);
  return f;
}

/* The factor of a message in its sum. */
static double factor(const dfgnn_ref_call *c, int64_t row, int64_t column,
                     int64_t edge, int64_t head) {
  const dfgnn_problem *p = c->problem;
  double f = scale(c, row, column);
  if (p->op == DFGNN_OP_SPMM_WEIGHTED)
    f *= dfgnn__ref_scalar(p, c->args->edge_weight, edge * p->heads + head);
  else if (p->op == DFGNN_OP_SPMM_MEAN || p->op == DFGNN_OP_REDUCE_MEAN)
    f /= (double)(dfgnn__offset_at(c->matrix, row + 1) -
                  dfgnn__offset_at(c->matrix, row));
  return f;
}

/* Sets the gradient of every message to its factor times x [width]; NULL: 1. */
static void set_factors(walk *w, int64_t row, int64_t column, int64_t edge,
                        const double *x) {
  int64_t heads = w->call->problem->heads, dim = w->call->problem->dim;
  for (int64_t h = 0; h < heads; h++) {
    double f = factor(w->call, row, column, edge, h);
    for (int64_t i = h * dim; i < (h + 1) * dim; i++) {
      double g = x ? f * x[i] : f;
      w->grad.value[i] = g;
      w->grad.variance[i] = FACTOR_VARIANCE * square(g);
    }
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

static void sum_row(const void *job, double *memory, int32_t *order,
                    int64_t r) {
  const dfgnn_ref_call *c = job;
  int64_t row = c->expected->rows ? c->expected->rows[r] : r;
  dfgnn_ref_result all = DFGNN_REF_RESULT(c->expected, out);
  dfgnn_ref_result out = dfgnn__ref_result_at(&all, r * c->width);
  walk w = walk_in(c, memory);
  dfgnn_ref_edges e =
      dfgnn__ref_edges(c->matrix, row, order, c->expected->bounds);
  dfgnn__ref_sum_begin(&w.value, e.count);
  dfgnn__ref_message_destination(&w.m, row);
  for (int64_t k = 0; k < e.count; k++) {
    dfgnn__ref_message_source(&w.m, e.indices[k]);
    dfgnn__ref_message_edge(&w.m, e.begin + k);
    set_factors(&w, row, e.indices[k], e.begin + k, NULL);
    make_terms(&w, 0, &w.m.message,
               dfgnn__ref_repeats(&e.repeated, e.indices[k]));
    dfgnn__ref_sum_add_each(&w.value, k, w.terms, w.variances);
  }
  dfgnn__ref_put_sum(&out, &w.value, e.repeated.repeats);
}

/* ---- the gradients of messages ------------------------------------------- */

static void load_row(walk *w, int64_t row) {
  dfgnn__ref_load_grads(&w->row, w->call, &w->m, row);
}

/* Computes the gradients of an edge's messages; the messages and the row's
 * tensors are there already. */
static void grade_edge(walk *w, int64_t row, int64_t column, int64_t edge) {
  int64_t begin = dfgnn__offset_at(w->call->matrix, row), k = edge - begin;
  double degree = (double)(dfgnn__offset_at(w->call->matrix, row + 1) - begin);
  dfgnn_op op = w->call->problem->op;
  if (is_sum(op)) {
    set_factors(w, row, column, edge, w->row.out);
    return;
  }
  for (int64_t i = 0; i < w->m.width; i++) {
    dfgnn_ref_number g = dfgnn__ref_grade(&w->row, &w->m, i, k, degree);
    w->grad.value[i] = g.value;
    w->grad.variance[i] = g.variance;
  }
}

/* ---- backward, by source ------------------------------------------------- */

static void sum_column(const void *job, double *memory, int32_t *order,
                       int64_t index) {
  const dfgnn_ref_call *c = job;
  const dfgnn_expected *expected = c->expected;
  int64_t column = expected->columns ? expected->columns[index] : index;
  dfgnn_ref_result values = DFGNN_REF_RESULT(expected, grad_value);
  dfgnn_ref_result gates = DFGNN_REF_RESULT(expected, grad_gate_src);
  dfgnn_ref_result value = dfgnn__ref_result_at(&values, index * c->width);
  dfgnn_ref_result gate = dfgnn__ref_result_at(&gates, index * c->width);
  dfgnn_matrix t = dfgnn__transposed(c->matrix, expected->transpose);
  walk w = walk_in(c, memory);
  dfgnn_ref_edges e = dfgnn__ref_edges(&t, column, order, c->expected->bounds);
  dfgnn__ref_sum_begin(&w.value, e.count);
  dfgnn__ref_sum_begin(&w.gate, e.count);
  dfgnn__ref_message_source(&w.m, column);
  for (int64_t k = 0; k < e.count; k++) {
    int64_t i = e.indices[k];
    int64_t edge = dfgnn__ref_edge(&t, expected->transpose, e.begin + k);
    double repeats = dfgnn__ref_repeats(&e.repeated, e.indices[k]);
    dfgnn__ref_message_destination(&w.m, i);
    dfgnn__ref_message_edge(&w.m, edge);
    load_row(&w, i);
    grade_edge(&w, i, column, edge);
    make_terms(&w, 0, &w.m.by_value, repeats);
    dfgnn__ref_sum_add_each(&w.value, k, w.terms, w.variances);
    if (!gate.value)
      continue;
    make_terms(&w, 0, &w.m.by_edge, repeats);
    dfgnn__ref_sum_add_each(&w.gate, k, w.terms, w.variances);
  }
  dfgnn__ref_put_sum(&value, &w.value, e.repeated.repeats);
  dfgnn__ref_put_sum(&gate, &w.gate, e.repeated.repeats);
}

/* ---- backward, by destination and edge ----------------------------------- */

static void add_totals(walk *w, int64_t edge) {
  int64_t fields = w->m.fields;
  const double one = 1;
  for (int64_t i = 0; i < w->m.parts * w->m.width; i++) {
    double term = w->terms[i], variance = w->variances[i] + square(term);
    int64_t at = i * (fields + 1);
    dfgnn__ref_sum_add_at(&w->totals, at, fields, edge, term, variance,
                          w->m.attr);
    dfgnn__ref_sum_add_at(&w->totals, at + fields, 1, edge, term, variance,
                          &one);
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

static void put_attr(const walk *w, int64_t k, const dfgnn_ref_result *attr) {
  if (w->m.matrix)
    put_projected(w, k, attr);
  for (int64_t i = 0; !w->m.matrix && i < w->m.width; i++)
    dfgnn__ref_put(attr, k * w->m.width + i, w->terms[i], w->variances[i], 0);
}

static void walk_row(const void *job, double *memory, int32_t *order,
                     int64_t r) {
  const dfgnn_ref_call *c = job;
  const dfgnn_expected *expected = c->expected;
  int64_t row = expected->rows ? expected->rows[r] : r;
  dfgnn_ref_result gates = DFGNN_REF_RESULT(expected, grad_gate_dst);
  dfgnn_ref_result attrs = DFGNN_REF_RESULT(expected, grad_edge_attr);
  walk w = walk_in(c, memory);
  dfgnn_ref_result gate = dfgnn__ref_result_at(&gates, r * c->width);
  dfgnn_ref_result attr = dfgnn__ref_result_at(
      &attrs, c->first[r] * (w.m.fields ? w.m.fields : c->width));
  dfgnn_ref_edges e =
      dfgnn__ref_edges(c->matrix, row, order, c->expected->bounds);
  dfgnn__ref_sum_begin(&w.gate, e.count);
  dfgnn__ref_message_destination(&w.m, row);
  load_row(&w, row);
  for (int64_t k = 0; k < e.count; k++) {
    double repeats = dfgnn__ref_repeats(&e.repeated, e.indices[k]);
    dfgnn__ref_message_source(&w.m, e.indices[k]);
    dfgnn__ref_message_edge(&w.m, e.begin + k);
    grade_edge(&w, row, e.indices[k], e.begin + k);
    make_terms(&w, 0, &w.m.by_edge, repeats);
    if (w.m.parts > 1)
      make_terms(&w, 1, &w.m.by_value, repeats);
    dfgnn__ref_sum_add_each(&w.gate, k, w.terms, w.variances);
    if (attr.value)
      put_attr(&w, k, &attr);
    if (w.m.fields)
      add_totals(&w, e.begin + k);
  }
  *w.repeats += e.repeated.repeats * (double)e.count;
  dfgnn__ref_put_sum(&gate, &w.gate, e.repeated.repeats);
}

static void join_totals(void *job, double *memory) {
  dfgnn_ref_call *c = job;
  walk w = walk_in(c, memory);
  size_t numbers = dfgnn__ref_sum_numbers(total_count(c));
  for (size_t i = 0; i < numbers; i++)
    c->totals.value[i] += w.totals.value[i]; /* its arrays are adjacent */
  c->repeats += *w.repeats;
}

static void put_totals(const dfgnn_ref_call *c) {
  dfgnn_ref_result matrix = DFGNN_REF_RESULT(c->expected, grad_edge_weight);
  dfgnn_ref_result offset = DFGNN_REF_RESULT(c->expected, grad_edge_bias);
  int64_t fields = c->problem->edge_dim;
  int64_t edges = c->first[c->expected->row_count];
  double repeats = edges ? c->repeats / (double)edges : 1;
  for (int64_t at = 0; fields > 0 && at < c->totals.width; at++) {
    int64_t i = at / (fields + 1), f = at % (fields + 1);
    dfgnn__ref_put(f < fields ? &matrix : &offset,
                   f < fields ? i * fields + f : i, c->totals.value[at],
                   dfgnn__ref_sum_fixed(&c->totals, at),
                   dfgnn__ref_sum_summed(&c->totals, at, repeats));
  }
}

/* dw_ij = r_i c_j <dO_i, x_j>, of SPMM_WEIGHTED. */
static void weigh_row(const void *job, double *memory, int32_t *order,
                      int64_t r) {
  const dfgnn_ref_call *c = job;
  const dfgnn_expected *expected = c->expected;
  int64_t heads = c->problem->heads, dim = c->problem->dim;
  int64_t row = expected->rows ? expected->rows[r] : r;
  dfgnn_ref_result all = DFGNN_REF_RESULT(expected, grad_edge_weight);
  dfgnn_ref_result weight = dfgnn__ref_result_at(&all, c->first[r] * heads);
  walk w = walk_in(c, memory);
  dfgnn_ref_edges e =
      dfgnn__ref_edges(c->matrix, row, order, c->expected->bounds);
  load_row(&w, row);
  for (int64_t k = 0; k < e.count; k++) {
    double f = scale(c, row, e.indices[k]);
    dfgnn__ref_message_source(&w.m, e.indices[k]);
    for (int64_t h = 0; h < heads; h++) {
      dfgnn_ref_product p =
          dfgnn__ref_product(w.m.value + h * dim, w.row.out + h * dim, dim);
      dfgnn__ref_put(
          &weight, k * heads + h, p.value * f,
          square(f) * (p.variance + FACTOR_VARIANCE * square(p.value)), 0);
    }
  }
}

/* ---- calls --------------------------------------------------------------- */

static dfgnn_status walk_all(dfgnn_ref_call *c, int64_t count, int64_t degree,
                             void (*visit)(const void *, double *, int32_t *,
                                           int64_t)) {
  int totals = visit == walk_row;
  const dfgnn_ref_walk walk = {
      .count = count,
      .work = c->matrix->edges * c->width,
      .numbers =
          numbers_of(c) + (totals ? dfgnn__ref_sum_numbers(total_count(c)) : 0),
      .degree = degree,
      .visit = visit,
      .join = totals ? join_totals : NULL};
  return dfgnn__ref_walk(&walk, c);
}

static dfgnn_ref_call call_of(const dfgnn_problem *problem,
                              const dfgnn_matrix *matrix,
                              const dfgnn_args *args,
                              const dfgnn_expected *expected) {
  return (dfgnn_ref_call){.problem = problem,
                          .matrix = matrix,
                          .args = args,
                          .expected = expected,
                          .width = problem->heads * problem->dim};
}

static dfgnn_status convert(dfgnn_ref_call *c) {
  c->parameters = malloc((dfgnn__ref_message_parameters(c->problem) + 1) *
                         sizeof *c->parameters);
  if (!c->parameters)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
  dfgnn__ref_message_convert(c->parameters, c->problem, c->args);
  return DFGNN_OK;
}

dfgnn_status dfgnn__sums_reference(const dfgnn_problem *problem,
                                   const dfgnn_matrix *matrix,
                                   const dfgnn_args *args,
                                   const dfgnn_expected *expected) {
  dfgnn_ref_call c = call_of(problem, matrix, args, expected);
  dfgnn_status status = convert(&c);
  if (!status)
    status = is_sum(problem->op) ? walk_all(&c, expected->row_count,
                                            matrix->max_degree, sum_row)
                                 : dfgnn__ref_moments(&c);
  free(c.parameters);
  return status;
}

/* Finds the moments of all rows with an edge from a column that is wanted. */
static dfgnn_status know(dfgnn_ref_call *c) {
  const dfgnn_expected *expected = c->expected;
  dfgnn_matrix t = dfgnn__transposed(c->matrix, expected->transpose);
  int64_t rows = c->matrix->destinations;
  c->wanted = calloc((size_t)rows + 1, 1);
  c->known = malloc((size_t)(DFGNN_REF_KNOWN * rows * c->width + 1) *
                    sizeof *c->known);
  if (!c->wanted || !c->known)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
  for (int64_t i = 0; i < expected->column_count; i++) {
    int64_t column = expected->columns ? expected->columns[i] : i;
    for (int64_t k = dfgnn__offset_at(&t, column);
         k < dfgnn__offset_at(&t, column + 1); k++)
      c->wanted[t.indices[k]] = 1;
  }
  return dfgnn__ref_know_moments(c);
}

static dfgnn_status walk_columns(dfgnn_ref_call *c) {
  const dfgnn_expected *expected = c->expected;
  dfgnn_op op = c->problem->op;
  dfgnn_status status = DFGNN_OK;
  if (!expected->transpose ||
      (!expected->to.grad_value && !expected->to.grad_gate_src))
    return DFGNN_OK;
  if (op == DFGNN_OP_REDUCE_VAR || op == DFGNN_OP_REDUCE_STD)
    status = know(c);
  return status ? status
                : walk_all(c, expected->column_count,
                           expected->transpose->extra, sum_column);
}

static dfgnn_status walk_rows(dfgnn_ref_call *c) {
  const dfgnn_args *to = &c->expected->to;
  int64_t rows = c->expected->row_count, degree = c->matrix->max_degree;
  double *memory =
      calloc(dfgnn__ref_sum_numbers(total_count(c)) + 1, sizeof *memory);
  double *at = memory;
  dfgnn_status status = DFGNN_OK;
  c->first = dfgnn__ref_first_edges(c->matrix, c->expected);
  if (!memory || !c->first) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
  } else if (c->problem->op == DFGNN_OP_SPMM_WEIGHTED) {
    if (to->grad_edge_weight)
      status = walk_all(c, rows, degree, weigh_row);
  } else if (c->problem->message) {
    c->totals = dfgnn__ref_sum_in(&at, total_count(c), c->expected->bounds);
    c->totals.terms = c->matrix->edges;
    status = walk_all(c, rows, degree, walk_row);
    if (!status)
      put_totals(c);
  }
  free(c->first);
  free(memory);
  return status;
}

dfgnn_status dfgnn__sums_backward_reference(const dfgnn_problem *problem,
                                            const dfgnn_matrix *matrix,
                                            const dfgnn_args *args,
                                            const dfgnn_expected *expected) {
  dfgnn_ref_call c = call_of(problem, matrix, args, expected);
  dfgnn_status status = convert(&c);
  if (!status)
    status = walk_columns(&c);
  if (!status)
    status = walk_rows(&c);
  free(c.wanted);
  free(c.known);
  free(c.parameters);
  return status;
}
