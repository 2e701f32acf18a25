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
  const dfgnn_ref_call *call;
  int32_t *order;
  dfgnn_ref_message m;
  dfgnn_ref_row_grads row; /* of the destination */
  dfgnn_ref_number *grad;  /* [width] the gradient of an edge's message */
  dfgnn_ref_number *terms; /* [parts][width] of an edge */
  dfgnn_ref_sum value, gate;
  dfgnn_ref_sum totals;
  double repeats;
} walk;

static void begin(void *state, const void *job, dfgnn_ref_memory *memory) {
  const dfgnn_ref_call *c = job;
  const int bounds = c->expected->bounds;
  dfgnn_ref_row_grads r;
  double **rows[] = {&r.out,     &r.least,     &r.most,       &r.std,
                     &r.mean,    &r.deviation, &r.mean_error, &r.std_error,
                     &r.arg_min, &r.arg_max};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    *rows[i] = dfgnn__ref_take(memory, c->width);
  *(walk *)state = (walk){
      .call = c,
      .order =
          dfgnn__ref_order(memory, c->by_source ? c->expected->transpose->extra
                                                : c->matrix->max_degree),
      .m = dfgnn__ref_message(c->problem, c->args, c->parameters, memory),
      .row = r,
      .grad = dfgnn__ref_numbers(memory, c->width),
      .terms = dfgnn__ref_numbers(memory, 2 * c->width),
      .value = dfgnn__ref_sum_in(memory, c->width, bounds),
      .gate = dfgnn__ref_sum_in(memory, c->width, bounds),
      .totals = dfgnn__ref_sum_in(memory, c->totals.width, bounds)};
  ((walk *)state)->totals.terms = c->matrix->edges;
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
    for (int64_t i = h * dim; i < (h + 1) * dim; i++)
      w->grad[i] = num_round(num_of(x ? f * x[i] : f), FACTOR_VARIANCE);
  }
}

/* Computes the gradients of an edge's messages; the messages and the row's
 * tensors are there already. */
static void grade_edge(walk *w, int64_t row, int64_t column, int64_t edge) {
  int64_t begin = dfgnn__offset_at(w->call->matrix, row), k = edge - begin;
  double degree = (double)(dfgnn__offset_at(w->call->matrix, row + 1) - begin);
  int forward = w->call->problem->pass == DFGNN_PASS_FORWARD;
  if (is_sum(w->call->problem->op))
    set_factors(w, row, column, edge, forward ? NULL : w->row.out);
  else
    for (int64_t i = 0; i < w->m.width; i++)
      w->grad[i] = dfgnn__ref_grade(&w->row, &w->m, i, k, degree);
}

/* Computes the terms g x of part `part`; g is the gradient of the message. */
static void make_terms(walk *w, int part, const dfgnn_ref_number *x,
                       double repeats) {
  dfgnn_ref_number *terms = w->terms + part * w->m.width;
  for (int64_t i = 0; i < w->m.width; i++)
    terms[i] = num_repeat(num_mul(x[i], w->grad[i]), repeats);
}

/* ---- edges and parameters ------------------------------------------------ */

