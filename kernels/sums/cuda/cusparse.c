/* cusparse.c - cuSPARSE as a variant: descriptors are made once, the
 * transpose is a matrix of its own, and values that need no arithmetic are
 * kept */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "kernels/common/cusparse.h"
#include "kernels/sums/cuda/sums.h"

enum { TABLE, OUT, DENSE };
enum { SLOTS = 2 }; /* host threads that can launch at the same time */

/* A handle belongs to one call at a time, and only while it is launched. */
typedef struct slot {
  atomic_flag busy;
  void *handle, *sparse;
  void *dense[DENSE];
  int64_t leading[DENSE];
} slot;

typedef struct product {
  const dfgnn_cusparse *api;
  int algorithm;
  int64_t rows[DENSE], dim;
  dfgnn_matrix matrix; /* of the product: the graph's or its transpose */
  float *values;       /* without scales: ones, or one over degrees */
  dfgnn_queue queue;   /* from which values are borrowed */
  slot slots[SLOTS];
} product;

static dfgnn_status fail(const dfgnn_cusparse *api, int error,
                         const char *call) {
  return dfgnn__fail(DFGNN_ERROR_DEVICE, "%s: %s", call, api->error(error));
}

#define GO(api, call)                                                          \
  do {                                                                         \
    int error_ = (call);                                                       \
    if (error_ != CUSPARSE_OK) {                                               \
      status = fail(api, error_, #call);                                       \
      goto out;                                                                \
    }                                                                          \
  } while (0)

static int algorithm(const dfgnn_setting *setting) {
  return setting->parameter[0];
}

static int empty(const dfgnn_matrix *m) {
  return m->edges == 0 || m->destinations == 0 || m->sources == 0;
}

static const char *applicable(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  const dfgnn_matrix *m = setting->matrix;
  if (p->layout != DFGNN_LAYOUT_NHD && p->heads > 1 && p->dim > 1)
    return "cuSPARSE needs layout nhd";
  if (p->dim % 4)
    return "cuSPARSE needs rows of whole 16-byte words";
  if ((double)m->edges > (double)m->destinations * (double)m->sources)
    return "cuSPARSE does not take more edges than pairs of nodes";
  if (m->offsets64)
    return "cuSPARSE needs 32-bit offsets, as wide as the indices";
  if (empty(m))
    return "the matrix has no edges to multiply by";
  if (!dfgnn__cusparse())
    return "libcusparse was not found (DFGNN_CUSPARSE names it)";
  return NULL;
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  if (setting->problem->pass == DFGNN_PASS_FORWARD)
    return 0;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return 1;
}

/* ---- state --------------------------------------------------------------- */

static void close_slot(const dfgnn_cusparse *api, slot *s) {
  for (int i = 0; i < DENSE; i++)
    if (s->dense[i])
      api->destroy_dense(s->dense[i]);
  if (s->sparse)
    api->destroy_csr(s->sparse);
  if (s->handle)
    api->destroy(s->handle);
}

static void release(void *state) {
  product *p = state;
  if (!p)
    return;
  for (int i = 0; i < SLOTS; i++)
    close_slot(p->api, &p->slots[i]);
  dfgnn__give_back(&p->queue, p->values);
  free(p);
}

/* Points a dense matrix at a tensor; makes it anew when its stride changes. */
static dfgnn_status bind(product *p, slot *s, int which, const void *data,
                         int64_t leading) {
  const dfgnn_cusparse *api = p->api;
  dfgnn_status status = DFGNN_OK;
  if (s->dense[which] && s->leading[which] == leading) {
    GO(api, api->set_dense(s->dense[which], (void *)data));
    return DFGNN_OK;
  }
  if (s->dense[which])
    api->destroy_dense(s->dense[which]);
  s->dense[which] = NULL;
  s->leading[which] = leading;
  GO(api, api->create_dense(&s->dense[which], p->rows[which], p->dim, leading,
                            (void *)data, CUSPARSE_F32, CUSPARSE_ROW_MAJOR));
out:
  return status;
}

/* Any pointer that is not NULL does until a call sets the real ones. */
static dfgnn_status open_slot(product *p, slot *s, int64_t leading) {
  const dfgnn_cusparse *api = p->api;
  const dfgnn_matrix *m = &p->matrix;
  void *some = (void *)m->offsets;
  dfgnn_status status = DFGNN_OK;
  GO(api, api->create(&s->handle));
  GO(api, api->create_csr(&s->sparse, m->destinations, m->sources, m->edges,
                          some, (void *)m->indices, some, CUSPARSE_I32,
                          CUSPARSE_I32, 0, CUSPARSE_F32));
  for (int i = 0; !status && i < DENSE; i++)
    status = bind(p, s, i, some, leading);
out:
  return status;
}

static dfgnn_status open_product(product **made, const dfgnn_setting *setting,
                                 const dfgnn_matrix *matrix, int slots) {
  product *p = calloc(1, sizeof *p);
  dfgnn_status status = DFGNN_OK;
  if (!p)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  p->api = dfgnn__cusparse();
  p->algorithm = algorithm(setting);
  p->dim = setting->problem->dim;
  p->matrix = *matrix;
  p->rows[TABLE] = matrix->sources;
  p->rows[OUT] = matrix->destinations;
  for (int i = 0; !status && i < slots; i++)
    status = open_slot(p, &p->slots[i],
                       setting->problem->heads * setting->problem->dim);
  if (status)
    release(p);
  else
    *made = p;
  return status;
}

static void describe(dfgnn_spmm_values *v, const dfgnn_setting *setting,
                     const dfgnn_matrix *m, const dfgnn_view *transpose) {
  *v = (dfgnn_spmm_values){.rows = m->destinations,
                           .edges = m->edges,
                           .wide = m->offsets64,
                           .offsets = m->offsets,
                           .indices = m->indices,
                           .heads = setting->problem->heads,
                           .mean = setting->problem->op == DFGNN_OP_SPMM_MEAN,
                           .destination_offsets = setting->matrix->offsets};
  if (transpose)
    v->edge_ids = transpose->array[2];
}

static dfgnn_status prepare(void **state, const dfgnn_setting *setting,
                            const dfgnn_view *const *views) {
  const dfgnn_view *transpose =
      setting->problem->pass == DFGNN_PASS_BACKWARD ? views[0] : NULL;
  const dfgnn_matrix matrix =
      transpose ? dfgnn__transposed(setting->matrix, transpose)
                : *setting->matrix;
  dfgnn_spmm_values values;
  product *p = NULL;
  *state = NULL;
  if (setting->queue->list)
    return DFGNN_OK; /* launch lists the programs of both */
  dfgnn_status status = open_product(&p, setting, &matrix, SLOTS);
  if (status)
    return status;
  p->queue = *setting->queue;
  if (setting->problem->op != DFGNN_OP_SPMM_WEIGHTED) {
    describe(&values, setting, &matrix, transpose);
    status = dfgnn__borrow(&p->queue, (void **)&p->values,
                           (size_t)matrix.edges * sizeof(float));
    values.to = p->values;
    if (!status)
      status = dfgnn__sums_values(&values, &p->queue);
    if (!status)
      status = dfgnn__wait(&p->queue);
  }
  if (status)
    release(p);
  else
    *state = p;
  return status;
}

/* ---- workspace: values or scales of a call, then the library's buffer ---- */

static size_t value_bytes(const dfgnn_setting *setting) {
  const dfgnn_matrix *m = setting->matrix;
  int64_t count = m->edges > m->destinations ? m->edges : m->destinations;
  return ((size_t)count * sizeof(float) + 255) / 256 * 256;
}

static size_t buffer_bytes(const dfgnn_setting *setting) {
  const float one = 1, zero = 0;
  dfgnn_matrix matrix = *setting->matrix;
  dfgnn_status status = DFGNN_OK;
  product *p = NULL;
  size_t bytes = 0;
  if (setting->problem->pass == DFGNN_PASS_BACKWARD) {
    matrix.destinations = setting->matrix->sources;
    matrix.sources = setting->matrix->destinations;
  }
  if (open_product(&p, setting, &matrix, 1))
    return 0;
  slot *s = &p->slots[0];
  GO(p->api,
     p->api->spmm_bytes(s->handle, CUSPARSE_PLAIN, CUSPARSE_PLAIN, &one,
                        s->sparse, s->dense[TABLE], &zero, s->dense[OUT],
                        CUSPARSE_F32, p->algorithm, &bytes));
out:
  (void)status;
  release(p);
  return bytes;
}

static size_t workspace(const dfgnn_setting *setting) {
  return value_bytes(setting) + buffer_bytes(setting);
}

/* ---- launch -------------------------------------------------------------- */

static slot *take(product *p) {
  for (;;) {
    for (int i = 0; i < SLOTS; i++)
      if (!atomic_flag_test_and_set_explicit(&p->slots[i].busy,
                                             memory_order_acquire))
        return &p->slots[i];
    sched_yield();
  }
}

static void give(slot *s) {
  atomic_flag_clear_explicit(&s->busy, memory_order_release);
}

/* Finds the values of a head, and computes them if need be. */
static dfgnn_status values_of(float **found, const product *p,
                              const dfgnn_launch *launch,
                              const dfgnn_view *transpose, int64_t head) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_args *args = launch->args;
  dfgnn_spmm_values v;
  describe(&v, setting, &p->matrix, transpose);
  v.row_scale = transpose ? args->scale_src : args->scale_dst;
  v.gathered_scale = transpose ? args->scale_dst : args->scale_src;
  const int scaled = v.row_scale || v.gathered_scale;
  if (setting->problem->op == DFGNN_OP_SPMM_WEIGHTED) {
    v.weights = args->edge_weight;
    v.head = head;
    if (!scaled && v.heads == 1 && !transpose) {
      *found = (float *)args->edge_weight;
      return DFGNN_OK;
    }
  } else if (!scaled || head > 0) {
    *found = scaled ? launch->workspace : p->values;
    return DFGNN_OK;
  }
  *found = v.to = launch->workspace;
  return dfgnn__sums_values(&v, setting->queue);
}

