#include "tuner/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/half.h"
#include "lib/graph.h"
#include "lib/operator.h"
#include "lib/plan.h"
#include "lib/signature.h"

#define GUARD 256        /* bytes before and after each output */
#define GUARD_BYTE 0xa5  /* what they hold */
#define POISON_BYTE 0xff /* NaN in every floating-point type */
#define CHUNK ((size_t)1 << 20)
#define POISONED_WORKSPACE ((size_t)64 << 20)
#define PARALLEL 100000 /* numbers that are worth waking threads for */
#define SAMPLED_ROWS 4096
#define SAMPLE_EDGES 10000000            /* above: rows are sampled */
#define SAMPLE_BYTES ((double)(1 << 30)) /* of reference results: the same */

/* One tensor of the problem.  memory is GUARD bytes before its first. */
typedef struct buffer {
  const dfgnn_tensor *tensor;
  char *memory; /* on the device */
  char *host;   /* of an input: what was copied; of an output: what came back */
  size_t bytes;
  double *expected; /* of an output, for the checked rows */
  double rms;
} buffer;

struct dfgnn_harness {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  const dfgnn_operator *op;
  dfgnn_problem problem;
  dfgnn_args args;  /* what execute gets: no optional output unasked for */
  dfgnn_args check; /* the same with every output */
  buffer buffers[DFGNN_MAX_TENSORS];
  int count;
  char *workspace;
  size_t workspace_bytes;
  unsigned char *poison, *guard; /* CHUNK and GUARD bytes */
  int64_t *rows;                 /* NULL: all of them are checked */
  int64_t checked;
  int64_t *first_edge; /* [checked + 1], in expected weights */
  char *host_offsets, *host_indices;
  int prepared; /* expect() was tried, and said: */
  dfgnn_status expected;
};

double dfgnn__tolerance(dfgnn_dtype dtype, dfgnn_math math) {
  static const double tolerance[] = {[DFGNN_F32] = 1e-5,
                                     [DFGNN_F16] = 1e-2,
                                     [DFGNN_BF16] = 3e-2,
                                     [DFGNN_F64] = 1e-12};
  return dtype == DFGNN_F32 && math == DFGNN_MATH_TF32 ? 5e-3
                                                       : tolerance[dtype];
}

static dfgnn_status out_of_memory(size_t bytes) {
  return dfgnn__fail(DFGNN_ERROR_MEMORY,
                     "harness: cannot allocate %zu bytes on the host", bytes);
}

/* ---- the device ---------------------------------------------------------- */

static dfgnn_status allocate(dfgnn_harness *h, char **memory, size_t bytes) {
  void *p;
  dfgnn_status status = h->ctx->backend->allocate(h->ctx->device, &p, bytes);
  if (!status)
    *memory = p;
  return status;
}

static dfgnn_status copy(dfgnn_harness *h, void *to, const void *from,
                         size_t bytes) {
  return bytes ? h->ctx->backend->copy(h->ctx->device, to, from, bytes)
               : DFGNN_OK;
}

static dfgnn_status poison(dfgnn_harness *h, char *to, size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; i < bytes && !status; i += CHUNK)
    status = copy(h, to + i, h->poison, bytes - i < CHUNK ? bytes - i : CHUNK);
  return status;
}

static dfgnn_status check_guard(dfgnn_harness *h, const char *at,
                                const char *what, const char *side) {
  unsigned char found[GUARD];
  dfgnn_status status = copy(h, found, at, GUARD);
  for (int i = 0; i < GUARD && !status; i++)
    if (found[i] != GUARD_BYTE)
      return dfgnn__fail(DFGNN_ERROR_WRONG,
                         "wrote %s %s: byte %d of the guard is 0x%02x", side,
                         what, i, found[i]);
  return status;
}

/* ---- random inputs ------------------------------------------------------- */

/* The sum of four uniform 16-bit numbers, scaled to variance one: near enough
 * to N(0,1), and in integers the same on every machine. */
static double normal(uint64_t seed, uint64_t tensor, uint64_t i) {
  uint64_t x = dfgnn__mix(dfgnn__mix(seed + tensor) + i);
  int64_t sum = (int64_t)(x & 0xffff) + (int64_t)(x >> 16 & 0xffff) +
                (int64_t)(x >> 32 & 0xffff) + (int64_t)(x >> 48);
  return (double)(2 * sum - 4 * 0xffff) * (1.7320508075688772 / 0x20000);
}

static void set_element(dfgnn_dtype dtype, char *host, int64_t i, double x) {
  if (dtype == DFGNN_F32)
    ((float *)host)[i] = (float)x;
  else if (dtype == DFGNN_F64)
    ((double *)host)[i] = x;
  else if (dtype == DFGNN_F16)
    ((uint16_t *)host)[i] = dfgnn__f16_from_double(x);
  else
    ((uint16_t *)host)[i] = dfgnn__bf16_from_double(x);
}

