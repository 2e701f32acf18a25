#include "tests/common/bare.h"

#include "lib/graph.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

#define UNTOUCHED 0x5a
enum { SAMPLE = 3 };

typedef struct bare {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_problem problem;
  dfgnn_harness *harness;
  const dfgnn_operator *op;
} bare;

static int written(const dfgnn_tensor *t) {
  return t->role == DFGNN_ROLE_OUTPUT || t->role == DFGNN_ROLE_GRADIENT;
}

static size_t bytes_of(const bare *b, const dfgnn_tensor *t) {
  const dfgnn_matrix *m = &b->graph->matrix;
  return (size_t)dfgnn__tensor_elements(t, &b->problem, m->destinations,
                                        m->sources, m->edges) *
         dfgnn__tensor_element_size(t, &b->problem);
}

static char *take(const bare *b, const dfgnn_tensor *t) {
  dfgnn_args args = *dfgnn__harness_args(b->harness);
  size_t bytes = bytes_of(b, t);
  char *host = malloc(bytes + 1);
  ck_ok(b->ctx->backend->copy(b->ctx->device, host,
                              *dfgnn__tensor_slot(t, &args), bytes));
  return host;
}

static void wipe(const bare *b) {
  dfgnn_args args = *dfgnn__harness_args(b->harness);
  for (const dfgnn_tensor *t = b->op->tensors; t->name; t++) {
    if (!written(t) || !dfgnn__tensor_used(t, &b->problem))
      continue;
    size_t bytes = bytes_of(b, t);
    char *host = malloc(bytes + 1);
    memset(host, UNTOUCHED, bytes);
    ck_ok(b->ctx->backend->copy(b->ctx->device, *dfgnn__tensor_slot(t, &args),
                                host, bytes));
    free(host);
  }
}

static void run(const bare *b, const dfgnn_plan *plan, const dfgnn_args *args) {
  void *workspace;
  ck_ok(dfgnn__harness_workspace(&workspace, b->harness, plan));
  ck_ok(dfgnn_execute(plan, args, workspace, NULL));
  ck_ok(b->ctx->backend->synchronize(b->ctx->device, NULL));
}

static void same(const bare *b, const dfgnn_plan *plan, const dfgnn_tensor *t,
                 const char *expected, const char *how) {
  char *found = take(b, t);
  ck_assert_msg(!memcmp(found, expected, bytes_of(b, t)), "%s: %s differs %s",
                dfgnn_plan_variant(plan), t->name, how);
  free(found);
}

static int gradients(const bare *b) {
  int count = 0;
  for (const dfgnn_tensor *t = b->op->tensors; t->name; t++)
    count +=
        t->role == DFGNN_ROLE_GRADIENT && dfgnn__tensor_used(t, &b->problem);
  return count;
}

/* Checks a call that wants one gradient of several. */
static void alone(const bare *b, const dfgnn_plan *plan,
                  const dfgnn_tensor *wanted, const char *expected) {
  dfgnn_args args = *dfgnn__harness_args(b->harness);
  for (const dfgnn_tensor *t = b->op->tensors; t->name; t++)
    if (t->role == DFGNN_ROLE_GRADIENT && t != wanted)
      *dfgnn__tensor_slot(t, &args) = NULL;
  wipe(b);
  run(b, plan, &args);
  same(b, plan, wanted, expected, "where it is wanted alone");
  for (const dfgnn_tensor *t = b->op->tensors; t->name; t++) {
    if (t->role != DFGNN_ROLE_GRADIENT || t == wanted ||
        !dfgnn__tensor_used(t, &b->problem))
      continue;
    char *host = take(b, t);
    for (size_t i = 0; i < bytes_of(b, t); i++)
      ck_assert_msg(host[i] == UNTOUCHED, "%s wrote %s, which is not wanted",
                    dfgnn_plan_variant(plan), t->name);
    free(host);
  }
}

