#include "tests/common/strided.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/accuracy.h"
#include "kernels/common/half.h"
#include "kernels/common/number.h"
#include "lib/base/error.h"
#include "lib/operator.h"
#include "lib/plan.h"
#include "lib/views.h"

#define UNTOUCHED 0x5a /* bytes of an output before a call */

typedef struct item {
  const dfgnn_tensor *tensor;
  void *host, *device;
  void *allocated; /* on the device, before the shift */
  size_t bytes;
  int64_t numbers;       /* elements, without the gaps between features */
  double *expected;      /* the reference's, if saved or written */
  float *fixed, *summed; /* the two parts of its bounds */
} item;

struct strided {
  dfgnn_problem problem;
  dfgnn_strides strides;
  int shift;
  dfgnn_matrix matrix; /* on the host */
  dfgnn_args device, host;
  item items[DFGNN_MAX_TENSORS];
  int count;
};

static double number(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (double)(*state >> 8) / (1 << 23) - 1;
}

/* The type of a tensor's elements; DFGNN_DTYPE_COUNT stands for 32-bit
 * integers. */
static dfgnn_dtype type_of(const strided *s, const dfgnn_tensor *t) {
  if (t->element == DFGNN_ELEMENT_INDEX)
    return DFGNN_DTYPE_COUNT;
  if (t->element == DFGNN_ELEMENT_SCALAR && s->problem.dtype != DFGNN_F64)
    return DFGNN_F32;
  return s->problem.dtype;
}

static void put(void *array, int64_t i, dfgnn_dtype dtype, double x) {
  if (dtype == DFGNN_F32)
    ((float *)array)[i] = (float)x;
  else if (dtype == DFGNN_F64)
    ((double *)array)[i] = x;
  else if (dtype == DFGNN_DTYPE_COUNT)
    ((int32_t *)array)[i] = (int32_t)x;
  else
    ((uint16_t *)array)[i] = dtype == DFGNN_F16 ? dfgnn__f16_from_double(x)
                                                : dfgnn__bf16_from_double(x);
}

static double get(const void *array, int64_t i, dfgnn_dtype dtype) {
  return dtype == DFGNN_DTYPE_COUNT ? ((const int32_t *)array)[i]
                                    : dfgnn__number_at(dtype, array, i);
}

/* The position of the i-th number in the order of nodes, heads, features. */
static int64_t place(const strided *s, const dfgnn_tensor *t, int64_t i) {
  int64_t heads = s->problem.heads, dim = s->problem.dim;
  int64_t node = i / (heads * dim), head = i / dim % heads, d = i % dim;
  if (t->strides)
    return node * s->strides.node + head * s->strides.head +
           d * s->strides.feature;
  if (t->shape & (DFGNN_DIM_N | DFGNN_DIM_M) && t->shape & DFGNN_DIM_D &&
      s->problem.layout == DFGNN_LAYOUT_NDH)
    return node * heads * dim + d * heads + head;
  return i;
}

static dfgnn_status make_item(strided *s, dfgnn_context *ctx,
                              const dfgnn_tensor *t, unsigned *state) {
  item *it = &s->items[s->count];
  int64_t elements;
  it->tensor = t;
  elements = it->numbers =
      dfgnn__tensor_elements(t, &s->problem, s->matrix.destinations,
                             s->matrix.sources, s->matrix.edges);
  if (t->strides) {
    int64_t nodes =
        t->shape & DFGNN_DIM_N ? s->matrix.destinations : s->matrix.sources;
    elements = nodes * s->strides.node;
    *(dfgnn_strides *)((char *)&s->device + t->strides) = s->strides;
    *(dfgnn_strides *)((char *)&s->host + t->strides) = s->strides;
  }
  const size_t size = dfgnn__tensor_element_size(t, &s->problem);
  const size_t shift = (size_t)s->shift * size;
  it->bytes = (size_t)elements * size;
  it->host = malloc(it->bytes + 1);
  if (t->role >= DFGNN_ROLE_SAVED) {
    it->expected = malloc((size_t)(it->numbers + 1) * sizeof *it->expected);
    it->fixed = calloc((size_t)it->numbers + 1, sizeof *it->fixed);
    it->summed = calloc((size_t)it->numbers + 1, sizeof *it->summed);
  }
  dfgnn_status status = ctx->backend->allocate(ctx->device, &it->allocated,
                                               it->bytes + shift + 1);
  it->device = (char *)it->allocated + shift;
  s->count++;
  for (int64_t i = 0; i < elements; i++)
    put(it->host, i, type_of(s, t), number(state));
  *dfgnn__tensor_slot(t, &s->device) = it->device;
  *dfgnn__tensor_slot(t, &s->host) = it->host;
  return status;
}

