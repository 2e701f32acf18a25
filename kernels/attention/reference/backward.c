/* backward.c - float64 gradients of attention, by the formulas
 *
 * With P = softmax(s) = exp(s - lse), the kept factor r of dropout and delta_i
 * = <dO_i, O_i>: dP_ij = r_ij <dO_i, v_j>       dS_ij = P_ij (dP_ij - delta_i)
 *     dv_j += P_ij r_ij dO_i         and dS goes on into what the score read.
 * One walk over rows gives what belongs to destinations and edges, one over
 * columns what belongs to sources. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/attention/reference/attention.h"

/* What an edge contributes, once its rows are loaded. */
typedef struct terms {
  double weight; /* P r: of grad_value */
  double score;  /* dS */
} terms;

typedef struct walk {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  dfgnn_ref_edge rows;
  double *grad_out, *out; /* of the destination */
  double lse, delta;
} walk;

#define WALK_ROWS (DFGNN_REF_EDGE_ROWS + 2)

static walk make_walk(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                      const dfgnn_args *args, double *buffer) {
  walk w = {.problem = problem, .matrix = matrix, .args = args};
  w.rows = dfgnn__ref_edge_in(buffer, problem);
  w.grad_out = buffer + DFGNN_REF_EDGE_ROWS * problem->dim;
  w.out = w.grad_out + problem->dim;
  return w;
}

static void at_destination(walk *w, int64_t row, int64_t head) {
  const dfgnn_args *args = w->args;
  dfgnn__ref_load_destination(&w->rows, w->problem, args, row, head);
  dfgnn__ref_load(w->grad_out, w->problem, args->grad_out,
                  &args->grad_out_strides, row, head);
  dfgnn__ref_load(w->out, w->problem, args->out, &args->out_strides, row, head);
  w->lse =
      dfgnn__ref_scalar(w->problem, args->lse, row * w->problem->heads + head);
  w->delta = dfgnn__ref_dot(w->grad_out, w->out, w->problem->dim);
}

static void at_source(walk *w, int64_t column, int64_t head) {
  dfgnn__ref_load_source(&w->rows, w->problem, w->args, column, head);
}

static terms edge_terms(const walk *w, int64_t row, int64_t column,
                        int64_t edge, int64_t head) {
  if (w->lse == -INFINITY) /* no edge of the row has a weight */
    return (terms){0, 0};
  double score =
      dfgnn__ref_score(w->problem, w->args, &w->rows, row, column, edge, head);
  double p = exp(score - w->lse);
  double kept = dfgnn__ref_kept(w->problem, w->args, edge, head);
  double dp =
      kept * dfgnn__ref_dot(w->grad_out, w->rows.value, w->problem->dim);
  return (terms){p * kept, p * (dp - w->delta)};
}

static double slope_at(const walk *w, double x) {
  return x > 0 ? 1 : w->args->slope;
}

/* dS to d(a_i + b_j) of GAT. */
static double through_leaky(const walk *w, int64_t row, int64_t column,
                            int64_t head, double score) {
  int64_t heads = w->problem->heads;
  double x =
      dfgnn__ref_scalar(w->problem, w->args->score_dst, row * heads + head) +
      dfgnn__ref_scalar(w->problem, w->args->score_src, column * heads + head);
  return score * slope_at(w, x);
}

/* to += dS times the derivative of beta cos(x, y) by x.  A norm that was raised
 * to 1e-12 is a constant. */
static void through_cosine(const walk *w, double score, const double *x,
                           const double *y, double *to) {
  int64_t dim = w->problem->dim;
  double nx = dfgnn__ref_norm(x, dim), ny = dfgnn__ref_norm(y, dim);
  double cosine = dfgnn__ref_dot(x, y, dim) / (nx * ny);
  double factor = score * dfgnn__ref_beta(w->problem, w->args) / nx;
  if (nx <= 1e-12)
    cosine = 0;
  for (int64_t d = 0; d < dim; d++)
    to[d] += factor * (y[d] / ny - cosine * x[d] / nx);
}

static void through_gatv2(const walk *w, double score, double *to) {
  const dfgnn_ref_edge *r = &w->rows;
  for (int64_t d = 0; d < w->problem->dim; d++)
    to[d] += score * r->att[d] * slope_at(w, r->destination[d] + r->value[d]);
}

/* ---- by destination ------------------------------------------------------ */

/* What all rows add to. */
typedef struct parameters {
  double *att; /* [H, D] */
  double beta;
} parameters;