static void check_plan(const bare *b, const dfgnn_plan *plan) {
  char *expected[DFGNN_MAX_TENSORS] = {NULL};
  int outputs = 0;
  double error;
  ck_ok(dfgnn__harness_check(&error, b->harness, plan));
  for (int i = 0; b->op->tensors[i].name; i++)
    if (written(&b->op->tensors[i]) &&
        dfgnn__tensor_used(&b->op->tensors[i], &b->problem)) {
      expected[i] = take(b, &b->op->tensors[i]);
      outputs++;
    }
  ck_assert_int_gt(outputs, 0);
  wipe(b);
  run(b, plan, dfgnn__harness_args(b->harness));
  for (int i = 0; b->op->tensors[i].name; i++)
    if (expected[i])
      same(b, plan, &b->op->tensors[i], expected[i], "in a bare call");
  for (int i = 0; b->op->tensors[i].name && gradients(b) > 1; i++)
    if (expected[i])
      alone(b, plan, &b->op->tensors[i], expected[i]);
  for (int i = 0; i < DFGNN_MAX_TENSORS; i++)
    free(expected[i]);
}

/* 1 if the variant is deterministic and serves the problem. */
static int serves(const bare *b, const dfgnn_variant *variant) {
  dfgnn_setting setting = dfgnn__setting(b->graph, &b->problem);
  return !strcmp(variant->family->backend, b->ctx->backend->name) &&
         variant->family->deterministic &&
         !dfgnn__variant_refusal(variant, &setting);
}

static int check_variant(bare *b, const dfgnn_variant *variant) {
  dfgnn_plan *plan;
  dfgnn_status status = dfgnn_plan_create_forced(&plan, b->ctx, b->graph,
                                                 &b->problem, variant->name);
  if (status == DFGNN_ERROR_UNSUPPORTED) /* the graph is not for it */
    return 0;
  ck_ok(status);
  check_plan(b, plan);
  dfgnn_plan_destroy(plan);
  return 1;
}

/* Checks SAMPLE variants of a family, which are others for each operator and
 * type; they are `count` from number `first` on. */
static int check_family(bare *b, size_t first, size_t count) {
  size_t *serving = calloc(count, sizeof *serving), found = 0;
  int checks = 0;
  for (size_t i = first; i < first + count; i++)
    if (serves(b, dfgnn__variant(i)))
      serving[found++] = i;
  const size_t stride = found > SAMPLE ? found / SAMPLE : 1;
  const size_t begin =
      ((size_t)b->problem.op * 5 + (size_t)b->problem.dtype) % stride;
  for (size_t k = begin; k < found; k += stride)
    checks += check_variant(b, dfgnn__variant(serving[k]));
  free(serving);
  return checks;
}

static int each_plan(bare *b) {
  int checks = 0;
  size_t count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i += count) {
    const dfgnn_family *family = dfgnn__variant(i)->family;
    for (count = 1; i + count < dfgnn__variant_count(); count++)
      if (dfgnn__variant(i + count)->family != family)
        break;
    checks += check_family(b, i, count);
  }
  return checks;
}

/* Sets all numbers of an input, if the problem has it. */
static void set_all(bare *b, const char *name, double value) {
  const int i = dfgnn__tensor_find_used(b->op, name, &b->problem);
  const dfgnn_matrix *m = &b->graph->matrix;
  if (i >= 0)
    ck_ok(dfgnn__harness_set(
        b->harness, name, 0,
        dfgnn__tensor_elements(&b->op->tensors[i], &b->problem, m->destinations,
                               m->sources, m->edges),
        value));
}

int check_bare_calls(const char *device, const variant_test *test) {
  static const int shapes[] = {4, 5}, heads[] = {1, 2}, dims[] = {128, 20};
  bare b = {.ctx = context_on(device, "", 0),
            .op = dfgnn__operator(test->op, test->pass)};
  int count = 0;
  for (int k = 0; k < 2; k++) {
    shape s = shape_make(shapes[k], shape_seed());
    dfgnn_problem problem =
        PROBLEM(.op = test->op, .pass = test->pass, .dtype = test->dtype,
                .heads = heads[k], .dim = dims[k], .message = test->message,
                .edge_dim = test->edge_dim);
    ck_ok(dfgnn__problem_complete(&b.problem, &problem));
    ck_ok(dfgnn_graph_create_csr(&b.graph, b.ctx, &s.csr, NULL));
    ck_ok(dfgnn__harness_create(&b.harness, b.ctx, b.graph, &b.problem,
                                shape_seed()));
    /* what a bare call leaves out, as if it were left out */
    set_all(&b, "scale_dst", 1);
    set_all(&b, "scale_src", 1);
    set_all(&b, "edge_bias", 0);
    count += each_plan(&b);
    dfgnn__harness_destroy(b.harness);
    dfgnn_graph_destroy(b.graph);
  }
  dfgnn_context_destroy(b.ctx);
  return count;
}