static void fill(char *host, dfgnn_dtype dtype, int64_t elements, uint64_t seed,
                 uint64_t tensor, double scale) {
#pragma omp parallel for if (elements > PARALLEL)
  for (int64_t i = 0; i < elements; i++)
    set_element(dtype, host, i, scale * normal(seed, tensor, (uint64_t)i));
}

static dfgnn_dtype type_of(const dfgnn_harness *h, const dfgnn_tensor *tensor) {
  if (!tensor->scalar)
    return h->problem.dtype;
  return h->problem.dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
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

/* What belongs to no node is a parameter of the layer: its variance is 1 / D,
 * as layers start them, so that a score over wide features stays near 1. */
static double scale_of(const dfgnn_harness *h, const dfgnn_tensor *tensor) {
  const uint32_t nodes = DFGNN_DIM_N | DFGNN_DIM_M | DFGNN_DIM_E;
  int wide = !(tensor->shape & nodes) && tensor->shape & DFGNN_DIM_D;
  return wide ? 1 / sqrt((double)h->problem.dim) : 1;
}

/* ---- making one ---------------------------------------------------------- */

static int wanted(const dfgnn_harness *h, const dfgnn_tensor *tensor) {
  return strcmp(tensor->name, "weights") != 0 || h->problem.weights;
}

static dfgnn_status make_buffer(dfgnn_harness *h, const dfgnn_tensor *tensor,
                                uint64_t seed) {
  const dfgnn_matrix *matrix = &h->graph->matrix;
  buffer *b = &h->buffers[h->count];
  int64_t elements =
      dfgnn__tensor_elements(tensor, &h->problem, matrix->destinations,
                             matrix->sources, matrix->edges);
  *b = (buffer){.tensor = tensor};
  b->bytes = (size_t)elements * dfgnn__tensor_element_size(tensor, &h->problem);
  dfgnn_status status = allocate(h, &b->memory, b->bytes + 2 * GUARD);
  if (status)
    return status;
  h->count++;
  status = copy(h, b->memory, h->guard, GUARD);
  if (!status)
    status = copy(h, b->memory + GUARD + b->bytes, h->guard, GUARD);
  if (!status && tensor->role == DFGNN_ROLE_INPUT) {
    b->host = malloc(b->bytes + 1);
    if (!b->host)
      return out_of_memory(b->bytes);
    fill(b->host, type_of(h, tensor), elements, seed, (uint64_t)h->count,
         scale_of(h, tensor));
    status = copy(h, b->memory + GUARD, b->host, b->bytes);
  }
  *dfgnn__tensor_slot(tensor, &h->check) = b->memory + GUARD;
  if (tensor->role != DFGNN_ROLE_OPTIONAL || !strcmp(tensor->name, "weights"))
    *dfgnn__tensor_slot(tensor, &h->args) = b->memory + GUARD;
  return status;
}

dfgnn_status dfgnn__harness_create(dfgnn_harness **harness, dfgnn_context *ctx,
                                   dfgnn_graph *graph,
                                   const dfgnn_problem *problem,
                                   uint64_t seed) {
  dfgnn_harness *h = calloc(1, sizeof *h);
  if (!h)
    return out_of_memory(sizeof *h);
  h->ctx = ctx;
  h->graph = graph;
  h->args = h->check = (dfgnn_args)DFGNN_ARGS_INIT;
  dfgnn_status status = dfgnn__problem_complete(&h->problem, problem);
  if (status)
    goto out;
  h->op = dfgnn__operator(problem->op, problem->pass);
  if (!h->op) {
    status =
        dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "operator %s has no %s pass",
                    dfgnn_op_name(problem->op), dfgnn_pass_name(problem->pass));
    goto out;
  }
  h->poison = malloc(CHUNK);
  h->guard = malloc(GUARD);
  if (!h->poison || !h->guard) {
    status = out_of_memory(CHUNK);
    goto out;
  }
  memset(h->poison, POISON_BYTE, CHUNK);
  memset(h->guard, GUARD_BYTE, GUARD);
  for (const dfgnn_tensor *t = h->op->tensors; t->name && !status; t++)
    if (wanted(h, t))
      status = make_buffer(h, t, seed);
out:
  if (status)
    dfgnn__harness_destroy(h);
  else
    *harness = h;
  return status;
}

void dfgnn__harness_destroy(dfgnn_harness *h) {
  if (!h)
    return;
  for (int i = 0; i < h->count; i++) {
    h->ctx->backend->release(h->ctx->device, h->buffers[i].memory);
    free(h->buffers[i].host);
    free(h->buffers[i].expected);
  }
  if (h->workspace)
    h->ctx->backend->release(h->ctx->device, h->workspace);
  free(h->first_edge);
  free(h->rows);
  free(h->host_indices);
  free(h->host_offsets);
  free(h->guard);
  free(h->poison);
  free(h);
}

