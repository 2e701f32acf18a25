/* check.c - a plan's results against the float64 reference */
#include "tuner/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/half.h"
#include "lib/signature.h"

#define POISONED_WORKSPACE ((size_t)64 << 20)
#define SAMPLED_ROWS 4096
#define SAMPLE_EDGES 10000000            /* above: rows are sampled */
#define SAMPLE_BYTES ((double)(1 << 30)) /* of reference results: the same */

/* ---- what is expected ---------------------------------------------------- */

static int64_t offset(const dfgnn_matrix *matrix, int64_t row) {
  return matrix->offsets64 ? ((const int64_t *)matrix->offsets)[row]
                           : ((const int32_t *)matrix->offsets)[row];
}

static int64_t degree(const dfgnn_matrix *matrix, int64_t row) {
  return offset(matrix, row + 1) - offset(matrix, row);
}

static dfgnn_status host_matrix(dfgnn_harness *h, dfgnn_matrix *matrix) {
  *matrix = h->graph->matrix;
  size_t offsets =
      (size_t)(matrix->destinations + 1) * (matrix->offsets64 ? 8 : 4);
  size_t indices = (size_t)matrix->edges * 4;
  if (!h->host_offsets) {
    h->host_offsets = malloc(offsets);
    h->host_indices = malloc(indices + 1);
    if (!h->host_offsets || !h->host_indices)
      return dfgnn__harness_memory(offsets + indices);
    dfgnn_status status =
        dfgnn__harness_copy(h, h->host_offsets, matrix->offsets, offsets);
    if (!status)
      status =
          dfgnn__harness_copy(h, h->host_indices, matrix->indices, indices);
    if (status)
      return status;
  }
  matrix->offsets = h->host_offsets;
  matrix->indices = (const int32_t *)h->host_indices;
  return DFGNN_OK;
}

/* The heaviest row, an empty one if there is one, the first and the last, and
 * random ones. */
static void sample_rows(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  int64_t n = matrix->destinations, heaviest = 0, empty = -1;
  for (int64_t i = 0; i < n; i++) {
    if (degree(matrix, i) > degree(matrix, heaviest))
      heaviest = i;
    if (empty < 0 && degree(matrix, i) == 0)
      empty = i;
  }
  h->rows[0] = heaviest;
  h->rows[1] = empty < 0 ? 0 : empty;
  h->rows[2] = 0;
  h->rows[3] = n - 1;
  for (int64_t k = 4; k < h->checked; k++)
    h->rows[k] = (int64_t)(dfgnn__mix((uint64_t)k) % (uint64_t)n);
}

static dfgnn_status choose_rows(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  int64_t n = matrix->destinations;
  double bytes = 8.0 * (double)n * (double)(h->problem.heads * h->problem.dim);
  h->checked = n;
  if (n > SAMPLED_ROWS &&
      (matrix->edges > SAMPLE_EDGES || bytes > SAMPLE_BYTES)) {
    h->checked = SAMPLED_ROWS;
    h->rows = malloc(SAMPLED_ROWS * sizeof *h->rows);
    if (!h->rows)
      return dfgnn__harness_memory(SAMPLED_ROWS * sizeof *h->rows);
    sample_rows(h, matrix);
  }
  h->first_edge = malloc((size_t)(h->checked + 1) * sizeof *h->first_edge);
  if (!h->first_edge)
    return dfgnn__harness_memory((size_t)(h->checked + 1) *
                                 sizeof *h->first_edge);
  h->first_edge[0] = 0;
  for (int64_t k = 0; k < h->checked; k++)
    h->first_edge[k + 1] =
        h->first_edge[k] + degree(matrix, h->rows ? h->rows[k] : k);
  return DFGNN_OK;
}

/* Numbers of an output in row k of those checked, and where they begin in
 * expected. */
static int64_t row_numbers(const dfgnn_harness *h, const dfgnn_buffer *b,
                           int64_t k, int64_t *first) {
  int64_t heads = h->problem.heads;
  int64_t width = heads * (b->tensor->shape & DFGNN_DIM_D ? h->problem.dim : 1);
  if (b->tensor->shape & DFGNN_DIM_E) {
    *first = h->first_edge[k] * width;
    return (h->first_edge[k + 1] - h->first_edge[k]) * width;
  }
  *first = k * width;
  return width;
}

