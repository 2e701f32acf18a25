/* attention_forward.c - float64 forward attention, row by row, by the formulas
 */
#include <math.h>
#include <string.h>

#include "kernels/reference/attention.h"

typedef struct walk {
  dfgnn_ref_thread of;
  const dfgnn_problem *problem;
  dfgnn_ref_edge at;
  dfgnn_ref_edges edges; /* of the row */
  dfgnn_ref_sum out;
  dfgnn_ref_sum attr; /* the weighted sum of edge features */
  number *weights;    /* [max_degree] not yet divided by their sum */
} walk;

static void begin(void *thread, dfgnn_ref_memory *memory) {
  walk *w = thread;
  const dfgnn_ref_call *c = w->of.call;
  const int bounds = c->expected->bounds;
  w->problem = c->problem;
  w->at = dfgnn__ref_edge_in(memory, c->problem, c->args);
  w->out = dfgnn__ref_sum_in(memory, c->problem->dim, bounds);
  w->attr = dfgnn__ref_sum_in(memory, w->at.features, bounds);
  w->weights = dfgnn__ref_numbers(memory, c->matrix->max_degree);
}

static void at_edge(walk *w, int64_t k) {
  dfgnn__ref_at_source(&w->at, w->edges.indices[k]);
  dfgnn__ref_at_edge(&w->at, w->edges.begin + k);
}

/* The sum of the exponentials of a row. */
typedef struct normalizer {
  double maximum, sum;
  number one; /* the sum over itself: 1, with its relative errors */
} normalizer;

/* The variance of a quotient of sums; and 2 for sums that are scaled to a new
 * maximum on the way, which rounds as often as their additions do. */
#define QUOTIENT_VARIANCE 16
#define RUNNING_SUMS 2

/* Leaves the exponentials of a row's scores in w->weights. */
static normalizer exponentials(walk *w) {
  const dfgnn_ref_edges *e = &w->edges;
  normalizer n = {.maximum = -INFINITY};
  double errors = 0, subnormal = dfgnn__ref_subnormal(w->problem);
  for (int64_t k = 0; k < e->count; k++) {
    at_edge(w, k);
    number score = w->weights[k] = dfgnn__ref_score(&w->at);
    if (score.value > n.maximum || score.value != score.value)
      n.maximum = score.value; /* a NaN stays: nothing is greater than it */
  }
  if (n.maximum == -INFINITY) {
    memset(w->weights, 0, (size_t)e->count * sizeof *w->weights);
    return n;
  }
  for (int64_t k = 0; k < e->count; k++) {
    number p = dfgnn__ref_exp(&w->at, w->weights[k], n.maximum);
    w->weights[k] = p.value == 0 ? p : num_err(p, subnormal);
    n.sum += p.value;
    errors += w->weights[k].fixed * dfgnn__ref_repeats(e, k);
  }
  n.one = (number){1, errors / (n.sum * n.sum) + QUOTIENT_VARIANCE,
                   RUNNING_SUMS * e->repeats, 0};
  return n;
}

/* Number d of the sum of w (v + W e + b); kept: the sum of w. */
static number average(const walk *w, const normalizer *n, int64_t d,
                      double kept) {
  number x = dfgnn__ref_sum_number(&w->out, d, n->one.summed);
  if (!dfgnn__ref_edge_values(w->problem) || n->maximum == -INFINITY)
    return x;
  number constant = num_round(num_of(w->at.bias[d] * kept), 4);
  x = num_add(x, dfgnn__ref_project(&w->at, &w->attr, d, n->one.summed));
  x.summed *= 2; /* the sum of two sums */
  return num_add(x, num_times(constant, n->one));
}

/* Computes out, lse and weights of one row and head. */
static void attend(walk *w, const dfgnn_ref_result *out,
                   const dfgnn_ref_result *lse,
                   const dfgnn_ref_result *weights) {
  const dfgnn_problem *problem = w->problem;
  const dfgnn_ref_edges *e = &w->edges;
  normalizer n = exponentials(w);
  int empty = n.maximum == -INFINITY;
  number length = n.one; /* its errors are those of 1, relatively */
  length.value = empty ? -INFINITY : n.maximum + log(n.sum);
  if (!empty)
    length.fixed += 4 * square(length.value) + 4 * square(n.maximum);

  double kept_sum = 0;
  dfgnn__ref_sum_begin(&w->out, e->count);
  dfgnn__ref_sum_begin(&w->attr, e->count);
  for (int64_t k = 0; k < e->count; k++) {
    number p = empty ? num_of(0) : num_scale(w->weights[k], 1 / n.sum);
    dfgnn__ref_put(weights, k * problem->heads, num_times(p, length));
    w->at.edge = e->begin + k;
    double kept = empty ? 0 : dfgnn__ref_kept(&w->at);
    if (kept == 0 && p.value == p.value)
      continue; /* a NaN weight spoils the row, dropped or not */
    p = num_scale(p, kept);
    kept_sum += p.value;
    p = num_repeat(p, dfgnn__ref_repeats(e, k));
    at_edge(w, k);
    sum_add(&w->out, k, p, w->at.value);
    if (dfgnn__ref_edge_values(problem))
      sum_add(&w->attr, k, p, w->at.attr);
  }
  dfgnn__ref_put(lse, 0, length);
  for (int64_t d = 0; d < problem->dim; d++)
    dfgnn__ref_put(out, d, num_times(average(w, &n, d, kept_sum), n.one));
}

static void visit(void *thread, int64_t r, int64_t row) {
  walk *w = thread;
  const dfgnn_ref_call *c = w->of.call;
  const dfgnn_expected *to = c->expected;
  const int64_t heads = w->problem->heads, dim = w->problem->dim;
  w->edges = dfgnn__ref_edges(c->matrix, row, w->of.order, to->bounds);
  for (int64_t h = 0; h < heads; h++) {
    int64_t at = r * heads + h;
    dfgnn_ref_result out = DFGNN_REF_RESULT(to, out, at * dim);
    dfgnn_ref_result lse = DFGNN_REF_RESULT(to, lse, at);
    dfgnn_ref_result weights =
        DFGNN_REF_RESULT(to, weights, c->first[r] * heads + h);
    dfgnn__ref_at_head(&w->at, h);
    dfgnn__ref_at_destination(&w->at, row);
    attend(w, &out, &lse, &weights);
  }
}

dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected) {
  dfgnn_ref_call c = dfgnn__ref_call(problem, matrix, args, expected);
  if (problem->pass == DFGNN_PASS_FORWARD)
    dfgnn__ref_walk(&(dfgnn_ref_walk){.thread = sizeof(walk),
                                      .begin = begin,
                                      .visit = visit},
                    &c);
  else
    dfgnn__ref_attend_backward(&c);
  return dfgnn__ref_end(&c);
}