/* Does cuSPARSE serve a tensor?  It loads 16-byte words whatever the stride;
 * our own kernels serve other tensors. */
static int serves(const void *data, const dfgnn_strides *strides,
                  const dfgnn_problem *p) {
  return strides->feature == 1 && strides->node % 4 == 0 &&
         (p->heads == 1 || strides->head % 4 == 0) && (uintptr_t)data % 16 == 0;
}

/* Lists the kernel that computes values.  Our kernels for strides that cuSPARSE
 * does not serve are compiled when such strides first come. */
static dfgnn_status list_programs(const dfgnn_launch *launch) {
  const dfgnn_spmm_values some = {.rows = 1, .edges = 1};
  return dfgnn__sums_values(&some, launch->setting.queue);
}

static dfgnn_status multiply(product *p, const dfgnn_launch *launch,
                             const dfgnn_view *transpose, const float *table,
                             const dfgnn_strides *from, float *out,
                             const dfgnn_strides *to) {
  const dfgnn_problem *problem = launch->setting.problem;
  const float one = 1, zero = 0;
  if (launch->setting.queue->list)
    return list_programs(launch);
  const dfgnn_cusparse *api = p->api;
  void *buffer = (char *)launch->workspace + value_bytes(&launch->setting);
  dfgnn_status status = DFGNN_OK;
  if (!serves(table, from, problem) || !serves(out, to, problem))
    return dfgnn__sums_plain(launch);
  slot *s = take(p);
  GO(api, api->set_stream(s->handle, launch->stream));
  for (int64_t h = 0; h < problem->heads; h++) {
    float *values;
    status = values_of(&values, p, launch, transpose, h);
    if (!status)
      status = bind(p, s, TABLE, table + h * from->head, from->node);
    if (!status)
      status = bind(p, s, OUT, out + h * to->head, to->node);
    if (status)
      goto out;
    GO(api, api->set_values(s->sparse, values));
    GO(api, api->spmm(s->handle, CUSPARSE_PLAIN, CUSPARSE_PLAIN, &one,
                      s->sparse, s->dense[TABLE], &zero, s->dense[OUT],
                      CUSPARSE_F32, p->algorithm, buffer));
  }
out:
  give(s);
  return status;
}