static void set_rms(dfgnn_buffer *b, int64_t count) {
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(b->expected[i])) {
      sum += b->expected[i] * b->expected[i];
      finite++;
    }
  b->rms = finite ? sqrt(sum / (double)finite) : 0;
}

static dfgnn_status expect(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  double *out = NULL, *lse = NULL, *weights = NULL;
  dfgnn_args host = h->check, complete;
  dfgnn_status status = choose_rows(h, matrix);
  for (int i = 0; i < h->count && !status; i++) {
    dfgnn_buffer *b = &h->buffers[i];
    if (b->tensor->role == DFGNN_ROLE_INPUT) {
      *dfgnn__tensor_slot(b->tensor, &host) = b->host;
      continue;
    }
    int64_t first = 0, numbers = 0;
    if (h->checked)
      numbers = row_numbers(h, b, h->checked - 1, &first);
    size_t bytes = (size_t)(first + numbers + 1) * sizeof(double);
    b->expected = malloc(bytes);
    b->host = malloc(b->bytes + 1);
    if (!b->expected || !b->host)
      return dfgnn__harness_memory(bytes + b->bytes);
    if (!strcmp(b->tensor->name, "out"))
      out = b->expected;
    else if (!strcmp(b->tensor->name, "lse"))
      lse = b->expected;
    else
      weights = b->expected;
  }
  if (!status)
    status = dfgnn__args_complete(&complete, &host, &h->problem);
  if (!status)
    status = h->op->reference(&h->problem, matrix, &complete, h->rows,
                              h->checked, out, lse, weights);
  for (int i = 0; i < h->count && !status; i++) {
    dfgnn_buffer *b = &h->buffers[i];
    int64_t first = 0, numbers = 0;
    if (b->tensor->role == DFGNN_ROLE_INPUT) {
      free(b->host); /* not needed again */
      b->host = NULL;
    } else if (h->checked) {
      numbers = row_numbers(h, b, h->checked - 1, &first);
      set_rms(b, first + numbers);
    }
  }
  return status;
}

/* ---- the check ----------------------------------------------------------- */

static dfgnn_status poison(dfgnn_harness *h, char *to, size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; i < bytes && !status; i += DFGNN_CHUNK)
    status =
        dfgnn__harness_copy(h, to + i, h->poison,
                            bytes - i < DFGNN_CHUNK ? bytes - i : DFGNN_CHUNK);
  return status;
}

static dfgnn_status check_guard(dfgnn_harness *h, const char *at,
                                const char *what, const char *side) {
  unsigned char found[DFGNN_GUARD];
  dfgnn_status status = dfgnn__harness_copy(h, found, at, DFGNN_GUARD);
  for (int i = 0; i < DFGNN_GUARD && !status; i++)
    if (found[i] != DFGNN_GUARD_BYTE)
      return dfgnn__fail(DFGNN_ERROR_WRONG,
                         "wrote %s %s: byte %d of the guard is 0x%02x", side,
                         what, i, found[i]);
  return status;
}

static double element(dfgnn_dtype dtype, const char *host, int64_t i) {
  switch (dtype) {
  case DFGNN_F32:
    return ((const float *)host)[i];
  case DFGNN_F64:
    return ((const double *)host)[i];
  case DFGNN_F16:
    return dfgnn__f16_to_float(((const uint16_t *)host)[i]);
  default:
    return dfgnn__bf16_to_float(((const uint16_t *)host)[i]);
  }
}

typedef struct worst {
  double error, found, expected;
  int64_t row, number; /* of the row's numbers */
} worst;

static double error_of(double found, double expected, double rms) {
  if (found == expected || (isnan(found) && isnan(expected)))
    return 0;
  double error = fabs(found - expected) / (fabs(expected) + rms);
  return isnan(error) ? INFINITY : error;
}

/* Where number i of a row lies in the tensor. */
static int64_t place(const dfgnn_harness *h, const dfgnn_buffer *b,
                     const dfgnn_matrix *matrix, int64_t row, int64_t i) {
  int64_t heads = h->problem.heads, dim = h->problem.dim;
  if (b->tensor->shape & DFGNN_DIM_E)
    return offset(matrix, row) * heads + i;
  if (!(b->tensor->shape & DFGNN_DIM_D))
    return row * heads + i;
  if (h->problem.layout == DFGNN_LAYOUT_NDH)
    return row * heads * dim + i % dim * heads + i / dim;
  return row * heads * dim + i;
}

