/* attention_backward.c - float64 gradients of attention, by the formulas
 *
 * With P = softmax(s) = exp(s - lse), the factor r of dropout (0 or
 * 1 / (1 - p)) and delta_i = <dO_i, O_i>:
 *
 *     dP_ij = r_ij <dO_i, v_j>
 *     dS_ij = P_ij (dP_ij - delta_i)
 *     dv_j += P_ij r_ij dO_i
 *
 * and dS goes on into the tensors that the score reads.  A walk over the rows
 * gives the gradients of destinations and edges, a walk over the columns those
 * of sources. */
#include <math.h>
#include <string.h>

#include "kernels/reference/attention_walk.h"

typedef dfgnn_ref_terms terms;
typedef dfgnn_ref_sums sums;
typedef dfgnn_ref_grads walk;
typedef dfgnn_ref_direction direction;

#define TERM_VARIANCE DFGNN_REF_TERM_VARIANCE

static void begin(void *thread, dfgnn_ref_memory *memory) {
  walk *w = thread;
  const dfgnn_ref_call *c = w->of.call;
  const dfgnn_problem *problem = c->problem;
  const int bounds = c->expected->bounds;
  const int64_t dim = problem->dim;
  double **vectors[] = {&w->grad_out, &w->out, &w->direction, &w->along,
                        &w->jump};
  w->problem = problem;
  w->args = c->args;
  w->bounds = bounds;
  w->at = dfgnn__ref_edge_in(memory, problem, c->args);
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
    *vectors[i] = dfgnn__ref_take(memory, dim);
  w->sums.values = dfgnn__ref_sum_in(memory, dim, bounds);
  w->sums.along = dfgnn__ref_sum_in(
      memory, DFGNN_HAS_SCALARS(problem->op) ? 1 : dim, bounds);
  w->sums.cosine = dfgnn__ref_sum_in(memory, 1, bounds);
  w->sums.edges = dfgnn__ref_sum_in(memory, w->at.features, bounds);
  w->sums.scores = dfgnn__ref_sum_in(memory, 1, bounds);
  for (int i = 0; i < 3 && !c->by_source; i++)
    w->edge[i] = dfgnn__ref_take(memory, c->matrix->max_degree *
                                             dfgnn__ref_edge_width(&w->at));
}

static void at_destination(walk *w, int64_t row) {
  const dfgnn_args *args = w->args;
  const dfgnn_problem *p = w->problem;
  const dfgnn_matrix *matrix = w->of.call->matrix;
  const int64_t head = w->at.head, at = row * p->heads + head;
  dfgnn__ref_at_destination(&w->at, row);
  dfgnn__ref_load(w->grad_out, p, args->grad_out, &args->grad_out_strides, row,
                  head);
  dfgnn__ref_load(w->out, p, args->out, &args->out_strides, row, head);
  w->lse = dfgnn__ref_scalar(p, args->lse, at);
  if (dfgnn__offset_at(matrix, row) == dfgnn__offset_at(matrix, row + 1)) {
    w->delta = num_of(0); /* no edge reads it */
    return;
  }
  /* A kernel may sum delta from P and dP, which differs from <dO, out> by the
   * rounding of out. */
  w->delta = num_dot(w->grad_out, w->out, p->dim, 1 + w->at.narrow);
  if (args->grad_lse)
    w->delta.value -= dfgnn__ref_scalar(p, args->grad_lse, at);
  w->delta = num_round(w->delta, 4);
}

static terms edge_terms(const walk *w) {
  const dfgnn_problem *problem = w->problem;
  if (w->lse == -INFINITY) /* no edge of the row has a weight */
    return (terms){num_of(0), num_of(0)};
  double narrow = w->at.narrow, in_memory = dfgnn__ref_subnormal(problem);
  double kept = dfgnn__ref_kept(&w->at);
  number p = dfgnn__ref_exp(&w->at, dfgnn__ref_score(&w->at), w->lse);
  number product = num_dot(w->grad_out, w->at.value, problem->dim, 2 * narrow);
  if (dfgnn__ref_edge_values(problem))
    product = num_round(
        num_add(product, dfgnn__ref_edge_product(&w->at, w->grad_out)), 1);
  number dp = num_round(num_scale(product, kept), 1);
  number ds = num_mul(p, num_add(dp, num_of(-w->delta.value)));
  number weight = num_scale(p, kept);
  if (p.value == 0)
    return (terms){num_of(weight.value), num_of(ds.value)};
  ds.shared = p.value;
  return (terms){num_err(num_round(weight, TERM_VARIANCE), in_memory),
                 num_err(num_round(ds, TERM_VARIANCE + narrow), in_memory)};
}

