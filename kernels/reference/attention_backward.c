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
#include <stdlib.h>
#include <string.h>

#include "kernels/common/accuracy.h"
#include "kernels/reference/attention_walk.h"
#include "lib/base/error.h"

typedef dfgnn_ref_terms terms;
typedef dfgnn_ref_sums sums;
typedef dfgnn_ref_grads walk;
typedef dfgnn_ref_part part;
typedef dfgnn_ref_parameters parameters;
typedef dfgnn_ref_number number;
typedef dfgnn_ref_place place;
typedef dfgnn_ref_direction direction;

#define TERM_VARIANCE DFGNN_REF_TERM_VARIANCE

enum { VECTORS = 8 }; /* vectors of dim numbers that walk_in() places */

static size_t walk_numbers(const dfgnn_problem *problem, int64_t degree) {
  int64_t dim = problem->dim, features = dfgnn__ref_edge_features(problem);
  return (size_t)(dfgnn__ref_edge_numbers(problem) + VECTORS * dim +
                  dim * features +
                  3 * degree * dfgnn__ref_edge_width(problem)) +
         2 * dfgnn__ref_sum_numbers(dim) + dfgnn__ref_sum_numbers(features) +
         2 * dfgnn__ref_sum_numbers(1);
}

/* Values that all rows and columns of a call share. */
typedef struct call {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  const dfgnn_expected *expected;
  int64_t *first;   /* the number of edges of the rows before one */
  parameters total; /* of all threads */
} call;

/* degree: 0 if no numbers of a row's edges are kept. */
static walk walk_in(double **memory, int32_t *order, const call *c,
                    int64_t degree) {
  const dfgnn_problem *problem = c->problem;
  int bounds = c->expected->bounds;
  int64_t dim = problem->dim, features = dfgnn__ref_edge_features(problem);
  walk w = {.problem = problem,
            .matrix = c->matrix,
            .args = c->args,
            .order = order,
            .bounds = bounds};
  double **vectors[VECTORS] = {&w.grad_out,       &w.out,          &w.direction,
                               &w.score_by_delta, &w.along,        &w.jump,
                               &w.by_delta[1],    &w.sums.by_delta};
  w.rows = dfgnn__ref_edge_in(memory, problem);
  for (int i = 0; i < VECTORS; i++)
    *vectors[i] = dfgnn__ref_take(memory, dim);
  w.by_delta[0] = dfgnn__ref_take(memory, dim * features);
  for (int i = 0; i < 3; i++)
    w.edge[i] =
        dfgnn__ref_take(memory, degree * dfgnn__ref_edge_width(problem));
  w.sums.values = dfgnn__ref_sum_in(memory, dim, bounds);
  w.sums.along = dfgnn__ref_sum_in(
      memory, DFGNN_HAS_SCALARS(problem->op) ? 1 : dim, bounds);
  w.sums.cosine = dfgnn__ref_sum_in(memory, 1, bounds);
  w.sums.edges = dfgnn__ref_sum_in(memory, features, bounds);
  w.sums.scores = dfgnn__ref_sum_in(memory, 1, bounds);
  return w;
}

static void at_destination(walk *w, int64_t row, int64_t head) {
  const dfgnn_args *args = w->args;
  const dfgnn_problem *p = w->problem;
  dfgnn__ref_load_destination(&w->rows, p, args, row, head);
  dfgnn__ref_load(w->grad_out, p, args->grad_out, &args->grad_out_strides, row,
                  head);
  dfgnn__ref_load(w->out, p, args->out, &args->out_strides, row, head);
  w->lse = dfgnn__ref_scalar(p, args->lse, row * p->heads + head);
  if (dfgnn__offset_at(w->matrix, row) ==
      dfgnn__offset_at(w->matrix, row + 1)) {
    w->delta = num_of(0); /* no edge reads it */
    return;
  }
  /* A kernel may sum delta from P and dP, which differs from <dO, out> by the
   * rounding of out. */
  double narrow = dfgnn__term_roundoff(p);
  w->delta = num_dot(w->grad_out, w->out, p->dim, 1 + narrow);
  if (args->grad_lse)
    w->delta.value -=
        dfgnn__ref_scalar(p, args->grad_lse, row * p->heads + head);
  w->delta = num_round(w->delta, 4);
}

