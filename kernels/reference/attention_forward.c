/* attention_forward.c - float64 forward attention, row by row, by the formulas
 */
#include "kernels/reference/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/accuracy.h"
#include "kernels/common/dropout.h"

double dfgnn__ref_dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t d = 0; d < count; d++)
    sum += a[d] * b[d];
  return sum;
}

double dfgnn__ref_norm(const double *x, int64_t count) {
  double length = sqrt(dfgnn__ref_dot(x, x, count));
  return length < 1e-12 ? 1e-12 : length;
}

double dfgnn__ref_beta(const dfgnn_problem *problem, const dfgnn_args *args) {
  return args->beta ? dfgnn__ref_scalar(problem, args->beta, 0) : 1.0;
}

static double leaky_relu(double x, double slope) {
  return x > 0 ? x : slope * x;
}

double dfgnn__ref_subnormal(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F16 ? 0.25 : 0;
}

/* The roundings of a product of two rows and of the factors of a score. */
#define SCORE_ROUNDINGS 9

double dfgnn__ref_additive(const dfgnn_problem *problem, const dfgnn_args *args,
                           int64_t row, int64_t column, int64_t edge,
                           int64_t head) {
  int64_t heads = problem->heads;
  double x = dfgnn__ref_scalar(problem, args->score_dst, row * heads + head) +
             dfgnn__ref_scalar(problem, args->score_src, column * heads + head);
  if (problem->edge_dim)
    x += dfgnn__ref_scalar(problem, args->score_edge, edge * heads + head);
  return x;
}

/* GAT: leaky ReLU of the sum of two or three scalars.  With three, the rounding
 * of a partial sum counts, too. */
static dfgnn_ref_number additive(const dfgnn_problem *problem,
                                 const dfgnn_args *args, int64_t row,
                                 int64_t column, int64_t edge, int64_t head) {
  int64_t at = edge * problem->heads + head;
  double x = dfgnn__ref_additive(problem, args, row, column, edge, head);
  double c =
      problem->edge_dim ? dfgnn__ref_scalar(problem, args->score_edge, at) : 0;
  double partial = problem->edge_dim ? square(x - c) + square(c) : 0;
  return num_err(num_of(leaky_relu(x, args->slope)), partial);
}

/* <att, leaky(x)>, summed in any order. */
static dfgnn_ref_number gatv2(const dfgnn_problem *problem,
                              const dfgnn_args *args, const dfgnn_ref_edge *e) {
  double value = 0, size = 0, squares = 0, projection = 0;
  double narrow = dfgnn__term_roundoff(problem);
  double roundings = SCORE_ROUNDINGS + 2 * narrow;
  for (int64_t d = 0; d < problem->dim; d++) {
    double x = e->destination[d] + e->value[d];
    if (e->features) {
      projection +=
          square(e->att[d]) *
          (((double)e->features + 4) * square(e->magnitude[d]) +
           narrow * square(e->projected[d]) + square(x) * (1 + narrow));
      x += e->projected[d];
    }
    double term = e->att[d] * leaky_relu(x, args->slope);
    value += term;
    size += fabs(term);
    squares += square(term);
  }
  return (dfgnn_ref_number){value, (double)problem->dim * size *
                                           ((size + fabs(value)) / 2) +
                                       roundings * squares + projection};
}

/* <q, k + W e>, scaled. */
static dfgnn_ref_number transformer(const dfgnn_problem *problem,
                                    const dfgnn_args *args,
                                    const dfgnn_ref_edge *e) {
  double narrow = 2 * dfgnn__term_roundoff(problem);
  dfgnn_ref_number keys = num_scale(
      num_dot(e->destination, e->key, problem->dim, narrow), args->scale);
  if (!dfgnn__ref_edge_keys(problem))
    return keys;
  dfgnn_ref_number edge = num_scale(
      dfgnn__ref_edge_product(problem, e, e->destination), args->scale);
  return num_add(num_round(keys, 1 + SCORE_ROUNDINGS),
                 num_round(edge, SCORE_ROUNDINGS));
}

