#include "tuner/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/half.h"
#include "kernels/program/cpu/bodies.h"
#include "lib/base/error.h"
#include "lib/signature.h"
#include "tuner/program.h"

#define PERIOD ((size_t)16777213) /* a prime */
#define DROPOUT 0.4 /* all rates cost the same: keys say only on or off */

/* ---- the device ---------------------------------------------------------- */

static dfgnn_status allocate(dfgnn_harness *h, char **memory, size_t bytes) {
  void *p;
  dfgnn_status status = h->ctx->backend->allocate(h->ctx->device, &p, bytes);
  if (!status)
    *memory = p;
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

static void fill(char *host, dfgnn_dtype dtype, int64_t elements, uint64_t seed,
                 uint64_t tensor, double scale) {
#pragma omp parallel for if (elements > DFGNN_PARALLEL)
  for (int64_t i = 0; i < elements; i++)
    dfgnn__set_number(dtype, host, i,
                      scale * normal(seed, tensor, (uint64_t)i));
}

dfgnn_dtype dfgnn__harness_type(const dfgnn_harness *h,
                                const dfgnn_tensor *tensor) {
  if (tensor->element == DFGNN_ELEMENT_STORAGE)
    return h->problem.dtype;
  if (tensor->element == DFGNN_ELEMENT_INDEX)
    return DFGNN_DTYPE_COUNT;
  return h->problem.dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
}

/* A tensor without a node or edge dimension is a parameter of the layer.  Its
 * variance is 1 / D (a projection's 1 / F, a norm's weight's 1), as layers
 * start them, so that a score over wide features stays near 1. */
static double scale_of(const dfgnn_harness *h, const dfgnn_tensor *tensor) {
  const uint32_t nodes = DFGNN_DIM_N | DFGNN_DIM_M | DFGNN_DIM_E;
  double inputs = tensor->shape & DFGNN_DIM_F ? (double)h->problem.edge_dim
                                              : (double)h->problem.dim;
  int wide = !(tensor->shape & nodes) && tensor->shape & DFGNN_DIM_H;
  return wide ? 1 / sqrt(inputs) : 1;
}

/* ---- numbers that wait on the device ---------------------------------------
 */

struct dfgnn_harness_pool {
  dfgnn_context *ctx;
  char *memory[DFGNN_DTYPE_COUNT]; /* PERIOD numbers of each type; NULL: none
                                    * were asked for yet */
};

dfgnn_status dfgnn__harness_pool_create(dfgnn_harness_pool **pool,
                                        dfgnn_context *ctx) {
  *pool = calloc(1, sizeof **pool);
  if (!*pool)
    return dfgnn__harness_memory(sizeof **pool);
  (*pool)->ctx = ctx;
  return DFGNN_OK;
}

void dfgnn__harness_pool_destroy(dfgnn_harness_pool *pool) {
  for (int t = 0; pool && t < DFGNN_DTYPE_COUNT; t++)
    if (pool->memory[t])
      pool->ctx->backend->release(pool->ctx->device, pool->memory[t]);
  free(pool);
}

static dfgnn_status pool_numbers(char **memory, dfgnn_harness *h,
                                 dfgnn_dtype dtype, size_t size) {
  *memory = h->pool->memory[dtype];
  if (*memory)
    return DFGNN_OK;
  char *host = malloc(PERIOD * size);
  if (!host)
    return dfgnn__harness_memory(PERIOD * size);
  fill(host, dtype, (int64_t)PERIOD, 1, 0, 1);
  dfgnn_status status = allocate(h, memory, PERIOD * size);
  if (!status) {
    h->pool->memory[dtype] = *memory;
    status = dfgnn__harness_copy(h->ctx, *memory, host, PERIOD * size);
  }
  free(host);
  return status;
}

/* Repeats the first bytes of a tensor on the device until it is full. */
static dfgnn_status repeat(const dfgnn_harness *h, char *memory, size_t first,
                           size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  for (size_t at = first; at < bytes && !status; at *= 2)
    status = dfgnn__harness_copy(h->ctx, memory + at, memory,
                                 bytes - at < at ? bytes - at : at);
  return status;
}

/* Fills a tensor on the device from the pool, each from another number on. */
static dfgnn_status copy_numbers(dfgnn_harness *h, char *memory,
                                 const dfgnn_tensor *tensor, size_t bytes,
                                 uint64_t number) {
  const size_t size = dfgnn__tensor_element_size(tensor, &h->problem);
  const size_t begin = (number * 1000003) % (PERIOD / 2) * size;
  const size_t length = PERIOD * size - begin;
  const size_t first = bytes < length ? bytes : length;
  char *pool;
  DFGNN_TRY(pool_numbers(&pool, h, dfgnn__harness_type(h, tensor), size));
  DFGNN_TRY(dfgnn__harness_copy(h->ctx, memory, pool + begin, first));
  return repeat(h, memory, first, bytes);
}

/* Fills a tensor on the host and on the device.  The numbers repeat after
 * PERIOD, which has no factor in common with a width, so that rows differ. */
static dfgnn_status fill_both(dfgnn_harness *h, char *memory, char *host,
                              const dfgnn_tensor *tensor, int64_t elements,
                              uint64_t seed, uint64_t number) {
  const size_t size = dfgnn__tensor_element_size(tensor, &h->problem);
  const size_t bytes = (size_t)elements * size, period = PERIOD * size;
  const size_t first = bytes < period ? bytes : period;
  fill(host, dfgnn__harness_type(h, tensor), (int64_t)(first / size), seed,
       number, scale_of(h, tensor));
#pragma omp parallel for if (bytes > 8 * period)
  for (size_t at = first; at < bytes; at += period)
    memcpy(host + at, host, bytes - at < period ? bytes - at : period);
  dfgnn_status status = dfgnn__harness_copy(h->ctx, memory, host, first);
  return status ? status : repeat(h, memory, first, bytes);
}

/* host: NULL if the numbers are not kept there. */
static dfgnn_status randomize(dfgnn_harness *h, char *memory, char *host,
                              const dfgnn_tensor *tensor, int64_t elements,
                              uint64_t seed, uint64_t number) {
  const size_t bytes =
      (size_t)elements * dfgnn__tensor_element_size(tensor, &h->problem);
  if (host)
    return fill_both(h, memory, host, tensor, elements, seed, number);
  if (h->pool && scale_of(h, tensor) == 1 &&
      dfgnn__harness_type(h, tensor) < DFGNN_DTYPE_COUNT)
    return copy_numbers(h, memory, tensor, bytes, number);
  if (!(host = malloc(bytes + 1)))
    return dfgnn__harness_memory(bytes);
  dfgnn_status status =
      fill_both(h, memory, host, tensor, elements, seed, number);
  free(host);
  return status;
}

/* ---- creation ------------------------------------------------------------ */

static int64_t elements_of(const dfgnn_harness *h, const dfgnn_tensor *tensor) {
  const dfgnn_matrix *m = dfgnn__graph_matrix(h->graph);
  const int64_t nodes =
      tensor->shape & DFGNN_DIM_N ? m->destinations : m->sources;
  return dfgnn__is_strided(h, tensor)
             ? nodes * h->strides.node
             : dfgnn__tensor_elements(tensor, &h->problem, m->destinations,
                                      m->sources, m->edges);
}

static void set_tensor(dfgnn_args *args, const dfgnn_harness *h,
                       const dfgnn_tensor *tensor, void *data) {
  *dfgnn__tensor_slot(tensor, args) = data;
  if (tensor->strides)
    *(dfgnn_strides *)((char *)args + tensor->strides) = h->strides;
}

static dfgnn_status make_buffer(dfgnn_harness *h, const dfgnn_tensor *tensor,
                                uint64_t seed) {
  dfgnn_buffer *b = &h->buffers[h->count++];
  const int reads = dfgnn__role_reads(tensor->role);
  const size_t size = dfgnn__tensor_element_size(tensor, &h->problem);
  int64_t elements = elements_of(h, tensor);
  *b = (dfgnn_buffer){.tensor = tensor,
                      .data = {.name = tensor->name,
                               .bytes = (size_t)elements * size,
                               .shift = (size_t)h->shift * size}};
  DFGNN_TRY(dfgnn__guarded_make(&b->data, h->ctx, reads && !h->pool));
  dfgnn_status status = DFGNN_OK;
  if (reads && tensor->role != DFGNN_ROLE_SAVED)
    status = randomize(h, dfgnn__guarded_data(&b->data), b->data.host, tensor,
                       elements, seed, (uint64_t)h->count);
  set_tensor(&h->check, h, tensor, dfgnn__guarded_data(&b->data));
  if (!dfgnn__tensor_left_out(tensor))
    set_tensor(&h->args, h, tensor, dfgnn__guarded_data(&b->data));
  return status;
}

/* Gives the forward pass a tensor that the backward pass does not use. */
static dfgnn_status lend(dfgnn_harness *h, const dfgnn_tensor *tensor,
                         char **memory, dfgnn_args *args) {
  const int64_t elements = elements_of(h, tensor);
  dfgnn_status status = allocate(
      h, memory,
      (size_t)elements * dfgnn__tensor_element_size(tensor, &h->problem));
  if (!status && tensor->role == DFGNN_ROLE_INPUT)
    status = randomize(h, *memory, NULL, tensor, elements, 1, 0);
  set_tensor(args, h, tensor, *memory);
  return status;
}

/* Fills the tensors that the forward pass saves for the backward pass, by a
 * plan for the forward pass. */
static dfgnn_status save(dfgnn_harness *h) {
  dfgnn_problem problem = h->problem;
  const dfgnn_operator *op = dfgnn__operator(problem.op, DFGNN_PASS_FORWARD);
  dfgnn_args args = h->check;
  char *lent[DFGNN_MAX_TENSORS] = {NULL};
  dfgnn_plan *plan;
  void *workspace;
  int saved = 0;
  for (int i = 0; i < h->count; i++)
    saved |= h->buffers[i].tensor->role == DFGNN_ROLE_SAVED;
  if (!saved)
    return DFGNN_OK;
  problem.pass = DFGNN_PASS_FORWARD;
  problem.accumulate = 0;
  problem.effort = DFGNN_EFFORT_ESTIMATE;
  problem.max_workspace = -1;
  dfgnn_status status = dfgnn_plan_create(&plan, h->ctx, h->graph, &problem);
  if (status)
    return dfgnn__fail_prefix(status, "the forward pass");
  status = dfgnn__harness_workspace(&workspace, h, plan);
  for (int i = 0; op->tensors[i].name && !status; i++) {
    const dfgnn_tensor *t = &op->tensors[i];
    int needed = t->role == DFGNN_ROLE_INPUT || t->role == DFGNN_ROLE_OUTPUT;
    if (needed && dfgnn__tensor_used(t, &h->problem) &&
        !*dfgnn__tensor_slot(t, &args))
      status = lend(h, t, &lent[i], &args);
  }
  if (!status)
    status = dfgnn_execute(plan, &args, workspace, NULL);
  if (!status)
    status = h->ctx->backend->synchronize(h->ctx->device, NULL);
  for (int i = 0; i < h->count && !status; i++) {
    const dfgnn_buffer *b = &h->buffers[i];
    if (b->tensor->role == DFGNN_ROLE_SAVED && b->data.host)
      status = dfgnn__guarded_read(&b->data, h->ctx);
  }
  for (int i = 0; i < DFGNN_MAX_TENSORS; i++)
    if (lent[i])
      h->ctx->backend->release(h->ctx->device, lent[i]);
  dfgnn_plan_destroy(plan);
  return status;
}

/* Makes the inputs of the forward pass that the backward pass does not read, if
 * the forward pass has to run. */
static dfgnn_status make_forward_inputs(dfgnn_harness *h, uint64_t seed) {
  const dfgnn_operator *forward =
      dfgnn__operator(h->problem.op, DFGNN_PASS_FORWARD);
  dfgnn_status status = DFGNN_OK;
  int saved = 0;
  for (int i = 0; i < h->count; i++)
    saved |= h->buffers[i].tensor->role == DFGNN_ROLE_SAVED;
  for (const dfgnn_tensor *t = forward->tensors; saved && t->name && !status;
       t++)
    if (t->role == DFGNN_ROLE_INPUT && dfgnn__tensor_used(t, &h->problem) &&
        dfgnn__tensor_find_used(h->op, t->name, &h->problem) < 0)
      status = make_buffer(h, t, seed);
  return status;
}

static dfgnn_status make(dfgnn_harness *h, const dfgnn_problem *problem,
                         uint64_t seed) {
  h->args = h->check = (dfgnn_args)DFGNN_ARGS_INIT;
  h->spare_s = INFINITY;
  DFGNN_TRY(dfgnn__problem_complete(&h->problem, problem));
  dfgnn_status status = DFGNN_OK;
  h->op = dfgnn__operator(h->problem.op, h->problem.pass);
  if (!h->op)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "operator %s has no %s pass",
                       dfgnn_name(DFGNN_NAMES_OP, problem->op),
                       dfgnn_name(DFGNN_NAMES_PASS, problem->pass));
  if (h->problem.program)
    return dfgnn__program_harness_create(&h->program, &h->args, h->graph,
                                         &h->problem, seed);
  for (const dfgnn_tensor *t = h->op->tensors; t->name && !status; t++)
    if (dfgnn__tensor_used(t, &h->problem))
      status = make_buffer(h, t, seed);
  if (!status)
    status = make_forward_inputs(h, seed);
  h->args.dropout = h->check.dropout = h->problem.dropout ? DROPOUT : 0;
  h->args.seed_value = h->check.seed_value = seed;
  return status ? status : save(h);
}