static void at_source(walk *w, int64_t column, int64_t head) {
  dfgnn__ref_load_source(&w->rows, w->problem, w->args, column, head);
}

static void at_edge(walk *w, const place *at) {
  dfgnn__ref_load_edge(&w->rows, w->problem, w->args, at->edge, at->head);
}

static terms edge_terms(const walk *w, const place *at) {
  const dfgnn_problem *problem = w->problem;
  if (w->lse == -INFINITY) /* no edge of the row has a weight */
    return (terms){{0, 0}, {0, 0}, 0};
  double narrow = dfgnn__term_roundoff(problem);
  double in_memory = dfgnn__ref_subnormal(problem);
  double kept = dfgnn__ref_kept(problem, w->args, at);
  number score = dfgnn__ref_score(problem, w->args, &w->rows, at);
  number p = dfgnn__ref_exp(problem, score, w->lse);
  number product =
      num_dot(w->grad_out, w->rows.value, problem->dim, 2 * narrow);
  if (dfgnn__ref_edge_values(problem))
    product = num_round(num_add(product, dfgnn__ref_edge_product(
                                             problem, &w->rows, w->grad_out)),
                        1);
  number dp = num_round(num_scale(product, kept), 1);
  /* delta's own error is common to the row */
  number ds = num_mul(p, num_add(dp, num_of(-w->delta.value)));
  number weight = num_scale(p, kept);
  if (p.value == 0)
    return (terms){num_of(weight.value), num_of(ds.value), 0};
  return (terms){num_err(num_round(weight, TERM_VARIANCE), in_memory),
                 num_err(num_round(ds, TERM_VARIANCE + narrow), in_memory),
                 p.value};
}

/* dS with the error of delta. */
static number whole_score(const walk *w, const terms *t) {
  return num_err(t->score, square(t->p) * w->delta.variance);
}

/* ---- sums ---------------------------------------------------------------- */

static void begin_sums(walk *w, int64_t terms) {
  sums *s = &w->sums;
  dfgnn__ref_sum_begin(&s->values, terms);
  dfgnn__ref_sum_begin(&s->along, terms);
  dfgnn__ref_sum_begin(&s->cosine, terms);
  dfgnn__ref_sum_begin(&s->edges, terms);
  dfgnn__ref_sum_begin(&s->scores, terms);
  memset(s->by_delta, 0, (size_t)w->problem->dim * sizeof *s->by_delta);
  s->cosine_by_delta = 0;
}

/* repeats: how often the edge stands in its row.  All edges of a row share one
 * delta, whose error is added when the row ends; the edges of a column bring
 * the deltas of different rows. */
static void add_score(walk *w, const terms *t, const direction *to, int64_t k,
                      double repeats, int by_source) {
  sums *s = &w->sums;
  const double one = 1;
  number score = by_source ? whole_score(w, t) : t->score;
  for (int64_t d = 0; d < s->along.width && !by_source; d++)
    s->by_delta[d] += t->p * w->direction[d];
  sum_add(&s->along, k, num_round(score, to->variance), repeats, w->direction);
  for (int64_t d = 0; w->bounds && d < s->along.width; d++)
    s->along.spread[d] += repeats * square(score.value * w->jump[d]);
  if (!DFGNN_HAS_NORMS(w->problem->op))
    return;
  s->cosine_by_delta += t->p * to->cosine.value;
  sum_add(&s->cosine, k, num_mul(score, to->cosine), repeats, &one);
}

/* The part along x, which the gradient of x / |x| leaves out (AGNN).  A kernel
 * may take it from the cosine of every edge, or from the sums: it is
 * x <x, along> / |x|^2. */
typedef struct projection {
  const double *x;
  double norm;
  part along; /* the error of <x, along> / |x| */
} projection;

static projection project(const walk *w, const double *x, double repeats) {
  const dfgnn_ref_sum *along = &w->sums.along;
  int64_t dim = w->problem->dim;
  projection p = {x, dfgnn__ref_norm(x, dim), {0, 0, 0}};
  for (int64_t d = 0; d < dim; d++)
    p.along = part_add(p.along,
                       part_scale(part_of(along, d, repeats), x[d] / p.norm));
  p.along.value = 0;
  p.along.fixed += num_dot(x, along->value, dim, 0).variance / square(p.norm);
  return p;
}

