/* backward.c - float64 gradients of attention, by the formulas
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

#include "base/error.h"
#include "kernels/attention/reference/backward.h"
#include "kernels/common/accuracy.h"

typedef dfgnn_ref_terms terms;
typedef dfgnn_ref_sums sums;
typedef dfgnn_ref_walk walk;
typedef dfgnn_ref_part part;
typedef dfgnn_ref_parameters parameters;

#define TERM_VARIANCE DFGNN_REF_TERM_VARIANCE

enum { VECTORS = 8 }; /* vectors of dim numbers that make_walk() places */

static size_t walk_numbers(const dfgnn_problem *problem, int64_t degree) {
  int64_t dim = problem->dim, features = dfgnn__ref_edge_features(problem);
  return (size_t)(dfgnn__ref_edge_numbers(problem) + VECTORS * dim +
                  dim * features + 3 * dim +
                  3 * degree * dfgnn__ref_edge_width(problem)) +
         2 * dfgnn__ref_sum_numbers(dim) + dfgnn__ref_sum_numbers(features) +
         2 * dfgnn__ref_sum_numbers(1);
}

static double *take(double **at, int64_t count) {
  double *taken = *at;
  *at += count;
  return taken;
}

static dfgnn_ref_sum take_sum(double **at, int64_t width, int bounds) {
  return dfgnn__ref_sum_in(take(at, (int64_t)dfgnn__ref_sum_numbers(width)),
                           width, bounds);
}

static walk make_walk(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                      const dfgnn_args *args, double *buffer, int64_t degree,
                      int32_t *order, int bounds) {
  walk w = {.problem = problem,
            .matrix = matrix,
            .args = args,
            .order = order,
            .bounds = bounds};
  int64_t dim = problem->dim, features = dfgnn__ref_edge_features(problem);
  double *at = buffer;
  memset(buffer, 0, walk_numbers(problem, degree) * sizeof *buffer);
  w.rows =
      dfgnn__ref_edge_in(take(&at, dfgnn__ref_edge_numbers(problem)), problem);
  w.grad_out = take(&at, dim);
  w.out = take(&at, dim);
  w.direction = take(&at, dim);
  w.att_by_delta = take(&at, dim);
  w.along = take(&at, dim);
  w.jump = take(&at, dim);
  w.by_delta[0] = take(&at, dim * features);
  w.by_delta[1] = take(&at, dim);
  w.parts = (part *)take(&at, 3 * dim);
  for (int i = 0; i < 3; i++)
    w.edge[i] = take(&at, degree * dfgnn__ref_edge_width(problem));
  w.sums.by_delta = take(&at, dim);
  w.sums.values = take_sum(&at, dim, bounds);
  w.sums.along = take_sum(&at, problem->op == DFGNN_OP_GAT ? 1 : dim, bounds);
  w.sums.cosine = take_sum(&at, 1, bounds);
  w.sums.edges = take_sum(&at, features, bounds);
  w.sums.scores = take_sum(&at, 1, bounds);
  return w;
}

static double square(double x) { return x * x; }

static void at_destination(walk *w, int64_t row, int64_t head) {
  const dfgnn_args *args = w->args;
  const dfgnn_problem *p = w->problem;
  dfgnn__ref_load_destination(&w->rows, p, args, row, head);
  dfgnn__ref_load(w->grad_out, p, args->grad_out, &args->grad_out_strides, row,
                  head);
  dfgnn__ref_load(w->out, p, args->out, &args->out_strides, row, head);
  w->lse = dfgnn__ref_scalar(p, args->lse, row * p->heads + head);
  dfgnn_ref_product delta = dfgnn__ref_product(w->grad_out, w->out, p->dim);
  if (args->grad_lse)
    delta.value -= dfgnn__ref_scalar(p, args->grad_lse, row * p->heads + head);
  if (dfgnn__ref_offset(w->matrix, row) ==
      dfgnn__ref_offset(w->matrix, row + 1)) /* no edge reads delta */
    delta = (dfgnn_ref_product){.value = 0};
  /* A kernel may sum delta from P and dP, which differs from <dO, out> by the
   * rounding of out. */
  w->delta = (dfgnn_ref_number){delta.value, delta.variance +
                                                 (1 + dfgnn__term_roundoff(p)) *
                                                     delta.square +
                                                 4 * square(delta.value)};
}

static void at_source(walk *w, int64_t column, int64_t head) {
  dfgnn__ref_load_source(&w->rows, w->problem, w->args, column, head);
}