/* ---- sums ---------------------------------------------------------------- */

static void begin_sums(walk *w, int64_t terms) {
  sums *s = &w->sums;
  dfgnn__ref_sum_begin(&s->values, terms);
  dfgnn__ref_sum_begin(&s->along, terms);
  dfgnn__ref_sum_begin(&s->cosine, terms);
  dfgnn__ref_sum_begin(&s->edges, terms);
  dfgnn__ref_sum_begin(&s->scores, terms);
}

/* repeats: how often the edge stands in its row. */
static void add_score(walk *w, number score, const direction *to, int64_t k,
                      double repeats) {
  sums *s = &w->sums;
  sum_add(&s->along, k, num_repeat(num_round(score, to->variance), repeats),
          w->direction);
  for (int64_t d = 0; w->bounds && d < s->along.width; d++)
    s->along.spread[d] += repeats * square(score.value * w->jump[d]);
  if (DFGNN_HAS_NORMS(w->problem->op))
    sum_add_one(&s->cosine, 0, k,
                num_repeat(num_mul(score, to->cosine), repeats));
}

/* The part along x, which the gradient of x / |x| leaves out (AGNN).  A kernel
 * may take it from the cosine of every edge, or from the sums: it is
 * x <x, along> / |x|^2. */
typedef struct projection {
  const double *x;
  double norm;
  number along; /* the error of <x, along> / |x| */
} projection;

static projection project(const walk *w, const double *x, double repeats) {
  const dfgnn_ref_sum *along = &w->sums.along;
  int64_t dim = w->problem->dim;
  projection p = {x, dfgnn__ref_norm(x, dim), num_of(0)};
  for (int64_t d = 0; d < dim; d++)
    p.along =
        num_add(p.along, num_scale(dfgnn__ref_sum_number(along, d, repeats),
                                   x[d] / p.norm));
  p.along.value = p.along.shared = 0;
  p.along.fixed += num_dot(x, along->value, dim, 0).fixed / square(p.norm);
  return p;
}

/* The part of the query's gradient that goes through the edge features of keys:
 * W times the sum of dS scale e, and b times the sum of dS scale. */
static number edge_part(const walk *w, int64_t d, double repeats) {
  return num_add(dfgnn__ref_project(&w->at, &w->sums.edges, d, repeats),
                 num_scale(dfgnn__ref_sum_number(&w->sums.scores, 0, repeats),
                           w->at.bias[d]));
}

static number score_part(const walk *w, const projection *p, int64_t d,
                         double repeats) {
  const sums *s = &w->sums;
  const int by_source = w->of.call->by_source;
  number r = dfgnn__ref_sum_number(&s->along, d, repeats);
  if (!by_source && dfgnn__ref_edge_keys(w->problem) && w->lse != -INFINITY) {
    r = num_add(r, edge_part(w, d, repeats));
    r.summed *= 2;
  }
  if (p) {
    double unit = p->x[d] / p->norm;
    double norms = dfgnn__ref_norms_variance(w->problem) + w->at.narrow;
    number c = num_round(dfgnn__ref_sum_number(&s->cosine, 0, repeats), norms);
    r = num_round(num_add(r, num_scale(num_add(c, p->along), -unit)), norms);
  }
  r = num_round(r, TERM_VARIANCE);
  if (!by_source)
    r.fixed += square(r.shared) * w->delta.fixed +
               4 * square(w->lse == -INFINITY ? 0 : w->lse * r.value);
  return r;
}