/* The part of the query's gradient that goes through the edge features of keys:
 * W times the sum of dS scale e, and b times the sum of dS scale. */
static part edge_part(const walk *w, int64_t d, double repeats) {
  return part_add(
      dfgnn__ref_project(w->problem, &w->rows, &w->sums.edges, d, repeats),
      part_scale(part_of(&w->sums.scores, 0, repeats), w->rows.bias[d]));
}

static part score_part(const walk *w, const projection *p, int64_t d,
                       double repeats, int by_source) {
  const sums *s = &w->sums;
  part r = part_of(&s->along, d, repeats);
  double by_delta = s->by_delta[d];
  if (!by_source && dfgnn__ref_edge_keys(w->problem) && w->lse != -INFINITY) {
    r = part_add(r, edge_part(w, d, repeats));
    r.summed *= 2;
  }
  if (p) {
    double unit = p->x[d] / p->norm;
    double norms = dfgnn__ref_norms_variance(w->problem) +
                   dfgnn__term_roundoff(w->problem);
    part c = part_round(part_of(&s->cosine, 0, repeats), norms);
    r = part_round(part_add(r, part_scale(part_add(c, p->along), -unit)),
                   norms);
    by_delta -= unit * s->cosine_by_delta;
  }
  r = part_round(r, TERM_VARIANCE);
  if (!by_source)
    r.fixed += square(by_delta) * w->delta.variance +
               4 * square(w->lse == -INFINITY ? 0 : w->lse * r.value);
  return r;
}

static void put_scores(walk *w, const dfgnn_ref_result *to, const double *x,
                       double repeats, int by_source, int with_values) {
  int cosines = DFGNN_HAS_NORMS(w->problem->op);
  projection p = {0};
  if (!to->value)
    return;
  if (cosines)
    p = project(w, x, repeats);
  for (int64_t d = 0; d < w->sums.along.width; d++) {
    part r = score_part(w, cosines ? &p : NULL, d, repeats, by_source);
    if (with_values)
      r = part_add(r, part_of(&w->sums.values, d, repeats));
    part_put(to, d, r);
  }
}

/* ---- by destination ------------------------------------------------------ */

static int64_t weight_numbers(const dfgnn_problem *problem) {
  return problem->edge_dim > 0
             ? problem->heads * problem->dim * problem->edge_dim
             : 0;
}

/* The parameters of the score: att, or beta. */
static int64_t score_numbers(const dfgnn_problem *problem) {
  return DFGNN_HAS_ATT(problem->op) ? problem->heads * problem->dim
                                    : DFGNN_HAS_NORMS(problem->op);
}

static size_t parameter_numbers(const dfgnn_problem *problem) {
  return dfgnn__ref_sum_numbers(score_numbers(problem)) +
         dfgnn__ref_sum_numbers(weight_numbers(problem)) +
         dfgnn__ref_sum_numbers(problem->heads * problem->dim) + 1;
}

static parameters parameters_in(double *memory, const call *c) {
  int64_t count = c->problem->heads * c->problem->dim;
  int bounds = c->expected->bounds;
  parameters p = {.numbers = memory};
  p.repeats = dfgnn__ref_take(&memory, 1);
  p.score = dfgnn__ref_sum_in(&memory, score_numbers(c->problem), bounds);
  p.weight = dfgnn__ref_sum_in(&memory, weight_numbers(c->problem), bounds);
  p.bias = dfgnn__ref_sum_in(&memory, count, bounds);
  p.score.terms = p.weight.terms = p.bias.terms = c->matrix->edges;
  return p;
}

/* The results of a row and head. */
typedef struct row_results {
  dfgnn_ref_result query, score_dst, bias, score_edge;
} row_results;