static terms edge_terms(const walk *w, int64_t row, int64_t column,
                        int64_t edge, int64_t head) {
  const dfgnn_problem *problem = w->problem;
  if (w->lse == -INFINITY) /* no edge of the row has a weight */
    return (terms){{0, 0}, {0, 0}, 0};
  dfgnn_ref_number score =
      dfgnn__ref_score(problem, w->args, &w->rows, row, column, edge, head);
  double p = exp(score.value - w->lse);
  double kept = dfgnn__ref_kept(problem, w->args, edge, head);
  dfgnn_ref_product product =
      dfgnn__ref_product(w->grad_out, w->rows.value, problem->dim);
  if (dfgnn__ref_edge_values(problem)) {
    dfgnn_ref_number more =
        dfgnn__ref_edge_product(problem, &w->rows, w->grad_out);
    product.value += more.value;
    product.variance += more.variance + square(product.value);
  }
  double dp = kept * product.value, ds = p * (dp - w->delta.value);
  terms t = {.weight.value = p * kept, .score.value = ds, .p = p};
  if (!w->bounds || p == 0)
    return t;
  double narrow = dfgnn__term_roundoff(problem);
  double relative = dfgnn__ref_exp_variance(problem, &score, w->lse);
  double in_memory = dfgnn__ref_subnormal(problem);
  t.weight.variance = square(p * kept) * (relative + TERM_VARIANCE) + in_memory;
  t.score.variance =
      square(ds) * (relative + TERM_VARIANCE + narrow) +
      square(p * kept) * (product.variance + 2 * narrow * product.square) +
      square(p * dp) + in_memory;
  return t;
}

static double slope_at(const walk *w, double x) {
  return x > 0 ? 1 : w->args->slope;
}

/* ---- directions ---------------------------------------------------------- */

/* The direction of an edge is the gradient of its score by x, one of the two
 * rows that the score reads; y is the other.  The vector is in w->direction.
 * The gradient of a cosine (AGNN) has two parts:
 *
 *     beta y / (|x| |y|)  -  beta cos x / |x|^2
 *
 * The first is in w->direction, the second has a sum of its own. */
typedef struct direction {
  double cosine;   /* beta cos / |x|, the factor of dS in that sum; or 0 */
  double variance; /* the relative variance of the direction */
  double cosine_variance;
} direction;

/* A norm that was raised to 1e-12 is a constant: its gradient is 0. */
static direction through_cosine(const walk *w, const double *x,
                                const double *y) {
  int64_t dim = w->problem->dim;
  double nx = dfgnn__ref_norm(x, dim), ny = dfgnn__ref_norm(y, dim);
  double factor = dfgnn__ref_beta(w->problem, w->args) / nx;
  double norms =
      2 * dfgnn__ref_norm_variance(dim) + dfgnn__term_roundoff(w->problem);
  for (int64_t d = 0; d < dim; d++)
    w->direction[d] = factor * y[d] / ny;
  if (nx <= 1e-12)
    return (direction){0, norms, 0};
  dfgnn_ref_product product = dfgnn__ref_product(x, y, dim);
  double scale = factor / (nx * ny);
  return (direction){scale * product.value, norms,
                     square(scale) *
                         (product.variance + norms * square(product.value))};
}

/* The argument of GATv2's leaky ReLU, feature d. */
static double argument(const walk *w, int64_t d) {
  const dfgnn_ref_edge *r = &w->rows;
  return r->destination[d] + r->value[d] + (r->features ? r->projected[d] : 0);
}