/* like: the members that a harness has before it is made. */
static dfgnn_status create(dfgnn_harness **harness, const dfgnn_harness *like,
                           const dfgnn_problem *problem, uint64_t seed) {
  dfgnn_harness *h = malloc(sizeof *h);
  if (!h)
    return dfgnn__harness_memory(sizeof *h);
  *h = *like;
  dfgnn_status status = make(h, problem, seed);
  if (status)
    dfgnn__harness_destroy(h);
  else
    *harness = h;
  return status;
}

dfgnn_status dfgnn__harness_create(dfgnn_harness **harness, dfgnn_context *ctx,
                                   dfgnn_graph *graph,
                                   const dfgnn_problem *problem,
                                   uint64_t seed) {
  return create(harness, &(dfgnn_harness){.ctx = ctx, .graph = graph}, problem,
                seed);
}

dfgnn_status dfgnn__harness_create_unchecked(
    dfgnn_harness **harness, dfgnn_context *ctx, dfgnn_graph *graph,
    const dfgnn_problem *problem, uint64_t seed, dfgnn_harness_pool *pool) {
  return create(harness,
                &(dfgnn_harness){.ctx = ctx, .graph = graph, .pool = pool},
                problem, seed);
}

dfgnn_status
dfgnn__harness_create_strided(dfgnn_harness **harness, dfgnn_context *ctx,
                              dfgnn_graph *graph, const dfgnn_problem *problem,
                              uint64_t seed, const dfgnn_strides *strides,
                              int shift) {
  return create(
      harness,
      &(dfgnn_harness){
          .ctx = ctx, .graph = graph, .strides = *strides, .shift = shift},
      problem, seed);
}