static void walk_row(walk *w, int64_t row, int64_t head, const row_results *to,
                     parameters *p) {
  int64_t begin = dfgnn__offset_at(w->matrix, row);
  int64_t count = dfgnn__offset_at(w->matrix, row + 1) - begin;
  const int32_t *indices = w->matrix->indices + begin;
  dfgnn_ref_row repeated = dfgnn__ref_row(indices, count, w->order, w->bounds);
  begin_sums(w, count);
  memset(w->score_by_delta, 0, (size_t)w->problem->dim * sizeof(double));
  dfgnn__ref_load_head(&w->rows, w->problem, w->args, head);
  at_destination(w, row, head);
  for (int64_t k = 0; k < count; k++) {
    const place at = {row, indices[k], begin + k, head};
    at_source(w, indices[k], head);
    at_edge(w, &at);
    terms t = edge_terms(w, &at);
    number ds = whole_score(w, &t);
    num_put(&to->bias, k * w->problem->heads, ds);
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    direction along = dfgnn__ref_find_direction(w, &at, 0);
    if (DFGNN_HAS_SCALARS(w->problem->op))
      num_put(&to->score_edge, k * w->problem->heads,
              num_err(num_scale(num_round(ds, 4), *w->direction),
                      square(ds.value * *w->jump)));
    if (t.weight.value == 0 && t.score.value == 0)
      continue;
    add_score(w, &t, &along, k, repeats, 0);
    dfgnn__ref_add_edge(w, &t, k, begin + k, head, repeats, p);
    dfgnn__ref_add_parameters(w, &t, &at, &along, repeats, p);
  }
  *p->repeats += repeated.repeats * (double)count;
  dfgnn__ref_end_parameters(w, head, p);
  dfgnn__ref_end_edges(w, head, p);
  put_scores(w, DFGNN_HAS_SCALARS(w->problem->op) ? &to->score_dst : &to->query,
             w->rows.destination, repeated.repeats, 0, 0);
}

/* ---- by source ----------------------------------------------------------- */

static void walk_column(walk *w, const dfgnn_matrix *transposed,
                        const dfgnn_view *view, int64_t column, int64_t head,
                        const dfgnn_ref_result *key,
                        const dfgnn_ref_result *value,
                        const dfgnn_ref_result *score_src) {
  dfgnn_op op = w->problem->op;
  int64_t begin = dfgnn__offset_at(transposed, column);
  int64_t count = dfgnn__offset_at(transposed, column + 1) - begin;
  const int32_t *indices = transposed->indices + begin;
  dfgnn_ref_row repeated = dfgnn__ref_row(indices, count, w->order, w->bounds);
  begin_sums(w, count);
  dfgnn__ref_load_head(&w->rows, w->problem, w->args, head);
  at_source(w, column, head);
  for (int64_t k = 0; k < count; k++) {
    const place at = {indices[k], column,
                      dfgnn__ref_edge(transposed, view, begin + k), head};
    at_destination(w, at.row, head);
    at_edge(w, &at);
    terms t = edge_terms(w, &at);
    if (t.weight.value == 0 && t.score.value == 0)
      continue;
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    sum_add(&w->sums.values, k, t.weight, repeats, w->grad_out);
    direction to = dfgnn__ref_find_direction(w, &at, 1);
    add_score(w, &t, &to, k, repeats, 1);
  }
  if (DFGNN_HAS_QUERY(op) && !DFGNN_HAS_KEY(op)) {
    put_scores(w, value, w->rows.value, repeated.repeats, 1, 1);
    return;
  }
  dfgnn__ref_put_sum(value, &w->sums.values, repeated.repeats);
  put_scores(w, DFGNN_HAS_SCALARS(op) ? score_src : key, NULL, repeated.repeats,
             1, 0);
}

/* ---- everything ---------------------------------------------------------- */

static void put_parameters(const call *c) {
  const dfgnn_problem *problem = c->problem;
  const dfgnn_expected *expected = c->expected;
  const parameters *p = &c->total;
  double edges = (double)c->first[expected->row_count] * (double)problem->heads;
  double repeats = edges > 0 ? *p->repeats / edges : 1;
  const struct {
    dfgnn_ref_result to;
    const dfgnn_ref_sum *sum;
    double repeats;
  } results[] = {
      {DFGNN_REF_RESULT(expected, grad_att), &p->score, repeats},
      /* All heads add to one number. */
      {DFGNN_REF_RESULT(expected, grad_beta), &p->score,
       repeats * (double)problem->heads},
      {DFGNN_REF_RESULT(expected, grad_edge_weight), &p->weight, repeats},
      {DFGNN_REF_RESULT(expected, grad_edge_bias), &p->bias, repeats}};
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    dfgnn__ref_put_sum(&results[i].to, results[i].sum, results[i].repeats);
}

static void join_parameters(void *job, double *memory) {
  call *c = job;
  memory += walk_numbers(c->problem, c->matrix->max_degree);
  for (size_t i = 0; i < parameter_numbers(c->problem); i++)
    c->total.numbers[i] += memory[i];
}