/* beta cos(q, h) */
static dfgnn_ref_number cosine(const dfgnn_problem *problem,
                               const dfgnn_args *args,
                               const dfgnn_ref_edge *e) {
  int64_t dim = problem->dim;
  double norms =
      dfgnn__ref_norm(e->destination, dim) * dfgnn__ref_norm(e->value, dim);
  double narrow = 2 * dfgnn__term_roundoff(problem);
  return num_round(num_scale(num_dot(e->destination, e->value, dim, narrow),
                             dfgnn__ref_beta(problem, args) / norms),
                   2 * dfgnn__ref_norm_variance(dim));
}

dfgnn_ref_number dfgnn__ref_score(const dfgnn_problem *problem,
                                  const dfgnn_args *args,
                                  const dfgnn_ref_edge *loaded, int64_t row,
                                  int64_t column, int64_t edge, int64_t head) {
  /* Scores may pass through memory in 16 bits. */
  double narrow = dfgnn__term_roundoff(problem);
  dfgnn_op op = problem->op;
  int rounded = op == DFGNN_OP_GATV2 || dfgnn__ref_edge_keys(problem);
  dfgnn_ref_number score =
      op == DFGNN_OP_GT     ? transformer(problem, args, loaded)
      : op == DFGNN_OP_AGNN ? cosine(problem, args, loaded)
      : op == DFGNN_OP_GAT  ? additive(problem, args, row, column, edge, head)
                            : gatv2(problem, args, loaded);
  score = num_round(score, narrow + (rounded ? 0 : SCORE_ROUNDINGS));
  if (!problem->bias)
    return score;
  double bias =
      dfgnn__ref_scalar(problem, args->bias, edge * problem->heads + head);
  return num_round(num_add(score, num_of(bias)), 1);
}

dfgnn_ref_number dfgnn__ref_exp(const dfgnn_problem *problem,
                                dfgnn_ref_number score, double shift) {
  double x = score.value - shift, p = exp(x);
  double narrow = 2 * dfgnn__term_roundoff(problem);
  if (p == 0)
    return num_of(0);
  return num_map(num_err(score, square(2 * score.value) + square(2 * shift) +
                                    square(2 * x) + 64 + narrow),
                 p, p);
}

double dfgnn__ref_kept(const dfgnn_problem *problem, const dfgnn_args *args,
                       int64_t edge, int64_t head) {
  if (!problem->dropout)
    return 1;
  uint64_t key =
      dfgnn__dropout_key(args->seed ? *args->seed : args->seed_value);
  if (args->edge_number)
    edge = args->edge_number[edge];
  return dfgnn__dropped(key, edge, problem->heads, head,
                        dfgnn__dropout_threshold(args->dropout))
             ? 0
             : 1 / (1 - args->dropout);
}

/* The memory of a thread. */
typedef struct scratch {
  dfgnn_ref_edge rows;
  dfgnn_ref_sum out;
  dfgnn_ref_sum edges; /* the weighted sum of edge features */
  double *weights;     /* [max_degree] not yet divided by their sum */
  double *variance;    /* [max_degree] of these weights */
  int32_t *order;      /* a row of the matrix, sorted */
} scratch;

static size_t scratch_numbers(const dfgnn_problem *problem, int64_t degree) {
  return (size_t)(dfgnn__ref_edge_numbers(problem) + 2 * degree) +
         dfgnn__ref_sum_numbers(problem->dim) +
         dfgnn__ref_sum_numbers(dfgnn__ref_edge_features(problem));
}