static void put_scores(const walk *w, const dfgnn_ref_result *to,
                       const double *x, double repeats, int with_values) {
  int cosines = DFGNN_HAS_NORMS(w->problem->op);
  projection p = {0};
  if (!to->value)
    return;
  if (cosines)
    p = project(w, x, repeats);
  for (int64_t d = 0; d < w->sums.along.width; d++) {
    number r = score_part(w, cosines ? &p : NULL, d, repeats);
    if (with_values)
      r = num_add(r, dfgnn__ref_sum_number(&w->sums.values, d, repeats));
    dfgnn__ref_put(to, d, r);
  }
}

/* ---- by destination ------------------------------------------------------ */

/* The results of a row and head. */
typedef struct row_results {
  dfgnn_ref_result query, score_dst, bias, score_edge;
} row_results;

/* Counts the error of the row's delta in the head's part of each total. */
static void settle_totals(const walk *w) {
  for (int i = 0; i < DFGNN_REF_TOTALS; i++) {
    const dfgnn_ref_sum *sum = &w->of.totals.sum[i];
    const int one = sum->width == 1; /* of beta */
    const int64_t count = one ? 1 : sum->width / w->problem->heads;
    dfgnn__ref_sum_settle(sum, one ? 0 : w->at.head * count, count,
                          w->delta.fixed);
  }
}

static void walk_row(walk *w, const dfgnn_ref_edges *e, const row_results *to) {
  const dfgnn_problem *p = w->problem;
  begin_sums(w, e->count);
  for (int64_t k = 0; k < e->count; k++) {
    dfgnn__ref_at_source(&w->at, e->indices[k]);
    dfgnn__ref_at_edge(&w->at, e->begin + k);
    terms t = edge_terms(w);
    number ds = num_settle(t.score, w->delta.fixed);
    dfgnn__ref_put(&to->bias, k * p->heads, ds);
    double repeats = dfgnn__ref_repeats(e, k);
    direction along = dfgnn__ref_find_direction(w, 0);
    if (DFGNN_HAS_SCALARS(p->op))
      dfgnn__ref_put(&to->score_edge, k * p->heads,
                     num_err(num_scale(num_round(ds, 4), *w->direction),
                             square(ds.value * *w->jump)));
    if (t.weight.value == 0 && t.score.value == 0)
      continue;
    add_score(w, t.score, &along, k, repeats);
    dfgnn__ref_add_edge(w, &t, k, repeats);
    dfgnn__ref_add_parameters(w, &t, &along, repeats);
  }
  w->of.totals.repeats += e->repeats * (double)e->count;
  settle_totals(w);
  put_scores(w, DFGNN_HAS_SCALARS(p->op) ? &to->score_dst : &to->query,
             w->at.destination, e->repeats, 0);
}

static void visit_row(void *thread, int64_t r, int64_t row) {
  walk *w = thread;
  const dfgnn_ref_call *c = w->of.call;
  const dfgnn_expected *to = c->expected;
  const int64_t heads = c->problem->heads, dim = c->problem->dim;
  const int64_t edges = c->first[r];
  dfgnn_ref_edges e = dfgnn__ref_edges(c->matrix, row, w->of.order, w->bounds);
  for (int64_t h = 0; h < heads; h++) {
    int64_t at = r * heads + h, first = edges * heads + h;
    row_results results = {
        .query = DFGNN_REF_RESULT(to, grad_query, at * dim),
        .score_dst = DFGNN_REF_RESULT(to, grad_score_dst, at),
        .bias = DFGNN_REF_RESULT(to, grad_bias, first),
        .score_edge = DFGNN_REF_RESULT(to, grad_score_edge, first)};
    dfgnn__ref_at_head(&w->at, h);
    at_destination(w, row);
    walk_row(w, &e, &results);
  }
  dfgnn_ref_result attr = DFGNN_REF_RESULT(
      to, grad_edge_attr, edges * dfgnn__ref_edge_width(&w->at));
  dfgnn__ref_put_edges(w, e.count, &attr);
}

/* ---- by source ----------------------------------------------------------- */

