/* message.c - the message of one edge in float64, with the variance of its
 * rounding errors */
#include "kernels/reference/message.h"

#include <math.h>

#include "kernels/common/accuracy.h"

static int64_t fields_of(const dfgnn_problem *problem) {
  return problem->edge_dim > 0 ? problem->edge_dim : 0;
}

static int64_t width_of(const dfgnn_problem *problem) {
  return problem->heads * problem->dim;
}

static int parts_of(const dfgnn_problem *problem) {
  return problem->message ? dfgnn__message_parts(problem->message) : 0;
}

/* The number of rows of the matrix. */
static int64_t rows_of(const dfgnn_problem *problem) {
  return width_of(problem) * parts_of(problem);
}

size_t dfgnn__ref_message_parameters(const dfgnn_problem *problem) {
  return (size_t)(rows_of(problem) * (fields_of(problem) + 1));
}

size_t dfgnn__ref_message_numbers(const dfgnn_problem *problem) {
  return (size_t)(13 * width_of(problem) + fields_of(problem));
}

/* Reads row i of a dense array with `count` storage numbers a row. */
static void load_dense(double *to, const dfgnn_problem *problem,
                       const void *array, int64_t i, int64_t count) {
  dfgnn_problem flat = *problem;
  dfgnn_strides strides = {.node = count, .feature = 1};
  flat.dim = count;
  dfgnn__ref_load(to, &flat, array, &strides, i, 0);
}

void dfgnn__ref_message_convert(double *parameters,
                                const dfgnn_problem *problem,
                                const dfgnn_args *args) {
  int64_t rows = rows_of(problem), fields = fields_of(problem);
  if (rows == 0 || !args->edge_weight)
    return;
  load_dense(parameters, problem, args->edge_weight, 0, rows * fields);
  for (int64_t i = 0; i < rows; i++)
    parameters[rows * fields + i] = 0;
  if (args->edge_bias)
    load_dense(parameters + rows * fields, problem, args->edge_bias, 0, rows);
}

dfgnn_ref_message dfgnn__ref_message(const dfgnn_problem *problem,
                                     const dfgnn_args *args,
                                     const double *parameters,
                                     double **memory) {
  int64_t width = width_of(problem), fields = fields_of(problem);
  int copies = !problem->message;
  dfgnn_ref_message m = {.problem = problem,
                         .args = args,
                         .width = width,
                         .parts = parts_of(problem),
                         .fields = fields,
                         .unit = dfgnn__arithmetic(problem, NULL).unit,
                         .matrix = fields ? parameters : NULL,
                         .offset = fields && args->edge_bias
                                       ? parameters + rows_of(problem) * fields
                                       : NULL};
  double **arrays[] = {&m.value,
                       &m.gate_dst,
                       &m.gate_src,
                       &m.edge.value,
                       &m.edge.variance,
                       &m.edge_value.value,
                       &m.edge_value.variance,
                       &m.message.value,
                       &m.message.variance,
                       &m.by_value.value,
                       &m.by_value.variance,
                       &m.by_edge.value,
                       &m.by_edge.variance};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    *arrays[i] = dfgnn__ref_take(memory, width);
  m.attr = dfgnn__ref_take(memory, fields);
  for (int64_t i = 0; copies && i < width; i++)
    m.by_value.value[i] = 1;
  if (copies)
    m.message.value = m.value;
  return m;
}

void dfgnn__ref_message_load(double *to, const dfgnn_ref_message *m,
                             const void *array, const dfgnn_strides *strides,
                             int64_t node) {
  for (int64_t h = 0; h < m->problem->heads; h++)
    dfgnn__ref_load(to + h * m->problem->dim, m->problem, array, strides, node,
                    h);
}

void dfgnn__ref_message_destination(dfgnn_ref_message *m, int64_t row) {
  if (m->args->gate_dst)
    dfgnn__ref_message_load(m->gate_dst, m, m->args->gate_dst,
                            &m->args->gate_dst_strides, row);
}

void dfgnn__ref_message_source(dfgnn_ref_message *m, int64_t column) {
  if (m->args->value) /* gradients of copies do not read it */
    dfgnn__ref_message_load(m->value, m, m->args->value,
                            &m->args->value_strides, column);
  if (m->args->gate_src)
    dfgnn__ref_message_load(m->gate_src, m, m->args->gate_src,
                            &m->args->gate_src_strides, column);
}

