#include "tests/common/variants.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/graph.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/common/shapes.h"
#include "tests/common/strided.h"
#include "tuner/harness.h"

#define ck_ok(expression)                                                      \
  ck_assert_msg((expression) == DFGNN_OK, #expression ": %s",                  \
                dfgnn_last_error())

/* ---- loops --------------------------------------------------------------- */

typedef struct session {
  dfgnn_context *ctx;
  shape shape;
  dfgnn_graph *graph;
  dfgnn_problem problem;
  dfgnn_harness *harness;
} session;

/* Threads share out rows alike for every type: one type shows it. */
static dfgnn_context *context(const char *device, dfgnn_dtype dtype) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx = NULL;
  options.device = device;
  options.store = "";
  options.threads = dtype == DFGNN_F32 ? 2 : 1;
  ck_ok(dfgnn_context_create(&ctx, &options));
  return ctx;
}

static void open_shape(session *s, int which, int wide) {
  s->shape = shape_make(which, shape_seed());
  if (wide)
    shape_widen(&s->shape);
  ck_ok(dfgnn_graph_create(&s->graph, s->ctx, &s->shape.csr));
}

static void close_shape(session *s) {
  dfgnn_graph_destroy(s->graph);
  shape_free(&s->shape);
}

/* Calls f with a plan of each variant that applies; returns how many. */
static int each_variant(session *s, void (*f)(session *, dfgnn_plan *, void *),
                        void *data, unsigned char *met) {
  int count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *variant = dfgnn__variant(i);
    dfgnn_setting setting = dfgnn__setting(s->graph, &s->problem);
    dfgnn_plan *plan;
    if (strcmp(variant->family->backend, s->ctx->backend->name) != 0 ||
        dfgnn__variant_refusal(variant, &setting))
      continue;
    ck_ok(dfgnn_plan_create_forced(&plan, s->ctx, s->graph, &s->problem,
                                   variant->name));
    f(s, plan, data);
    dfgnn_plan_destroy(plan);
    if (met)
      met[i] = 1;
    count++;
  }
  return count;
}

static void matches_reference(session *s, dfgnn_plan *plan, void *data) {
  const dfgnn_problem *p = &s->problem;
  double error = 0;
  (void)data;
  dfgnn_status status = dfgnn__harness_check(&error, s->harness, plan);
  ck_assert_msg(status == DFGNN_OK,
                "%s on %s, %s %s, %d heads of %d, layout %s, %s offsets: %s",
                dfgnn_plan_variant(plan), s->shape.name, dfgnn_op_name(p->op),
                dfgnn_dtype_name(p->dtype), (int)p->heads, (int)p->dim,
                dfgnn_layout_name(p->layout),
                s->graph->matrix.offsets64 ? "64-bit" : "32-bit",
                dfgnn_last_error());
}

static dfgnn_problem problem_of(dfgnn_op op, dfgnn_dtype dtype, int heads,
                                int dim, dfgnn_layout layout, int weights) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT, complete;
  problem.op = op;
  problem.dtype = dtype;
  problem.heads = heads;
  problem.dim = dim;
  problem.layout = layout;
  problem.weights = weights;
  ck_ok(dfgnn__problem_complete(&complete, &problem));
  return complete;
}

/* ---- every variant ------------------------------------------------------- */

static const int widths[] = {1, 3, 17, 64, 100, 128};
static const int heads[] = {1, 3, 8};

/* The variants that never applied are named, unless another machine is what
 * they want. */
static void check_met(const session *s, const unsigned char *met,
                      const dfgnn_problem *problem) {
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    int meant = !strcmp(v->family->backend, s->ctx->backend->name) &&
                v->family->ops & DFGNN_BIT(problem->op) &&
                v->family->dtypes & DFGNN_BIT(problem->dtype);
    if (meant && !met[i])
      printf("not run here: %s\n", v->name);
  }
}