static scratch scratch_in(double *memory, int32_t *order,
                          const dfgnn_problem *problem, int64_t degree,
                          int bounds) {
  scratch s = {.rows = dfgnn__ref_edge_in(&memory, problem), .order = order};
  s.out = dfgnn__ref_sum_in(&memory, problem->dim, bounds);
  s.edges = dfgnn__ref_sum_in(&memory, s.rows.features, bounds);
  s.weights = dfgnn__ref_take(&memory, degree);
  s.variance = dfgnn__ref_take(&memory, degree);
  return s;
}

/* The sum of the exponentials of a row, and its relative variance. */
typedef struct normalizer {
  double maximum, sum;
  double fixed; /* the variance of the terms, over the square of the sum */
  dfgnn_ref_row repeated;
} normalizer;

static normalizer exponentials(const dfgnn_problem *problem,
                               const dfgnn_matrix *matrix,
                               const dfgnn_args *args, const scratch *s,
                               int64_t row, int64_t head) {
  int64_t begin = dfgnn__ref_offset(matrix, row);
  int64_t count = dfgnn__ref_offset(matrix, row + 1) - begin;
  const int32_t *indices = matrix->indices + begin;
  normalizer n = {-INFINITY, 0, 0,
                  dfgnn__ref_row(indices, count, s->order, s->out.bounds)};
  for (int64_t k = 0; k < count; k++) {
    dfgnn__ref_load_source(&s->rows, problem, args, indices[k], head);
    dfgnn__ref_load_edge(&s->rows, problem, args, begin + k, head);
    dfgnn_ref_number score = dfgnn__ref_score(problem, args, &s->rows, row,
                                              indices[k], begin + k, head);
    s->weights[k] = score.value;
    s->variance[k] = score.variance;
    if (score.value > n.maximum || score.value != score.value)
      n.maximum = score.value; /* a NaN stays: nothing is greater than it */
  }
  if (n.maximum == -INFINITY) {
    memset(s->weights, 0, (size_t)count * sizeof *s->weights);
    return n;
  }
  for (int64_t k = 0; k < count; k++) {
    dfgnn_ref_number score = {s->weights[k], s->variance[k]};
    dfgnn_ref_number p = dfgnn__ref_exp(problem, score, n.maximum);
    s->weights[k] = p.value;
    n.sum += p.value;
    if (!s->out.bounds || p.value == 0)
      continue;
    s->variance[k] = p.variance + dfgnn__ref_subnormal(problem);
    n.fixed += s->variance[k] * dfgnn__ref_repeats(&n.repeated, indices[k]);
  }
  n.fixed /= n.sum * n.sum;
  return n;
}

/* The variance of a quotient of sums; and 2 for sums that are scaled to a new
 * maximum on the way, which rounds as often as their additions do. */
#define QUOTIENT_VARIANCE 16
#define RUNNING_SUMS 2