/* ---- the edge's own part ------------------------------------------------- */

static void load_edge(dfgnn_ref_message *m, int64_t edge) {
  const dfgnn_problem *problem = m->problem;
  dfgnn_strides dense = {m->width, problem->dim, 1};
  for (int64_t i = 0; i < m->width; i++) {
    m->edge.value[i] = m->edge.variance[i] = 0;
    m->edge_value.value[i] = m->edge_value.variance[i] = 0;
  }
  if (m->args->edge_attr && !m->matrix)
    dfgnn__ref_message_load(m->edge.value, m, m->args->edge_attr, &dense, edge);
  if (!m->matrix)
    return;
  load_dense(m->attr, problem, m->args->edge_attr, edge, m->fields);
  for (int64_t i = 0; i < m->parts * m->width; i++) {
    dfgnn_ref_product p =
        dfgnn__ref_product(m->matrix + i * m->fields, m->attr, m->fields);
    double offset = m->offset ? m->offset[i] : 0;
    const dfgnn_ref_numbers *to = i < m->width ? &m->edge : &m->edge_value;
    to->value[i % m->width] = p.value + offset;
    to->variance[i % m->width] =
        p.variance + square(offset) + square(p.value + offset);
  }
}

/* ---- messages ------------------------------------------------------------ */

static dfgnn_ref_number at(const dfgnn_ref_numbers *numbers, int64_t i) {
  return (dfgnn_ref_number){numbers->value[i], numbers->variance[i]};
}

static void set(const dfgnn_ref_numbers *to, int64_t i, dfgnn_ref_number x) {
  to->value[i] = x.value;
  to->variance[i] = x.variance;
}

/* relu(x_j + e).  The sum of two given numbers keeps its sign when it is
 * rounded.  If e is a product, itself rounded, a sum near 0 may have the other
 * sign. */
static void rectify(dfgnn_ref_message *m, int64_t i) {
  dfgnn_ref_number e = at(&m->edge, i);
  dfgnn_ref_number sum = num_round(num_add(num_of(m->value[i]), e), 1);
  int either = e.variance > 0 &&
               fabs(sum.value) <= DFGNN_BOUND * m->unit * sqrt(sum.variance);
  int on = !(sum.value <= 0);
  dfgnn_ref_number step = {
      on, either ? square(DFGNN_REF_FLIP / (DFGNN_BOUND * m->unit)) : 0};
  set(&m->message, i,
      (dfgnn_ref_number){on ? sum.value : 0, on || either ? sum.variance : 0});
  set(&m->by_value, i, step);
  set(&m->by_edge, i, step);
}

/* sigma(a_i + b_j + e) (x_j + e').  The exponential errs by 4 units, beside
 * the errors of its argument, which kernels may have scaled. */
static void gate(dfgnn_ref_message *m, int64_t i) {
  dfgnn_ref_number x = num_round(
      num_add(num_of(m->value[i]), at(&m->edge_value, i)), m->parts > 1);
  dfgnn_ref_number nodes =
      num_round(num_of(m->gate_dst[i] + m->gate_src[i]), 1);
  dfgnn_ref_number z = num_round(num_add(nodes, at(&m->edge, i)), 4);
  double off = 1 / (1 + exp(z.value)), on = 1 / (1 + exp(-z.value));
  double slope = on * off;
  dfgnn_ref_number s = num_round(num_map(num_err(z, square(4)), on, slope), 4);
  dfgnn_ref_number ds = num_round(num_map(s, slope, off - on), 4);
  set(&m->message, i, num_round(num_mul(s, x), 1));
  set(&m->by_value, i, s);
  set(&m->by_edge, i, num_mul(ds, x));
}

void dfgnn__ref_message_edge(dfgnn_ref_message *m, int64_t edge) {
  if (!m->parts)
    return;
  load_edge(m, edge);
  for (int64_t i = 0; i < m->width; i++)
    if (dfgnn__message_gated(m->problem->message))
      gate(m, i);
    else
      rectify(m, i);
}