int check_every_variant(const char *device, dfgnn_op op, dfgnn_dtype dtype) {
  session s = {.ctx = context(device, dtype)};
  unsigned char *met = calloc(dfgnn__variant_count(), 1);
  int checks = 0, turn = (int)op + (int)dtype;

  for (int which = 0; which < SHAPES; which++) {
    open_shape(&s, which, (turn + which) % 2);
    /* 18 pairs of width and heads, 9 shapes, two problems each: all pairs. */
    for (int k = 0; k < 2; k++) {
      int pair = (turn + 2 * which + k) % 18;
      dfgnn_layout layout =
          (which + k) % 2 ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD;
      s.problem =
          problem_of(op, dtype, heads[pair % 3], widths[pair / 3], layout, k);
      ck_ok(dfgnn__harness_create(&s.harness, s.ctx, s.graph, &s.problem,
                                  shape_seed()));
      checks += each_variant(&s, matches_reference, NULL, met);
      dfgnn__harness_destroy(s.harness);
    }
    close_shape(&s);
  }
  check_met(&s, met, &s.problem);
  dfgnn_context_destroy(s.ctx);
  free(met);
  return checks;
}

/* ---- special values ------------------------------------------------------ */

enum { HEADS = 2, DIM = 20, ROW = HEADS * DIM };

static void set(session *s, const char *tensor, int64_t first, int64_t count,
                double value) {
  ck_ok(dfgnn__harness_set(s->harness, tensor, first, count, value));
}

static const char *gathered(dfgnn_op op) {
  return op == DFGNN_OP_GT ? "key" : "value";
}

static void plain(session *s, dfgnn_op op) { (void)s, (void)op; }

static void nan_score(session *s, dfgnn_op op) {
  if (op == DFGNN_OP_GAT)
    set(s, "score_src", 2 * HEADS, HEADS, NAN);
  else
    set(s, gathered(op), 2 * ROW, ROW, NAN);
}

static void nan_value(session *s, dfgnn_op op) {
  (void)op;
  set(s, "value", 3 * ROW + 1, 1, NAN);
}

static void infinite_value(session *s, dfgnn_op op) {
  (void)op;
  set(s, "value", 3 * ROW + 1, 1, INFINITY);
}

/* Every score of row 1 is -inf, and of other rows that of source 2. */
static void minus_infinity(session *s, dfgnn_op op) {
  int64_t sources = s->graph->matrix.sources;
  if (op == DFGNN_OP_GAT) {
    set(s, "score_dst", HEADS, HEADS, -INFINITY);
    set(s, "score_src", 2 * HEADS, HEADS, -INFINITY);
  } else if (op == DFGNN_OP_GT) {
    set(s, "key", 0, sources * ROW, 1);
    set(s, "query", ROW, ROW, -INFINITY);
  } else if (op == DFGNN_OP_GATV2) {
    set(s, "att", 0, ROW, 1);
    set(s, "query", ROW, ROW, -INFINITY);
  }
}

static void plus_infinity(session *s, dfgnn_op op) {
  if (op == DFGNN_OP_GAT)
    set(s, "score_dst", HEADS, HEADS, INFINITY);
}

static void zero_norms(session *s, dfgnn_op op) {
  set(s, "value", 0, ROW, 0);
  if (op != DFGNN_OP_GAT)
    set(s, "query", 4 * ROW, ROW, 0);
}

/* A softmax that starts from 0 instead of the maximum would lose the row. */
static void far_below_zero(session *s, dfgnn_op op) {
  int64_t rows = s->graph->matrix.destinations;
  if (op == DFGNN_OP_GAT) {
    set(s, "score_dst", 0, rows * HEADS, -4096);
    set(s, "score_src", 0, s->graph->matrix.sources * HEADS, 0);
  }
  if (op == DFGNN_OP_GT) {
    set(s, "key", 0, s->graph->matrix.sources * ROW, -16);
    set(s, "query", 0, rows * ROW, 16);
  }
}

