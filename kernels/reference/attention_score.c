/* attention_score.c - the score of each operator, and its gradients by the rows
 * of both nodes and by parameters
 *
 * An operator is a row of `formulas`, below. */
#include <math.h>

#include "kernels/common/accuracy.h"
#include "kernels/reference/attention_walk.h"

typedef dfgnn_ref_grads walk;
typedef dfgnn_ref_edge edge;
typedef dfgnn_ref_direction direction;

/* The roundings of a product of two rows and of the factors of a score. */
#define SCORE_ROUNDINGS 9
#define TERM_VARIANCE DFGNN_REF_TERM_VARIANCE

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

static double unit_of(const edge *e) {
  return dfgnn__arithmetic(e->problem, NULL).unit;
}

static double beta_of(const edge *e) {
  return e->args->beta ? dfgnn__ref_scalar(e->problem, e->args->beta, 0) : 1.0;
}

/* |x| |y| of AGNN's rows */
static double norms_of(const edge *e) {
  return dfgnn__ref_norm(e->destination, e->problem->dim) *
         dfgnn__ref_norm(e->value, e->problem->dim);
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
static double jump_at(const edge *e, double x, double reach) {
  return fabs(x) <= reach ? DFGNN_REF_FLIP * (1 - e->args->slope) /
                                (DFGNN_BOUND * unit_of(e))
                          : 0;
}

/* GATv2: q + v + W e, feature d. */
static number argument(const edge *e, int64_t d) {
  number nodes = num_of(e->destination[d] + e->value[d]);
  return e->features ? num_add(num_round(nodes, 1 + e->narrow),
                               dfgnn__ref_projected(e, d))
                     : nodes;
}

/* GAT: the sum of two or three scalars, and of their magnitudes. */
static number sum_of_scalars(const edge *e, double *size) {
  const dfgnn_problem *p = e->problem;
  const dfgnn_args *a = e->args;
  double dst = dfgnn__ref_scalar(p, a->score_dst, e->row * p->heads + e->head);
  double src =
      dfgnn__ref_scalar(p, a->score_src, e->column * p->heads + e->head);
  number nodes = num_of(dst + src);
  *size = fabs(dst) + fabs(src);
  if (!p->edge_dim)
    return nodes;
  double own =
      dfgnn__ref_scalar(p, a->score_edge, e->edge * p->heads + e->head);
  *size += fabs(own);
  return num_add(num_round(nodes, 1), num_round(num_of(own), 1));
}

/* ---- scores -------------------------------------------------------------- */

/* scale <q, k + W e> */
static number transformer(const edge *e) {
  double scale = e->args->scale;
  number keys = num_round(
      num_scale(num_dot(e->destination, e->key, e->problem->dim, 2 * e->narrow),
                scale),
      SCORE_ROUNDINGS);
  if (!dfgnn__ref_edge_keys(e->problem))
    return keys;
  number edges = dfgnn__ref_edge_product(e, e->destination);
  return num_add(num_round(keys, 1),
                 num_round(num_scale(edges, scale), SCORE_ROUNDINGS));
}

/* beta <q, v> / (|q| |v|) */
static number cosine(const edge *e) {
  number product =
      num_dot(e->destination, e->value, e->problem->dim, 2 * e->narrow);
  return num_round(num_scale(product, beta_of(e) / norms_of(e)),
                   dfgnn__ref_norms_variance(e->problem) + SCORE_ROUNDINGS);
}

/* leaky(score_dst + score_src + score_edge) */
static number additive(const edge *e) {
  double size;
  number x = sum_of_scalars(e, &size);
  return num_round(num_map(x, leaky(e->args, x.value), 1), SCORE_ROUNDINGS);
}

/* <att, leaky(q + v + W e)> */
static number gatv2(const edge *e) {
  double error = 0;
  for (int64_t d = 0; d < e->problem->dim; d++) {
    number x = argument(e, d);
    e->leaky[d] = leaky(e->args, x.value);
    error += square(e->att[d]) * x.fixed;
  }
  return num_err(num_dot(e->att, e->leaky, e->problem->dim,
                         SCORE_ROUNDINGS - 1 + 2 * e->narrow),
                 error);
}

/* ---- directions ---------------------------------------------------------- */

static direction plain(const edge *e) {
  return (direction){num_of(0), TERM_VARIANCE + e->narrow};
}

static direction by_product(walk *w, int by_source) {
  const double *y = by_source ? w->at.destination : w->at.key;
  for (int64_t d = 0; d < w->problem->dim; d++)
    w->direction[d] = w->args->scale * y[d];
  return plain(&w->at);
}

/* The gradient of a cosine by x, of which y is the other row, has two parts:
 *
 *     beta y / (|x| |y|)  -  beta cos x / |x|^2
 *
 * A norm that was raised is a constant: its gradient is 0. */
static direction by_cosine(walk *w, int by_source) {
  const edge *e = &w->at;
  const double *x = by_source ? e->value : e->destination;
  const double *y = by_source ? e->destination : e->value;
  int64_t dim = e->problem->dim;
  double nx = dfgnn__ref_norm(x, dim), ny = dfgnn__ref_norm(y, dim);
  double factor = beta_of(e) / nx;
  direction to = {num_of(0), dfgnn__ref_norms_variance(e->problem) + e->narrow};
  for (int64_t d = 0; d < dim; d++)
    w->direction[d] = factor * y[d] / ny;
  if (nx > LEAST_NORM)
    to.cosine = num_scale(num_round(num_dot(x, y, dim, 0), to.variance),
                          factor / (nx * ny));
  return to;
}

static direction by_slope(walk *w, int by_source) {
  const edge *e = &w->at;
  double size, x = sum_of_scalars(e, &size).value;
  (void)by_source;
  *w->direction = slope_at(e->args, x);
  if (e->problem->edge_dim) /* else the sum of two has the right sign */
    *w->jump = jump_at(e, x, 2 * unit_of(e) * size);
  return plain(e);
}

static direction by_slopes(walk *w, int by_source) {
  const edge *e = &w->at;
  double error =
      DFGNN_BOUND * unit_of(e) * sqrt((double)e->features + 4 + e->narrow);
  (void)by_source;
  for (int64_t d = 0; d < e->problem->dim; d++) {
    double x = argument(e, d).value;
    double size = e->magnitude[d] + fabs(e->destination[d] + e->value[d]);
    w->direction[d] = e->att[d] * slope_at(e->args, x);
    w->jump[d] = e->features ? e->att[d] * jump_at(e, x, error * size) : 0;
  }
  return plain(e);
}

/* ---- parameters ---------------------------------------------------------- */

/* The factor of dS in the gradient of beta. */
static number by_beta(const edge *e, int64_t d, double variance) {
  (void)d;
  return num_round(
      num_scale(num_dot(e->destination, e->value, e->problem->dim, 0),
                1 / norms_of(e)),
      variance);
}

/* The same of att, feature d. */
static number by_att(const edge *e, int64_t d, double variance) {
  number x = num_of(leaky(e->args, argument(e, d).value));
  if (e->features)
    x = num_err(x, square(e->magnitude[d]) *
                       ((double)e->features + 4 + e->narrow));
  return num_round(x, variance);
}

/* ---- operators ----------------------------------------------------------- */

typedef struct formula {
  number (*score)(const edge *e);
  direction (*direction)(walk *w, int by_source);
  /* variance: of the direction. */
  number (*parameter)(const edge *e, int64_t d, double variance);
} formula;

static const formula formulas[] = {
    [DFGNN_OP_GT] = {transformer, by_product},
    [DFGNN_OP_AGNN] = {cosine, by_cosine, by_beta},
    [DFGNN_OP_GAT] = {additive, by_slope},
    [DFGNN_OP_GATV2] = {gatv2, by_slopes, by_att},
};

number dfgnn__ref_score(const edge *e) {
  const dfgnn_problem *p = e->problem;
  /* Scores may pass through memory in 16 bits. */
  number score = num_round(formulas[p->op].score(e), e->narrow);
  if (!p->bias)
    return score;
  double bias =
      dfgnn__ref_scalar(p, e->args->bias, e->edge * p->heads + e->head);
  return num_round(num_add(score, num_of(bias)), 1);
}

direction dfgnn__ref_find_direction(walk *w, int by_source) {
  return formulas[w->problem->op].direction(w, by_source);
}

void dfgnn__ref_add_parameters(walk *w, const dfgnn_ref_terms *t,
                               const direction *to, double repeats) {
  const dfgnn_op op = w->problem->op;
  const int64_t count =
      DFGNN_HAS_ATT(op) ? w->problem->dim : DFGNN_HAS_NORMS(op);
  /* A head adds to all numbers of beta, and to its own of att. */
  const int64_t first = DFGNN_HAS_ATT(op) ? w->at.head * count : 0;
  for (int64_t d = 0; d < count; d++) {
    number x = formulas[op].parameter(&w->at, d, to->variance);
    sum_add_one(&w->of.totals.sum[DFGNN_REF_SCORE], first + d, w->at.edge,
                num_repeat(num_mul(t->score, x), repeats));
  }
}
