/* sums.c - float64 sums of messages by the formulas, and the gradients of sums
 * and reductions
 *
 * out_i = sum_j f_ij m_ij, where f_ij is the product of SpMM's scales with a
 * weight or a mean's share.  Let G be the gradient of the message m_ij (f_ij
 * dO_i for a sum).  The gradient of a node is the sum over its edges of G times
 * a derivative of the message; that of an edge's part is one such term. */
#include "kernels/reference/sums.h"

#include <math.h>

/* The error variance of a factor and its product with a message, over the
 * square of the product. */
#define FACTOR_VARIANCE DFGNN_REF_FACTOR_VARIANCE

/* ---- the memory of a thread ---------------------------------------------- */

typedef struct walk {
  dfgnn_ref_thread of;
  dfgnn_ref_message m;
  dfgnn_ref_row_grads row; /* of the destination */
  number *grad;            /* [width] the gradient of an edge's message */
  number *terms;           /* [parts][width] of an edge */
  dfgnn_ref_sum value, gate;
} walk;

static void begin(void *thread, dfgnn_ref_memory *memory) {
  walk *w = thread;
  dfgnn_ref_row_grads *r = &w->row;
  double **rows[] = {&r->out,     &r->least,     &r->most,       &r->std,
                     &r->mean,    &r->deviation, &r->mean_error, &r->std_error,
                     &r->arg_min, &r->arg_max};
  const int bounds = w->of.call->expected->bounds;
  w->m = dfgnn__ref_message(w->of.call, w->of.call->known->parameters, memory);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    *rows[i] = dfgnn__ref_take(memory, w->m.width);
  w->grad = dfgnn__ref_numbers(memory, w->m.width);
  w->terms = dfgnn__ref_numbers(memory, 2 * w->m.width);
  w->value = dfgnn__ref_sum_in(memory, w->m.width, bounds);
  w->gate = dfgnn__ref_sum_in(memory, w->m.width, bounds);
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
  int64_t heads = w->of.call->problem->heads, dim = w->of.call->problem->dim;
  for (int64_t h = 0; h < heads; h++) {
    double f = factor(w->of.call, row, column, edge, h);
    for (int64_t i = h * dim; i < (h + 1) * dim; i++)
      w->grad[i] = num_round(num_of(x ? f * x[i] : f), FACTOR_VARIANCE);
  }
}

/* Computes the gradients of an edge's messages; the messages and the row's
 * tensors are there already. */
static void grade_edge(walk *w, int64_t row, int64_t column, int64_t edge) {
  int64_t begin = dfgnn__offset_at(w->of.call->matrix, row), k = edge - begin;
  double degree =
      (double)(dfgnn__offset_at(w->of.call->matrix, row + 1) - begin);
  int forward = w->of.call->problem->pass == DFGNN_PASS_FORWARD;
  if (is_sum(w->of.call->problem->op))
    set_factors(w, row, column, edge, forward ? NULL : w->row.out);
  else
    for (int64_t i = 0; i < w->m.width; i++)
      w->grad[i] = dfgnn__ref_grade(&w->row, &w->m, i, k, degree);
}

/* Computes the terms g x of part `part`; g is the gradient of the message. */
static void make_terms(walk *w, int part, const number *x, double repeats) {
  number *terms = w->terms + part * w->m.width;
  for (int64_t i = 0; i < w->m.width; i++)
    terms[i] = num_repeat(num_mul(x[i], w->grad[i]), repeats);
}

/* ---- edges and parameters ------------------------------------------------ */

static void add_totals(walk *w, int64_t edge) {
  const dfgnn_ref_sum *total = &w->of.totals.sum[0];
  int64_t fields = w->m.fields;
  for (int64_t i = 0; i < w->m.parts * w->m.width; i++) {
    number term = num_round(w->terms[i], 1);
    int64_t at = i * (fields + 1);
    dfgnn__ref_sum_add(total, at, fields, edge, term, w->m.attr);
    sum_add_one(total, at + fields, edge, term);
  }
}