static void destination_edge(const walk *w, const terms *t, int64_t row,
                             int64_t column, int64_t head, double *query,
                             double *score_dst, parameters *p) {
  const dfgnn_ref_edge *r = &w->rows;
  int64_t dim = w->problem->dim;
  switch (w->problem->op) {
  case DFGNN_OP_GT:
    for (int64_t d = 0; d < dim; d++)
      query[d] += t->score * w->args->scale * r->key[d];
    break;
  case DFGNN_OP_AGNN:
    through_cosine(w, t->score, r->destination, r->value, query);
    p->beta +=
        t->score * dfgnn__ref_dot(r->destination, r->value, dim) /
        (dfgnn__ref_norm(r->destination, dim) * dfgnn__ref_norm(r->value, dim));
    break;
  case DFGNN_OP_GAT:
    *score_dst += through_leaky(w, row, column, head, t->score);
    break;
  default:
    through_gatv2(w, t->score, query);
    for (int64_t d = 0; d < dim; d++) {
      double x = r->destination[d] + r->value[d];
      p->att[head * dim + d] += t->score * x * slope_at(w, x);
    }
  }
}

static void walk_row(walk *w, int64_t row, int64_t head, double *query,
                     double *score_dst, double *bias, parameters *p) {
  int64_t begin = dfgnn__ref_offset(w->matrix, row);
  int64_t end = dfgnn__ref_offset(w->matrix, row + 1);
  memset(query, 0, (size_t)w->problem->dim * sizeof *query);
  *score_dst = 0;
  at_destination(w, row, head);
  for (int64_t e = begin; e < end; e++) {
    int64_t column = w->matrix->indices[e];
    at_source(w, column, head);
    terms t = edge_terms(w, row, column, e, head);
    if (bias)
      bias[(e - begin) * w->problem->heads] = t.score;
    if (t.weight != 0 || t.score != 0)
      destination_edge(w, &t, row, column, head, query, score_dst, p);
  }
}

/* ---- by source ----------------------------------------------------------- */

static void source_edge(const walk *w, const terms *t, int64_t row,
                        int64_t column, int64_t head, double *key,
                        double *value, double *score_src) {
  const dfgnn_ref_edge *r = &w->rows;
  int64_t dim = w->problem->dim;
  for (int64_t d = 0; d < dim; d++)
    value[d] += t->weight * w->grad_out[d];
  switch (w->problem->op) {
  case DFGNN_OP_GT:
    for (int64_t d = 0; d < dim; d++)
      key[d] += t->score * w->args->scale * r->destination[d];
    break;
  case DFGNN_OP_AGNN:
    through_cosine(w, t->score, r->value, r->destination, value);
    break;
  case DFGNN_OP_GAT:
    *score_src += through_leaky(w, row, column, head, t->score);
    break;
  default:
    through_gatv2(w, t->score, value);
  }
}

static void walk_column(walk *w, const dfgnn_matrix *transposed,
                        const dfgnn_view *view, int64_t column, int64_t head,
                        double *key, double *value, double *score_src) {
  size_t bytes = (size_t)w->problem->dim * sizeof *key;
  memset(key, 0, bytes);
  memset(value, 0, bytes);
  *score_src = 0;
  at_source(w, column, head);
  for (int64_t k = dfgnn__ref_offset(transposed, column);
       k < dfgnn__ref_offset(transposed, column + 1); k++) {
    int64_t row = transposed->indices[k];
    at_destination(w, row, head);
    terms t =
        edge_terms(w, row, column, dfgnn__ref_edge(transposed, view, k), head);
    if (t.weight != 0 || t.score != 0)
      source_edge(w, &t, row, column, head, key, value, score_src);
  }
}

/* ---- everything ---------------------------------------------------------- */

/* Row r of a result, or what is not wanted. */
static double *result(void *array, int64_t r, int64_t width, double *spare) {
  return array ? (double *)array + r * width : spare;
}

static void add_parameters(const dfgnn_problem *problem, const dfgnn_args *to,
                           const parameters *p) {
  double *att = to->grad_att, *beta = to->grad_beta;
  for (int64_t i = 0; att && i < problem->heads * problem->dim; i++)
    att[i] += p->att[i];
  if (beta)
    *beta += p->beta;
}

static int walk_rows(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                     const dfgnn_args *args, const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  int64_t *first = dfgnn__ref_first_edges(matrix, expected);
  const dfgnn_args *to = &expected->to;
  int failed = first == NULL;
  if (failed)
    return 0;
  if (to->grad_att)
    memset(to->grad_att, 0, (size_t)(heads * dim) * sizeof(double));
  if (to->grad_beta)
    *(double *)to->grad_beta = 0;
#pragma omp parallel reduction(                                                \
    |                                                                          \
    : failed) if (first[expected->row_count] * heads * dim > 50000)
  {
    double *buffer =
        calloc((size_t)((WALK_ROWS + 2 + heads) * dim + 1), sizeof *buffer);
    double *spare = buffer + WALK_ROWS * dim;
    walk w = make_walk(problem, matrix, args, buffer);
    parameters p = {spare + 2 * dim, 0};
    failed |= buffer == NULL;
#pragma omp for schedule(dynamic, 16)
    for (int64_t r = 0; r < expected->row_count; r++)
      for (int64_t h = 0; h < heads && buffer; h++) {
        double *bias = to->grad_bias;
        walk_row(&w, expected->rows ? expected->rows[r] : r, h,
                 result(to->grad_query, r * heads + h, dim, spare),
                 result(to->grad_score_dst, r * heads + h, 1, spare + dim),
                 bias ? bias + first[r] * heads + h : NULL, &p);
      }
#pragma omp critical(dfgnn_reference_parameters)
    if (buffer)
      add_parameters(problem, to, &p);
    free(buffer);
  }
  free(first);
  return !failed;
}

