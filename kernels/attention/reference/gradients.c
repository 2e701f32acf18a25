/* gradients.c - gradients of edge features, of their projection and of norms
 *
 * Let x_d be the factor of dS in the gradient of (W e + b)_d: scale q_d of GT,
 * att_d leaky' of GATv2.  Then that gradient is
 *
 *     g_d = dS x_d + P r dO_d
 *
 * with the first part if keys take W e, and the second if values do.  So
 * de = W^T g, dW = sum g e^T and db = sum g. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/attention/reference/backward.h"
#include "kernels/common/accuracy.h"

static double square(double x) { return x * x; }

int64_t dfgnn__ref_edge_width(const dfgnn_problem *problem) {
  return dfgnn__ref_edge_features(problem) *
         (problem->edge_dim < 0 ? problem->heads : 1);
}

void dfgnn__ref_sum_add_at(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                           int64_t k, double factor, double variance,
                           const double *x) {
  /* Cells are as far apart as the whole sum is wide. */
  double *cell = sum->bounds && sum->terms > DFGNN_REF_LONG
                     ? dfgnn__ref_sum_cell(sum, k) + at
                     : NULL;
  for (int64_t d = 0; d < count; d++) {
    double term = factor * x[d];
    sum->value[at + d] += term;
    if (!sum->bounds)
      continue;
    sum->size[at + d] += fabs(term);
    sum->spread[at + d] += variance * square(x[d]);
    if (cell)
      cell[d] += term;
  }
}

/* Where rounding may have changed the sign of its argument, leaky ReLU may have
 * its other slope. */
void dfgnn__ref_find_jumps(dfgnn_ref_walk *w) {
  const dfgnn_problem *problem = w->problem;
  const dfgnn_ref_edge *r = &w->rows;
  double unit = problem->dtype == DFGNN_F64 ? DBL_EPSILON / 2 : 0x1p-24;
  double roundings = (double)r->features + 4 + dfgnn__term_roundoff(problem);
  for (int64_t d = 0; d < problem->dim; d++) {
    w->jump[d] = 0;
    if (!r->features)
      continue;
    double x = r->destination[d] + r->value[d];
    double reach =
        DFGNN_BOUND * unit * sqrt(roundings) * (r->magnitude[d] + fabs(x));
    if (fabs(x + r->projected[d]) <= reach)
      /* 1.01: dS, by which the jump is multiplied, is rounded, too. */
      w->jump[d] =
          1.01 * r->att[d] * (1 - w->args->slope) / (DFGNN_BOUND * unit);
  }
}

void dfgnn__ref_find_shifts(dfgnn_ref_walk *w, int side) {
  double shift = w->problem->qk_norm
                     ? dfgnn__ref_mean_error(w->problem, &w->rows, side)
                     : 0;
  for (int64_t d = 0; w->problem->qk_norm && d < w->problem->dim; d++)
    w->jump[d] = w->args->scale * w->rows.norm_weight[side][d] * shift;
}

/* ---- edges --------------------------------------------------------------- */

/* The factors of dS and of P r in the gradient of W e; NULL: it has no such
 * part. */
typedef struct gradient {
  const double *score, *value;
} gradient;

static gradient gradient_of(dfgnn_ref_walk *w) {
  const dfgnn_problem *problem = w->problem;
  gradient g = {NULL, NULL};
  if (problem->op == DFGNN_OP_GATV2) {
    g.score = w->direction;
  } else if (dfgnn__ref_edge_keys(problem)) {
    for (int64_t d = 0; d < problem->dim; d++)
      w->along[d] = w->args->scale * w->rows.destination[d];
    g.score = w->along;
    dfgnn__ref_find_shifts(w, 0);
  }
  if (dfgnn__ref_edge_values(problem))
    g.value = w->grad_out;
  return g;
}

/* Number f of W^T x; of x itself if the features are projected. */
typedef struct column {
  double value, size, jump;
} column;

static column through(const dfgnn_ref_walk *w, const double *x, int64_t f) {
  const dfgnn_ref_edge *r = &w->rows;
  int64_t dim = w->problem->dim;
  column c = {0, 0, 0};
  if (!x)
    return c;
  for (int64_t d = 0; d < dim; d++) {
    double weight =
        w->problem->edge_dim < 0 ? d == f : r->weight[d * r->features + f];
    c.value += weight * x[d];
    c.size += fabs(weight * x[d]);
    c.jump += square(weight * w->jump[d]);
  }
  return c;
}

