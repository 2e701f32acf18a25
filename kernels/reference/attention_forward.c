/* attention_forward.c - float64 forward attention, row by row, by the formulas
 */
#include "kernels/reference/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/accuracy.h"
#include "kernels/common/dropout.h"
#include "lib/base/error.h"

typedef dfgnn_ref_number number;

double dfgnn__ref_subnormal(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F16 ? 0.25 : 0;
}

dfgnn_ref_number dfgnn__ref_exp(const dfgnn_problem *problem,
                                dfgnn_ref_number score, double shift) {
  return num_exp(score, shift, 2 * dfgnn__term_roundoff(problem));
}

double dfgnn__ref_kept(const dfgnn_problem *problem, const dfgnn_args *args,
                       const dfgnn_ref_place *at) {
  if (!problem->dropout)
    return 1;
  uint64_t key =
      dfgnn__dropout_key(args->seed ? *args->seed : args->seed_value);
  int64_t edge = args->edge_number ? args->edge_number[at->edge] : at->edge;
  return dfgnn__dropped(key, edge, problem->heads, at->head,
                        dfgnn__dropout_threshold(args->dropout))
             ? 0
             : 1 / (1 - args->dropout);
}

typedef struct call {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  const dfgnn_expected *expected;
  int64_t *first; /* the number of edges of the rows before one */
} call;

/* The memory of a thread. */
typedef struct scratch {
  dfgnn_ref_edge rows;
  dfgnn_ref_sum out;
  dfgnn_ref_sum edges; /* the weighted sum of edge features */
  number *weights;     /* [max_degree] not yet divided by their sum */
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
  s.weights = (number *)dfgnn__ref_take(&memory, 2 * degree);
  return s;
}

static void load_edge(const call *c, const scratch *s,
                      const dfgnn_ref_place *at) {
  dfgnn__ref_load_source(&s->rows, c->problem, c->args, at->column, at->head);
  dfgnn__ref_load_edge(&s->rows, c->problem, c->args, at->edge, at->head);
}

/* The sum of the exponentials of a row. */
typedef struct normalizer {
  double maximum, sum;
  dfgnn_ref_part one; /* the sum over itself: 1, with its relative errors */
  dfgnn_ref_row repeated;
} normalizer;

/* The variance of a quotient of sums; and 2 for sums that are scaled to a new
 * maximum on the way, which rounds as often as their additions do. */
#define QUOTIENT_VARIANCE 16
#define RUNNING_SUMS 2

/* Leaves the exponentials of a row's scores in s->weights. */
static normalizer exponentials(const call *c, const scratch *s, int64_t row,
                               int64_t head) {
  int64_t begin = dfgnn__offset_at(c->matrix, row);
  int64_t count = dfgnn__offset_at(c->matrix, row + 1) - begin;
  const int32_t *indices = c->matrix->indices + begin;
  normalizer n = {.maximum = -INFINITY,
                  .repeated =
                      dfgnn__ref_row(indices, count, s->order, s->out.bounds)};
  double errors = 0, subnormal = dfgnn__ref_subnormal(c->problem);
  for (int64_t k = 0; k < count; k++) {
    const dfgnn_ref_place at = {row, indices[k], begin + k, head};
    load_edge(c, s, &at);
    number score = dfgnn__ref_score(c->problem, c->args, &s->rows, &at);
    s->weights[k] = score;
    if (score.value > n.maximum || score.value != score.value)
      n.maximum = score.value; /* a NaN stays: nothing is greater than it */
  }
  if (n.maximum == -INFINITY) {
    memset(s->weights, 0, (size_t)count * sizeof *s->weights);
    return n;
  }
  for (int64_t k = 0; k < count; k++) {
    number p = dfgnn__ref_exp(c->problem, s->weights[k], n.maximum);
    s->weights[k] = p.value == 0 ? p : num_err(p, subnormal);
    n.sum += p.value;
    errors +=
        s->weights[k].variance * dfgnn__ref_repeats(&n.repeated, indices[k]);
  }
  n.one = (dfgnn_ref_part){1, errors / (n.sum * n.sum) + QUOTIENT_VARIANCE,
                           RUNNING_SUMS * n.repeated.repeats};
  return n;
}

/* Number d of the sum of w (v + W e + b); kept: the sum of w. */
static dfgnn_ref_part average(const call *c, const scratch *s,
                              const normalizer *n, int64_t d, double kept) {
  dfgnn_ref_part x = part_of(&s->out, d, n->one.summed);
  if (!dfgnn__ref_edge_values(c->problem) || n->maximum == -INFINITY)
    return x;
  number constant = num_round(num_of(s->rows.bias[d] * kept), 4);
  x = part_add(
      x, dfgnn__ref_project(c->problem, &s->rows, &s->edges, d, n->one.summed));
  x.summed *= 2; /* the sum of two sums */
  return part_add(x, part_times(num_part(constant), n->one));
}

/* Computes out, lse and weights of one row and head. */
static void attend(const call *c, scratch *s, int64_t row, int64_t head,
                   const dfgnn_ref_result *out, const dfgnn_ref_result *lse,
                   const dfgnn_ref_result *weights) {
  int64_t begin = dfgnn__offset_at(c->matrix, row);
  int64_t count = dfgnn__offset_at(c->matrix, row + 1) - begin;
  const int32_t *indices = c->matrix->indices + begin;
  dfgnn__ref_load_head(&s->rows, c->problem, c->args, head);
  dfgnn__ref_load_destination(&s->rows, c->problem, c->args, row, head);
  normalizer n = exponentials(c, s, row, head);
  int empty = n.maximum == -INFINITY;
  dfgnn_ref_part length = n.one; /* its errors are those of 1, relatively */
  length.value = empty ? -INFINITY : n.maximum + log(n.sum);
  if (!empty)
    length.fixed += 4 * square(length.value) + 4 * square(n.maximum);

  double kept_sum = 0;
  dfgnn__ref_sum_begin(&s->out, count);
  dfgnn__ref_sum_begin(&s->edges, count);
  for (int64_t k = 0; k < count; k++) {
    const dfgnn_ref_place at = {row, indices[k], begin + k, head};
    number w = empty ? num_of(0) : num_scale(s->weights[k], 1 / n.sum);
    part_put(weights, k * c->problem->heads, part_times(num_part(w), length));
    double kept = empty ? 0 : dfgnn__ref_kept(c->problem, c->args, &at);
    if (kept == 0 && w.value == w.value)
      continue; /* a NaN weight spoils the row, dropped or not */
    double repeats = dfgnn__ref_repeats(&n.repeated, indices[k]);
    w = num_scale(w, kept);
    kept_sum += w.value;
    load_edge(c, s, &at);
    sum_add(&s->out, k, w, repeats, s->rows.value);
    if (dfgnn__ref_edge_values(c->problem))
      sum_add(&s->edges, k, w, repeats, s->rows.attr);
  }
  part_put(lse, 0, length);
  for (int64_t d = 0; d < c->problem->dim; d++)
    part_put(out, d, part_times(average(c, s, &n, d, kept_sum), n.one));
}

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
    attend(c, &s, row, h, &to, &length, &w);
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
