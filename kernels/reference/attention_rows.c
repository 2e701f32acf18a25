/* attention_rows.c - loads the inputs of an edge as double: the rows of its
 * nodes, and its features with their projection */
#include "kernels/reference/attention.h"

#include <math.h>

#include "kernels/common/accuracy.h"
#include "kernels/common/dropout.h"

dfgnn_ref_edge dfgnn__ref_edge_in(dfgnn_ref_memory *memory,
                                  const dfgnn_problem *problem,
                                  const dfgnn_args *args) {
  dfgnn_ref_edge e = {.problem = problem,
                      .args = args,
                      .narrow = dfgnn__term_roundoff(problem)};
  double **vectors[] = {&e.destination, &e.key,  &e.value,     &e.att,
                        &e.leaky,       &e.bias, &e.projected, &e.magnitude};
  if (!DFGNN_HAS_SCALARS(problem->op))
    e.features = problem->edge_dim < 0 ? problem->dim : problem->edge_dim;
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
    *vectors[i] = dfgnn__ref_take(memory, problem->dim);
  e.attr = dfgnn__ref_take(memory, e.features);
  e.weight = dfgnn__ref_take(memory, problem->dim * e.features);
  if (!DFGNN_HAS_KEY(problem->op))
    e.key = e.value;
  return e;
}

/* ---- nodes --------------------------------------------------------------- */

void dfgnn__ref_at_head(dfgnn_ref_edge *e, int64_t head) {
  const dfgnn_problem *p = e->problem;
  const int64_t dim = p->dim, numbers = dim * e->features;
  e->head = head;
  if (DFGNN_HAS_ATT(p->op))
    dfgnn__ref_read(e->att, p->dtype, e->args->att, head * dim, 1, dim);
  if (p->edge_dim <= 0 || !numbers)
    return;
  dfgnn__ref_read(e->weight, p->dtype, e->args->edge_projection, head * numbers,
                  1, numbers);
  if (e->args->edge_bias)
    dfgnn__ref_read(e->bias, p->dtype, e->args->edge_bias, head * dim, 1, dim);
}

void dfgnn__ref_at_destination(dfgnn_ref_edge *e, int64_t row) {
  e->row = row;
  if (DFGNN_HAS_QUERY(e->problem->op))
    dfgnn__ref_load(e->destination, e->problem, e->args->query,
                    &e->args->query_strides, row, e->head);
}

void dfgnn__ref_at_source(dfgnn_ref_edge *e, int64_t column) {
  e->column = column;
  if (DFGNN_HAS_KEY(e->problem->op))
    dfgnn__ref_load(e->key, e->problem, e->args->key, &e->args->key_strides,
                    column, e->head);
  dfgnn__ref_load(e->value, e->problem, e->args->value, &e->args->value_strides,
                  column, e->head);
}

double dfgnn__ref_kept(const dfgnn_ref_edge *e) {
  const dfgnn_args *args = e->args;
  if (!e->problem->dropout)
    return 1;
  uint64_t key =
      dfgnn__dropout_key(args->seed ? *args->seed : args->seed_value);
  int64_t edge = args->edge_number ? args->edge_number[e->edge] : e->edge;
  return dfgnn__dropped(key, edge, e->problem->heads, e->head,
                        dfgnn__dropout_threshold(args->dropout))
             ? 0
             : 1 / (1 - args->dropout);
}

double dfgnn__ref_subnormal(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F16 ? 0.25 : 0;
}

/* ---- edges --------------------------------------------------------------- */

void dfgnn__ref_at_edge(dfgnn_ref_edge *e, int64_t edge) {
  const dfgnn_problem *p = e->problem;
  const int64_t dim = p->dim, features = e->features;
  const int given = p->edge_dim < 0;
  e->edge = edge;
  if (!features)
    return;
  dfgnn__ref_read(e->attr, p->dtype, e->args->edge_attr,
                  (given ? edge * p->heads + e->head : edge) * features, 1,
                  features);
  for (int64_t d = 0; d < dim; d++) {
    double sum = given ? e->attr[d] : e->bias[d], size = fabs(sum);
    for (int64_t f = 0; !given && f < features; f++) {
      double term = e->weight[d * features + f] * e->attr[f];
      sum += term;
      size += fabs(term);
    }
    e->projected[d] = sum;
    e->magnitude[d] = size;
  }
}

number dfgnn__ref_projected(const dfgnn_ref_edge *e, int64_t d) {
  return num(e->projected[d],
             ((double)e->features + 4) * square(e->magnitude[d]) +
                 e->narrow * square(e->projected[d]));
}

/* A kernel may round W^T a, or the projection W e, to 16 bits on the way. */
number dfgnn__ref_edge_product(const dfgnn_ref_edge *e, const double *a) {
  int64_t dim = e->problem->dim, features = e->features;
  double value = 0, size = 0, squares = 0;
  for (int64_t d = 0; d < dim; d++) {
    value += a[d] * e->projected[d];
    size += fabs(a[d]) * e->magnitude[d];
    squares += square(a[d] * e->projected[d]);
  }
  for (int64_t f = 0; e->problem->edge_dim > 0 && f < features; f++) {
    double sum = 0;
    for (int64_t d = 0; d < dim; d++)
      sum += e->weight[d * features + f] * a[d];
    squares += square(sum * e->attr[f]);
  }
  return num(value,
             (double)(dim + features + 4) * size * ((size + fabs(value)) / 2) +
                 2 * e->narrow * squares);
}

number dfgnn__ref_project(const dfgnn_ref_edge *e, const dfgnn_ref_sum *sum,
                          int64_t d, double repeats) {
  int64_t features = e->features;
  const int given = e->problem->edge_dim < 0;
  number all = num_of(0);
  double size = 0;
  for (int64_t f = given ? d : 0; f < (given ? d + 1 : features); f++) {
    double w = given ? 1 : e->weight[d * features + f];
    number x =
        w == 0 ? num_of(sum->value[f]) : dfgnn__ref_sum_number(sum, f, repeats);
    all = num_add(all, num_scale(x, w));
    size += w == 0 ? 0 : fabs(w) * sum->size[f];
  }
  return num_err(all, ((double)features + 4 + 2 * e->narrow) * square(size));
}