static int walk_columns(const dfgnn_problem *problem,
                        const dfgnn_matrix *matrix, const dfgnn_args *args,
                        const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  dfgnn_matrix transposed = dfgnn__transposed(matrix, expected->transpose);
  const dfgnn_args *to = &expected->to;
  int failed = 0;
#pragma omp parallel reduction(|                                               \
                               : failed) if (matrix->edges * heads * dim >     \
                                             50000)
  {
    double *buffer =
        malloc((size_t)((WALK_ROWS + 2) * dim + 1) * sizeof *buffer);
    double *spare = buffer + WALK_ROWS * dim;
    walk w = make_walk(problem, matrix, args, buffer);
    failed |= buffer == NULL;
#pragma omp for schedule(dynamic, 16)
    for (int64_t c = 0; c < expected->column_count; c++)
      for (int64_t h = 0; h < heads && buffer; h++)
        walk_column(
            &w, &transposed, expected->transpose,
            expected->columns ? expected->columns[c] : c, h,
            result(to->grad_key, c * heads + h, dim, spare),
            result(to->grad_value, c * heads + h, dim, spare + dim),
            result(to->grad_score_src, c * heads + h, 1, spare + 2 * dim));
    free(buffer);
  }
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

/* Rows of a walk, two results, and the parameters. */
static size_t workspace(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  return (size_t)((WALK_ROWS + 2 + problem->heads) * problem->dim +
                  setting->matrix->max_degree * problem->heads) *
         sizeof(double);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  (void)setting;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return 1;
}

static void write_rows(walk *w, double *query, parameters *p, double *bias) {
  const dfgnn_problem *problem = w->problem;
  const dfgnn_args *args = w->args;
  int64_t heads = problem->heads;
  double score;
  for (int64_t i = 0; i < w->matrix->destinations; i++)
    for (int64_t h = 0; h < heads; h++) {
      int64_t begin = dfgnn__ref_offset(w->matrix, i);
      int64_t end = dfgnn__ref_offset(w->matrix, i + 1);
      walk_row(w, i, h, query, &score, bias + h, p);
      if (args->grad_query)
        dfgnn__ref_store(problem, args->grad_query, &args->grad_query_strides,
                         i, h, query);
      if (args->grad_score_dst)
        dfgnn__ref_set_scalar(problem, args->grad_score_dst, i * heads + h,
                              score);
      for (int64_t e = begin; args->grad_bias && e < end; e++)
        dfgnn__ref_set_scalar(problem, args->grad_bias, e * heads + h,
                              bias[(e - begin) * heads + h]);
    }
}

static void write_columns(walk *w, const dfgnn_view *view, double *key,
                          double *value) {
  const dfgnn_problem *problem = w->problem;
  const dfgnn_args *args = w->args;
  dfgnn_matrix transposed = dfgnn__transposed(w->matrix, view);
  int64_t heads = problem->heads;
  double score;
  for (int64_t j = 0; j < w->matrix->sources; j++)
    for (int64_t h = 0; h < heads; h++) {
      walk_column(w, &transposed, view, j, h, key, value, &score);
      if (args->grad_key)
        dfgnn__ref_store(problem, args->grad_key, &args->grad_key_strides, j, h,
                         key);
      if (args->grad_value)
        dfgnn__ref_store(problem, args->grad_value, &args->grad_value_strides,
                         j, h, value);
      if (args->grad_score_src)
        dfgnn__ref_set_scalar(problem, args->grad_score_src, j * heads + h,
                              score);
    }
}

/* One thread: the registry's yardstick need not be quick. */
static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  int64_t dim = problem->dim, parameters_count = problem->heads * dim;
  double *buffer = launch->workspace, *results = buffer + WALK_ROWS * dim;
  parameters p = {results + 2 * dim, 0};
  walk w = make_walk(problem, launch->setting.matrix, args, buffer);

  memset(p.att, 0, (size_t)parameters_count * sizeof *p.att);
  write_rows(&w, results, &p, p.att + parameters_count);
  write_columns(&w, launch->views[0], results, results + dim);
  for (int64_t i = 0; args->grad_att && i < parameters_count; i++)
    dfgnn__ref_set_scalar(problem, args->grad_att, i, p.att[i]);
  if (args->grad_beta)
    dfgnn__ref_set_scalar(problem, args->grad_beta, 0, p.beta);
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
        .reference = 1,
        .workspace = workspace,
        .views = views,
        .launch = launch,
    },
    DFGNN_FAMILIES_END,
};