/* Computes out, lse and weights of one row and head. */
static void attend(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                   const dfgnn_args *args, scratch *s, int64_t row,
                   int64_t head, const dfgnn_ref_result *out,
                   const dfgnn_ref_result *lse,
                   const dfgnn_ref_result *weights) {
  int64_t begin = dfgnn__ref_offset(matrix, row);
  int64_t count = dfgnn__ref_offset(matrix, row + 1) - begin;
  int64_t dim = problem->dim, heads = problem->heads;
  const int32_t *indices = matrix->indices + begin;
  dfgnn__ref_load_head(&s->rows, problem, args, head);
  dfgnn__ref_load_destination(&s->rows, problem, args, row, head);
  normalizer n = exponentials(problem, matrix, args, s, row, head);
  int empty = n.maximum == -INFINITY;
  double length = empty ? -INFINITY : n.maximum + log(n.sum);
  double repeats = RUNNING_SUMS * n.repeated.repeats;
  double divided = n.fixed + QUOTIENT_VARIANCE;
  double logarithm = 4 * length * length + 4 * n.maximum * n.maximum;

  int edges = dfgnn__ref_edge_values(problem) && !empty;
  double kept_sum = 0;
  dfgnn__ref_sum_begin(&s->out, count);
  dfgnn__ref_sum_begin(&s->edges, count);
  for (int64_t k = 0; k < count; k++) {
    double w = empty ? 0 : s->weights[k] / n.sum;
    double variance = w == 0 ? 0 : s->variance[k] / (n.sum * n.sum);
    dfgnn__ref_put(weights, k * heads, w,
                   variance + w * w * (divided + logarithm), w * w * repeats);
    double kept = empty ? 0 : dfgnn__ref_kept(problem, args, begin + k, head);
    if (kept == 0 && w == w) /* a NaN weight spoils the row, dropped or not */
      continue;
    variance *= kept * kept * dfgnn__ref_repeats(&n.repeated, indices[k]);
    dfgnn__ref_load_source(&s->rows, problem, args, indices[k], head);
    dfgnn__ref_sum_add(&s->out, k, kept * w, variance, s->rows.value);
    kept_sum += kept * w;
    if (!edges)
      continue;
    dfgnn__ref_load_edge(&s->rows, problem, args, begin + k, head);
    dfgnn__ref_sum_add(&s->edges, k, kept * w, variance, s->rows.attr);
  }
  dfgnn__ref_put(lse, 0, length, empty ? 0 : divided + logarithm,
                 empty ? 0 : repeats);
  for (int64_t d = 0; d < dim; d++) {
    double x = s->out.value[d], fixed = dfgnn__ref_sum_fixed(&s->out, d);
    double summed = dfgnn__ref_sum_summed(&s->out, d, repeats);
    if (edges) {
      dfgnn_ref_part p =
          dfgnn__ref_project(problem, &s->rows, &s->edges, d, repeats);
      double constant = s->rows.bias[d] * kept_sum;
      x += p.value + constant;
      fixed += p.fixed + (4 + divided) * constant * constant;
      summed += summed + 2 * p.summed + constant * constant * repeats;
    }
    dfgnn__ref_put(out, d, x, fixed + x * x * divided,
                   summed + x * x * repeats);
  }
}

typedef struct call {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  const dfgnn_expected *expected;
  int64_t *first; /* the number of edges of the rows before one */
} call;

static void attend_row(const void *job, double *memory, int32_t *order,
                       int64_t r) {
  const call *c = job;
  int64_t row = c->expected->rows ? c->expected->rows[r] : r;
  int64_t heads = c->problem->heads;
  dfgnn_ref_result out = DFGNN_REF_RESULT(c->expected, out);
  dfgnn_ref_result lse = DFGNN_REF_RESULT(c->expected, lse);
  dfgnn_ref_result weights = DFGNN_REF_RESULT(c->expected, weights);
  scratch s = scratch_in(memory, order, c->problem, c->matrix->max_degree,
                         c->expected->bounds);
  for (int64_t h = 0; h < heads; h++) {
    int64_t at = r * heads + h;
    dfgnn_ref_result to = dfgnn__ref_result_at(&out, at * c->problem->dim);
    dfgnn_ref_result length = dfgnn__ref_result_at(&lse, at);
    dfgnn_ref_result w =
        dfgnn__ref_result_at(&weights, c->first[r] * heads + h);
    attend(c->problem, c->matrix, c->args, &s, row, h, &to, &length, &w);
  }
}

dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected) {
  call c = {problem, matrix, args, expected,
            dfgnn__ref_first_edges(matrix, expected)};
  const dfgnn_ref_walk walk = {
      .count = expected->row_count,
      .work = c.first
                  ? c.first[expected->row_count] * problem->heads * problem->dim
                  : 0,
      .numbers = scratch_numbers(problem, matrix->max_degree),
      .degree = matrix->max_degree,
      .visit = attend_row};
  dfgnn_status status =
      c.first ? dfgnn__ref_walk(&walk, &c)
              : dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
  free(c.first);
  return status;
}