static void add_totals(walk *w, int64_t edge) {
  int64_t fields = w->m.fields;
  for (int64_t i = 0; i < w->m.parts * w->m.width; i++) {
    dfgnn_ref_number term = num_round(w->terms[i], 1);
    int64_t at = i * (fields + 1);
    dfgnn__ref_sum_add(&w->totals, at, fields, edge, term, w->m.attr);
    sum_add_one(&w->totals, at + fields, edge, term);
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
      spread += square(x) * w->terms[i].variance;
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
    num_put(attr, k * w->m.width + i, w->terms[i]);
}

static void join_totals(void *job, const void *state) {
  dfgnn_ref_call *c = job;
  const walk *w = state;
  dfgnn__ref_sum_join(&c->totals, &w->totals);
  c->repeats += w->repeats;
}

static void put_totals(const dfgnn_ref_call *c) {
  dfgnn_ref_result matrix = DFGNN_REF_RESULT(c->expected, grad_edge_weight, 0);
  dfgnn_ref_result offset = DFGNN_REF_RESULT(c->expected, grad_edge_bias, 0);
  int64_t fields = c->problem->edge_dim;
  int64_t edges = c->first[c->expected->row_count];
  double repeats = edges ? c->repeats / (double)edges : 1;
  for (int64_t at = 0; fields > 0 && at < c->totals.width; at++) {
    int64_t i = at / (fields + 1), f = at % (fields + 1);
    part_put(f < fields ? &matrix : &offset, f < fields ? i * fields + f : i,
             part_of(&c->totals, at, repeats));
  }
}

/* ---- nodes --------------------------------------------------------------- */

/* Forward, the sum of a row; backward, the gradients of a source, or of a
 * destination and its edges. */
static void visit(void *state, int64_t index, int64_t node) {
  walk *w = state;
  const dfgnn_ref_call *c = w->call;
  const dfgnn_expected *to = c->expected;
  const int64_t at = index * c->width;
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
    attr = DFGNN_REF_RESULT(to, grad_edge_attr,
                            c->first[index] *
                                (w->m.fields ? w->m.fields : c->width));
  }
  dfgnn_ref_edges e = dfgnn__ref_edges(&m, node, w->order, to->bounds);
  dfgnn__ref_sum_begin(&w->value, e.count);
  dfgnn__ref_sum_begin(&w->gate, e.count);
  for (int64_t k = 0; k < e.count; k++) {
    int64_t edge =
        rows ? e.begin + k : dfgnn__ref_edge(&m, to->transpose, e.begin + k);
    int64_t row = rows ? node : e.indices[k];
    int64_t column = rows ? e.indices[k] : node;
    double repeats = dfgnn__ref_repeats(&e.repeated, e.indices[k]);
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
  w->repeats += e.repeated.repeats * (double)e.count;
  dfgnn__ref_put_sum(&value, &w->value, e.repeated.repeats);
  dfgnn__ref_put_sum(&gate, &w->gate, e.repeated.repeats);
}

/* dw_ij = r_i c_j <dO_i, x_j>, of SPMM_WEIGHTED. */
static void weigh(void *state, int64_t r, int64_t row) {
  walk *w = state;
  const dfgnn_ref_call *c = w->call;
  int64_t heads = c->problem->heads, dim = c->problem->dim;
  dfgnn_ref_result weight =
      DFGNN_REF_RESULT(c->expected, grad_edge_weight, c->first[r] * heads);
  dfgnn_ref_edges e =
      dfgnn__ref_edges(c->matrix, row, w->order, c->expected->bounds);
  dfgnn__ref_load_grads(&w->row, c, &w->m, row);
  for (int64_t k = 0; k < e.count; k++) {
    double f = scale(c, row, e.indices[k]);
    dfgnn__ref_message_edge(&w->m, e.indices[k], e.begin + k);
    for (int64_t h = 0; h < heads; h++) {
      dfgnn_ref_product p =
          dfgnn__ref_product(w->m.value + h * dim, w->row.out + h * dim, dim);
      dfgnn_ref_number x = {p.value, p.variance};
      num_put(&weight, k * heads + h,
              num_scale(num_round(x, FACTOR_VARIANCE), f));
    }
  }
}

/* ---- calls --------------------------------------------------------------- */

static dfgnn_ref_call call_of(const dfgnn_problem *problem,
                              const dfgnn_matrix *matrix,
                              const dfgnn_args *args,
                              const dfgnn_expected *expected) {
  dfgnn_ref_call c = {.problem = problem,
                      .matrix = matrix,
                      .args = args,
                      .expected = expected,
                      .width = problem->heads * problem->dim};
  c.parameters =
      dfgnn__ref_take(&c.memory, dfgnn__ref_message_parameters(problem));
  c.first = dfgnn__ref_first_edges(&c.memory, matrix, expected);
  if (c.parameters)
    dfgnn__ref_message_convert(c.parameters, problem, args);
  return c;
}

static dfgnn_status walk_all(dfgnn_ref_call *c,
                             void (*visit)(void *, int64_t, int64_t)) {
  const dfgnn_expected *to = c->expected;
  const dfgnn_ref_walk walk = {.nodes = c->by_source ? to->columns : to->rows,
                               .count = c->by_source ? to->column_count
                                                     : to->row_count,
                               .work = c->matrix->edges * c->width,
                               .state = sizeof(struct walk),
                               .begin = begin,
                               .visit = visit,
                               .join = c->totals.width ? join_totals : NULL};
  return c->memory.failed ? DFGNN_OK : dfgnn__ref_walk(&walk, c);
}

/* Of two statuses the first that failed. */
static dfgnn_status end(dfgnn_ref_call *c, dfgnn_status status) {
  dfgnn_status memory = dfgnn__ref_free(&c->memory);
  return status ? status : memory;
}

dfgnn_status dfgnn__sums_reference(const dfgnn_problem *problem,
                                   const dfgnn_matrix *matrix,
                                   const dfgnn_args *args,
                                   const dfgnn_expected *expected) {
  dfgnn_ref_call c = call_of(problem, matrix, args, expected);
  return end(&c, is_sum(problem->op) ? walk_all(&c, visit)
                                     : dfgnn__ref_moments(&c));
}

/* Finds the moments of all rows with an edge from a column that is wanted. */
static dfgnn_status know(dfgnn_ref_call *c) {
  const dfgnn_expected *expected = c->expected;
  dfgnn_matrix t = dfgnn__transposed(c->matrix, expected->transpose);
  int64_t rows = c->matrix->destinations;
  c->wanted = (char *)dfgnn__ref_take(&c->memory, rows / 8 + 1);
  c->known = dfgnn__ref_take(&c->memory, DFGNN_REF_KNOWN * rows * c->width);
  for (int64_t i = 0; c->wanted && i < expected->column_count; i++) {
    int64_t column = expected->columns ? expected->columns[i] : i;
    for (int64_t k = dfgnn__offset_at(&t, column);
         k < dfgnn__offset_at(&t, column + 1); k++)
      c->wanted[t.indices[k]] = 1;
  }
  return dfgnn__ref_moments(c);
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
  c->by_source = 1;
  return status ? status : walk_all(c, visit);
}

static dfgnn_status walk_rows(dfgnn_ref_call *c) {
  dfgnn_status status = DFGNN_OK;
  c->by_source = 0;
  if (c->problem->op == DFGNN_OP_SPMM_WEIGHTED)
    return c->expected->to.grad_edge_weight ? walk_all(c, weigh) : DFGNN_OK;
  if (!c->problem->message)
    return DFGNN_OK;
  c->totals =
      dfgnn__ref_sum_in(&c->memory, dfgnn__ref_message_parameters(c->problem),
                        c->expected->bounds);
  c->totals.terms = c->matrix->edges;
  status = walk_all(c, visit);
  if (!status && !c->memory.failed)
    put_totals(c);
  return status;
}

dfgnn_status dfgnn__sums_backward_reference(const dfgnn_problem *problem,
                                            const dfgnn_matrix *matrix,
                                            const dfgnn_args *args,
                                            const dfgnn_expected *expected) {
  dfgnn_ref_call c = call_of(problem, matrix, args, expected);
  dfgnn_status status = walk_columns(&c);
  return end(&c, status ? status : walk_rows(&c));
}