static direction direction_of(walk *w, int by_source, int64_t row,
                              int64_t column, int64_t edge, int64_t head) {
  const dfgnn_ref_edge *r = &w->rows;
  const dfgnn_args *args = w->args;
  int64_t dim = w->problem->dim;
  double narrow = TERM_VARIANCE + dfgnn__term_roundoff(w->problem) +
                  dfgnn__ref_norm_error(w->problem);
  switch (w->problem->op) {
  case DFGNN_OP_GT:
    for (int64_t d = 0; d < dim; d++)
      w->direction[d] = args->scale * (by_source ? r->destination : r->key)[d];
    dfgnn__ref_find_shifts(w, !by_source);
    break;
  case DFGNN_OP_AGNN:
    return by_source ? through_cosine(w, r->value, r->destination)
                     : through_cosine(w, r->destination, r->value);
  case DFGNN_OP_GAT:
    *w->direction = slope_at(
        w, dfgnn__ref_additive(w->problem, args, row, column, edge, head));
    break;
  default:
    for (int64_t d = 0; d < dim; d++)
      w->direction[d] = r->att[d] * slope_at(w, argument(w, d));
    dfgnn__ref_find_jumps(w);
  }
  return (direction){0, narrow, 0};
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
  double score = t->score.value;
  double variance = t->score.variance;
  if (by_source)
    variance += square(t->p) * w->delta.variance;
  for (int64_t d = 0; d < s->along.width && !by_source; d++)
    s->by_delta[d] += t->p * w->direction[d];
  s->cosine_by_delta += t->p * to->cosine;
  dfgnn__ref_sum_add(&s->along, k, score,
                     repeats * (variance + to->variance * square(score)),
                     w->direction);
  for (int64_t d = 0;
       w->bounds && w->problem->op != DFGNN_OP_GAT && d < s->along.width; d++)
    s->along.spread[d] += repeats * square(score * w->jump[d]);
  const double one = 1;
  if (w->problem->op == DFGNN_OP_AGNN)
    dfgnn__ref_sum_add(&s->cosine, k, score * to->cosine,
                       repeats * (variance * square(to->cosine) +
                                  square(score) * to->cosine_variance),
                       &one);
}

static part sum_part(const dfgnn_ref_sum *sum, int64_t d, double repeats) {
  return (part){sum->value[d], dfgnn__ref_sum_fixed(sum, d),
                dfgnn__ref_sum_summed(sum, d, repeats)};
}

/* The part along x, which the gradient of x / |x| leaves out (AGNN).  A kernel
 * may take it from the cosine of every edge, or from the sums: it is
 * x <x, along> / |x|^2. */
typedef struct projection {
  const double *x;
  double norm, along_fixed, along_summed;
} projection;

static projection project(const walk *w, const double *x, double repeats) {
  const dfgnn_ref_sum *along = &w->sums.along;
  int64_t dim = w->problem->dim;
  projection p = {x, dfgnn__ref_norm(x, dim), 0, 0};
  if (!w->bounds)
    return p;
  for (int64_t d = 0; d < dim; d++) {
    double unit = square(x[d] / p.norm);
    p.along_fixed += unit * dfgnn__ref_sum_fixed(along, d);
    p.along_summed += unit * dfgnn__ref_sum_summed(along, d, repeats);
  }
  p.along_fixed +=
      dfgnn__ref_product(x, along->value, dim).variance / square(p.norm);
  return p;
}

/* Adds the part of the query's gradient that goes through the edge features of
 * keys: W times the sum of dS scale e, and b times the sum of dS scale. */
static void add_edges(const walk *w, part *r, int64_t d, double repeats) {
  part e = dfgnn__ref_project(w->problem, &w->rows, &w->sums.edges, d, repeats);
  part s = sum_part(&w->sums.scores, 0, repeats);
  double b = w->rows.bias[d];
  r->value += e.value + b * s.value;
  r->fixed += e.fixed + square(b) * s.fixed;
  r->summed = 2 * (r->summed + e.summed + square(b) * s.summed);
}

static part score_part(const walk *w, const projection *p, int64_t d,
                       double repeats, int by_source) {
  const sums *s = &w->sums;
  part r = sum_part(&s->along, d, repeats);
  if (!by_source && dfgnn__ref_edge_keys(w->problem) && w->lse != -INFINITY)
    add_edges(w, &r, d, repeats);
  double by_delta = s->by_delta[d];
  double narrow = dfgnn__term_roundoff(w->problem);
  if (p) {
    double unit = p->x[d] / p->norm;
    part c = sum_part(&s->cosine, 0, repeats);
    double norms = 2 * dfgnn__ref_norm_variance(w->problem->dim) + narrow;
    r.value -= unit * c.value;
    r.fixed +=
        square(unit) * (c.fixed + p->along_fixed + norms * square(c.value)) +
        norms * square(r.value);
    r.summed += square(unit) * (c.summed + p->along_summed);
    by_delta -= unit * s->cosine_by_delta;
  }
  r.fixed += TERM_VARIANCE * square(r.value);
  if (!by_source)
    r.fixed += square(by_delta) * w->delta.variance +
               4 * square(w->lse == -INFINITY ? 0 : w->lse * r.value);
  return r;
}

static void put(const dfgnn_ref_result *to, int64_t i, part p) {
  dfgnn__ref_put(to, i, p.value, p.fixed, p.summed);
}

