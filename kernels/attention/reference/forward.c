/* forward.c - float64 forward attention, row by row, by the formulas */
#include "kernels/attention/reference/attention.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "kernels/common/dropout.h"

double dfgnn__ref_dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t d = 0; d < count; d++)
    sum += a[d] * b[d];
  return sum;
}

double dfgnn__ref_norm(const double *x, int64_t count) {
  double length = sqrt(dfgnn__ref_dot(x, x, count));
  return length < 1e-12 ? 1e-12 : length;
}

double dfgnn__ref_beta(const dfgnn_problem *problem, const dfgnn_args *args) {
  return args->beta ? dfgnn__ref_scalar(problem, args->beta, 0) : 1.0;
}

static double leaky_relu(double x, double slope) {
  return x > 0 ? x : slope * x;
}

dfgnn_ref_edge dfgnn__ref_edge_in(double *buffer,
                                  const dfgnn_problem *problem) {
  int64_t dim = problem->dim;
  dfgnn_ref_edge edge = {buffer, buffer + dim, buffer + 2 * dim,
                         buffer + 3 * dim};
  if (problem->op != DFGNN_OP_GT)
    edge.key = edge.value;
  return edge;
}

void dfgnn__ref_load_destination(const dfgnn_ref_edge *to,
                                 const dfgnn_problem *problem,
                                 const dfgnn_args *args, int64_t row,
                                 int64_t head) {
  const dfgnn_strides dense = {0, problem->dim, 1};
  if (problem->op != DFGNN_OP_GAT)
    dfgnn__ref_load(to->destination, problem, args->query, &args->query_strides,
                    row, head);
  if (problem->op == DFGNN_OP_GATV2)
    dfgnn__ref_load(to->att, problem, args->att, &dense, 0, head);
}

void dfgnn__ref_load_source(const dfgnn_ref_edge *to,
                            const dfgnn_problem *problem,
                            const dfgnn_args *args, int64_t column,
                            int64_t head) {
  if (problem->op == DFGNN_OP_GT)
    dfgnn__ref_load(to->key, problem, args->key, &args->key_strides, column,
                    head);
  dfgnn__ref_load(to->value, problem, args->value, &args->value_strides, column,
                  head);
}

static double plain_score(const dfgnn_problem *problem, const dfgnn_args *args,
                          const dfgnn_ref_edge *e, int64_t row, int64_t column,
                          int64_t head) {
  int64_t dim = problem->dim, heads = problem->heads;
  double sum = 0;
  switch (problem->op) {
  case DFGNN_OP_GT:
    return args->scale * dfgnn__ref_dot(e->destination, e->key, dim);
  case DFGNN_OP_AGNN:
    return dfgnn__ref_beta(problem, args) *
           dfgnn__ref_dot(e->destination, e->value, dim) /
           (dfgnn__ref_norm(e->destination, dim) *
            dfgnn__ref_norm(e->value, dim));
  case DFGNN_OP_GAT:
    return leaky_relu(
        dfgnn__ref_scalar(problem, args->score_dst, row * heads + head) +
            dfgnn__ref_scalar(problem, args->score_src, column * heads + head),
        args->slope);
  default: /* DFGNN_OP_GATV2 */
    for (int64_t d = 0; d < dim; d++)
      sum +=
          e->att[d] * leaky_relu(e->destination[d] + e->value[d], args->slope);
    return sum;
  }
}

double dfgnn__ref_score(const dfgnn_problem *problem, const dfgnn_args *args,
                        const dfgnn_ref_edge *loaded, int64_t row,
                        int64_t column, int64_t edge, int64_t head) {
  double score = plain_score(problem, args, loaded, row, column, head);
  if (problem->bias)
    score +=
        dfgnn__ref_scalar(problem, args->bias, edge * problem->heads + head);
  return score;
}

double dfgnn__ref_kept(const dfgnn_problem *problem, const dfgnn_args *args,
                       int64_t edge, int64_t head) {
  if (!problem->dropout)
    return 1;
  uint64_t key =
      dfgnn__dropout_key(args->seed ? *args->seed : args->seed_value);
  return dfgnn__dropped(key, edge, problem->heads, head,
                        dfgnn__dropout_threshold(args->dropout))
             ? 0
             : 1 / (1 - args->dropout);
}