/* Waits for the device: the harness's memory may be in use on any stream. */
static void settle(const dfgnn_harness *h) {
  if (h->ctx->backend->settle)
    h->ctx->backend->settle(h->ctx->device);
}

dfgnn_status dfgnn__harness_lend(dfgnn_harness **harness, dfgnn_context *ctx,
                                 dfgnn_graph *graph,
                                 const dfgnn_problem *problem,
                                 const dfgnn_args *args) {
  dfgnn_harness *h = calloc(1, sizeof *h);
  if (!h)
    return dfgnn__harness_memory(sizeof *h);
  h->ctx = ctx;
  h->graph = graph;
  h->problem = *problem;
  h->lent = args;
  settle(h);
  *harness = h;
  return DFGNN_OK;
}

void dfgnn__harness_destroy(dfgnn_harness *h) {
  if (!h)
    return;
  settle(h);
  dfgnn__program_harness_free(h->program);
  for (int i = 0; i < h->count; i++) {
    dfgnn__guarded_free(&h->buffers[i].data, h->ctx);
    free(h->buffers[i].expected);
    free(h->buffers[i].fixed);
    free(h->buffers[i].summed);
  }
  for (int i = 0; i < h->masks; i++)
    h->ctx->backend->release(h->ctx->device, h->mask[i]);
  if (h->workspace)
    h->ctx->backend->release(h->ctx->device, h->workspace);
  free(h->first_edge);
  for (int k = 0; k < 4; k++)
    free((void *)h->transpose.array[k]);
  free(h->rows.index);
  free(h->columns.index);
  dfgnn__host_graph_free(&h->host);
  free(h);
}