static void put_scores(walk *w, const dfgnn_ref_result *to, const double *x,
                       double repeats, int by_source, int with_values,
                       parameters *parameters) {
  int cosines = w->problem->op == DFGNN_OP_AGNN;
  int norms = w->problem->qk_norm != DFGNN_QK_NORM_NONE;
  projection p = {0};
  if (!to->value && !norms)
    return;
  if (cosines)
    p = project(w, x, repeats);
  for (int64_t d = 0; d < w->sums.along.width; d++) {
    part r = score_part(w, cosines ? &p : NULL, d, repeats, by_source);
    if (with_values) {
      part v = sum_part(&w->sums.values, d, repeats);
      r = (part){r.value + v.value, r.fixed + v.fixed, r.summed + v.summed};
    }
    w->parts[d] = r;
  }
  if (norms)
    dfgnn__ref_through_norm(w, by_source, parameters);
  for (int64_t d = 0; d < w->sums.along.width; d++)
    put(to, d, w->parts[d]);
}

/* ---- by destination ------------------------------------------------------ */

static int64_t weight_numbers(const dfgnn_problem *problem) {
  return problem->edge_dim > 0
             ? problem->heads * problem->dim * problem->edge_dim
             : 0;
}

static size_t parameter_numbers(const dfgnn_problem *problem) {
  return 2 * dfgnn__ref_sum_numbers(problem->heads * problem->dim) +
         dfgnn__ref_sum_numbers(1) +
         dfgnn__ref_sum_numbers(weight_numbers(problem)) +
         2 * dfgnn__ref_sum_numbers(problem->dim) + 2 * (size_t)problem->dim;
}

static parameters make_parameters(const dfgnn_problem *problem,
                                  const dfgnn_matrix *matrix, double *buffer,
                                  int bounds) {
  int64_t count = problem->heads * problem->dim;
  parameters p = {.buffer = buffer, .numbers = parameter_numbers(problem)};
  double *at = buffer;
  memset(buffer, 0, p.numbers * sizeof *buffer);
  p.att = take_sum(&at, count, bounds);
  p.beta = take_sum(&at, 1, bounds);
  p.weight = take_sum(&at, weight_numbers(problem), bounds);
  p.bias = take_sum(&at, count, bounds);
  for (int i = 0; i < 2; i++) {
    p.norm[i] = take_sum(&at, problem->dim, bounds);
    p.norm_summed[i] = take(&at, problem->dim);
  }
  p.att.terms = p.beta.terms = p.weight.terms = p.bias.terms = matrix->edges;
  return p;
}

static void add_parameters(walk *w, const terms *t, int64_t head, int64_t edge,
                           double repeats, const direction *to, parameters *p) {
  const dfgnn_ref_edge *r = &w->rows;
  int64_t dim = w->problem->dim;
  double score = t->score.value;
  const double one = 1;
  if (w->problem->op == DFGNN_OP_AGNN) {
    double norms =
        dfgnn__ref_norm(r->destination, dim) * dfgnn__ref_norm(r->value, dim);
    dfgnn_ref_product product =
        dfgnn__ref_product(r->destination, r->value, dim);
    double cosine = product.value / norms;
    w->att_by_delta[0] += t->p * cosine;
    dfgnn__ref_sum_add(&p->beta, edge, score * cosine,
                       repeats *
                           (t->score.variance * square(cosine) +
                            square(score) * (product.variance / square(norms) +
                                             to->variance * square(cosine))),
                       &one);
  } else if (w->problem->op == DFGNN_OP_GATV2) {
    for (int64_t d = 0; d < dim; d++) {
      double x = argument(w, d);
      w->direction[d] = x * slope_at(w, x);
      w->att_by_delta[d] += t->p * w->direction[d];
    }
    dfgnn__ref_sum_add_at(
        &p->att, head * dim, dim, edge, score,
        repeats * (t->score.variance + to->variance * square(score)),
        w->direction);
    for (int64_t d = 0; r->features && w->bounds && d < dim; d++)
      p->att.spread[head * dim + d] +=
          repeats * square(score * r->magnitude[d]) *
          ((double)r->features + 4 + dfgnn__term_roundoff(w->problem));
  }
}

/* Adds the error of a row's delta to the bounds of the parameters. */
static void end_parameters(const walk *w, int64_t head, parameters *p) {
  int64_t dim = w->problem->dim;
  if (!w->bounds)
    return;
  if (w->problem->op == DFGNN_OP_AGNN)
    p->beta.spread[0] += square(w->att_by_delta[0]) * w->delta.variance;
  else if (w->problem->op == DFGNN_OP_GATV2)
    for (int64_t d = 0; d < dim; d++)
      p->att.spread[head * dim + d] +=
          square(w->att_by_delta[d]) * w->delta.variance;
}

