/* attention_score.c - the score of each operator, and its gradients by the rows
 * of both nodes and by parameters
 *
 * An operator is a row of `formulas`, below. */
#include <math.h>

#include "kernels/common/accuracy.h"
#include "kernels/reference/attention_walk.h"

typedef dfgnn_ref_number number;
typedef dfgnn_ref_grads walk;
typedef dfgnn_ref_place place;
typedef dfgnn_ref_direction direction;

/* The roundings of a product of two rows and of the factors of a score. */
#define SCORE_ROUNDINGS 9
#define TERM_VARIANCE DFGNN_REF_TERM_VARIANCE

/* An edge whose rows are loaded. */
typedef struct edge {
  const dfgnn_problem *problem;
  const dfgnn_args *args;
  const dfgnn_ref_edge *rows;
  const place *at;
  double narrow; /* the variance of rounding a term to 16 bits, or 0 */
} edge;

static edge edge_of(const walk *w, const place *at) {
  return (edge){w->problem, w->args, &w->rows, at,
                dfgnn__term_roundoff(w->problem)};
}

/* torch.nn.functional.normalize raises smaller norms to this. */
#define LEAST_NORM 1e-12

double dfgnn__ref_norm(const double *x, int64_t count) {
  double squares = 0;
  for (int64_t d = 0; d < count; d++)
    squares += square(x[d]);
  return fmax(sqrt(squares), LEAST_NORM);
}

double dfgnn__ref_norms_variance(const dfgnn_problem *problem) {
  return 2 * ((double)problem->dim / 4 + 4);
}

static double unit_of(const dfgnn_problem *problem) {
  return dfgnn__arithmetic(problem, NULL).unit;
}

static double beta_of(const dfgnn_problem *problem, const dfgnn_args *args) {
  return args->beta ? dfgnn__ref_scalar(problem, args->beta, 0) : 1.0;
}

/* ---- leaky ReLU ---------------------------------------------------------- */

static double slope_at(const dfgnn_args *args, double x) {
  return x > 0 ? 1 : args->slope;
}

static double leaky(const dfgnn_args *args, double x) {
  return x * slope_at(args, x);
}

/* The further error of a slope, in u, if rounding may have changed the sign of
 * its argument x, whose error is up to `reach`. */
static double jump_at(const dfgnn_problem *problem, const dfgnn_args *args,
                      double x, double reach) {
  return fabs(x) <= reach ? DFGNN_REF_FLIP * (1 - args->slope) /
                                (DFGNN_BOUND * unit_of(problem))
                          : 0;
}

/* GATv2: q + v + W e, feature d. */
static number argument(const edge *e, int64_t d) {
  const dfgnn_ref_edge *r = e->rows;
  number nodes = num_of(r->destination[d] + r->value[d]);
  return r->features ? num_add(num_round(nodes, 1 + e->narrow),
                               dfgnn__ref_projected(r, d, e->narrow))
                     : nodes;
}

/* GAT: the sum of two or three scalars. */
static number sum_of_scalars(const edge *e) {
  const dfgnn_problem *p = e->problem;
  const dfgnn_args *a = e->args;
  int64_t heads = p->heads, head = e->at->head;
  number nodes =
      num_of(dfgnn__ref_scalar(p, a->score_dst, e->at->row * heads + head) +
             dfgnn__ref_scalar(p, a->score_src, e->at->column * heads + head));
  if (!p->edge_dim)
    return nodes;
  number edge =
      num_of(dfgnn__ref_scalar(p, a->score_edge, e->at->edge * heads + head));
  return num_add(num_round(nodes, 1), num_round(edge, 1));
}

static double size_of_scalars(const edge *e) {
  const dfgnn_problem *p = e->problem;
  int64_t heads = p->heads, head = e->at->head;
  return fabs(dfgnn__ref_scalar(p, e->args->score_dst,
                                e->at->row * heads + head)) +
         fabs(dfgnn__ref_scalar(p, e->args->score_src,
                                e->at->column * heads + head)) +
         fabs(dfgnn__ref_scalar(p, e->args->score_edge,
                                e->at->edge * heads + head));
}

/* ---- scores -------------------------------------------------------------- */

