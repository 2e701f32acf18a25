#include "tests/common/inside.h"

#include <math.h>

#include "lib/plan.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

#define GUARD 256

typedef struct setting {
  dfgnn_context *ctx;
  dfgnn_graph *graph; /* in the caller's order */
  dfgnn_problem problem;
  const dfgnn_operator *op;
} setting;

static size_t elements_of(const setting *s, const dfgnn_tensor *t) {
  const dfgnn_matrix *m = &s->graph->matrix;
  return (size_t)dfgnn__tensor_elements(t, &s->problem, m->destinations,
                                        m->sources, m->edges);
}

static size_t bytes_of(const setting *s, const dfgnn_tensor *t) {
  return elements_of(s, t) * dfgnn__tensor_element_size(t, &s->problem);
}

/* Whether each run has a tensor of its own: outputs and modifiers, which the
 * harness shares or leaves out. */
static int own(const setting *s, const dfgnn_tensor *t) {
  return (!dfgnn__role_reads(t->role) || t->role == DFGNN_ROLE_MODIFIER) &&
         dfgnn__tensor_used(t, &s->problem);
}

static void *device_copy(const setting *s, const void *host, size_t bytes) {
  void *memory = NULL;
  const dfgnn_backend *backend = s->ctx->backend;
  ck_ok(backend->allocate(s->ctx->device, &memory, bytes));
  ck_ok(backend->copy(s->ctx->device, memory, host, bytes));
  return memory;
}

static void *host_copy(const setting *s, const void *device, size_t bytes) {
  void *memory = malloc(bytes + 8);
  if (bytes)
    ck_ok(s->ctx->backend->copy(s->ctx->device, memory, device, bytes));
  return memory;
}

static dfgnn_args arguments(const setting *s, const dfgnn_harness *harness) {
  dfgnn_args args = *dfgnn__harness_args(harness);
  for (const dfgnn_tensor *t = s->op->tensors; t->name; t++) {
    size_t bytes = bytes_of(s, t);
    if (!own(s, t))
      continue;
    char *host = malloc(bytes + 8);
    memset(host, 0xff, bytes);
    for (size_t k = 0; t->role == DFGNN_ROLE_MODIFIER && k < elements_of(s, t);
         k++)
      if (s->problem.dtype == DFGNN_F64)
        ((double *)(void *)host)[k] = 0.25 * (double)(1 + k % 7);
      else
        ((float *)(void *)host)[k] = 0.25f * (float)(1 + k % 7);
    *dfgnn__tensor_slot(t, &args) = device_copy(s, host, bytes);
    free(host);
  }
  return args;
}

static void arguments_free(const setting *s, dfgnn_args *args) {
  for (const dfgnn_tensor *t = s->op->tensors; t->name; t++)
    if (own(s, t))
      s->ctx->backend->release(s->ctx->device, *dfgnn__tensor_slot(t, args));
}

static double number(const setting *s, const dfgnn_tensor *t, const void *array,
                     size_t k) {
  if (t->element == DFGNN_ELEMENT_INDEX)
    return ((const int32_t *)array)[k];
  return s->problem.dtype == DFGNN_F64 ? ((const double *)array)[k]
                                       : (double)((const float *)array)[k];
}

static void compare(const setting *s, dfgnn_args *found, dfgnn_args *expected) {
  double tolerance = s->problem.dtype == DFGNN_F64 ? 1e-11 : 2e-4;
  int compared = 0;
  for (const dfgnn_tensor *t = s->op->tensors; t->name; t++) {
    if (dfgnn__role_reads(t->role) || !own(s, t))
      continue;
    void *x = host_copy(s, *dfgnn__tensor_slot(t, found), bytes_of(s, t));
    void *y = host_copy(s, *dfgnn__tensor_slot(t, expected), bytes_of(s, t));
    for (size_t k = 0; k < elements_of(s, t); k++) {
      double a = number(s, t, x, k), b = number(s, t, y, k);
      ck_assert_msg(a == b || (isnan(a) && isnan(b)) ||
                        fabs(a - b) <= tolerance * (1 + fabs(b)),
                    "%s %s: %s[%zu] is %g, expected %g", s->op->name,
                    dfgnn_name(DFGNN_NAMES_PASS, s->op->pass), t->name, k, a,
                    b);
    }
    free(x);
    free(y);
    compared++;
  }
  ck_assert_int_gt(compared, 0);
}