static dfgnn_ref_row row_of(const walk *w, const int32_t *indices,
                            int64_t count) {
  if (!w->bounds)
    return (dfgnn_ref_row){NULL, count, 1};
  return dfgnn__ref_row(indices, count, w->order);
}

/* The results of a row and head. */
typedef struct row_results {
  dfgnn_ref_result query, score_dst, bias, score_edge;
} row_results;

static void walk_row(walk *w, int64_t row, int64_t head, const row_results *to,
                     parameters *p) {
  int64_t begin = dfgnn__ref_offset(w->matrix, row);
  int64_t count = dfgnn__ref_offset(w->matrix, row + 1) - begin;
  const int32_t *indices = w->matrix->indices + begin;
  dfgnn_ref_row repeated = row_of(w, indices, count);
  begin_sums(w, count);
  memset(w->att_by_delta, 0, (size_t)w->problem->dim * sizeof(double));
  dfgnn__ref_load_head(&w->rows, w->problem, w->args, head);
  at_destination(w, row, head);
  for (int64_t k = 0; k < count; k++) {
    at_source(w, indices[k], head);
    dfgnn__ref_load_edge(&w->rows, w->problem, w->args, begin + k, head);
    terms t = edge_terms(w, row, indices[k], begin + k, head);
    double variance = t.score.variance + square(t.p) * w->delta.variance;
    dfgnn__ref_put(&to->bias, k * w->problem->heads, t.score.value, variance,
                   0);
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    direction along = direction_of(w, 0, row, indices[k], begin + k, head);
    if (w->problem->op == DFGNN_OP_GAT)
      dfgnn__ref_put(
          &to->score_edge, k * w->problem->heads, t.score.value * *w->direction,
          (variance + 4 * square(t.score.value)) * square(*w->direction), 0);
    if (t.weight.value == 0 && t.score.value == 0)
      continue;
    add_score(w, &t, &along, k, repeats, 0);
    dfgnn__ref_add_edge(w, &t, k, begin + k, head, repeats, p);
    add_parameters(w, &t, head, begin + k, repeats, &along, p);
  }
  p->repeats += repeated.repeats * (double)count;
  end_parameters(w, head, p);
  dfgnn__ref_end_edges(w, head, p);
  put_scores(w, w->problem->op == DFGNN_OP_GAT ? &to->score_dst : &to->query,
             w->rows.destination, repeated.repeats, 0, 0, p);
}

/* ---- by source ----------------------------------------------------------- */

static void walk_column(walk *w, const dfgnn_matrix *transposed,
                        const dfgnn_view *view, int64_t column, int64_t head,
                        const dfgnn_ref_result *key,
                        const dfgnn_ref_result *value,
                        const dfgnn_ref_result *score_src, parameters *p) {
  dfgnn_op op = w->problem->op;
  int64_t begin = dfgnn__ref_offset(transposed, column);
  int64_t count = dfgnn__ref_offset(transposed, column + 1) - begin;
  const int32_t *indices = transposed->indices + begin;
  dfgnn_ref_row repeated = row_of(w, indices, count);
  begin_sums(w, count);
  dfgnn__ref_load_head(&w->rows, w->problem, w->args, head);
  at_source(w, column, head);
  for (int64_t k = 0; k < count; k++) {
    int64_t row = indices[k];
    int64_t edge = dfgnn__ref_edge(transposed, view, begin + k);
    at_destination(w, row, head);
    dfgnn__ref_load_edge(&w->rows, w->problem, w->args, edge, head);
    terms t = edge_terms(w, row, column, edge, head);
    if (t.weight.value == 0 && t.score.value == 0)
      continue;
    double repeats = dfgnn__ref_repeats(&repeated, indices[k]);
    dfgnn__ref_sum_add(&w->sums.values, k, t.weight.value,
                       repeats * t.weight.variance, w->grad_out);
    direction to = direction_of(w, 1, row, column, edge, head);
    add_score(w, &t, &to, k, repeats, 1);
  }
  if (op == DFGNN_OP_AGNN || op == DFGNN_OP_GATV2) {
    put_scores(w, value, w->rows.value, repeated.repeats, 1, 1, p);
    return;
  }
  for (int64_t d = 0; d < w->problem->dim; d++)
    put(value, d, sum_part(&w->sums.values, d, repeated.repeats));
  put_scores(w, op == DFGNN_OP_GAT ? score_src : key, NULL, repeated.repeats, 1,
             0, p);
}

/* ---- everything ---------------------------------------------------------- */

