/* forward.c - float64 forward attention, row by row, by the formulas */
#include "kernels/attention/reference/attention.h"

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

static double square(double x) { return x * x; }

double dfgnn__ref_subnormal(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F16 ? 0.25 : 0;
}

/* The roundings of a product of two rows and of the factors of a score. */
#define SCORE_ROUNDINGS 9

/* The product of the two rows of an edge, times a factor. */
static dfgnn_ref_number scaled_product(const dfgnn_problem *problem,
                                       const double *a, const double *b,
                                       double factor) {
  dfgnn_ref_product p = dfgnn__ref_product(a, b, problem->dim);
  double narrow = 2 * dfgnn__term_roundoff(problem) * p.square;
  return (dfgnn_ref_number){
      factor * p.value, square(factor) * (p.variance + narrow +
                                          SCORE_ROUNDINGS * square(p.value))};
}

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
  double score = leaky_relu(x, args->slope);
  return (dfgnn_ref_number){
      score, SCORE_ROUNDINGS * square(score) +
                 (problem->edge_dim ? square(x - c) + square(c) : 0)};
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
  dfgnn_ref_number score =
      scaled_product(problem, e->destination, e->key, args->scale);
  if (dfgnn__ref_edge_keys(problem)) {
    dfgnn_ref_number more = dfgnn__ref_edge_product(problem, e, e->destination);
    score.variance += square(args->scale) * more.variance +
                      square(score.value) +
                      SCORE_ROUNDINGS * square(args->scale * more.value);
    score.value += args->scale * more.value;
  }
  if (problem->qk_norm) {
    dfgnn_ref_product p =
        dfgnn__ref_product(e->destination, e->key, problem->dim);
    double error = dfgnn__ref_norm_error(problem), along[2] = {0, 0};
    for (int64_t d = 0; d < problem->dim; d++) {
      double edge = dfgnn__ref_edge_keys(problem) ? e->projected[d] : 0;
      along[0] += e->norm_weight[0][d] * (e->key[d] + edge);
      along[1] += e->norm_weight[1][d] * e->destination[d];
    }
    for (int side = 0; side < 2; side++)
      score.variance += square(args->scale * along[side] *
                               dfgnn__ref_mean_error(problem, e, side));
    score.variance +=
        error * square(score.value) + 4 * square(args->scale) * p.square;
  }
  return score;
}

static dfgnn_ref_number plain_score(const dfgnn_problem *problem,
                                    const dfgnn_args *args,
                                    const dfgnn_ref_edge *e, int64_t row,
                                    int64_t column, int64_t edge,
                                    int64_t head) {
  int64_t dim = problem->dim;
  switch (problem->op) {
  case DFGNN_OP_GT:
    return transformer(problem, args, e);
  case DFGNN_OP_AGNN: {
    double factor =
        dfgnn__ref_beta(problem, args) /
        (dfgnn__ref_norm(e->destination, dim) * dfgnn__ref_norm(e->value, dim));
    dfgnn_ref_number score =
        scaled_product(problem, e->destination, e->value, factor);
    score.variance += 2 * dfgnn__ref_norm_variance(dim) * square(score.value);
    return score;
  }
  case DFGNN_OP_GAT:
    return additive(problem, args, row, column, edge, head);
  default: /* DFGNN_OP_GATV2 */
    return gatv2(problem, args, e);
  }
}

dfgnn_ref_number dfgnn__ref_score(const dfgnn_problem *problem,
                                  const dfgnn_args *args,
                                  const dfgnn_ref_edge *loaded, int64_t row,
                                  int64_t column, int64_t edge, int64_t head) {
  dfgnn_ref_number score =
      plain_score(problem, args, loaded, row, column, edge, head);
  /* Scores may pass through memory in 16 bits. */
  score.variance += dfgnn__term_roundoff(problem) * square(score.value);
  if (problem->bias) {
    score.value +=
        dfgnn__ref_scalar(problem, args->bias, edge * problem->heads + head);
    score.variance += square(score.value);
  }
  return score;
}