dfgnn_status dfgnn__harness_fill(dfgnn_harness *h, const char *tensor,
                                 int64_t first, int64_t count,
                                 double (*number)(const void *, int64_t),
                                 const void *data) {
  for (int i = 0; i < h->count; i++) {
    const dfgnn_buffer *b = &h->buffers[i];
    const size_t bytes = b->data.bytes;
    if (strcmp(b->tensor->name, tensor) != 0 || !b->data.host ||
        b->tensor->role == DFGNN_ROLE_SAVED)
      continue;
    size_t size = dfgnn__tensor_element_size(b->tensor, &h->problem);
    if (count < 0)
      count = (int64_t)(bytes / size) - first;
    if (first < 0 || count < 0 || (size_t)(first + count) * size > bytes)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "numbers %lld .. %lld of %s do not exist: it has %zu",
                         (long long)first, (long long)(first + count - 1),
                         tensor, bytes / size);
    for (int64_t k = first; k < first + count; k++)
      dfgnn__set_number(dfgnn__harness_type(h, b->tensor), b->data.host, k,
                        number(data, k));
    DFGNN_TRY(dfgnn__harness_copy(h->ctx, dfgnn__guarded_data(&b->data),
                                  b->data.host, bytes));
    return save(h);
  }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s has no input %s, or it was checked already",
                     h->op->name, tensor);
}