static void join_parameters(parameters *to, const parameters *from) {
  for (size_t i = 0; i < to->numbers; i++)
    to->buffer[i] += from->buffer[i];
  to->repeats += from->repeats;
}

static void put_parameters(const dfgnn_problem *problem,
                           const dfgnn_expected *expected,
                           const dfgnn_matrix *matrix, const parameters *p) {
  dfgnn_ref_result att = DFGNN_REF_RESULT(expected, grad_att);
  dfgnn_ref_result beta = DFGNN_REF_RESULT(expected, grad_beta);
  double edges = (double)matrix->edges * (double)problem->heads;
  double repeats = edges > 0 ? p->repeats / edges : 1;
  for (int64_t i = 0; i < problem->heads * problem->dim; i++)
    put(&att, i, sum_part(&p->att, i, repeats));
  /* All heads add to one number. */
  part sum = sum_part(&p->beta, 0, repeats * (double)problem->heads);
  put(&beta, 0, sum);
  dfgnn_ref_result weight = DFGNN_REF_RESULT(expected, grad_edge_weight);
  dfgnn_ref_result bias = DFGNN_REF_RESULT(expected, grad_edge_bias);
  for (int64_t i = 0; i < weight_numbers(problem); i++)
    put(&weight, i, sum_part(&p->weight, i, repeats));
  for (int64_t i = 0; i < problem->heads * problem->dim; i++)
    put(&bias, i, sum_part(&p->bias, i, repeats));
}

static void put_norm(const dfgnn_problem *problem, const dfgnn_ref_result *to,
                     const parameters *p, int side) {
  const dfgnn_ref_sum *sum = &p->norm[side];
  for (int64_t d = 0; problem->qk_norm && d < problem->dim; d++)
    dfgnn__ref_put(to, d, sum->value[d], dfgnn__ref_sum_fixed(sum, d),
                   sum->bounds
                       ? p->norm_summed[side][d] +
                             (double)problem->heads * square(sum->size[d])
                       : 0);
}

static int walk_rows(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                     const dfgnn_args *args, const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  int64_t *first = dfgnn__ref_first_edges(matrix, expected);
  double *total = malloc(parameter_numbers(problem) * sizeof *total);
  dfgnn_ref_result query = DFGNN_REF_RESULT(expected, grad_query);
  dfgnn_ref_result score_dst = DFGNN_REF_RESULT(expected, grad_score_dst);
  dfgnn_ref_result bias = DFGNN_REF_RESULT(expected, grad_bias);
  dfgnn_ref_result score_edge = DFGNN_REF_RESULT(expected, grad_score_edge);
  dfgnn_ref_result edge_attr = DFGNN_REF_RESULT(expected, grad_edge_attr);
  dfgnn_ref_result norm = DFGNN_REF_RESULT(expected, grad_query_norm);
  int failed = !first || !total;
  if (failed)
    goto out;
  parameters all = make_parameters(problem, matrix, total, expected->bounds);
#pragma omp parallel reduction(                                                \
    |                                                                          \
    : failed) if (first[expected->row_count] * heads * dim > 50000)
  {
    size_t numbers = walk_numbers(problem, matrix->max_degree);
    double *buffer =
        malloc((numbers + parameter_numbers(problem)) * sizeof *buffer);
    int32_t *order = malloc((size_t)(matrix->max_degree + 1) * sizeof *order);
    int ready = buffer && order;
    walk w;
    parameters p;
    if (ready) {
      w = make_walk(problem, matrix, args, buffer, matrix->max_degree, order,
                    expected->bounds);
      p = make_parameters(problem, matrix, buffer + numbers, expected->bounds);
    }
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < expected->row_count; r++)
      for (int64_t h = 0; h < heads && ready; h++) {
        int64_t at = r * heads + h;
        int64_t edges = first[r] * heads + h;
        row_results to = {.query = dfgnn__ref_result_at(&query, at * dim),
                          .score_dst = dfgnn__ref_result_at(&score_dst, at),
                          .bias = dfgnn__ref_result_at(&bias, edges),
                          .score_edge =
                              dfgnn__ref_result_at(&score_edge, edges)};
        walk_row(&w, expected->rows ? expected->rows[r] : r, h, &to, &p);
        if (h + 1 < heads)
          continue;
        dfgnn_ref_result e = dfgnn__ref_result_at(
            &edge_attr, first[r] * dfgnn__ref_edge_width(problem));
        dfgnn__ref_put_edges(&w, first[r + 1] - first[r], &e);
      }