/* Makes dense tensors that forward has and backward has not; returns their
 * number. */
static int lend(void **lent, dfgnn_args *host, const strided *s) {
  const dfgnn_operator *op = dfgnn__operator(s->problem.op, DFGNN_PASS_FORWARD);
  unsigned state = 1;
  int count = 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    void **slot = dfgnn__tensor_slot(t, host);
    int64_t elements =
        dfgnn__tensor_elements(t, &s->problem, s->matrix.destinations,
                               s->matrix.sources, s->matrix.edges);
    if (*slot || !dfgnn__tensor_used(t, &s->problem) ||
        (t->role != DFGNN_ROLE_INPUT && t->role != DFGNN_ROLE_OUTPUT))
      continue;
    *slot = lent[count++] = malloc((size_t)(elements + 1) * sizeof(double));
    for (int64_t i = 0; i < elements; i++)
      put(*slot, i, type_of(s, t), number(&state));
  }
  return count;
}

/* Computes the tensors that forward saves for backward, if `saved`, else those
 * that the problem writes. */
static dfgnn_status expect(strided *s, const dfgnn_view *transpose, int saved) {
  dfgnn_problem problem = s->problem;
  dfgnn_args complete, host = s->host;
  void *lent[DFGNN_MAX_TENSORS];
  int lent_count = 0;
  dfgnn_expected expected = {.row_count = s->matrix.destinations,
                             .column_count = s->matrix.sources,
                             .transpose = transpose,
                             .bounds = 1};
  int wanted = 0;
  if (saved)
    problem.pass = DFGNN_PASS_FORWARD;
  for (int k = 0; k < s->count; k++) {
    item *it = &s->items[k];
    if (dfgnn__role_reads(it->tensor->role) ? !saved || !it->expected : saved)
      continue;
    *dfgnn__tensor_slot(it->tensor, &expected.to) = it->expected;
    *dfgnn__tensor_slot(it->tensor, &expected.fixed) = it->fixed;
    *dfgnn__tensor_slot(it->tensor, &expected.summed) = it->summed;
    wanted++;
  }
  dfgnn_status status = DFGNN_OK;
  if (!wanted && !saved)
    return dfgnn__fail(DFGNN_ERROR_WRONG, "the operator writes nothing");
  if (wanted && saved)
    lent_count = lend(lent, &host, s);
  if (wanted)
    status = dfgnn__args_complete(&complete, &host, &problem);
  if (wanted && !status)
    status = dfgnn__operator(problem.op, problem.pass)
                 ->reference(&problem, &s->matrix, &complete, &expected);
  for (int k = 0; k < s->count && saved && !status; k++) {
    item *it = &s->items[k];
    for (int64_t i = 0; it->tensor->role == DFGNN_ROLE_SAVED && i < it->numbers;
         i++)
      put(it->host, place(s, it->tensor, i), type_of(s, it->tensor),
          it->expected[i]);
  }
  while (lent_count)
    free(lent[--lent_count]);
  return status;
}

static dfgnn_status prepare(strided *s, dfgnn_context *ctx, unsigned seed) {
  const dfgnn_operator *op = dfgnn__operator(s->problem.op, s->problem.pass);
  dfgnn_view transpose = {.request = {.kind = DFGNN_VIEW_TRANSPOSE}};
  dfgnn_status status = dfgnn__view_build(&transpose, &s->matrix);
  for (const dfgnn_tensor *t = op->tensors; t->name && !status; t++)
    if (t->role != DFGNN_ROLE_OPTIONAL && dfgnn__tensor_used(t, &s->problem))
      status = make_item(s, ctx, t, &seed);
  s->host.dropout = s->device.dropout = s->problem.dropout ? 0.25 : 0;
  s->host.seed_value = s->device.seed_value = seed;
  if (!status)
    status = expect(s, &transpose, 1);
  if (!status)
    status = expect(s, &transpose, 0);
  for (int k = 0; k < s->count && !status; k++)
    status = ctx->backend->copy(ctx->device, s->items[k].device,
                                s->items[k].host, s->items[k].bytes);
  for (int k = 0; k < 4; k++)
    free((void *)transpose.array[k]);
  return status;
}