dfgnn_status dfgnn__harness_set(dfgnn_harness *h, const char *tensor,
                                int64_t first, int64_t count, double value) {
  for (int i = 0; i < h->count; i++) {
    buffer *b = &h->buffers[i];
    if (strcmp(b->tensor->name, tensor) != 0 || !b->host)
      continue;
    size_t size = dfgnn__tensor_element_size(b->tensor, &h->problem);
    if (first < 0 || count < 0 || (size_t)(first + count) * size > b->bytes)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "numbers %lld .. %lld of %s, which has %zu",
                         (long long)first, (long long)(first + count - 1),
                         tensor, b->bytes / size);
    for (int64_t k = first; k < first + count; k++)
      set_element(type_of(h, b->tensor), b->host, k, value);
    return copy(h, b->memory + GUARD, b->host, b->bytes);
  }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s has no input %s, or it was checked already",
                     h->op->name, tensor);
}

const dfgnn_args *dfgnn__harness_args(const dfgnn_harness *h) {
  return &h->args;
}

dfgnn_status dfgnn__harness_workspace(void **workspace, dfgnn_harness *h,
                                      const dfgnn_plan *plan) {
  size_t bytes = dfgnn_plan_workspace(plan) + GUARD;
  if (bytes > h->workspace_bytes) {
    if (h->workspace)
      h->ctx->backend->release(h->ctx->device, h->workspace);
    h->workspace = NULL;
    h->workspace_bytes = 0;
    dfgnn_status status = allocate(h, &h->workspace, bytes);
    if (status)
      return status;
    h->workspace_bytes = bytes;
  }
  *workspace = h->workspace;
  return DFGNN_OK;
}

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
      return out_of_memory(offsets + indices);
    dfgnn_status status = copy(h, h->host_offsets, matrix->offsets, offsets);
    if (!status)
      status = copy(h, h->host_indices, matrix->indices, indices);
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
      return out_of_memory(SAMPLED_ROWS * sizeof *h->rows);
    sample_rows(h, matrix);
  }
  h->first_edge = malloc((size_t)(h->checked + 1) * sizeof *h->first_edge);
  if (!h->first_edge)
    return out_of_memory((size_t)(h->checked + 1) * sizeof *h->first_edge);
  h->first_edge[0] = 0;
  for (int64_t k = 0; k < h->checked; k++)
    h->first_edge[k + 1] =
        h->first_edge[k] + degree(matrix, h->rows ? h->rows[k] : k);
  return DFGNN_OK;
}

/* Numbers of an output in row k of those checked, and where they begin in
 * expected. */
static int64_t row_numbers(const dfgnn_harness *h, const buffer *b, int64_t k,
                           int64_t *first) {
  int64_t heads = h->problem.heads;
  int64_t width = heads * (b->tensor->shape & DFGNN_DIM_D ? h->problem.dim : 1);
  if (b->tensor->shape & DFGNN_DIM_E) {
    *first = h->first_edge[k] * width;
    return (h->first_edge[k + 1] - h->first_edge[k]) * width;
  }
  *first = k * width;
  return width;
}

static void set_rms(buffer *b, int64_t count) {
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
    buffer *b = &h->buffers[i];
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
      return out_of_memory(bytes + b->bytes);
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
    buffer *b = &h->buffers[i];
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
static int64_t place(const dfgnn_harness *h, const buffer *b,
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

static worst compare(const dfgnn_harness *h, const buffer *b,
                     const dfgnn_matrix *matrix) {
  dfgnn_dtype dtype = type_of(h, b->tensor);
  worst all = {0, 0, 0, -1, 0};
#pragma omp parallel if (b->bytes > PARALLEL)
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

static dfgnn_status check_output(dfgnn_harness *h, buffer *b,
                                 const dfgnn_matrix *matrix,
                                 double *rel_error) {
  const char *name = b->tensor->name;
  dfgnn_status status = check_guard(h, b->memory, name, "before");
  if (!status)
    status = check_guard(h, b->memory + GUARD + b->bytes, name, "beyond");
  if (!status)
    status = copy(h, b->host, b->memory + GUARD, b->bytes);
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
static dfgnn_status prepare_output(dfgnn_harness *h, const buffer *b) {
  if (b->tensor->role == DFGNN_ROLE_INPUT)
    return DFGNN_OK;
  dfgnn_status status = copy(h, b->memory, h->guard, GUARD);
  if (!status)
    status = copy(h, b->memory + GUARD + b->bytes, h->guard, GUARD);
  return status ? status : poison(h, b->memory + GUARD, b->bytes);
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
    status = copy(h, (char *)workspace + bytes, h->guard, GUARD);
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