#pragma omp critical(dfgnn_reference_parameters)
    if (ready)
      join_parameters(&all, &p);
    free(order);
    free(buffer);
  }
  put_parameters(problem, expected, matrix, &all);
  put_norm(problem, &norm, &all, 0);
out:
  free(total);
  free(first);
  return !failed;
}

static int walk_columns(const dfgnn_problem *problem,
                        const dfgnn_matrix *matrix, const dfgnn_args *args,
                        const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  dfgnn_matrix transposed = dfgnn__transposed(matrix, expected->transpose);
  dfgnn_ref_result key = DFGNN_REF_RESULT(expected, grad_key);
  dfgnn_ref_result value = DFGNN_REF_RESULT(expected, grad_value);
  dfgnn_ref_result score_src = DFGNN_REF_RESULT(expected, grad_score_src);
  dfgnn_ref_result norm = DFGNN_REF_RESULT(expected, grad_key_norm);
  double *total = malloc(parameter_numbers(problem) * sizeof *total);
  int failed = !total;
  if (failed)
    return 0;
  parameters all = make_parameters(problem, matrix, total, expected->bounds);
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    size_t numbers = walk_numbers(problem, 0);
    double *buffer =
        malloc((numbers + parameter_numbers(problem)) * sizeof *buffer);
    int32_t *order =
        malloc((size_t)(transposed.max_degree + 1) * sizeof *order);
    int ready = buffer && order;
    walk w;
    parameters p;
    if (ready) {
      w = make_walk(problem, matrix, args, buffer, 0, order, expected->bounds);
      p = make_parameters(problem, matrix, buffer + numbers, expected->bounds);
    }
    failed |= !ready;
#pragma omp for schedule(dynamic, 16)
    for (int64_t c = 0; c < expected->column_count; c++)
      for (int64_t h = 0; h < heads && ready; h++) {
        int64_t at = c * heads + h;
        dfgnn_ref_result k = dfgnn__ref_result_at(&key, at * dim);
        dfgnn_ref_result v = dfgnn__ref_result_at(&value, at * dim);
        dfgnn_ref_result s = dfgnn__ref_result_at(&score_src, at);
        walk_column(&w, &transposed, expected->transpose,
                    expected->columns ? expected->columns[c] : c, h, &k, &v, &s,
                    &p);
      }
#pragma omp critical(dfgnn_reference_parameters)
    if (ready)
      join_parameters(&all, &p);
    free(order);
    free(buffer);
  }
  put_norm(problem, &norm, &all, 1);
  free(total);
  return !failed;
}