double dfgnn__ref_exp_variance(const dfgnn_problem *problem,
                               const dfgnn_ref_number *score, double shift) {
  return score->variance + square(2 * score->value) + square(2 * shift) +
         square(2 * (score->value - shift)) + 64 +
         2 * dfgnn__term_roundoff(problem);
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
  double *buffer;
  dfgnn_ref_edge rows;
  dfgnn_ref_sum out;
  dfgnn_ref_sum edges; /* the weighted sum of edge features */
  double *weights;     /* [max_degree] not yet divided by their sum */
  double *variance;    /* [max_degree] of these weights */
  double *mean_key;    /* [dim] the weighted mean of k + W e */
  int32_t *order;      /* a row of the matrix, sorted */
} scratch;

static size_t scratch_numbers(const dfgnn_problem *problem, int64_t degree) {
  return (size_t)(dfgnn__ref_edge_numbers(problem) + 2 * degree +
                  problem->dim) +
         dfgnn__ref_sum_numbers(problem->dim) +
         dfgnn__ref_sum_numbers(dfgnn__ref_edge_features(problem));
}

static scratch scratch_in(double *buffer, const dfgnn_problem *problem,
                          int64_t degree, int bounds) {
  double *weights = buffer + dfgnn__ref_edge_numbers(problem);
  double *mean_key = weights + 2 * degree, *sums = mean_key + problem->dim;
  dfgnn_ref_edge rows = dfgnn__ref_edge_in(buffer, problem);
  return (scratch){
      .buffer = buffer,
      .rows = rows,
      .out = dfgnn__ref_sum_in(sums, problem->dim, bounds),
      .edges = dfgnn__ref_sum_in(sums + dfgnn__ref_sum_numbers(problem->dim),
                                 rows.features, bounds),
      .weights = weights,
      .variance = weights + degree,
      .mean_key = mean_key};
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
  normalizer n = {-INFINITY, 0, 0, {NULL, count, 1}};
  if (s->out.bounds)
    n.repeated = dfgnn__ref_row(indices, count, s->order);
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
    double p = s->weights[k] = exp(score.value - n.maximum);
    n.sum += p;
    if (!s->out.bounds || p == 0)
      continue;
    s->variance[k] =
        p * p * dfgnn__ref_exp_variance(problem, &score, n.maximum) +
        dfgnn__ref_subnormal(problem);
    n.fixed += s->variance[k] * dfgnn__ref_repeats(&n.repeated, indices[k]);
  }
  n.fixed /= n.sum * n.sum;
  return n;
}

/* The variance of a quotient of sums; and 2 for sums that are scaled to a new
 * maximum on the way, which rounds as often as their additions do. */
#define QUOTIENT_VARIANCE 16
#define RUNNING_SUMS 2

/* A kernel may round a normalised query to 16 bits before the edges of its row
 * read it: then their scores share an error along the mean key. */
static void add_mean_key(const dfgnn_problem *problem, scratch *s,
                         double weight) {
  for (int64_t d = 0; d < problem->dim; d++)
    s->mean_key[d] +=
        weight * (s->rows.key[d] +
                  (dfgnn__ref_edge_keys(problem) ? s->rows.projected[d] : 0));
}

