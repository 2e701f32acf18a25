/* attention_edges.c - gradients of edge features and of their projection
 *
 * Let x_d be the factor of dS in the gradient of (W e + b)_d: scale q_d of GT,
 * att_d leaky' of GATv2.  Then that gradient is
 *
 *     g_d = dS x_d + P r dO_d
 *
 * with the first part if keys take W e, and the second if values do.  So
 * de = W^T g, dW = sum g e^T and db = sum g. */
#include <math.h>
#include <string.h>

#include "kernels/reference/attention_walk.h"

int64_t dfgnn__ref_edge_width(const dfgnn_ref_edge *e) {
  return e->features * (e->problem->edge_dim < 0 ? e->problem->heads : 1);
}

/* ---- edges --------------------------------------------------------------- */

/* The factors of dS and of P r in the gradient of W e; NULL: it has no such
 * part. */
typedef struct gradient {
  const double *score, *value;
} gradient;

static gradient gradient_of(dfgnn_ref_grads *w) {
  const dfgnn_problem *problem = w->problem;
  gradient g = {NULL, NULL};
  if (DFGNN_HAS_ATT(problem->op)) {
    g.score = w->direction;
  } else if (dfgnn__ref_edge_keys(problem)) {
    for (int64_t d = 0; d < problem->dim; d++)
      w->along[d] = w->args->scale * w->at.destination[d];
    g.score = w->along;
  }
  if (dfgnn__ref_edge_values(problem))
    g.value = w->grad_out;
  return g;
}

/* Number f of W^T x; of x itself if the features are projected. */
typedef struct column {
  double value, size, jump;
} column;

static column through(const dfgnn_ref_grads *w, const double *x, int64_t f) {
  const dfgnn_ref_edge *r = &w->at;
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

static void add_features(dfgnn_ref_grads *w, const dfgnn_ref_terms *t,
                         const gradient *g, int64_t k) {
  int64_t features = w->at.features;
  int64_t at = k * dfgnn__ref_edge_width(&w->at) +
               (w->problem->edge_dim < 0 ? w->at.head * features : 0);
  /* 0 times a NaN is NaN, so a part that the operator does not have is left
   * out. */
  double ds = g->score ? t->score.value : 0;
  double p = g->value ? t->weight.value : 0;
  double variance = g->score ? num_settle(t->score, w->delta.fixed).fixed : 0;
  double weight = g->value ? t->weight.fixed : 0;
  double narrow = w->at.narrow;
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

/* Adds x times the features of the edge to the gradients of a row of W and of
 * a number of b. */
static void add_to_projection(const dfgnn_ref_grads *w, int64_t at, number x) {
  const int64_t features = w->at.features;
  dfgnn__ref_sum_add(&w->of.totals.sum[DFGNN_REF_WEIGHT], at * features,
                     features, w->at.edge, x, w->at.attr);
  sum_add_one(&w->of.totals.sum[DFGNN_REF_BIAS], at, w->at.edge, x);
}

static void add_projection(dfgnn_ref_grads *w, const dfgnn_ref_terms *t,
                           const gradient *g, double repeats) {
  int64_t dim = w->problem->dim;
  double narrow = DFGNN_REF_TERM_VARIANCE + w->at.narrow;
  for (int64_t d = 0; d < dim; d++) {
    int64_t at = w->at.head * dim + d;
    if (g->score) {
      double x = g->score[d], ds = t->score.value;
      number term = num_round(num_scale(t->score, x), narrow);
      term = num_repeat(term, repeats);
      term.fixed += repeats * square(ds * w->jump[d]);
      add_to_projection(w, at, term);
    }
    if (g->value)
      add_to_projection(
          w, at,
          num_repeat(num_round(num_scale(t->weight, g->value[d]), narrow),
                     repeats));
  }
}

/* Adds an edge to the sums that W and b are multiplied by in the gradient of
 * the query. */
static void add_row(dfgnn_ref_grads *w, const dfgnn_ref_terms *t, int64_t k,
                    double repeats) {
  number ds = num_round(num_scale(t->score, w->args->scale), 4);
  ds = num_repeat(ds, repeats);
  sum_add(&w->sums.edges, k, ds, w->at.attr);
  sum_add_one(&w->sums.scores, 0, k, ds);
}

void dfgnn__ref_add_edge(dfgnn_ref_grads *w, const dfgnn_ref_terms *t,
                         int64_t k, double repeats) {
  if (!w->at.features)
    return;
  gradient g = gradient_of(w);
  add_features(w, t, &g, k);
  if (w->problem->edge_dim > 0)
    add_projection(w, t, &g, repeats);
  if (dfgnn__ref_edge_keys(w->problem))
    add_row(w, t, k, repeats);
}

void dfgnn__ref_put_edges(const dfgnn_ref_grads *w, int64_t count,
                          const dfgnn_ref_result *to) {
  const dfgnn_problem *problem = w->problem;
  int64_t numbers = count * dfgnn__ref_edge_width(&w->at);
  double additions =
      problem->edge_dim < 0 ? 4 : (double)(problem->dim + 2 * problem->heads);
  for (int64_t i = 0; i < numbers; i++)
    dfgnn__ref_put(
        to, i,
        num(w->edge[0][i], w->edge[1][i] + additions * square(w->edge[2][i])));
  for (int i = 0; i < 3; i++)
    memset(w->edge[i], 0, (size_t)numbers * sizeof(double));
}
