/* attention_rows.c - loads the inputs of an edge as double: the rows of its
 * nodes, and its features with their projection */
#include "kernels/reference/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/common/accuracy.h"

int64_t dfgnn__ref_edge_features(const dfgnn_problem *problem) {
  return DFGNN_HAS_SCALARS(problem->op) ? 0
         : problem->edge_dim > 0        ? problem->edge_dim
         : problem->edge_dim < 0        ? problem->dim
                                        : 0;
}

static int64_t weight_numbers(const dfgnn_problem *problem) {
  return problem->edge_dim > 0 ? problem->dim * problem->edge_dim : 0;
}

enum { VECTORS = 8 }; /* of dim numbers */

int64_t dfgnn__ref_edge_numbers(const dfgnn_problem *problem) {
  return VECTORS * problem->dim + dfgnn__ref_edge_features(problem) +
         weight_numbers(problem);
}

dfgnn_ref_edge dfgnn__ref_edge_in(double **memory,
                                  const dfgnn_problem *problem) {
  dfgnn_ref_edge e = {.features = dfgnn__ref_edge_features(problem)};
  double **vectors[VECTORS] = {&e.destination, &e.key,  &e.value,
                               &e.att,         &e.bias, &e.projected,
                               &e.magnitude,   &e.leaky};
  for (int i = 0; i < VECTORS; i++)
    *vectors[i] = dfgnn__ref_take(memory, problem->dim);
  e.attr = dfgnn__ref_take(memory, e.features);
  e.weight = dfgnn__ref_take(memory, weight_numbers(problem));
  if (!DFGNN_HAS_KEY(problem->op))
    e.key = e.value;
  return e;
}

/* ---- nodes --------------------------------------------------------------- */

static void load_projection(const dfgnn_ref_edge *to,
                            const dfgnn_problem *problem,
                            const dfgnn_args *args, int64_t head) {
  const dfgnn_strides dense = {0, problem->dim, 1};
  int64_t count = weight_numbers(problem);
  dfgnn_problem one = *problem; /* with W of a head as its one row */
  one.dim = count;
  memset(to->bias, 0, (size_t)problem->dim * sizeof *to->bias);
  if (!count)
    return;
  dfgnn__ref_load(to->weight, &one, args->edge_weight,
                  &(dfgnn_strides){0, count, 1}, 0, head);
  if (args->edge_bias)
    dfgnn__ref_load(to->bias, problem, args->edge_bias, &dense, 0, head);
}

void dfgnn__ref_load_destination(const dfgnn_ref_edge *to,
                                 const dfgnn_problem *problem,
                                 const dfgnn_args *args, int64_t row,
                                 int64_t head) {
  const dfgnn_strides dense = {0, problem->dim, 1};
  if (DFGNN_HAS_QUERY(problem->op))
    dfgnn__ref_load(to->destination, problem, args->query, &args->query_strides,
                    row, head);
  if (DFGNN_HAS_ATT(problem->op))
    dfgnn__ref_load(to->att, problem, args->att, &dense, 0, head);
}

void dfgnn__ref_load_source(const dfgnn_ref_edge *to,
                            const dfgnn_problem *problem,
                            const dfgnn_args *args, int64_t column,
                            int64_t head) {
  if (DFGNN_HAS_KEY(problem->op))
    dfgnn__ref_load(to->key, problem, args->key, &args->key_strides, column,
                    head);
  dfgnn__ref_load(to->value, problem, args->value, &args->value_strides, column,
                  head);
}

/* ---- edges --------------------------------------------------------------- */

void dfgnn__ref_load_head(const dfgnn_ref_edge *to,
                          const dfgnn_problem *problem, const dfgnn_args *args,
                          int64_t head) {
  if (to->features)
    load_projection(to, problem, args, head);
}

void dfgnn__ref_load_edge(const dfgnn_ref_edge *to,
                          const dfgnn_problem *problem, const dfgnn_args *args,
                          int64_t edge, int64_t head) {
  int64_t dim = problem->dim, features = to->features;
  dfgnn_problem wide = *problem;
  if (!features)
    return;
  wide.dim = features;
  if (problem->edge_dim < 0)
    dfgnn__ref_load(to->attr, &wide, args->edge_attr,
                    &(dfgnn_strides){problem->heads * dim, dim, 1}, edge, head);
  else
    dfgnn__ref_load(to->attr, &wide, args->edge_attr,
                    &(dfgnn_strides){features, 0, 1}, edge, 0);
  for (int64_t d = 0; d < dim; d++) {
    double sum = to->bias[d], size = fabs(sum);
    for (int64_t f = 0; problem->edge_dim > 0 && f < features; f++) {
      double term = to->weight[d * features + f] * to->attr[f];
      sum += term;
      size += fabs(term);
    }
    to->projected[d] = problem->edge_dim < 0 ? to->attr[d] : sum;
    to->magnitude[d] = problem->edge_dim < 0 ? fabs(to->attr[d]) : size;
  }
}

dfgnn_ref_number dfgnn__ref_projected(const dfgnn_ref_edge *e, int64_t d,
                                      double narrow) {
  return (dfgnn_ref_number){
      e->projected[d], ((double)e->features + 4) * square(e->magnitude[d]) +
                           narrow * square(e->projected[d])};
}

/* A kernel may round W^T a, or the projection W e, to 16 bits on the way. */
dfgnn_ref_number dfgnn__ref_edge_product(const dfgnn_problem *problem,
                                         const dfgnn_ref_edge *e,
                                         const double *a) {
  int64_t dim = problem->dim, features = e->features;
  double value = 0, size = 0, squares = 0;
  for (int64_t d = 0; d < dim; d++) {
    value += a[d] * e->projected[d];
    size += fabs(a[d]) * e->magnitude[d];
    squares += square(a[d] * e->projected[d]);
  }
  for (int64_t f = 0; problem->edge_dim > 0 && f < features; f++) {
    double sum = 0;
    for (int64_t d = 0; d < dim; d++)
      sum += e->weight[d * features + f] * a[d];
    squares += square(sum * e->attr[f]);
  }
  return (dfgnn_ref_number){
      value, (double)(dim + features + 4) * size * ((size + fabs(value)) / 2) +
                 2 * dfgnn__term_roundoff(problem) * squares};
}

dfgnn_ref_part dfgnn__ref_project(const dfgnn_problem *problem,
                                  const dfgnn_ref_edge *e,
                                  const dfgnn_ref_sum *sum, int64_t d,
                                  double repeats) {
  int64_t features = e->features;
  dfgnn_ref_part part = {0, 0, 0};
  double size = 0;
  for (int64_t f = 0; f < features; f++) {
    double w = problem->edge_dim < 0 ? d == f : e->weight[d * features + f];
    if (problem->edge_dim < 0 && d != f) /* 0 times a NaN would be NaN */
      continue;
    part.value += w * sum->value[f];
    if (!sum->bounds || w == 0)
      continue;
    size += fabs(w) * sum->size[f];
    part.fixed += square(w) * dfgnn__ref_sum_fixed(sum, f);
    part.summed += square(w) * dfgnn__ref_sum_summed(sum, f, repeats);
  }
  part.fixed +=
      ((double)features + 4 + 2 * dfgnn__term_roundoff(problem)) * square(size);
  return part;
}