static double shared_variance(const dfgnn_problem *problem,
                              const dfgnn_args *args, const scratch *s) {
  double sum = 0;
  for (int64_t d = 0; d < problem->dim; d++)
    sum += square(args->scale * s->rows.destination[d] * s->mean_key[d]);
  return dfgnn__term_roundoff(problem) * sum;
}

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

  int shared = problem->qk_norm && s->out.bounds && !empty;
  int edges = dfgnn__ref_edge_values(problem) && !empty;
  double kept_sum = 0;
  dfgnn__ref_sum_begin(&s->out, count);
  dfgnn__ref_sum_begin(&s->edges, count);
  memset(s->mean_key, 0, (size_t)dim * sizeof *s->mean_key);
  for (int64_t k = 0; k < count; k++) {
    double w = empty ? 0 : s->weights[k] / n.sum;
    double variance = w == 0 ? 0 : s->variance[k] / (n.sum * n.sum);
    dfgnn__ref_put(weights, k * heads, w,
                   variance + w * w * (divided + logarithm), w * w * repeats);
    if (shared) {
      dfgnn__ref_load_source(&s->rows, problem, args, indices[k], head);
      dfgnn__ref_load_edge(&s->rows, problem, args, begin + k, head);
      add_mean_key(problem, s, w);
    }
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
  double common = shared ? shared_variance(problem, args, s) : 0;
  dfgnn__ref_put(lse, 0, length, empty ? 0 : divided + logarithm + common,
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

dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  int64_t count = expected->row_count, degree = matrix->max_degree;
  int64_t *first = dfgnn__ref_first_edges(matrix, expected);
  dfgnn_ref_result out = DFGNN_REF_RESULT(expected, out);
  dfgnn_ref_result lse = DFGNN_REF_RESULT(expected, lse);
  dfgnn_ref_result weights = DFGNN_REF_RESULT(expected, weights);
  int failed = first == NULL;

  if (!failed) {
    /* A small problem is not worth waking threads for. */
#pragma omp parallel reduction(|                                               \
                               : failed) if (first[count] * heads * dim >      \
                                             50000)
    {
      double *buffer =
          malloc((scratch_numbers(problem, degree) + 1) * sizeof *buffer);
      int32_t *order = malloc((size_t)(degree + 1) * sizeof *order);
      int ready = buffer && order;
      failed |= !ready;
      scratch s = {.buffer = NULL};
      if (ready)
        s = scratch_in(buffer, problem, degree, expected->bounds);
      s.order = order;
#pragma omp for schedule(dynamic, 16)
      for (int64_t r = 0; r < count; r++)
        for (int64_t h = 0; h < heads && ready; h++) {
          int64_t at = r * heads + h;
          dfgnn_ref_result to = dfgnn__ref_result_at(&out, at * dim);
          dfgnn_ref_result length = dfgnn__ref_result_at(&lse, at);
          dfgnn_ref_result w =
              dfgnn__ref_result_at(&weights, first[r] * heads + h);
          attend(problem, matrix, args, &s,
                 expected->rows ? expected->rows[r] : r, h, &to, &length, &w);
        }
      free(order);
      free(buffer);
    }
  }
  free(first);
  if (failed)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
  return DFGNN_OK;
}

/* ---- the same as a variant ---------------------------------------------- */

/* The scratch, then out, lse and the weights of a row. */
static size_t workspace(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  int64_t degree = setting->matrix->max_degree;
  return (scratch_numbers(problem, degree) +
          (size_t)(problem->dim + 1 + degree * problem->heads)) *
         sizeof(double);
}

/* One thread: the registry's yardstick need not be quick. */
static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  int64_t dim = problem->dim, heads = problem->heads;
  int64_t degree = matrix->max_degree;
  double *buffer = launch->workspace;
  double *row = buffer + scratch_numbers(problem, degree);
  scratch s = scratch_in(buffer, problem, degree, 0);
  const dfgnn_ref_result out = {.value = row}, lse = {.value = row + dim};

  for (int64_t i = 0; i < matrix->destinations; i++)
    for (int64_t h = 0; h < heads; h++) {
      int64_t begin = dfgnn__ref_offset(matrix, i);
      int64_t end = dfgnn__ref_offset(matrix, i + 1);
      const dfgnn_ref_result weights = {.value = row + dim + 1 + h};
      attend(problem, matrix, args, &s, i, h, &out, &lse, &weights);
      dfgnn__ref_store(problem, args->out, &args->out_strides, i, h, out.value);
      if (args->lse)
        dfgnn__ref_set_scalar(problem, args->lse, i * heads + h, *lse.value);
      for (int64_t e = begin; problem->weights && e < end; e++)
        dfgnn__ref_set_scalar(problem, args->weights, e * heads + h,
                              weights.value[(e - begin) * heads]);
    }
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_reference_forward) = {
    {
        .name = "cpu.attention.fwd.reference",
        .algorithm = "reference",
        .backend = "cpu",
        .ops = DFGNN_OPS_ATTENTION,
        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 1,
        .deterministic = 1,
        .weights = 1,
        .bias = 1,
        .dropout = 1,
        .edge_ops = DFGNN_OPS_ATTENTION,
        .qk_norm = 1,
        .reference = 1,
        .workspace = workspace,
        .launch = launch,
    },
    DFGNN_FAMILIES_END,
};