static void visit_row(const void *job, double *memory, int32_t *order,
                      int64_t r) {
  const call *c = job;
  const dfgnn_expected *expected = c->expected;
  int64_t row = expected->rows ? expected->rows[r] : r;
  int64_t heads = c->problem->heads, dim = c->problem->dim;
  int64_t edges = c->first[r], count = c->first[r + 1] - edges;
  dfgnn_ref_result query = DFGNN_REF_RESULT(expected, grad_query);
  dfgnn_ref_result score_dst = DFGNN_REF_RESULT(expected, grad_score_dst);
  dfgnn_ref_result bias = DFGNN_REF_RESULT(expected, grad_bias);
  dfgnn_ref_result score_edge = DFGNN_REF_RESULT(expected, grad_score_edge);
  dfgnn_ref_result edge_attr = DFGNN_REF_RESULT(expected, grad_edge_attr);
  walk w = walk_in(&memory, order, c, c->matrix->max_degree);
  parameters p = parameters_in(memory, c);
  for (int64_t h = 0; h < heads; h++) {
    int64_t at = r * heads + h, first = edges * heads + h;
    row_results to = {.query = dfgnn__ref_result_at(&query, at * dim),
                      .score_dst = dfgnn__ref_result_at(&score_dst, at),
                      .bias = dfgnn__ref_result_at(&bias, first),
                      .score_edge = dfgnn__ref_result_at(&score_edge, first)};
    walk_row(&w, row, h, &to, &p);
  }
  dfgnn_ref_result e = dfgnn__ref_result_at(
      &edge_attr, edges * dfgnn__ref_edge_width(c->problem));
  dfgnn__ref_put_edges(&w, count, &e);
}

static void visit_column(const void *job, double *memory, int32_t *order,
                         int64_t index) {
  const call *c = job;
  const dfgnn_expected *expected = c->expected;
  int64_t column = expected->columns ? expected->columns[index] : index;
  dfgnn_matrix transposed = dfgnn__transposed(c->matrix, expected->transpose);
  dfgnn_ref_result key = DFGNN_REF_RESULT(expected, grad_key);
  dfgnn_ref_result value = DFGNN_REF_RESULT(expected, grad_value);
  dfgnn_ref_result score_src = DFGNN_REF_RESULT(expected, grad_score_src);
  walk w = walk_in(&memory, order, c, 0);
  for (int64_t h = 0; h < c->problem->heads; h++) {
    int64_t at = index * c->problem->heads + h;
    dfgnn_ref_result k = dfgnn__ref_result_at(&key, at * c->problem->dim);
    dfgnn_ref_result v = dfgnn__ref_result_at(&value, at * c->problem->dim);
    dfgnn_ref_result s = dfgnn__ref_result_at(&score_src, at);
    walk_column(&w, &transposed, expected->transpose, column, h, &k, &v, &s);
  }
}

dfgnn_status dfgnn__attention_backward_reference(
    const dfgnn_problem *problem, const dfgnn_matrix *matrix,
    const dfgnn_args *args, const dfgnn_expected *expected) {
  size_t sums = parameter_numbers(problem);
  int64_t work = matrix->edges * problem->heads * problem->dim;
  double *memory = calloc(sums, sizeof *memory);
  call c = {problem, matrix, args, expected,
            .first = dfgnn__ref_first_edges(matrix, expected)};
  dfgnn_status status = DFGNN_OK;
  if (!memory || !c.first) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
    goto out;
  }
  c.total = parameters_in(memory, &c);
  const dfgnn_ref_walk rows = {
      .count = expected->row_count,
      .work = work,
      .numbers = walk_numbers(problem, matrix->max_degree) + sums,
      .degree = matrix->max_degree,
      .visit = visit_row,
      .join = join_parameters};
  const dfgnn_ref_walk columns = {
      .count = expected->column_count,
      .work = work,
      .numbers = walk_numbers(problem, 0),
      .degree = expected->transpose ? expected->transpose->extra : 0,
      .visit = visit_column};
  status = dfgnn__ref_walk(&rows, &c);
  if (!status)
    put_parameters(&c);
  if (!status && expected->transpose)
    status = dfgnn__ref_walk(&columns, &c);
out:
  free(c.first);
  free(memory);
  return status;
}