static dfgnn_status forward(const dfgnn_launch *launch) {
  const dfgnn_args *args = launch->args;
  return multiply(launch->state, launch, NULL, args->value,
                  &args->value_strides, args->out, &args->out_strides);
}

static dfgnn_status backward(const dfgnn_launch *launch) {
  const dfgnn_args *args = launch->args;
  dfgnn_status status = DFGNN_OK;
  if (args->grad_value)
    status = multiply(launch->state, launch, launch->views[0], args->grad_out,
                      &args->grad_out_strides, args->grad_value,
                      &args->grad_value_strides);
  if (!status && args->grad_edge_weight)
    status = dfgnn__sums_grade_weights(launch);
  return status;
}

#define CUSPARSE                                                               \
  .algorithm = "cusparse", .backend = "cuda", .ops = DFGNN_OPS_SPMM,           \
  .dtypes = DFGNN_BIT(DFGNN_F32), .revision = 1, .applicable = applicable,     \
  .workspace = workspace, .views = views, .prepare = prepare,                  \
  .release = release
#define FORWARD                                                                \
  CUSPARSE, .name = "cuda.spmm.fwd.cusparse",                                  \
            .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .launch = forward
#define BACKWARD                                                               \
  CUSPARSE, .name = "cuda.spmm.bwd.cusparse",                                  \
            .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD), .launch = backward
#define ALG3                                                                   \
  .deterministic = 1, .parameters = {{"alg", 1, {CUSPARSE_SPMM_ALG3}, {"3"}}}
/* Algorithms 1 and 2 add in an order that differs from run to run. */
#define OTHERS                                                                 \
  .deterministic = 0,                                                          \
  .parameters = {                                                              \
      {"alg", 2, {CUSPARSE_SPMM_ALG1, CUSPARSE_SPMM_ALG2}, {"1", "2"}}}

DFGNN_FAMILIES(sums_cuda_cusparse) = {{FORWARD, ALG3},
                                      {FORWARD, OTHERS},
                                      {BACKWARD, ALG3},
                                      {BACKWARD, OTHERS},
                                      DFGNN_FAMILIES_END};
