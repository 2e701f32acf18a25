/* reference.c - float64 forward attention, row by row, by the formulas */
#include "kernels/attention/reference.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "kernels/common/half.h"

static int64_t offset(const dfgnn_matrix *matrix, int64_t row) {
  return matrix->offsets64 ? ((const int64_t *)matrix->offsets)[row]
                           : ((const int32_t *)matrix->offsets)[row];
}

static double scalar(const dfgnn_problem *problem, const void *array,
                     int64_t i) {
  return problem->dtype == DFGNN_F64 ? ((const double *)array)[i]
                                     : ((const float *)array)[i];
}

static void set_scalar(const dfgnn_problem *problem, void *array, int64_t i,
                       double x) {
  if (problem->dtype == DFGNN_F64)
    ((double *)array)[i] = x;
  else
    ((float *)array)[i] = (float)x;
}

static void load(double *to, dfgnn_dtype dtype, const void *array,
                 int64_t first, int64_t stride, int64_t count) {
  for (int64_t d = 0; d < count; d++) {
    int64_t i = first + d * stride;
    if (dtype == DFGNN_F32)
      to[d] = ((const float *)array)[i];
    else if (dtype == DFGNN_F64)
      to[d] = ((const double *)array)[i];
    else if (dtype == DFGNN_F16)
      to[d] = dfgnn__f16_to_float(((const uint16_t *)array)[i]);
    else
      to[d] = dfgnn__bf16_to_float(((const uint16_t *)array)[i]);
  }
}

static void store(dfgnn_dtype dtype, void *array, int64_t first, int64_t stride,
                  int64_t count, const double *from) {
  for (int64_t d = 0; d < count; d++) {
    int64_t i = first + d * stride;
    if (dtype == DFGNN_F32)
      ((float *)array)[i] = (float)from[d];
    else if (dtype == DFGNN_F64)
      ((double *)array)[i] = from[d];
    else if (dtype == DFGNN_F16)
      ((uint16_t *)array)[i] = dfgnn__f16_from_double(from[d]);
    else
      ((uint16_t *)array)[i] = dfgnn__bf16_from_double(from[d]);
  }
}

static void load_row(double *to, const dfgnn_problem *problem,
                     const void *array, const dfgnn_strides *strides,
                     int64_t node, int64_t head) {
  load(to, problem->dtype, array, node * strides->node + head * strides->head,
       strides->feature, problem->dim);
}

static double dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t d = 0; d < count; d++)
    sum += a[d] * b[d];
  return sum;
}

static double leaky_relu(double x, double slope) {
  return x > 0 ? x : slope * x;
}

/* torch.nn.functional.normalize: x / max(|x|, 1e-12). */
static double norm(const double *x, int64_t count) {
  double length = sqrt(dot(x, x, count));
  return length < 1e-12 ? 1e-12 : length;
}

/* Buffers of one thread, each of dim doubles. */
typedef struct scratch {
  double *destination, *source, *att;
} scratch;

static double score(const dfgnn_problem *problem, const dfgnn_args *args,
                    const scratch *s, int64_t row, int64_t column,
                    int64_t head) {
  int64_t dim = problem->dim, heads = problem->heads;
  switch (problem->op) {
  case DFGNN_OP_GT:
    load_row(s->source, problem, args->key, &args->key_strides, column, head);
    return args->scale * dot(s->destination, s->source, dim);
  case DFGNN_OP_AGNN: {
    double beta = args->beta ? scalar(problem, args->beta, 0) : 1.0;
    load_row(s->source, problem, args->value, &args->value_strides, column,
             head);
    return beta * dot(s->destination, s->source, dim) /
           (norm(s->destination, dim) * norm(s->source, dim));
  }
  case DFGNN_OP_GAT:
    return leaky_relu(
        scalar(problem, args->score_dst, row * heads + head) +
            scalar(problem, args->score_src, column * heads + head),
        args->slope);
  default: { /* DFGNN_OP_GATV2 */
    double sum = 0;
    load_row(s->source, problem, args->value, &args->value_strides, column,
             head);
    for (int64_t d = 0; d < dim; d++)
      sum +=
          s->att[d] * leaky_relu(s->destination[d] + s->source[d], args->slope);
    return sum;
  }
  }
}