/* One row and head.  weights: degree doubles with stride heads. */
static void attend(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                   const dfgnn_args *args, const dfgnn_ref_edge *s, int64_t row,
                   int64_t head, double *out, double *lse, double *weights) {
  int64_t begin = dfgnn__ref_offset(matrix, row);
  int64_t end = dfgnn__ref_offset(matrix, row + 1);
  int64_t dim = problem->dim, heads = problem->heads;
  double maximum = -INFINITY, sum = 0;

  dfgnn__ref_load_destination(s, problem, args, row, head);
  for (int64_t d = 0; d < dim; d++)
    out[d] = 0;
  for (int64_t e = begin; e < end; e++) {
    double *w = &weights[(e - begin) * heads];
    dfgnn__ref_load_source(s, problem, args, matrix->indices[e], head);
    *w = dfgnn__ref_score(problem, args, s, row, matrix->indices[e], e, head);
    if (*w > maximum || *w != *w)
      maximum = *w; /* a NaN stays: nothing is greater than it */
  }
  *lse = -INFINITY;
  for (int64_t e = begin; e < end; e++) {
    double *w = &weights[(e - begin) * heads];
    *w = maximum == -INFINITY ? 0 : exp(*w - maximum);
    sum += *w;
  }
  if (maximum == -INFINITY)
    return;
  *lse = maximum + log(sum);
  for (int64_t e = begin; e < end; e++) {
    double *w = &weights[(e - begin) * heads];
    *w /= sum;
    double kept = dfgnn__ref_kept(problem, args, e, head);
    if (kept == 0)
      continue;
    dfgnn__ref_load_source(s, problem, args, matrix->indices[e], head);
    for (int64_t d = 0; d < dim; d++)
      out[d] += kept * *w * s->value[d];
  }
}

dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected) {
  int64_t heads = problem->heads, dim = problem->dim;
  int64_t count = expected->row_count;
  int64_t *first = dfgnn__ref_first_edges(matrix, expected);
  double *out = expected->to.out, *lse = expected->to.lse;
  double *weights = expected->to.weights;
  int failed = first == NULL;

  if (!failed) {
    /* Small ones are not worth waking threads for. */
#pragma omp parallel reduction(|                                               \
                               : failed) if (first[count] * heads * dim >      \
                                             50000)
    {
      int64_t degrees = weights ? 0 : matrix->max_degree * heads;
      double *buffer =
          malloc((size_t)((DFGNN_REF_EDGE_ROWS + 1) * dim + degrees + 1) *
                 sizeof *buffer);
      dfgnn_ref_edge s = dfgnn__ref_edge_in(buffer, problem);
      double *spare = buffer + DFGNN_REF_EDGE_ROWS * dim;
      failed |= buffer == NULL;
#pragma omp for schedule(dynamic, 16)
      for (int64_t r = 0; r < count; r++)
        for (int64_t h = 0; h < heads && buffer; h++) {
          double length;
          attend(problem, matrix, args, &s,
                 expected->rows ? expected->rows[r] : r, h,
                 out ? out + (r * heads + h) * dim : spare,
                 lse ? lse + r * heads + h : &length,
                 (weights ? weights + first[r] * heads : spare + dim) + h);
        }
      free(buffer);
    }
  }
  free(first);
  if (failed)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory");
  return DFGNN_OK;
}

/* ---- the same as a variant ---------------------------------------------- */

static size_t workspace(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  int64_t weights = setting->matrix->max_degree * problem->heads;
  return (size_t)((DFGNN_REF_EDGE_ROWS + 1) * problem->dim + weights) *
         sizeof(double);
}

/* One thread: the registry's yardstick need not be quick. */
static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  int64_t dim = problem->dim, heads = problem->heads;
  double *buffer = launch->workspace;
  double *out = buffer + DFGNN_REF_EDGE_ROWS * dim, *weights = out + dim, lse;
  dfgnn_ref_edge s = dfgnn__ref_edge_in(buffer, problem);

  for (int64_t i = 0; i < matrix->destinations; i++)
    for (int64_t h = 0; h < heads; h++) {
      int64_t begin = dfgnn__ref_offset(matrix, i);
      int64_t end = dfgnn__ref_offset(matrix, i + 1);
      attend(problem, matrix, args, &s, i, h, out, &lse, weights + h);
      dfgnn__ref_store(problem, args->out, &args->out_strides, i, h, out);
      if (args->lse)
        dfgnn__ref_set_scalar(problem, args->lse, i * heads + h, lse);
      for (int64_t e = begin; problem->weights && e < end; e++)
        dfgnn__ref_set_scalar(problem, args->weights, e * heads + h,
                              weights[(e - begin) * heads + h]);
    }
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_reference_forward) = {
    {
        .name = "cpu.attention.fwd.reference",
        .algorithm = "reference",
        .backend = "cpu",
        .ops = DFGNN_OPS_ATTENTION,
        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 1,
        .deterministic = 1,
        .weights = 1,
        .bias = 1,
        .dropout = 1,
        .reference = 1,
        .workspace = workspace,
        .launch = launch,
    },
    DFGNN_FAMILIES_END,
};