static void add_features(dfgnn_ref_walk *w, const dfgnn_ref_terms *t,
                         const gradient *g, int64_t k, int64_t head) {
  const dfgnn_problem *problem = w->problem;
  int64_t features = w->rows.features;
  int64_t at = k * dfgnn__ref_edge_width(problem) +
               (problem->edge_dim < 0 ? head * features : 0);
  /* 0 times a NaN is NaN, so a part that the operator does not have is left
   * out. */
  double ds = g->score ? t->score.value : 0;
  double p = g->value ? t->weight.value : 0;
  double variance =
      g->score ? t->score.variance + square(t->p) * w->delta.variance : 0;
  double weight = g->value ? t->weight.variance : 0;
  double narrow =
      dfgnn__term_roundoff(problem) + dfgnn__ref_norm_error(problem);
  for (int64_t f = 0; f < features; f++) {
    column s = through(w, g->score, f), v = through(w, g->value, f);
    w->edge[0][at + f] += ds * s.value + p * v.value;
    w->edge[1][at + f] +=
        variance * square(s.value) + weight * square(v.value) +
        square(ds) * s.jump +
        2 * narrow * (square(ds * s.size) + square(p * v.size));
    w->edge[2][at + f] += fabs(ds) * s.size + fabs(p) * v.size;
  }
}

static void add_projection(dfgnn_ref_walk *w, const dfgnn_ref_terms *t,
                           const gradient *g, int64_t edge, int64_t head,
                           double repeats, dfgnn_ref_parameters *p) {
  const dfgnn_ref_edge *r = &w->rows;
  const double one = 1;
  int64_t dim = w->problem->dim, features = r->features;
  double ds = t->score.value, weight = t->weight.value;
  double narrow = DFGNN_REF_TERM_VARIANCE + dfgnn__term_roundoff(w->problem) +
                  dfgnn__ref_norm_error(w->problem);
  for (int64_t d = 0; d < dim; d++) {
    int64_t at = head * dim + d;
    if (g->score) {
      double x = g->score[d];
      double variance =
          repeats * (t->score.variance * square(x) + narrow * square(ds * x));
      variance += repeats * square(ds * w->jump[d]);
      dfgnn__ref_sum_add_at(&p->weight, at * features, features, edge, ds * x,
                            variance, r->attr);
      dfgnn__ref_sum_add_at(&p->bias, at, 1, edge, ds * x, variance, &one);
      for (int64_t f = 0; f < features; f++)
        w->by_delta[0][d * features + f] += t->p * x * r->attr[f];
      w->by_delta[1][d] += t->p * x;
    }
    if (g->value) {
      double x = g->value[d];
      double variance = repeats * (t->weight.variance * square(x) +
                                   narrow * square(weight * x));
      dfgnn__ref_sum_add_at(&p->weight, at * features, features, edge,
                            weight * x, variance, r->attr);
      dfgnn__ref_sum_add_at(&p->bias, at, 1, edge, weight * x, variance, &one);
    }
  }
}

/* Adds an edge to the sums that W and b are multiplied by in the gradient of
 * the query. */
static void add_row(dfgnn_ref_walk *w, const dfgnn_ref_terms *t, int64_t k,
                    double repeats) {
  const double one = 1;
  double scale = w->args->scale, ds = scale * t->score.value;
  double variance =
      repeats * (square(scale) * t->score.variance + 4 * square(ds));
  dfgnn__ref_sum_add(&w->sums.edges, k, ds, variance, w->rows.attr);
  dfgnn__ref_sum_add(&w->sums.scores, k, ds, variance, &one);
  for (int64_t d = 0; d < w->problem->dim; d++)
    w->sums.by_delta[d] += t->p * scale * w->rows.projected[d];
}

void dfgnn__ref_add_edge(dfgnn_ref_walk *w, const dfgnn_ref_terms *t, int64_t k,
                         int64_t edge, int64_t head, double repeats,
                         dfgnn_ref_parameters *p) {
  if (!w->rows.features)
    return;
  gradient g = gradient_of(w);
  add_features(w, t, &g, k, head);
  if (w->problem->edge_dim > 0)
    add_projection(w, t, &g, edge, head, repeats, p);
  if (dfgnn__ref_edge_keys(w->problem))
    add_row(w, t, k, repeats);
}

/* The variance that the error of delta adds; 0 where no score depends on the
 * edge features, even if the error is NaN. */