/* One row and head.  weights: degree doubles with stride heads. */
static void attend(const dfgnn_problem *problem, const dfgnn_matrix *matrix,
                   const dfgnn_args *args, const scratch *s, int64_t row,
                   int64_t head, double *out, double *lse, double *weights) {
  int64_t begin = offset(matrix, row), end = offset(matrix, row + 1);
  int64_t dim = problem->dim, heads = problem->heads;
  double maximum = -INFINITY, sum = 0;

  if (problem->op != DFGNN_OP_GAT)
    load_row(s->destination, problem, args->query, &args->query_strides, row,
             head);
  if (problem->op == DFGNN_OP_GATV2)
    load(s->att, problem->dtype, args->att, head * dim, 1, dim);

  for (int64_t d = 0; d < dim; d++)
    out[d] = 0;
  for (int64_t e = begin; e < end; e++) {
    double *w = &weights[(e - begin) * heads];
    *w = score(problem, args, s, row, matrix->indices[e], head);
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
    load_row(s->source, problem, args->value, &args->value_strides,
             matrix->indices[e], head);
    for (int64_t d = 0; d < dim; d++)
      out[d] += *w * s->source[d];
  }
}

dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const int64_t *rows, int64_t count,
                                        double *out, double *lse,
                                        double *weights) {
  int64_t heads = problem->heads, dim = problem->dim;
  int64_t *first = malloc((size_t)(count + 1) * sizeof *first);
  int failed = first == NULL;

  if (!failed) {
    first[0] = 0;
    for (int64_t r = 0; r < count; r++) {
      int64_t row = rows ? rows[r] : r;
      first[r + 1] = first[r] + offset(matrix, row + 1) - offset(matrix, row);
    }
    /* Small ones are not worth waking threads for. */
#pragma omp parallel reduction(|                                               \
                               : failed) if (first[count] * heads * dim >      \
                                             50000)
    {
      int64_t degrees = weights ? 0 : matrix->max_degree * heads;
      double *buffer = malloc((size_t)(4 * dim + degrees + 1) * sizeof *buffer);
      scratch s = {buffer, buffer + dim, buffer + 2 * dim};
      failed |= buffer == NULL;
#pragma omp for schedule(dynamic, 16)
      for (int64_t r = 0; r < count; r++)
        for (int64_t h = 0; h < heads && buffer; h++) {
          double length;
          attend(problem, matrix, args, &s, rows ? rows[r] : r, h,
                 out ? out + (r * heads + h) * dim : buffer + 3 * dim,
                 lse ? lse + r * heads + h : &length,
                 (weights ? weights + first[r] * heads : buffer + 4 * dim) + h);
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
  return (size_t)(4 * problem->dim + weights) * sizeof(double);
}

/* One thread: the registry's yardstick need not be quick. */
static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  int64_t dim = problem->dim, heads = problem->heads;
  double *buffer = launch->workspace, *out = buffer + 3 * dim;
  double *weights = buffer + 4 * dim, lse;
  scratch s = {buffer, buffer + dim, buffer + 2 * dim};

  for (int64_t i = 0; i < matrix->destinations; i++)
    for (int64_t h = 0; h < heads; h++) {
      int64_t begin = offset(matrix, i), end = offset(matrix, i + 1);
      attend(problem, matrix, args, &s, i, h, out, &lse, weights + h);
      store(problem->dtype, args->out,
            i * args->out_strides.node + h * args->out_strides.head,
            args->out_strides.feature, dim, out);
      if (args->lse)
        set_scalar(problem, args->lse, i * heads + h, lse);
      for (int64_t e = begin; problem->weights && e < end; e++)
        set_scalar(problem, args->weights, e * heads + h,
                   weights[(e - begin) * heads + h]);
    }
  return DFGNN_OK;
}

DFGNN_FAMILIES(reference) = {
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
        .reference = 1,
        .workspace = workspace,
        .launch = launch,
    },
    DFGNN_FAMILIES_END,
};