static double constant(const void *value, int64_t i) {
  (void)i;
  return *(const double *)value;
}

dfgnn_status dfgnn__harness_set(dfgnn_harness *h, const char *tensor,
                                int64_t first, int64_t count, double value) {
  return dfgnn__harness_fill(h, tensor, first, count, constant, &value);
}

void dfgnn__harness_spare(dfgnn_harness *h, double seconds) {
  h->spare_s = seconds;
}

const dfgnn_args *dfgnn__harness_args(const dfgnn_harness *h) {
  return h->lent ? h->lent : &h->args;
}

dfgnn_status dfgnn__harness_workspace(void **workspace, dfgnn_harness *h,
                                      const dfgnn_plan *plan) {
  size_t bytes = dfgnn_plan_workspace(plan) + DFGNN_GUARD;
  if (bytes > h->workspace_bytes) {
    if (h->workspace) {
      settle(h);
      h->ctx->backend->release(h->ctx->device, h->workspace);
    }
    h->workspace = NULL;
    h->workspace_bytes = 0;
    DFGNN_TRY(allocate(h, &h->workspace, bytes));
    h->workspace_bytes = bytes;
  }
  *workspace = h->workspace;
  return DFGNN_OK;
}

dfgnn_status dfgnn__harness_call(dfgnn_harness_call *call,
                                 dfgnn_harness *harness,
                                 const dfgnn_plan *plan) {
  *call =
      (dfgnn_harness_call){.plan = plan, .args = dfgnn__harness_args(harness)};
  return dfgnn__harness_workspace(&call->workspace, harness, plan);
}

dfgnn_status dfgnn__harness_execute(void *call, void *stream) {
  const dfgnn_harness_call *c = call;
  dfgnn__bodies_hurry(1);
  const dfgnn_status status =
      dfgnn_execute(c->plan, c->args, c->workspace, stream);
  dfgnn__bodies_hurry(-1);
  return status;
}
