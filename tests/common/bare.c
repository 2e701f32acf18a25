#include "tests/common/bare.h"

#include "tests/common/session.h"

#define UNTOUCHED 0x5a
enum { SAMPLE = 3 };

static int written(const dfgnn_tensor *t) {
  return t->role == DFGNN_ROLE_OUTPUT || t->role == DFGNN_ROLE_GRADIENT;
}

static char *take(const session *s, const dfgnn_tensor *t) {
  dfgnn_args args = *dfgnn__harness_args(s->harness);
  char *host = malloc(bytes_of(s, t) + 1);
  copy(s, host, *dfgnn__tensor_slot(t, &args), bytes_of(s, t));
  return host;
}

static void wipe(const session *s) {
  dfgnn_args args = *dfgnn__harness_args(s->harness);
  for (const dfgnn_tensor *t = operator_of(s)->tensors; t->name; t++) {
    if (!written(t) || !dfgnn__tensor_used(t, &s->problem))
      continue;
    char *host = malloc(bytes_of(s, t) + 1);
    memset(host, UNTOUCHED, bytes_of(s, t));
    copy(s, *dfgnn__tensor_slot(t, &args), host, bytes_of(s, t));
    free(host);
  }
}

static void same(const session *s, const dfgnn_plan *plan,
                 const dfgnn_tensor *t, const char *expected, const char *how) {
  char *found = take(s, t);
  ck_assert_msg(!memcmp(found, expected, bytes_of(s, t)), "%s: %s differs %s",
                dfgnn_plan_variant(plan), t->name, how);
  free(found);
}

static int gradients(const session *s) {
  int count = 0;
  for (const dfgnn_tensor *t = operator_of(s)->tensors; t->name; t++)
    count +=
        t->role == DFGNN_ROLE_GRADIENT && dfgnn__tensor_used(t, &s->problem);
  return count;
}

/* Checks a call that wants one gradient of several. */
static void alone(const session *s, const dfgnn_plan *plan,
                  const dfgnn_tensor *wanted, const char *expected) {
  dfgnn_args args = *dfgnn__harness_args(s->harness);
  for (const dfgnn_tensor *t = operator_of(s)->tensors; t->name; t++)
    if (t->role == DFGNN_ROLE_GRADIENT && t != wanted)
      *dfgnn__tensor_slot(t, &args) = NULL;
  wipe(s);
  execute(s, plan, &args);
  same(s, plan, wanted, expected, "where it is wanted alone");
  for (const dfgnn_tensor *t = operator_of(s)->tensors; t->name; t++) {
    if (t->role != DFGNN_ROLE_GRADIENT || t == wanted ||
        !dfgnn__tensor_used(t, &s->problem))
      continue;
    char *host = take(s, t);
    for (size_t i = 0; i < bytes_of(s, t); i++)
      ck_assert_msg(host[i] == UNTOUCHED, "%s wrote %s, which is not wanted",
                    dfgnn_plan_variant(plan), t->name);
    free(host);
  }
}

static void check_plan(const session *s, const dfgnn_plan *plan) {
  char *expected[DFGNN_MAX_TENSORS] = {NULL};
  int outputs = 0;
  double error;
  ck_ok(dfgnn__harness_check(&error, s->harness, plan));
  for (int i = 0; operator_of(s)->tensors[i].name; i++)
    if (written(&operator_of(s)->tensors[i]) &&
        dfgnn__tensor_used(&operator_of(s)->tensors[i], &s->problem)) {
      expected[i] = take(s, &operator_of(s)->tensors[i]);
      outputs++;
    }
  ck_assert_int_gt(outputs, 0);
  wipe(s);
  execute(s, plan, dfgnn__harness_args(s->harness));
  for (int i = 0; operator_of(s)->tensors[i].name; i++)
    if (expected[i])
      same(s, plan, &operator_of(s)->tensors[i], expected[i], "in a bare call");
  for (int i = 0; operator_of(s)->tensors[i].name && gradients(s) > 1; i++)
    if (expected[i])
      alone(s, plan, &operator_of(s)->tensors[i], expected[i]);
  for (int i = 0; i < DFGNN_MAX_TENSORS; i++)
    free(expected[i]);
}

/* Checks SAMPLE variants of a family, which are others for each operator and
 * type; they are `count` from number `first` on. */
static int check_family(session *s, size_t first, size_t count) {
  size_t *serving = calloc(count, sizeof *serving), found = 0;
  int checks = 0;
  for (size_t i = first; i < first + count; i++)
    if (dfgnn__variant(i)->family->deterministic &&
        applies(dfgnn__variant(i), s->graph, &s->problem))
      serving[found++] = i;
  const size_t stride = found > SAMPLE ? found / SAMPLE : 1;
  const size_t begin =
      ((size_t)s->problem.op * 5 + (size_t)s->problem.dtype) % stride;
  for (size_t k = begin; k < found; k += stride) {
    dfgnn_plan *plan;
    if (!serves(&plan, s->graph, &s->problem, dfgnn__variant(serving[k])))
      continue;
    check_plan(s, plan);
    dfgnn_plan_destroy(plan);
    checks++;
  }
  free(serving);
  return checks;
}

static int each_plan(session *s) {
  int checks = 0;
  size_t count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i += count) {
    const dfgnn_family *family = dfgnn__variant(i)->family;
    for (count = 1; i + count < dfgnn__variant_count(); count++)
      if (dfgnn__variant(i + count)->family != family)
        break;
    checks += check_family(s, i, count);
  }
  return checks;
}

/* Sets all numbers of an input, if the problem has it. */
static void set_all(session *s, const char *name, double value) {
  if (dfgnn__tensor_find_used(operator_of(s), name, &s->problem) >= 0)
    ck_ok(dfgnn__harness_set(s->harness, name, 0, -1, value));
}

int check_bare_calls(const char *device, const variant_test *test) {
  static const int shapes[] = {4, 5}, heads[] = {1, 2}, dims[] = {128, 20};
  int count = 0;
  for (int k = 0; k < 2; k++) {
    session s = {.shape = shape_make(shapes[k], shape_seed()),
                 .ctx = context_on(device, "", 0)};
    dfgnn_problem problem =
        PROBLEM(.op = test->op, .pass = test->pass, .dtype = test->dtype,
                .heads = heads[k], .dim = dims[k], .message = test->message,
                .edge_dim = test->edge_dim);
    open_session(&s, &problem);
    /* what a bare call leaves out, as if it were left out */
    set_all(&s, "scale_dst", 1);
    set_all(&s, "scale_src", 1);
    set_all(&s, "edge_bias", 0);
    count += each_plan(&s);
    close_session(&s);
  }
  return count;
}
