/* edge.c - the message of one edge in float64, with the variance of its
 * rounding errors */
#include "kernels/message/reference/edge.h"

#include <math.h>

#include "kernels/common/accuracy.h"

static double square(double x) { return x * x; }

static int64_t fields_of(const dfgnn_problem *problem) {
  return problem->edge_dim > 0 ? problem->edge_dim : 0;
}

static int64_t width_of(const dfgnn_problem *problem) {
  return problem->heads * problem->dim;
}

/* The number of rows of the matrix. */
static int64_t rows_of(const dfgnn_problem *problem) {
  return width_of(problem) * dfgnn__message_parts(problem->message);
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
  if (!args->edge_weight)
    return;
  load_dense(parameters, problem, args->edge_weight, 0, rows * fields);
  for (int64_t i = 0; i < rows; i++)
    parameters[rows * fields + i] = 0;
  if (args->edge_bias)
    load_dense(parameters + rows * fields, problem, args->edge_bias, 0, rows);
}

dfgnn_ref_message dfgnn__ref_message(const dfgnn_problem *problem,
                                     const dfgnn_args *args,
                                     const double *parameters, double *buffer) {
  int64_t width = width_of(problem), fields = fields_of(problem);
  double *next = buffer;
  dfgnn_ref_message m = {.problem = problem,
                         .args = args,
                         .width = width,
                         .parts = dfgnn__message_parts(problem->message),
                         .fields = fields,
                         .unit = dfgnn__arithmetic(problem, NULL).unit,
                         .matrix = args->edge_weight ? parameters : NULL,
                         .offset = args->edge_bias
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
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++, next += width)
    *arrays[i] = next;
  m.attr = next;
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
  dfgnn__ref_message_load(m->value, m, m->args->value, &m->args->value_strides,
                          column);
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

/* relu(x_j + e).  The sum of two given numbers keeps its sign when it is
 * rounded.  If e is a product, itself rounded, a sum near 0 may have the other
 * sign. */
static void rectify(dfgnn_ref_message *m, int64_t i) {
  double sum = m->value[i] + m->edge.value[i];
  double variance = m->edge.variance[i] + square(sum);
  int either = m->edge.variance[i] > 0 &&
               fabs(sum) <= DFGNN_BOUND * m->unit * sqrt(variance);
  int on = !(sum <= 0);
  double step = either ? square(1 / (DFGNN_BOUND * m->unit)) : 0;
  m->message.value[i] = on ? sum : 0;
  m->message.variance[i] = on || either ? variance : 0;
  m->by_value.value[i] = m->by_edge.value[i] = on;
  m->by_value.variance[i] = m->by_edge.variance[i] = step;
}

/* sigma(a_i + b_j + e) (x_j + e').  The exponential errs by 4 units, beside
 * the errors of its argument, which kernels may have scaled. */
static void gate(dfgnn_ref_message *m, int64_t i) {
  double x = m->value[i] + m->edge_value.value[i];
  double x_error = m->parts > 1 ? m->edge_value.variance[i] + square(x) : 0;
  double nodes = m->gate_dst[i] + m->gate_src[i];
  double z = nodes + m->edge.value[i];
  double argument =
      m->edge.variance[i] + square(nodes) + 4 * square(z) + square(4);
  double s = 1 / (1 + exp(-z)), rest = 1 / (1 + exp(z));
  double slope = s * rest;
  double error = square(slope) * argument + 4 * square(s);
  m->message.value[i] = s * x;
  m->message.variance[i] =
      square(x) * error + square(s * x) + square(s) * x_error;
  m->by_value.value[i] = s;
  m->by_value.variance[i] = error;
  m->by_edge.value[i] = slope * x;
  m->by_edge.variance[i] =
      square(x) * (square(rest - s) * error + 4 * square(slope)) +
      square(slope) * x_error;
}

void dfgnn__ref_message_edge(dfgnn_ref_message *m, int64_t edge) {
  load_edge(m, edge);
  for (int64_t i = 0; i < m->width; i++)
    if (dfgnn__message_gated(m->problem->message))
      gate(m, i);
    else
      rectify(m, i);
}
