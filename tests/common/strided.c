#include "tests/common/strided.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/half.h"
#include "lib/operator.h"

#define UNTOUCHED 0x5a /* bytes of out before a call */

struct strided {
  dfgnn_problem problem;
  dfgnn_strides strides;
  int64_t rows;
  dfgnn_args device, host;
  void *on_device[DFGNN_MAX_TENSORS], *on_host[DFGNN_MAX_TENSORS];
  int count;
  size_t out_bytes;
  double *expected;
};

static double number(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / (1 << 23) - 1;
}

static void put(void *array, int64_t i, dfgnn_dtype dtype, double x) {
  if (dtype == DFGNN_F32)
    ((float *)array)[i] = (float)x;
  else if (dtype == DFGNN_F64)
    ((double *)array)[i] = x;
  else
    ((uint16_t *)array)[i] = dtype == DFGNN_F16 ? dfgnn__f16_from_double(x)
                                                : dfgnn__bf16_from_double(x);
}

static double get(const void *array, int64_t i, dfgnn_dtype dtype) {
  if (dtype == DFGNN_F32)
    return ((const float *)array)[i];
  if (dtype == DFGNN_F64)
    return ((const double *)array)[i];
  return dtype == DFGNN_F16
             ? dfgnn__f16_to_float(((const uint16_t *)array)[i])
             : dfgnn__bf16_to_float(((const uint16_t *)array)[i]);
}

static dfgnn_status make_tensor(strided *s, dfgnn_context *ctx,
                                const dfgnn_tensor *t, const shape *shape,
                                unsigned *state) {
  const dfgnn_backend *backend = ctx->backend;
  dfgnn_dtype dtype = s->problem.dtype;
  int64_t elements = dfgnn__tensor_elements(
      t, &s->problem, shape->csr.destinations, shape->csr.sources, 0);
  if (t->element == DFGNN_ELEMENT_SCALAR && dtype != DFGNN_F64)
    dtype = DFGNN_F32;
  if (t->strides) {
    int64_t nodes =
        t->shape & DFGNN_DIM_N ? shape->csr.destinations : shape->csr.sources;
    elements = nodes * s->strides.node;
    *(dfgnn_strides *)((char *)&s->device + t->strides) = s->strides;
    *(dfgnn_strides *)((char *)&s->host + t->strides) = s->strides;
  }
  size_t bytes = (size_t)elements * dfgnn_dtype_size(dtype);
  void *host = malloc(bytes + 1), *device = NULL;
  dfgnn_status status = backend->allocate(ctx->device, &device, bytes + 1);
  s->on_host[s->count] = host;
  s->on_device[s->count++] = device;
  for (int64_t i = 0; i < elements; i++)
    put(host, i, dtype, number(state));
  if (t->role == DFGNN_ROLE_OUTPUT)
    s->out_bytes = bytes;
  *dfgnn__tensor_slot(t, &s->device) = device;
  *dfgnn__tensor_slot(t, &s->host) = host;
  return status ? status : backend->copy(ctx->device, device, host, bytes);
}

strided *strided_make(dfgnn_context *ctx, const shape *shape,
                      const dfgnn_problem *problem,
                      const dfgnn_strides *strides, unsigned seed) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  const dfgnn_csr *csr = &shape->csr;
  strided *s = calloc(1, sizeof *s);
  dfgnn_matrix matrix = {csr->destinations, csr->sources, csr->edges, 0, 0,
                         csr->offsets,      csr->indices};
  dfgnn_status status = DFGNN_OK;
  dfgnn_args complete;

  s->problem = *problem;
  s->strides = *strides;
  s->rows = csr->destinations;
  s->device = s->host = (dfgnn_args)DFGNN_ARGS_INIT;
  for (const dfgnn_tensor *t = op->tensors; t->name && !status; t++)
    if (t->role != DFGNN_ROLE_OPTIONAL && dfgnn__tensor_used(t, problem))
      status = make_tensor(s, ctx, t, shape, &seed);
  const int32_t *offsets = csr->offsets;
  for (int64_t i = 0; i < s->rows; i++)
    if (offsets[i + 1] - offsets[i] > matrix.max_degree)
      matrix.max_degree = offsets[i + 1] - offsets[i];
  s->expected = malloc((size_t)(s->rows * problem->heads * problem->dim) *
                       sizeof *s->expected);
  dfgnn_expected expected = {.row_count = s->rows, .to = {.out = s->expected}};
  if (!status)
    status = dfgnn__args_complete(&complete, &s->host, problem);
  if (!status)
    status = op->reference(problem, &matrix, &complete, &expected);
  if (!status)
    return s;
  strided_free(s, ctx);
  return NULL;
}

void strided_free(strided *s, dfgnn_context *ctx) {
  for (int i = 0; i < s->count; i++) {
    ctx->backend->release(ctx->device, s->on_device[i]);
    free(s->on_host[i]);
  }
  free(s->expected);
  free(s);
}

/* The largest relative error; what is compared is overwritten, so that only
 * what no feature owns is left. */
static double compare(strided *s, char *out) {
  int64_t heads = s->problem.heads, dim = s->problem.dim;
  size_t size = dfgnn_dtype_size(s->problem.dtype);
  double worst = 0;
  for (int64_t i = 0; i < s->rows * heads * dim; i++) {
    int64_t at = i / (heads * dim) * s->strides.node +
                 i / dim % heads * s->strides.head +
                 i % dim * s->strides.feature;
    double found = get(out, at, s->problem.dtype);
    double error = fabs(found - s->expected[i]) / (fabs(s->expected[i]) + 0.3);
    if (!(error <= worst))
      worst = isnan(error) ? INFINITY : error;
    memset(out + (size_t)at * size, UNTOUCHED, size);
  }
  for (size_t i = 0; i < s->out_bytes; i++)
    if (out[i] != UNTOUCHED) {
      dfgnn__fail(DFGNN_ERROR_WRONG, "byte %zu of out is between features", i);
      return INFINITY;
    }
  return worst;
}

double strided_error(strided *s, dfgnn_context *ctx, dfgnn_plan *plan) {
  const dfgnn_backend *backend = ctx->backend;
  size_t bytes = dfgnn_plan_workspace(plan);
  char *out = malloc(s->out_bytes + 1);
  void *workspace = NULL;
  double error = INFINITY;

  memset(out, UNTOUCHED, s->out_bytes);
  dfgnn_status status = backend->allocate(ctx->device, &workspace, bytes + 1);
  if (!status)
    status = backend->copy(ctx->device, s->device.out, out, s->out_bytes);
  if (!status)
    status = dfgnn_execute(plan, &s->device, workspace, NULL);
  if (!status)
    status = backend->synchronize(ctx->device, NULL);
  if (!status)
    status = backend->copy(ctx->device, out, s->device.out, s->out_bytes);
  if (!status)
    error = compare(s, out);
  backend->release(ctx->device, workspace);
  free(out);
  return error;
}