void check_special_values(const char *device, dfgnn_op op, dfgnn_dtype dtype) {
  static void (*const cases[])(session *, dfgnn_op) = {
      plain,          nan_score,     nan_value,  infinite_value,
      minus_infinity, plus_infinity, zero_norms, far_below_zero};
  session s = {.ctx = context(device, dtype)};

  open_shape(&s, SHAPES - 1, 0);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    s.problem =
        problem_of(op, dtype, HEADS, DIM, DFGNN_LAYOUT_NHD, (int)(i % 2));
    ck_ok(dfgnn__harness_create(&s.harness, s.ctx, s.graph, &s.problem,
                                shape_seed()));
    cases[i](&s, op);
    ck_assert_int_gt(each_variant(&s, matches_reference, NULL, NULL), 0);
    dfgnn__harness_destroy(s.harness);
  }
  close_shape(&s);
  dfgnn_context_destroy(s.ctx);
}

/* ---- strides ------------------------------------------------------------- */

static void strided_matches(session *s, dfgnn_plan *plan, void *data) {
  double error = strided_error(data, s->ctx, plan);
  double tolerance = dfgnn__tolerance(s->problem.dtype, s->problem.math);
  ck_assert_msg(
      error <= tolerance, "%s on %s, %s %s: relative error %g above %g: %s",
      dfgnn_plan_variant(plan), s->shape.name, dfgnn_op_name(s->problem.op),
      dfgnn_dtype_name(s->problem.dtype), error, tolerance, dfgnn_last_error());
}

void check_strides(const char *device, dfgnn_op op, dfgnn_dtype dtype) {
  /* Features adjacent with gaps, features apart, heads innermost with a gap. */
  static const dfgnn_strides strides[] = {
      {2 * 23 + 5, 23, 1}, {2 * 60 + 3, 60, 3}, {20 * 3, 1, 3}};
  session s = {.ctx = context(device, dtype)};

  for (int k = 0; k < 3; k++) {
    open_shape(&s, 3 + 2 * k, 0);
    s.problem = problem_of(op, dtype, HEADS, DIM,
                           k == 2 ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD, 0);
    strided *tensors =
        strided_make(s.ctx, &s.shape, &s.problem, &strides[k], shape_seed());
    ck_assert_msg(tensors != NULL, "%s", dfgnn_last_error());
    ck_assert_int_gt(each_variant(&s, strided_matches, tensors, NULL), 0);
    strided_free(tensors, s.ctx);
    close_shape(&s);
  }
  dfgnn_context_destroy(s.ctx);
}

/* ---- repeated calls ------------------------------------------------------ */

static void repeats(session *s, dfgnn_plan *plan, void *data) {
  const dfgnn_backend *backend = s->ctx->backend;
  const dfgnn_args *args = dfgnn__harness_args(s->harness);
  size_t bytes = (size_t)(s->graph->matrix.destinations * ROW) *
                 dfgnn_dtype_size(s->problem.dtype);
  char *first = data, *second = first + bytes;
  void *workspace;
  ck_ok(dfgnn__harness_workspace(&workspace, s->harness, plan));
  for (int k = 0; k < 2; k++) {
    ck_ok(dfgnn_execute(plan, args, workspace, NULL));
    ck_ok(backend->synchronize(s->ctx->device, NULL));
    ck_ok(backend->copy(s->ctx->device, k ? second : first, args->out, bytes));
  }
  ck_assert_msg(!memcmp(first, second, bytes), "%s differs from call to call",
                dfgnn_plan_variant(plan));
}

void check_repeats(const char *device, dfgnn_op op, dfgnn_dtype dtype) {
  session s = {.ctx = context(device, dtype)};
  open_shape(&s, 4, 0);
  s.problem = problem_of(op, dtype, HEADS, DIM, DFGNN_LAYOUT_NHD, 0);
  ck_ok(dfgnn__harness_create(&s.harness, s.ctx, s.graph, &s.problem,
                              shape_seed()));
  size_t bytes = (size_t)(s.graph->matrix.destinations * ROW) * sizeof(double);
  char *outputs = malloc(2 * bytes);
  ck_assert_int_gt(each_variant(&s, repeats, outputs, NULL), 0);
  free(outputs);
  dfgnn__harness_destroy(s.harness);
  close_shape(&s);
  dfgnn_context_destroy(s.ctx);
}