static double by_delta(const dfgnn_ref_walk *w, double factor) {
  return factor == 0 ? 0 : square(factor) * w->delta.variance;
}

void dfgnn__ref_end_edges(dfgnn_ref_walk *w, int64_t head,
                          dfgnn_ref_parameters *p) {
  int64_t dim = w->problem->dim, features = w->rows.features;
  if (w->problem->edge_dim <= 0 || !features)
    return;
  for (int64_t i = 0; w->bounds && i < dim * features; i++)
    p->weight.spread[head * dim * features + i] +=
        by_delta(w, w->by_delta[0][i]);
  for (int64_t d = 0; w->bounds && d < dim; d++)
    p->bias.spread[head * dim + d] += by_delta(w, w->by_delta[1][d]);
  memset(w->by_delta[0], 0, (size_t)(dim * features) * sizeof(double));
  memset(w->by_delta[1], 0, (size_t)dim * sizeof(double));
}

void dfgnn__ref_put_edges(const dfgnn_ref_walk *w, int64_t count,
                          const dfgnn_ref_result *to) {
  const dfgnn_problem *problem = w->problem;
  int64_t numbers = count * dfgnn__ref_edge_width(problem);
  double additions =
      problem->edge_dim < 0 ? 4 : (double)(problem->dim + 2 * problem->heads);
  for (int64_t i = 0; i < numbers; i++)
    dfgnn__ref_put(to, i, w->edge[0][i],
                   w->edge[1][i] + additions * square(w->edge[2][i]), 0);
  for (int i = 0; i < 3; i++)
    memset(w->edge[i], 0, (size_t)numbers * sizeof(double));
}

/* ---- norms --------------------------------------------------------------- */

/* With u = (x - mean) / s and g the gradient of w u, the gradient of x is
 *
 *     (w g - mean(w g) - u mean(w g u)) / s
 *
 * RMS subtracts no mean, so the second term is missing there. */
void dfgnn__ref_through_norm(dfgnn_ref_walk *w, int side,
                             dfgnn_ref_parameters *p) {
  const dfgnn_problem *problem = w->problem;
  const double *unit = w->rows.unit[side], *weight = w->rows.norm_weight[side];
  double deviation = w->rows.deviation[side], dim = (double)problem->dim;
  double centred = problem->qk_norm == DFGNN_QK_NORM_LAYER;
  double error = dfgnn__ref_norm_error(problem) + DFGNN_REF_TERM_VARIANCE +
                 dim + dfgnn__term_roundoff(problem);
  double mean = 0, along = 0, mean_size = 0, along_size = 0;
  dfgnn_ref_part means = {0, 0, 0}, alongs = {0, 0, 0};
  /* A kernel may keep the gradient of the normalised vector in memory. */
  for (int64_t d = 0; w->bounds && d < problem->dim; d++)
    w->parts[d].fixed += dfgnn__ref_subnormal(problem);
  for (int64_t d = 0; d < problem->dim; d++) {
    const dfgnn_ref_part *g = &w->parts[d];
    double a = centred * weight[d] / dim, b = weight[d] * unit[d] / dim;
    mean += a * g->value;
    along += b * g->value;
    mean_size += fabs(a * g->value);
    along_size += fabs(b * g->value);
    means.fixed += square(a) * g->fixed;
    means.summed += square(a) * g->summed;
    alongs.fixed += square(b) * g->fixed;
    alongs.summed += square(b) * g->summed;
    p->norm[side].value[d] += g->value * unit[d];
    if (!w->bounds)
      continue;
    p->norm[side].size[d] += fabs(g->value * unit[d]);
    p->norm[side].spread[d] +=
        g->fixed * square(unit[d]) + error * square(g->value * unit[d]);
    p->norm_summed[side][d] += g->summed * square(unit[d]);
  }
  for (int64_t d = 0; d < problem->dim; d++) {
    dfgnn_ref_part *g = &w->parts[d];
    double own = weight[d] * g->value, u = unit[d];
    double size = fabs(own) + mean_size + fabs(u) * along_size;
    g->value = (own - mean - u * along) / deviation;
    g->fixed = (square(weight[d]) * g->fixed + means.fixed +
                square(u) * alongs.fixed + error * square(size)) /
               square(deviation);
    g->summed = (square(weight[d]) * g->summed + means.summed +
                 square(u) * alongs.summed) /
                square(deviation);
  }
}