/* The gradient of an edge's features is W^T times that of its parts. */
static void put_projected(const walk *w, int64_t k,
                          const dfgnn_ref_result *attr) {
  int64_t width = w->m.parts * w->m.width, fields = w->m.fields;
  for (int64_t f = 0; f < fields; f++) {
    double value = 0, size = 0, squares = 0, spread = 0;
    for (int64_t i = 0; i < width; i++) {
      double x = w->m.matrix[i * fields + f], term = x * w->terms[i].value;
      value += term;
      size += fabs(term);
      squares += square(term);
      spread += square(x) * w->terms[i].fixed;
    }
    /* the variance of a product, as in num_dot */
    double order = (double)width * (size + fabs(value)) / 2 * size + squares;
    dfgnn__ref_put(attr, k * fields + f, num(value, order + spread));
  }
}

static void put_attr(const walk *w, int64_t k, const dfgnn_ref_result *attr) {
  if (w->m.matrix)
    put_projected(w, k, attr);
  for (int64_t i = 0; !w->m.matrix && i < w->m.width; i++)
    dfgnn__ref_put(attr, k * w->m.width + i, w->terms[i]);
}

static void put_totals(const dfgnn_ref_call *c) {
  const dfgnn_ref_sum *total = &c->totals.sum[0];
  dfgnn_ref_result matrix =
      DFGNN_REF_RESULT(c->expected, grad_edge_projection, 0);
  dfgnn_ref_result offset = DFGNN_REF_RESULT(c->expected, grad_edge_bias, 0);
  int64_t fields = c->problem->edge_dim;
  double repeats = dfgnn__ref_mean_repeats(c, 1);
  for (int64_t at = 0; at < total->width; at++) {
    int64_t i = at / (fields + 1), f = at % (fields + 1);
    dfgnn__ref_put(f < fields ? &matrix : &offset,
                   f < fields ? i * fields + f : i,
                   dfgnn__ref_sum_number(total, at, repeats));
  }
}

/* ---- nodes --------------------------------------------------------------- */

/* Forward, the sum of a row; backward, the gradients of a source, or of a
 * destination and its edges. */
static void visit(void *thread, int64_t index, int64_t node) {
  walk *w = thread;
  const dfgnn_ref_call *c = w->of.call;
  const dfgnn_expected *to = c->expected;
  const int64_t width = w->m.width, at = index * width;
  const int forward = c->problem->pass == DFGNN_PASS_FORWARD;
  const int rows = !c->by_source;
  dfgnn_matrix m =
      rows ? *c->matrix : dfgnn__transposed(c->matrix, to->transpose);
  dfgnn_ref_result value = {0}, gate = {0}, attr = {0};
  if (forward) {
    value = DFGNN_REF_RESULT(to, out, at);
  } else if (c->by_source) {
    value = DFGNN_REF_RESULT(to, grad_value, at);
    gate = DFGNN_REF_RESULT(to, grad_gate_src, at);
  } else {
    gate = DFGNN_REF_RESULT(to, grad_gate_dst, at);
    attr =
        DFGNN_REF_RESULT(to, grad_edge_attr,
                         c->first[index] * (w->m.fields ? w->m.fields : width));
  }
  dfgnn_ref_edges e = dfgnn__ref_edges(&m, node, w->of.order, to->bounds);
  dfgnn__ref_sum_begin(&w->value, e.count);
  dfgnn__ref_sum_begin(&w->gate, e.count);
  for (int64_t k = 0; k < e.count; k++) {
    int64_t edge =
        rows ? e.begin + k : dfgnn__ref_edge(&m, to->transpose, e.begin + k);
    int64_t row = rows ? node : e.indices[k];
    int64_t column = rows ? e.indices[k] : node;
    double repeats = dfgnn__ref_repeats(&e, k);
    if (k == 0 || !rows) {
      dfgnn__ref_message_destination(&w->m, row);
      if (!forward)
        dfgnn__ref_load_grads(&w->row, c, &w->m, row);
    }
    dfgnn__ref_message_edge(&w->m, column, edge);
    grade_edge(w, row, column, edge);
    if (value.value) {
      make_terms(w, 0, forward ? w->m.message : w->m.by_value, repeats);
      dfgnn__ref_sum_add_each(&w->value, k, w->terms);
    }
    if (forward || (!rows && !gate.value))
      continue;
    make_terms(w, 0, w->m.by_edge, repeats);
    dfgnn__ref_sum_add_each(&w->gate, k, w->terms);
    if (rows && w->m.parts > 1)
      make_terms(w, 1, w->m.by_value, repeats);
    if (attr.value)
      put_attr(w, k, &attr);
    if (rows && w->m.fields)
      add_totals(w, edge);
  }
  w->of.totals.repeats += e.repeats * (double)e.count;
  dfgnn__ref_put_sum(&value, &w->value, e.repeats);
  dfgnn__ref_put_sum(&gate, &w->gate, e.repeats);
}

