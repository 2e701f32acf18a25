/* rows.c - loads the inputs of an edge as double: the rows of its nodes,
 * normalised if the problem says so, and its features with their projection */
#include "kernels/attention/reference/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/common/accuracy.h"

static double square(double x) { return x * x; }

int64_t dfgnn__ref_edge_features(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_GAT ? 0
         : problem->edge_dim > 0     ? problem->edge_dim
         : problem->edge_dim < 0     ? problem->dim
                                     : 0;
}

static int64_t weight_numbers(const dfgnn_problem *problem) {
  return problem->edge_dim > 0 ? problem->dim * problem->edge_dim : 0;
}

/* The vectors of dim numbers at the start of the buffer. */
enum {
  DESTINATION,
  KEY,
  VALUE,
  ATT,
  BIAS,
  PROJECTED,
  MAGNITUDE,
  UNIT_QUERY,
  UNIT_KEY,
  WEIGHT_QUERY,
  WEIGHT_KEY,
  VECTORS
};

int64_t dfgnn__ref_edge_numbers(const dfgnn_problem *problem) {
  return VECTORS * problem->dim + dfgnn__ref_edge_features(problem) +
         weight_numbers(problem) + 4;
}

dfgnn_ref_edge dfgnn__ref_edge_in(double *buffer,
                                  const dfgnn_problem *problem) {
  int64_t dim = problem->dim;
  double *rest = buffer + VECTORS * dim;
  dfgnn_ref_edge edge = {
      .destination = buffer + DESTINATION * dim,
      .key = buffer + KEY * dim,
      .value = buffer + VALUE * dim,
      .att = buffer + ATT * dim,
      .features = dfgnn__ref_edge_features(problem),
      .attr = rest,
      .weight = rest + dfgnn__ref_edge_features(problem),
      .bias = buffer + BIAS * dim,
      .projected = buffer + PROJECTED * dim,
      .magnitude = buffer + MAGNITUDE * dim,
      .unit = {buffer + UNIT_QUERY * dim, buffer + UNIT_KEY * dim},
      .norm_weight = {buffer + WEIGHT_QUERY * dim, buffer + WEIGHT_KEY * dim}};
  edge.deviation = edge.weight + weight_numbers(problem);
  if (problem->op != DFGNN_OP_GT)
    edge.key = edge.value;
  return edge;
}

/* ---- nodes --------------------------------------------------------------- */

/* Normalises x in place. */
static void normalize(const dfgnn_ref_edge *to, const dfgnn_problem *problem,
                      const dfgnn_args *args, int side, double *x) {
  const dfgnn_strides dense = {0, 0, 1};
  const void *weight = side ? args->key_norm : args->query_norm;
  int64_t dim = problem->dim;
  double mean = 0, squares = 0, size = 0;
  for (int64_t d = 0; d < dim; d++)
    mean += problem->qk_norm == DFGNN_QK_NORM_LAYER ? x[d] / (double)dim : 0;
  for (int64_t d = 0; d < dim; d++)
    size += fabs(x[d]) / (double)dim;
  for (int64_t d = 0; d < dim; d++)
    squares += square(x[d] - mean) / (double)dim;
  to->deviation[side] = sqrt(squares + args->norm_eps);
  to->deviation[2 + side] =
      problem->qk_norm == DFGNN_QK_NORM_LAYER ? size / to->deviation[side] : 0;
  for (int64_t d = 0; d < dim; d++)
    to->norm_weight[side][d] = 1;
  if (weight)
    dfgnn__ref_load(to->norm_weight[side], problem, weight, &dense, 0, 0);
  for (int64_t d = 0; d < dim; d++) {
    to->unit[side][d] = (x[d] - mean) / to->deviation[side];
    x[d] = to->norm_weight[side][d] * to->unit[side][d];
  }
}

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
  if (problem->op != DFGNN_OP_GAT)
    dfgnn__ref_load(to->destination, problem, args->query, &args->query_strides,
                    row, head);
  if (problem->op == DFGNN_OP_GATV2)
    dfgnn__ref_load(to->att, problem, args->att, &dense, 0, head);
  if (problem->qk_norm)
    normalize(to, problem, args, 0, to->destination);
}

void dfgnn__ref_load_source(const dfgnn_ref_edge *to,
                            const dfgnn_problem *problem,
                            const dfgnn_args *args, int64_t column,
                            int64_t head) {
  if (problem->op == DFGNN_OP_GT)
    dfgnn__ref_load(to->key, problem, args->key, &args->key_strides, column,
                    head);
  dfgnn__ref_load(to->value, problem, args->value, &args->value_strides, column,
                  head);
  if (problem->qk_norm)
    normalize(to, problem, args, 1, to->key);
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

double dfgnn__ref_norm_variance(int64_t dim) { return (double)dim / 4 + 4; }

double dfgnn__ref_mean_error(const dfgnn_problem *problem,
                             const dfgnn_ref_edge *e, int side) {
  return sqrt(2 * dfgnn__ref_norm_variance(problem->dim)) *
         e->deviation[2 + side];
}

double dfgnn__ref_norm_error(const dfgnn_problem *problem) {
  return problem->qk_norm ? 2 * dfgnn__ref_norm_variance(problem->dim) : 0;
}