strided *strided_make(dfgnn_context *ctx, const shape *shape,
                      const dfgnn_problem *problem,
                      const dfgnn_strides *strides, int shift, unsigned seed) {
  const dfgnn_csr *csr = &shape->csr;
  const int32_t *offsets = csr->offsets;
  strided *s = calloc(1, sizeof *s);
  s->matrix = (dfgnn_matrix){.destinations = csr->destinations,
                             .sources = csr->sources,
                             .edges = csr->edges,
                             .offsets = csr->offsets,
                             .indices = csr->indices};
  for (int64_t i = 0; i < csr->destinations; i++)
    if (offsets[i + 1] - offsets[i] > s->matrix.max_degree)
      s->matrix.max_degree = offsets[i + 1] - offsets[i];
  s->problem = *problem;
  s->strides = *strides;
  s->shift = shift;
  s->device = s->host = (dfgnn_args)DFGNN_ARGS_INIT;
  if (prepare(s, ctx, seed) == DFGNN_OK)
    return s;
  strided_free(s, ctx);
  return NULL;
}

void strided_free(strided *s, dfgnn_context *ctx) {
  for (int k = 0; k < s->count; k++) {
    ctx->backend->release(ctx->device, s->items[k].allocated);
    free(s->items[k].host);
    free(s->items[k].expected);
    free(s->items[k].fixed);
    free(s->items[k].summed);
  }
  free(s);
}

/* The largest error as a part of the bound of a sum over all edges.  Each
 * number that was compared is overwritten, so that only the gaps between
 * features are left, which must be untouched. */
static double compare(const strided *s, const item *it, char *found,
                      const dfgnn_arithmetic *arithmetic) {
  size_t size = dfgnn__tensor_element_size(it->tensor, &s->problem);
  dfgnn_dtype dtype = type_of(s, it->tensor);
  double worst = 0;
  for (int64_t i = 0; i < it->numbers; i++) {
    int64_t at = place(s, it->tensor, i);
    double error = fabs(get(found, at, dtype) - it->expected[i]);
    double bound =
        dfgnn__bound(arithmetic, dtype, it->expected[i], (double)it->fixed[i],
                     (double)it->summed[i], s->matrix.edges);
    double share = error == 0 ? 0 : error / bound;
    if (!(share <= worst))
      worst = isnan(share) ? INFINITY : share;
    memset(found + (size_t)at * size, UNTOUCHED, size);
  }
  for (size_t i = 0; i < it->bytes; i++)
    if (found[i] != UNTOUCHED) {
      dfgnn__fail(DFGNN_ERROR_WRONG, "byte %zu of %s is between features", i,
                  it->tensor->name);
      return INFINITY;
    }
  return worst;
}

/* Writes UNTOUCHED to every output or, with `after`, compares all outputs. */
static dfgnn_status outputs(double *error, const strided *s, dfgnn_context *ctx,
                            const dfgnn_arithmetic *after) {
  dfgnn_status status = DFGNN_OK;
  for (int k = 0; k < s->count && !status; k++) {
    const item *it = &s->items[k];
    if (dfgnn__role_reads(it->tensor->role))
      continue;
    memset(it->host, UNTOUCHED, it->bytes);
    status =
        after
            ? ctx->backend->copy(ctx->device, it->host, it->device, it->bytes)
            : ctx->backend->copy(ctx->device, it->device, it->host, it->bytes);
    if (after && !status) {
      double worst = compare(s, it, it->host, after);
      *error = worst > *error ? worst : *error;
    }
  }
  return status;
}

double strided_error(strided *s, dfgnn_context *ctx, dfgnn_plan *plan) {
  const dfgnn_backend *backend = ctx->backend;
  void *workspace = NULL;
  double error = 0;
  dfgnn_arithmetic arithmetic =
      dfgnn__arithmetic(&s->problem, plan->variant->family);
  dfgnn_status status = backend->allocate(ctx->device, &workspace,
                                          dfgnn_plan_workspace(plan) + 1);
  if (!status)
    status = outputs(&error, s, ctx, NULL);
  if (!status)
    status = dfgnn_execute(plan, &s->device, workspace, NULL);
  if (!status)
    status = backend->synchronize(ctx->device, NULL);
  if (!status)
    status = outputs(&error, s, ctx, &arithmetic);
  backend->release(ctx->device, workspace);
  return status ? INFINITY : error;
}