static void run(const setting *s, dfgnn_graph *graph, const dfgnn_args *args) {
  dfgnn_plan *plan = NULL;
  ck_ok(dfgnn_plan_create(&plan, s->ctx, graph, &s->problem));
  size_t bytes = dfgnn_plan_workspace(plan);
  ck_assert_uint_eq(bytes % 256, 0);
  char *host = malloc(bytes + GUARD);
  memset(host, 0xff, bytes);
  memset(host + bytes, 0x5a, GUARD);
  void *workspace = device_copy(s, host, bytes + GUARD);
  free(host);
  ck_ok(dfgnn_execute(plan, args, workspace, NULL));
  ck_ok(s->ctx->backend->synchronize(s->ctx->device, NULL));
  host = host_copy(s, workspace, bytes + GUARD);
  for (int k = 0; k < GUARD; k++)
    ck_assert_int_eq(host[bytes + (size_t)k], 0x5a);
  free(host);
  s->ctx->backend->release(s->ctx->device, workspace);
  dfgnn_plan_destroy(plan);
}

/* Sets the problem of case i, without bias if no variant takes one; returns 0
 * if no variant serves it. */
static int find_problem(setting *s, int i, dfgnn_dtype dtype) {
  dfgnn_plan *plan = NULL;
  dfgnn_problem *p = &s->problem;
  *p = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  p->op = (dfgnn_op)(i % DFGNN_OP_COUNT);
  p->pass = (dfgnn_pass)(i / DFGNN_OP_COUNT);
  p->dtype = dtype;
  p->heads = 3;
  p->dim = 5;
  p->layout = i % 2 ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD;
  p->effort = DFGNN_EFFORT_ESTIMATE;
  s->op = dfgnn__operator(p->op, p->pass);
  if (!s->op)
    return 0;
  int attention = DFGNN_OPS_ATTENTION >> p->op & 1;
  p->bias = attention && p->op != DFGNN_OP_GT;
  p->weights = p->op == DFGNN_OP_GT && p->pass == DFGNN_PASS_FORWARD;
  dfgnn_status status = dfgnn_plan_create(&plan, s->ctx, s->graph, p);
  if (status == DFGNN_ERROR_UNSUPPORTED && p->bias) {
    p->bias = 0;
    status = dfgnn_plan_create(&plan, s->ctx, s->graph, p);
  }
  dfgnn_plan_destroy(plan);
  ck_assert_msg(!status || status == DFGNN_ERROR_UNSUPPORTED, "%s",
                dfgnn_last_error());
  return !status;
}

int inside_matches(dfgnn_context *ctx, const dfgnn_csr *csr, dfgnn_order order,
                   int keep_columns, int i, dfgnn_dtype dtype) {
  setting s = {.ctx = ctx};
  dfgnn_reordering how = DFGNN_REORDERING_INIT;
  dfgnn_graph *inside = NULL;
  dfgnn_harness *harness = NULL;
  ck_ok(dfgnn_graph_create_csr(&s.graph, ctx, csr, NULL));
  int served = find_problem(&s, i, dtype);
  if (served) {
    how.order = order;
    how.inside = 1;
    how.keep_columns = keep_columns;
    ck_ok(dfgnn_graph_create_reordered(&inside, ctx, csr, &how, NULL));
    ck_ok(dfgnn__harness_create(&harness, ctx, s.graph, &s.problem,
                                shape_seed()));
    dfgnn_args expected = arguments(&s, harness);
    dfgnn_args found = arguments(&s, harness);
    run(&s, s.graph, &expected);
    run(&s, inside, &found);
    compare(&s, &found, &expected);
    arguments_free(&s, &expected);
    arguments_free(&s, &found);
    dfgnn__harness_destroy(harness);
    dfgnn_graph_destroy(inside);
  }
  dfgnn_graph_destroy(s.graph);
  return served;
}