static void visit_column(void *thread, int64_t index, int64_t column) {
  walk *w = thread;
  const dfgnn_ref_call *c = w->of.call;
  const dfgnn_expected *to = c->expected;
  const dfgnn_op op = c->problem->op;
  const int64_t heads = c->problem->heads, dim = c->problem->dim;
  dfgnn_matrix t = dfgnn__transposed(c->matrix, to->transpose);
  dfgnn_ref_edges e = dfgnn__ref_edges(&t, column, w->of.order, w->bounds);
  for (int64_t h = 0; h < heads; h++) {
    int64_t at = index * heads + h;
    dfgnn_ref_result key = DFGNN_REF_RESULT(to, grad_key, at * dim);
    dfgnn_ref_result value = DFGNN_REF_RESULT(to, grad_value, at * dim);
    dfgnn_ref_result score_src = DFGNN_REF_RESULT(to, grad_score_src, at);
    begin_sums(w, e.count);
    dfgnn__ref_at_head(&w->at, h);
    dfgnn__ref_at_source(&w->at, column);
    for (int64_t k = 0; k < e.count; k++) {
      at_destination(w, e.indices[k]);
      dfgnn__ref_at_edge(&w->at,
                         dfgnn__ref_edge(&t, to->transpose, e.begin + k));
      terms x = edge_terms(w);
      if (x.weight.value == 0 && x.score.value == 0)
        continue;
      double repeats = dfgnn__ref_repeats(&e, k);
      sum_add(&w->sums.values, k, num_repeat(x.weight, repeats), w->grad_out);
      direction along = dfgnn__ref_find_direction(w, 1);
      /* The edges of a column bring the deltas of different rows. */
      add_score(w, num_settle(x.score, w->delta.fixed), &along, k, repeats);
    }
    if (DFGNN_HAS_QUERY(op) && !DFGNN_HAS_KEY(op)) {
      put_scores(w, &value, w->at.value, e.repeats, 1);
      continue;
    }
    dfgnn__ref_put_sum(&value, &w->sums.values, e.repeats);
    put_scores(w, DFGNN_HAS_SCALARS(op) ? &score_src : &key, NULL, e.repeats,
               0);
  }
}

/* ---- everything ---------------------------------------------------------- */

static void put_parameters(const dfgnn_ref_call *c) {
  const dfgnn_expected *to = c->expected;
  const double heads = (double)c->problem->heads;
  const double repeats = dfgnn__ref_mean_repeats(c, heads);
  const struct {
    dfgnn_ref_result to;
    int total;
    double repeats;
  } results[] = {
      {DFGNN_REF_RESULT(to, grad_att, 0), DFGNN_REF_SCORE, repeats},
      /* All heads add to one number. */
      {DFGNN_REF_RESULT(to, grad_beta, 0), DFGNN_REF_SCORE, repeats * heads},
      {DFGNN_REF_RESULT(to, grad_edge_projection, 0), DFGNN_REF_WEIGHT,
       repeats},
      {DFGNN_REF_RESULT(to, grad_edge_bias, 0), DFGNN_REF_BIAS, repeats}};
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    dfgnn__ref_put_sum(&results[i].to, &c->totals.sum[results[i].total],
                       results[i].repeats);
}

void dfgnn__ref_attend_backward(dfgnn_ref_call *c) {
  const dfgnn_problem *p = c->problem;
  const int64_t count = p->heads * p->dim;
  dfgnn_ref_walk walk = {
      .thread = sizeof(dfgnn_ref_grads), .begin = begin, .visit = visit_row};
  dfgnn__ref_total(c, DFGNN_REF_SCORE,
                   DFGNN_HAS_ATT(p->op) ? count : DFGNN_HAS_NORMS(p->op));
  if (p->edge_dim > 0) {
    dfgnn__ref_total(c, DFGNN_REF_WEIGHT, count * p->edge_dim);
    dfgnn__ref_total(c, DFGNN_REF_BIAS, count);
  }
  dfgnn__ref_walk(&walk, c);
  if (!c->memory.failed)
    put_parameters(c);
  if (!c->expected->transpose)
    return;
  c->by_source = 1;
  walk.visit = visit_column;
  dfgnn__ref_walk(&walk, c);
}