/* scale <q, k + W e> */
static number transformer(const edge *e) {
  const dfgnn_ref_edge *r = e->rows;
  double scale = e->args->scale;
  number keys = num_round(
      num_scale(num_dot(r->destination, r->key, e->problem->dim, 2 * e->narrow),
                scale),
      SCORE_ROUNDINGS);
  if (!dfgnn__ref_edge_keys(e->problem))
    return keys;
  number edges = dfgnn__ref_edge_product(e->problem, r, r->destination);
  return num_add(num_round(keys, 1),
                 num_round(num_scale(edges, scale), SCORE_ROUNDINGS));
}

/* beta <q, v> / (|q| |v|) */
static number cosine(const edge *e) {
  const dfgnn_ref_edge *r = e->rows;
  int64_t dim = e->problem->dim;
  double factor =
      beta_of(e->problem, e->args) /
      (dfgnn__ref_norm(r->destination, dim) * dfgnn__ref_norm(r->value, dim));
  number product = num_dot(r->destination, r->value, dim, 2 * e->narrow);
  return num_round(num_scale(product, factor),
                   dfgnn__ref_norms_variance(e->problem) + SCORE_ROUNDINGS);
}

/* leaky(score_dst + score_src + score_edge) */
static number additive(const edge *e) {
  number x = sum_of_scalars(e);
  return num_round(num_map(x, leaky(e->args, x.value), 1), SCORE_ROUNDINGS);
}

/* <att, leaky(q + v + W e)> */
static number gatv2(const edge *e) {
  const dfgnn_ref_edge *r = e->rows;
  double error = 0;
  for (int64_t d = 0; d < e->problem->dim; d++) {
    number x = argument(e, d);
    r->leaky[d] = leaky(e->args, x.value);
    error += square(r->att[d]) * x.variance;
  }
  return num_err(num_dot(r->att, r->leaky, e->problem->dim,
                         SCORE_ROUNDINGS - 1 + 2 * e->narrow),
                 error);
}

/* ---- directions ---------------------------------------------------------- */

static direction plain(const edge *e) {
  return (direction){num_of(0), TERM_VARIANCE + e->narrow};
}

static direction by_product(walk *w, const edge *e, int by_source) {
  const double *y = by_source ? e->rows->destination : e->rows->key;
  for (int64_t d = 0; d < e->problem->dim; d++)
    w->direction[d] = e->args->scale * y[d];
  return plain(e);
}

/* The gradient of a cosine by x, of which y is the other row, has two parts:
 *
 *     beta y / (|x| |y|)  -  beta cos x / |x|^2
 *
 * A norm that was raised is a constant: its gradient is 0. */
static direction by_cosine(walk *w, const edge *e, int by_source) {
  const double *x = by_source ? e->rows->value : e->rows->destination;
  const double *y = by_source ? e->rows->destination : e->rows->value;
  int64_t dim = e->problem->dim;
  double nx = dfgnn__ref_norm(x, dim), ny = dfgnn__ref_norm(y, dim);
  double factor = beta_of(e->problem, e->args) / nx;
  direction to = {num_of(0), dfgnn__ref_norms_variance(e->problem) + e->narrow};
  for (int64_t d = 0; d < dim; d++)
    w->direction[d] = factor * y[d] / ny;
  if (nx > LEAST_NORM)
    to.cosine = num_scale(num_round(num_dot(x, y, dim, 0), to.variance),
                          factor / (nx * ny));
  return to;
}

static direction by_slope(walk *w, const edge *e, int by_source) {
  double x = sum_of_scalars(e).value;
  (void)by_source;
  *w->direction = slope_at(e->args, x);
  *w->jump = 0;
  if (e->problem->edge_dim) /* else the sum of two has the right sign */
    *w->jump = jump_at(e->problem, e->args, x,
                       2 * unit_of(e->problem) * size_of_scalars(e));
  return plain(e);
}

