/* message.c - the message of one edge in float64, with the variance of its
 * rounding errors */
#include "kernels/reference/message.h"

#include <math.h>

#include "kernels/common/accuracy.h"

static int64_t fields_of(const dfgnn_problem *problem) {
  return problem->edge_dim > 0 ? problem->edge_dim : 0;
}

static int parts_of(const dfgnn_problem *problem) {
  return problem->message ? dfgnn__message_parts(problem->message) : 0;
}

/* The number of rows of the matrix. */
static int64_t rows_of(const dfgnn_problem *problem) {
  return problem->heads * problem->dim * parts_of(problem);
}

int64_t dfgnn__ref_message_parameters(const dfgnn_problem *problem) {
  return rows_of(problem) * (fields_of(problem) + 1);
}

double *dfgnn__ref_message_convert(dfgnn_ref_call *call) {
  const dfgnn_problem *p = call->problem;
  const dfgnn_args *args = call->args;
  int64_t rows = rows_of(p), numbers = rows * fields_of(p);
  double *to = dfgnn__ref_take(&call->memory, rows + numbers);
  if (to && rows && args->edge_projection)
    dfgnn__ref_read(to, p->dtype, args->edge_projection, 0, 1, numbers);
  if (to && rows && args->edge_bias)
    dfgnn__ref_read(to + numbers, p->dtype, args->edge_bias, 0, 1, rows);
  return to;
}

dfgnn_ref_message dfgnn__ref_message(const dfgnn_ref_call *call,
                                     const double *parameters,
                                     dfgnn_ref_memory *memory) {
  const dfgnn_problem *problem = call->problem;
  int64_t width = problem->heads * problem->dim, fields = fields_of(problem);
  dfgnn_ref_message m = {.problem = problem,
                         .args = call->args,
                         .width = width,
                         .parts = parts_of(problem),
                         .fields = fields,
                         .unit = dfgnn__arithmetic(problem, NULL).unit};
  if (fields) {
    m.matrix = parameters;
    m.offset =
        m.args->edge_bias ? parameters + rows_of(problem) * fields : NULL;
  }
  m.value = dfgnn__ref_take(memory, width);
  m.gate_dst = dfgnn__ref_take(memory, width);
  m.gate_src = dfgnn__ref_take(memory, width);
  m.attr = dfgnn__ref_take(memory, fields ? fields : width);
  m.edge = dfgnn__ref_numbers(memory, 2 * width);
  m.message = dfgnn__ref_numbers(memory, width);
  m.by_value = dfgnn__ref_numbers(memory, width);
  m.by_edge = dfgnn__ref_numbers(memory, width);
  for (int64_t i = 0; m.by_value && i < width; i++)
    m.by_value[i] = num_of(1); /* of a copy */
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

static void load_source(dfgnn_ref_message *m, int64_t column) {
  if (m->args->value) /* gradients of copies do not read it */
    dfgnn__ref_message_load(m->value, m, m->args->value,
                            &m->args->value_strides, column);
  if (m->args->gate_src)
    dfgnn__ref_message_load(m->gate_src, m, m->args->gate_src,
                            &m->args->gate_src_strides, column);
}

/* The parts of an edge without features are 0. */
static void load_edge(dfgnn_ref_message *m, int64_t edge) {
  int64_t count = m->matrix ? m->fields : m->width;
  if (!m->args->edge_attr)
    return;
  dfgnn__ref_read(m->attr, m->problem->dtype, m->args->edge_attr, edge * count,
                  1, count);
  for (int64_t i = 0; !m->matrix && i < m->width; i++)
    m->edge[i] = num_of(m->attr[i]);
  for (int64_t i = 0; m->matrix && i < m->parts * m->width; i++) {
    number p = num_dot(m->matrix + i * m->fields, m->attr, m->fields, 0);
    double offset = m->offset ? m->offset[i] : 0, sum = p.value + offset;
    m->edge[i] = num(sum, p.fixed + square(offset) + square(sum));
  }
}

/* ---- messages ------------------------------------------------------------ */

/* relu(x_j + e).  The sum of two given numbers keeps its sign when it is
 * rounded.  If e is a product, itself rounded, a sum near 0 may have the other
 * sign. */
static void rectify(dfgnn_ref_message *m, int64_t i) {
  number e = m->edge[i];
  number sum = num_round(num_add(num_of(m->value[i]), e), 1);
  int either =
      e.fixed > 0 && fabs(sum.value) <= DFGNN_BOUND * m->unit * sqrt(sum.fixed);
  int on = !(sum.value <= 0);
  number step =
      num(on, either ? square(DFGNN_REF_FLIP / (DFGNN_BOUND * m->unit)) : 0);
  m->message[i] = num(on ? sum.value : 0, on || either ? sum.fixed : 0);
  m->by_value[i] = m->by_edge[i] = step;
}

/* sigma(a_i + b_j + e) (x_j + e').  The exponential errs by 4 units, beside
 * the errors of its argument, which kernels may have scaled. */
static void gate(dfgnn_ref_message *m, int64_t i) {
  number x = num_round(num_add(num_of(m->value[i]), m->edge[m->width + i]),
                       m->parts > 1);
  number nodes = num_round(num_of(m->gate_dst[i] + m->gate_src[i]), 1);
  number z = num_round(num_add(nodes, m->edge[i]), 4);
  double off = 1 / (1 + exp(z.value)), on = 1 / (1 + exp(-z.value));
  double slope = on * off;
  number s = num_round(num_map(num_err(z, square(4)), on, slope), 4);
  number ds = num_round(num_map(s, slope, off - on), 4);
  m->message[i] = num_round(num_mul(s, x), 1);
  m->by_value[i] = s;
  m->by_edge[i] = num_mul(ds, x);
}

void dfgnn__ref_message_edge(dfgnn_ref_message *m, int64_t column,
                             int64_t edge) {
  load_source(m, column);
  if (m->parts)
    load_edge(m, edge);
  for (int64_t i = 0; i < m->width; i++)
    if (!m->parts)
      m->message[i].value = m->value[i];
    else if (dfgnn__message_gated(m->problem->message))
      gate(m, i);
    else
      rectify(m, i);
}