dfgnn_status dfgnn__attention_backward_reference(
    const dfgnn_problem *problem, const dfgnn_matrix *matrix,
    const dfgnn_args *args, const dfgnn_expected *expected) {
  if (!walk_rows(problem, matrix, args, expected) ||
      (expected->transpose && !walk_columns(problem, matrix, args, expected)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
  return DFGNN_OK;
}

/* ---- the same as a variant ----------------------------------------------- */

/* The doubles that the results of a node take: two vectors, a scalar, and the
 * numbers of the edges of a row. */
static size_t row_numbers(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  return (size_t)(2 * problem->dim + 1 +
                  setting->matrix->max_degree *
                      (2 * problem->heads + dfgnn__ref_edge_width(problem)));
}

static size_t workspace(const dfgnn_setting *setting) {
  return (walk_numbers(setting->problem, setting->matrix->max_degree) +
          parameter_numbers(setting->problem) + row_numbers(setting)) *
         sizeof(double);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  (void)setting;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return 1;
}

/* Writes the scalars of a row's edges in one head. */
static void set_edges(const walk *w, void *array, int64_t row, int64_t head,
                      const dfgnn_ref_result *from) {
  int64_t begin = dfgnn__ref_offset(w->matrix, row);
  int64_t end = dfgnn__ref_offset(w->matrix, row + 1);
  for (int64_t e = begin; array && e < end; e++)
    dfgnn__ref_set_scalar(w->problem, array, e * w->problem->heads + head,
                          from->value[(e - begin) * w->problem->heads]);
}

static void store_edges(const walk *w, int64_t row,
                        const dfgnn_ref_result *from) {
  int64_t begin = dfgnn__ref_offset(w->matrix, row);
  int64_t end = dfgnn__ref_offset(w->matrix, row + 1);
  dfgnn_problem wide = *w->problem;
  wide.dim = dfgnn__ref_edge_width(w->problem);
  dfgnn__ref_put_edges(w, end - begin, from);
  for (int64_t e = begin; e < end; e++)
    dfgnn__ref_store(&wide, w->args->grad_edge_attr,
                     &(dfgnn_strides){wide.dim, 0, 1}, e, 0,
                     from->value + (e - begin) * wide.dim);
}

/* results: [2 D] features, a scalar, and the numbers of a row's edges. */
static void write_rows(walk *w, parameters *p, double *results) {
  const dfgnn_problem *problem = w->problem;
  const dfgnn_args *args = w->args;
  int64_t heads = problem->heads, dim = problem->dim;
  double *of_edges = results + 2 * dim + 1;
  const dfgnn_ref_result edges = {.value = of_edges +
                                           2 * heads * w->matrix->max_degree};
  for (int64_t i = 0; i < w->matrix->destinations; i++) {
    for (int64_t h = 0; h < heads; h++) {
      const row_results to = {.query.value = results,
                              .score_dst.value = results + 2 * dim,
                              .bias.value = of_edges + h,
                              .score_edge.value =
                                  of_edges + heads * w->matrix->max_degree + h};
      walk_row(w, i, h, &to, p);
      if (args->grad_query)
        dfgnn__ref_store(problem, args->grad_query, &args->grad_query_strides,
                         i, h, to.query.value);
      if (args->grad_score_dst)
        dfgnn__ref_set_scalar(problem, args->grad_score_dst, i * heads + h,
                              *to.score_dst.value);
      set_edges(w, args->grad_bias, i, h, &to.bias);
      set_edges(w, problem->op == DFGNN_OP_GAT ? args->grad_score_edge : NULL,
                i, h, &to.score_edge);
    }
    if (args->grad_edge_attr)
      store_edges(w, i, &edges);
  }
}

static void write_columns(walk *w, const dfgnn_view *view, double *results,
                          parameters *p) {
  const dfgnn_problem *problem = w->problem;
  const dfgnn_args *args = w->args;
  dfgnn_matrix transposed = dfgnn__transposed(w->matrix, view);
  int64_t heads = problem->heads, dim = problem->dim;
  const dfgnn_ref_result key = {.value = results};
  const dfgnn_ref_result value = {.value = results + dim};
  const dfgnn_ref_result score = {.value = results + 2 * dim};
  for (int64_t j = 0; j < w->matrix->sources; j++)
    for (int64_t h = 0; h < heads; h++) {
      walk_column(w, &transposed, view, j, h, &key, &value, &score, p);
      if (args->grad_key)
        dfgnn__ref_store(problem, args->grad_key, &args->grad_key_strides, j, h,
                         key.value);
      if (args->grad_value)
        dfgnn__ref_store(problem, args->grad_value, &args->grad_value_strides,
                         j, h, value.value);
      if (args->grad_score_src)
        dfgnn__ref_set_scalar(problem, args->grad_score_src, j * heads + h,
                              *score.value);
    }
}

/* One thread: the registry's yardstick need not be quick. */
static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  double *buffer = launch->workspace;
  double *sums = buffer + walk_numbers(problem, matrix->max_degree);
  double *results = sums + parameter_numbers(problem);
  parameters p = make_parameters(problem, matrix, sums, 0);
  walk w =
      make_walk(problem, matrix, args, buffer, matrix->max_degree, NULL, 0);

  write_rows(&w, &p, results);
  write_columns(&w, launch->views[0], results, &p);
  const struct {
    void *array;
    const dfgnn_ref_sum *sum;
  } written[] = {
      {args->grad_att, &p.att},
      {args->grad_beta, &p.beta},
      {problem->edge_dim > 0 ? args->grad_edge_weight : NULL, &p.weight},
      {args->grad_edge_bias, &p.bias},
      {args->grad_query_norm, &p.norm[0]},
      {args->grad_key_norm, &p.norm[1]}};
  for (size_t k = 0; k < sizeof written / sizeof *written; k++)
    for (int64_t i = 0; written[k].array && i < written[k].sum->width; i++)
      dfgnn__ref_set_scalar(problem, written[k].array, i,
                            written[k].sum->value[i]);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_reference_backward) = {
    {
        .name = "cpu.attention.bwd.reference",
        .algorithm = "reference",
        .backend = "cpu",
        .ops = DFGNN_OPS_ATTENTION,
        .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 1,
        .deterministic = 1,
        .bias = 1,
        .dropout = 1,
        .edge_ops = DFGNN_OPS_ATTENTION,
        .qk_norm = 1,
        .reference = 1,
        .workspace = workspace,
        .views = views,
        .launch = launch,
    },
    DFGNN_FAMILIES_END,
};