/* dw_ij = r_i c_j <dO_i, x_j>, of SPMM_WEIGHTED. */
static void weigh(void *thread, int64_t r, int64_t row) {
  walk *w = thread;
  const dfgnn_ref_call *c = w->of.call;
  int64_t heads = c->problem->heads, dim = c->problem->dim;
  dfgnn_ref_result weight =
      DFGNN_REF_RESULT(c->expected, grad_edge_weight, c->first[r] * heads);
  dfgnn_ref_edges e =
      dfgnn__ref_edges(c->matrix, row, w->of.order, c->expected->bounds);
  dfgnn__ref_load_grads(&w->row, c, &w->m, row);
  for (int64_t k = 0; k < e.count; k++) {
    double f = scale(c, row, e.indices[k]);
    dfgnn__ref_message_edge(&w->m, e.indices[k], e.begin + k);
    for (int64_t h = 0; h < heads; h++) {
      number p = num_dot(w->m.value + h * dim, w->row.out + h * dim, dim, 0);
      dfgnn__ref_put(&weight, k * heads + h,
                     num_scale(num_round(p, FACTOR_VARIANCE), f));
    }
  }
}

/* ---- calls --------------------------------------------------------------- */

static void walk_all(dfgnn_ref_call *c,
                     void (*visit)(void *, int64_t, int64_t)) {
  dfgnn__ref_walk(
      &(dfgnn_ref_walk){.thread = sizeof(walk), .begin = begin, .visit = visit},
      c);
}

/* Finds the moments of all rows with an edge from a column that is wanted. */
static void know(dfgnn_ref_call *c) {
  const dfgnn_expected *expected = c->expected;
  const int64_t width = c->problem->heads * c->problem->dim;
  dfgnn_matrix t = dfgnn__transposed(c->matrix, expected->transpose);
  int64_t rows = c->matrix->destinations;
  char *wanted = (char *)dfgnn__ref_take(&c->memory, rows / 8 + 1);
  for (int64_t i = 0; wanted && i < expected->column_count; i++) {
    int64_t column = expected->columns ? expected->columns[i] : i;
    for (int64_t k = dfgnn__offset_at(&t, column);
         k < dfgnn__offset_at(&t, column + 1); k++)
      wanted[t.indices[k]] = 1;
  }
  c->known->wanted = wanted;
  c->known->moments =
      dfgnn__ref_take(&c->memory, DFGNN_REF_KNOWN * rows * width);
  dfgnn__ref_moments(c);
}

static void walk_columns(dfgnn_ref_call *c) {
  const dfgnn_expected *to = c->expected;
  dfgnn_op op = c->problem->op;
  if (!to->transpose || (!to->to.grad_value && !to->to.grad_gate_src))
    return;
  if (op == DFGNN_OP_REDUCE_VAR || op == DFGNN_OP_REDUCE_STD)
    know(c);
  c->by_source = 1;
  walk_all(c, visit);
  c->by_source = 0;
}

static void walk_rows(dfgnn_ref_call *c) {
  const dfgnn_problem *p = c->problem;
  if (p->op == DFGNN_OP_SPMM_WEIGHTED && c->expected->to.grad_edge_weight)
    walk_all(c, weigh);
  if (!p->message)
    return;
  if (p->edge_dim > 0)
    dfgnn__ref_total(c, 0, dfgnn__ref_message_parameters(p));
  walk_all(c, visit);
  if (!c->memory.failed)
    put_totals(c);
}

dfgnn_status dfgnn__sums_reference(const dfgnn_problem *problem,
                                   const dfgnn_matrix *matrix,
                                   const dfgnn_args *args,
                                   const dfgnn_expected *expected) {
  dfgnn_ref_call c = dfgnn__ref_call(problem, matrix, args, expected);
  dfgnn_ref_known known = {.parameters = dfgnn__ref_message_convert(&c)};
  c.known = &known;
  if (problem->pass == DFGNN_PASS_BACKWARD) {
    walk_columns(&c);
    walk_rows(&c);
  } else if (is_sum(problem->op)) {
    walk_all(&c, visit);
  } else {
    dfgnn__ref_moments(&c);
  }
  return dfgnn__ref_end(&c);
}