static direction by_slopes(walk *w, const edge *e, int by_source) {
  const dfgnn_ref_edge *r = e->rows;
  double error = DFGNN_BOUND * unit_of(e->problem) *
                 sqrt((double)r->features + 4 + e->narrow);
  (void)by_source;
  for (int64_t d = 0; d < e->problem->dim; d++) {
    double x = argument(e, d).value;
    double size = r->magnitude[d] + fabs(r->destination[d] + r->value[d]);
    w->direction[d] = r->att[d] * slope_at(e->args, x);
    w->jump[d] = r->features
                     ? r->att[d] * jump_at(e->problem, e->args, x, error * size)
                     : 0;
  }
  return plain(e);
}

/* ---- parameters ---------------------------------------------------------- */

/* The factor of dS in the gradient of beta. */
static number by_beta(const edge *e, int64_t d, double variance) {
  const dfgnn_ref_edge *r = e->rows;
  int64_t dim = e->problem->dim;
  double norms =
      dfgnn__ref_norm(r->destination, dim) * dfgnn__ref_norm(r->value, dim);
  (void)d;
  return num_round(
      num_scale(num_dot(r->destination, r->value, dim, 0), 1 / norms),
      variance);
}

/* The same of att, feature d. */
static number by_att(const edge *e, int64_t d, double variance) {
  const dfgnn_ref_edge *r = e->rows;
  number x = num_of(leaky(e->args, argument(e, d).value));
  if (r->features)
    x = num_err(x, square(r->magnitude[d]) *
                       ((double)r->features + 4 + e->narrow));
  return num_round(x, variance);
}

/* ---- operators ----------------------------------------------------------- */

typedef struct formula {
  number (*score)(const edge *e);
  direction (*direction)(walk *w, const edge *e, int by_source);
  /* variance: of the direction. */
  number (*parameter)(const edge *e, int64_t d, double variance);
} formula;

static const formula formulas[] = {
    [DFGNN_OP_GT] = {transformer, by_product},
    [DFGNN_OP_AGNN] = {cosine, by_cosine, by_beta},
    [DFGNN_OP_GAT] = {additive, by_slope},
    [DFGNN_OP_GATV2] = {gatv2, by_slopes, by_att},
};

number dfgnn__ref_score(const dfgnn_problem *problem, const dfgnn_args *args,
                        const dfgnn_ref_edge *loaded, const place *at) {
  const edge e = {problem, args, loaded, at, dfgnn__term_roundoff(problem)};
  /* Scores may pass through memory in 16 bits. */
  number score = num_round(formulas[problem->op].score(&e), e.narrow);
  if (!problem->bias)
    return score;
  double bias = dfgnn__ref_scalar(problem, args->bias,
                                  at->edge * problem->heads + at->head);
  return num_round(num_add(score, num_of(bias)), 1);
}

direction dfgnn__ref_find_direction(walk *w, const place *at, int by_source) {
  const edge e = edge_of(w, at);
  return formulas[w->problem->op].direction(w, &e, by_source);
}

/* A head adds to all numbers of beta, and to its own of att. */
static int64_t parameters_of(const walk *w, int64_t head, int64_t *first) {
  int64_t dim = w->problem->dim;
  *first = DFGNN_HAS_ATT(w->problem->op) ? head * dim : 0;
  return DFGNN_HAS_ATT(w->problem->op)     ? dim
         : DFGNN_HAS_NORMS(w->problem->op) ? 1
                                           : 0;
}

void dfgnn__ref_add_parameters(walk *w, const dfgnn_ref_terms *t,
                               const place *at, const direction *to,
                               double repeats, dfgnn_ref_parameters *p) {
  const edge e = edge_of(w, at);
  int64_t first, count = parameters_of(w, at->head, &first);
  for (int64_t d = 0; d < count; d++) {
    number x = formulas[w->problem->op].parameter(&e, d, to->variance);
    w->score_by_delta[d] += t->p * x.value;
    sum_add_one(&p->score, first + d, at->edge, num_mul(t->score, x), repeats);
  }
}

void dfgnn__ref_end_parameters(const walk *w, int64_t head,
                               dfgnn_ref_parameters *p) {
  int64_t first, count = parameters_of(w, head, &first);
  for (int64_t d = 0; w->bounds && d < count; d++)
    p->score.spread[first + d] +=
        square(w->score_by_delta[d]) * w->delta.variance;
}