static worst compare(const dfgnn_harness *h, const dfgnn_buffer *b,
                     const dfgnn_matrix *matrix) {
  dfgnn_dtype dtype = dfgnn__harness_type(h, b->tensor);
  worst all = {0, 0, 0, -1, 0};
#pragma omp parallel if (b->bytes > DFGNN_PARALLEL)
  {
    worst mine = {0, 0, 0, -1, 0};
#pragma omp for schedule(static)
    for (int64_t k = 0; k < h->checked; k++) {
      int64_t row = h->rows ? h->rows[k] : k, first;
      int64_t numbers = row_numbers(h, b, k, &first);
      for (int64_t i = 0; i < numbers; i++) {
        double expected = b->expected[first + i];
        double found = element(dtype, b->host, place(h, b, matrix, row, i));
        double error = error_of(found, expected, b->rms);
        if (error > mine.error)
          mine = (worst){error, found, expected, row, i};
      }
    }
#pragma omp critical(dfgnn_harness_compare)
    if (mine.error > all.error ||
        (mine.error == all.error && mine.row >= 0 && mine.row < all.row))
      all = mine;
  }
  return all;
}

static dfgnn_status check_output(dfgnn_harness *h, dfgnn_buffer *b,
                                 const dfgnn_matrix *matrix,
                                 double *rel_error) {
  const char *name = b->tensor->name;
  dfgnn_status status = check_guard(h, b->memory, name, "before");
  if (!status)
    status = check_guard(h, b->memory + DFGNN_GUARD + b->bytes, name, "beyond");
  if (!status)
    status = dfgnn__harness_copy(h, b->host, b->memory + DFGNN_GUARD, b->bytes);
  if (status)
    return status;
  worst w = compare(h, b, matrix);
  if (w.error > *rel_error)
    *rel_error = w.error;
  double tolerance = dfgnn__tolerance(h->problem.dtype, h->problem.math);
  if (w.error <= tolerance)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_WRONG,
                     "%s of row %lld (degree %lld), number %lld: found %.9g, "
                     "expected %.9g, relative error %.2g above %.2g",
                     name, (long long)w.row, (long long)degree(matrix, w.row),
                     (long long)w.number, w.found, w.expected, w.error,
                     tolerance);
}

/* The guards as well: what one plan overwrote must not be held against the
 * next. */
static dfgnn_status prepare_output(dfgnn_harness *h, const dfgnn_buffer *b) {
  if (b->tensor->role == DFGNN_ROLE_INPUT)
    return DFGNN_OK;
  dfgnn_status status =
      dfgnn__harness_copy(h, b->memory, h->guard, DFGNN_GUARD);
  if (!status)
    status = dfgnn__harness_copy(h, b->memory + DFGNN_GUARD + b->bytes,
                                 h->guard, DFGNN_GUARD);
  return status ? status : poison(h, b->memory + DFGNN_GUARD, b->bytes);
}

dfgnn_status dfgnn__harness_check(double *rel_error, dfgnn_harness *h,
                                  const dfgnn_plan *plan) {
  dfgnn_matrix matrix;
  double error = 0;
  void *workspace;
  size_t bytes = dfgnn_plan_workspace(plan);
  dfgnn_status status = host_matrix(h, &matrix);
  if (!status && !h->prepared) {
    h->expected = expect(h, &matrix);
    h->prepared = 1;
  }
  if (!status && h->expected)
    status = dfgnn__fail_prefix(h->expected, "no reference");
  if (!status)
    status = dfgnn__harness_workspace(&workspace, h, plan);
  if (!status)
    status = poison(h, workspace,
                    bytes < POISONED_WORKSPACE ? bytes : POISONED_WORKSPACE);
  if (!status)
    status = dfgnn__harness_copy(h, (char *)workspace + bytes, h->guard,
                                 DFGNN_GUARD);
  for (int i = 0; i < h->count && !status; i++)
    status = prepare_output(h, &h->buffers[i]);
  if (!status)
    status = dfgnn_execute(plan, &h->check, workspace, NULL);
  if (!status)
    status = h->ctx->backend->synchronize(h->ctx->device, NULL);
  if (!status)
    status =
        check_guard(h, (char *)workspace + bytes, "the workspace", "beyond");
  for (int i = 0; i < h->count && !status; i++)
    if (h->buffers[i].tensor->role != DFGNN_ROLE_INPUT)
      status = check_output(h, &h->buffers[i], &matrix, &error);
  if (!status || status == DFGNN_ERROR_WRONG)
    *rel_error = error;
  return status;
}
