#include "tests/common/variants.h"

#include <math.h>

#include "kernels/common/number.h"
#include "lib/key.h"
#include "tests/common/session.h"

/* check_every_variant has 18 problems; a variant of a family of n variants is
 * checked in one of 1 + n / TURN of them. */
enum { TURN = 5 };

/* ---- loops --------------------------------------------------------------- */

/* DFGNN_TEST_FAMILY=TEXT checks only variants whose names hold TEXT, for work
 * on one family. */
static const char *wanted_family(void) { return getenv("DFGNN_TEST_FAMILY"); }

static int is_wanted(const dfgnn_variant *variant) {
  return !wanted_family() || strstr(variant->name, wanted_family());
}

static void check_wanted_is_known(const char *backend) {
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    if (is_wanted(dfgnn__variant(i)) &&
        !strcmp(dfgnn__variant(i)->family->backend, backend))
      return;
  ck_abort_msg("no variant of %s has DFGNN_TEST_FAMILY=%s in its name", backend,
               wanted_family());
}

static dfgnn_context *context_of(const char *device, int threads) {
  check_wanted_is_known(device);
  return context_on(device, "", threads);
}

/* Threads share out rows alike for every type, so one type runs with two. */
static dfgnn_context *context(const char *device, dfgnn_dtype dtype) {
  return context_of(device, dtype == DFGNN_F32 ? 2 : 1);
}

static void open_shape(session *s, int which, int wide) {
  s->shape = shape_make(which, shape_seed());
  if (wide)
    shape_widen(&s->shape);
  ck_ok(dfgnn_graph_create_csr(&s->graph, s->ctx, &s->shape.csr, NULL));
}

static void close_problem(session *s) {
  dfgnn__harness_destroy(s->harness);
  s->harness = NULL;
}

static void close_shape(session *s) {
  close_problem(s);
  dfgnn_graph_destroy(s->graph);
}

static int is_full(void) {
  static int full = -1;
  if (full < 0)
    full = getenv("DFGNN_TEST_FULL") != NULL;
  return full;
}

/* Whether a variant is checked in a problem.  All are in a full test; else the
 * variants of a large family take turns. */
static int has_turn(int in_family, int of_family, int turn) {
  int share = is_full() ? 1 : 1 + of_family / TURN;
  return (in_family + turn) % share == 0;
}

/* Whether one of some problems is left to another of the tests that share out
 * theirs. */
static int is_of_another(const variant_test *test, int number, int of) {
  int shares = of < test->shares ? of : test->shares;
  return shares > 1 && !is_full() && number % shares != test->share % shares;
}

/* Whether one of the problems is left to the nightly test, which is full: a CPU
 * computes 16 bits in f32 on copies, and one problem of three tells whether
 * that is done. */
static int is_of_the_night(const char *device, const variant_test *test,
                           int number) {
  const int narrow = test->dtype == DFGNN_F16 || test->dtype == DFGNN_BF16;
  return narrow && !test->shares && !is_full() && !strcmp(device, "cpu") &&
         (number + (int)test->op + (int)test->dtype) % 3 != 0;
}

/* N of DFGNN_TEST_FEW=N, else 0.  The tests then take one problem of N, and one
 * variant of each family in it: little enough for the emulator, which compiles
 * thousands of kernels slowly. */
static int few(void) {
  const char *text = getenv("DFGNN_TEST_FEW");
  return text ? atoi(text) : 0;
}

/* Whether the next problem of many is left out. */
static int left_out(int *number) { return few() && (*number)++ % few() != 0; }

static int family_size(size_t first) {
  int size = 0;
  const dfgnn_family *family = dfgnn__variant(first)->family;
  while (first + (size_t)size < dfgnn__variant_count() &&
         dfgnn__variant(first + (size_t)size)->family == family)
    size++;
  return size;
}

static void some_were_checked(int checks) {
  if (!wanted_family())
    ck_assert_int_gt(checks, 0);
}

typedef void (*visit)(session *, dfgnn_plan *, void *);

static int visit_variant(session *s, const dfgnn_variant *variant, visit f,
                         void *data) {
  dfgnn_plan *plan;
  if (!is_wanted(variant) || !serves(&plan, s->graph, &s->problem, variant))
    return 0;
  f(s, plan, data);
  dfgnn_plan_destroy(plan);
  return 1;
}

/* Calls f with a plan of the first variant of a family that applies, from a
 * place on that changes with the turn.  Returns the number of calls. */
static int one_variant(session *s, visit f, void *data, int turn, size_t first,
                       int size, unsigned char *met) {
  for (int k = 0; k < size; k++) {
    size_t i = first + (size_t)((k + 7 * turn) % size);
    if (visit_variant(s, dfgnn__variant(i), f, data)) {
      if (met)
        met[i] = 1;
      return 1;
    }
  }
  return 0;
}

/* Calls f with a plan of each variant that applies and has its turn or was
 * never met, and of one variant of each family that has none of these.  Returns
 * the number of calls and marks the variants in met. */
static int each_variant(session *s, visit f, void *data, int turn,
                        unsigned char *met) {
  int count = 0;
  for (size_t first = 0; first < dfgnn__variant_count();) {
    int size = family_size(first), visited = 0;
    if (few())
      visited = one_variant(s, f, data, turn, first, size, met);
    for (int k = 0; !few() && k < 2 * size && (k < size || !visited); k++) {
      size_t i = first + (size_t)(k % size);
      int skipped = !has_turn(k, size, turn) && !(met && !met[i]);
      if ((k < size && skipped) ||
          !visit_variant(s, dfgnn__variant(i), f, data))
        continue;
      if (met)
        met[i] = 1;
      visited++;
    }
    count += visited;
    first += (size_t)size;
  }
  return count;
}

static void matches_reference(session *s, dfgnn_plan *plan, void *data) {
  const dfgnn_problem *p = &s->problem;
  double error = 0;
  char extras[160];
  (void)data;
  dfgnn__key_extras(extras, sizeof extras, p);
  dfgnn_status status = dfgnn__harness_check(&error, s->harness, plan);
  ck_assert_msg(status == DFGNN_OK,
                "%s on %s, %s %s %s, %d heads of %d, layout %s, %s offsets%s"
                "%s%s,%s: %s",
                dfgnn_plan_variant(plan), s->shape.name,
                dfgnn_name(DFGNN_NAMES_OP, p->op),
                dfgnn_name(DFGNN_NAMES_PASS, p->pass),
                dfgnn_name(DFGNN_NAMES_DTYPE, p->dtype), (int)p->heads,
                (int)p->dim, dfgnn_name(DFGNN_NAMES_LAYOUT, p->layout),
                s->graph->matrix.offsets64 ? "64-bit" : "32-bit",
                p->weights ? ", weights" : "", p->bias ? ", bias" : "",
                p->dropout ? ", dropout" : "", extras, dfgnn_last_error());
}

/* ---- problems ------------------------------------------------------------ */

variant_test variant_test_make(int i) {
  return (variant_test){
      .op = (dfgnn_op)(i / (int)(DFGNN_DTYPE_COUNT * DFGNN_PASS_COUNT)),
      .pass = (dfgnn_pass)(i / (int)DFGNN_DTYPE_COUNT % (int)DFGNN_PASS_COUNT),
      .dtype = (dfgnn_dtype)(i % (int)DFGNN_DTYPE_COUNT)};
}

variant_test edge_test_make(int i) {
  static const variant_test kinds[EDGE_KINDS] = {
      {.op = DFGNN_OP_GT, .edge_dim = 5},
      {.op = DFGNN_OP_GT, .edge_dim = 5, .edge_use = DFGNN_EDGE_KEYS},
      {.op = DFGNN_OP_GT, .edge_dim = 5, .edge_use = DFGNN_EDGE_VALUES},
      {.op = DFGNN_OP_GT, .edge_dim = DFGNN_EDGE_PROJECTED},
      {.op = DFGNN_OP_GATV2, .edge_dim = 5},
      {.op = DFGNN_OP_GATV2, .edge_dim = DFGNN_EDGE_PROJECTED},
      {.op = DFGNN_OP_GAT, .edge_dim = DFGNN_EDGE_PROJECTED}};
  variant_test test = kinds[i / (int)(DFGNN_DTYPE_COUNT * DFGNN_PASS_COUNT)];
  test.pass = (dfgnn_pass)(i / (int)DFGNN_DTYPE_COUNT % (int)DFGNN_PASS_COUNT);
  test.dtype = (dfgnn_dtype)(i % (int)DFGNN_DTYPE_COUNT);
  return test;
}

static int meant(const dfgnn_variant *v, const char *backend,
                 const variant_test *test) {
  int sends = test->message
                  ? (v->family->messages & DFGNN_BIT(test->message)) != 0
                  : !v->family->messages;
  return sends && !strcmp(v->family->backend, backend) &&
         v->family->ops & DFGNN_BIT(test->op) &&
         v->family->passes & DFGNN_BIT(test->pass) &&
         v->family->dtypes & DFGNN_BIT(test->dtype);
}

int variant_test_count(const char *backend, const variant_test *test) {
  int count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    count += meant(dfgnn__variant(i), backend, test);
  return count;
}

void check_backend_has_variants(const char *backend) {
  int count[DFGNN_OP_COUNT][DFGNN_PASS_COUNT] = {{0}}, checked = 0;
  for (int i = 0; i < VARIANT_TESTS; i++) {
    variant_test test = variant_test_make(i);
    count[test.op][test.pass] += variant_test_count(backend, &test);
  }
  for (int op = 0; op < DFGNN_OP_COUNT; op++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
      if (!dfgnn__operator((dfgnn_op)op, (dfgnn_pass)pass))
        continue;
      ck_assert_msg(count[op][pass] > 0, "%s has no variant of %s %s", backend,
                    dfgnn_name(DFGNN_NAMES_OP, (dfgnn_op)op),
                    dfgnn_name(DFGNN_NAMES_PASS, (dfgnn_pass)pass));
      checked++;
    }
  ck_assert_int_gt(checked, 0);
}

static int has(const variant_test *test, const char *tensor) {
  const dfgnn_operator *op = dfgnn__operator(test->op, test->pass);
  int i = op ? dfgnn__tensor_find(op, tensor) : -1;
  return i >= 0 && op->tensors[i].flag <= DFGNN_FLAG_BIAS;
}

/* Options of a problem; one is left out where the operator lacks it. */
enum {
  PLAIN = 0,
  WEIGHTS = 1,
  BIAS = 2,
  DROPOUT = 4,
  TF32 = 8,
  ACCUMULATE = 16
};

static dfgnn_problem problem_of(const variant_test *test, int heads, int dim,
                                dfgnn_layout layout, int flags) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT, complete;
  problem.op = test->op;
  problem.pass = test->pass;
  problem.dtype = test->dtype;
  problem.heads = heads;
  problem.dim = dim;
  problem.layout = layout;
  problem.weights = flags & WEIGHTS && has(test, "weights");
  problem.bias = flags & BIAS && has(test, "bias");
  problem.dropout = flags & DROPOUT && has(test, "bias");
  problem.math = flags & TF32 ? DFGNN_MATH_TF32 : DFGNN_MATH_F32;
  problem.accumulate = flags & ACCUMULATE && has(test, "grad_lse");
  problem.message = test->message;
  problem.edge_dim = test->edge_dim;
  problem.edge_use = test->edge_use;
  ck_ok(dfgnn__problem_complete(&complete, &problem));
  return complete;
}

/* Returns 0 if there is nothing to test: no forward variant computes what the
 * gradients read. */
/* Makes the tensors of a problem, in place of those of the last one. */
static int open_strided(session *s, const dfgnn_strides *strides, int shift) {
  close_problem(s);
  dfgnn_status status = dfgnn__harness_create_strided(
      &s->harness, s->ctx, s->graph, &s->problem, shape_seed(), strides, shift);
  if (status == DFGNN_ERROR_UNSUPPORTED)
    return 0;
  ck_assert_msg(status == DFGNN_OK, "%s", dfgnn_last_error());
  return 1;
}

static int open_problem(session *s) {
  static const dfgnn_strides dense;
  return open_strided(s, &dense, 0);
}

/* ---- every variant ------------------------------------------------------- */

static const int widths[] = {1, 3, 17, 32, 64, 100, 128};
static const int heads[] = {1, 3, 8};

/* Names the variants that never applied: they may need a view or an instruction
 * set that this machine lacks. */
static void check_met(const session *s, const unsigned char *met,
                      const variant_test *test) {
  int count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!meant(v, s->ctx->backend->name, test))
      continue;
    count += met[i];
    if (!met[i] && !few() && is_wanted(v))
      printf("not run here: %s\n", v->name);
  }
  some_were_checked(count);
}

int check_every_variant(const char *device, const variant_test *test) {
  static const int flags[] = {PLAIN, WEIGHTS | BIAS, DROPOUT,
                              WEIGHTS | BIAS | DROPOUT};
  session s = {.ctx = context(device, test->dtype)};
  unsigned char *met = calloc(dfgnn__variant_count(), 1);
  int checks = 0, number = 0, turn = (int)test->op + (int)test->dtype;
  const int problems =
      2 + (test->dtype == DFGNN_F32) + has(test, "grad_lse"); /* of a shape */

  for (int which = 0; which < SHAPES; which++) {
    open_shape(&s, which, (turn + which) % 2);
    /* 21 pairs of width and heads take turns in two problems on each of 9
     * shapes.  A third problem adds to gradients, and a fourth allows products
     * in TF32. */
    for (int k = 0, given = 0; k < (test->dtype == DFGNN_F32 ? 4 : 3); k++) {
      int pair = (turn + 2 * which + k) % 21;
      int asked = k == 3   ? TF32
                  : k == 2 ? ACCUMULATE | flags[(turn + which) % 4]
                           : flags[(turn + which + 2 * k) % 4];
      if ((k == 2 && !has(test, "grad_lse")) ||
          is_of_another(test, which + given++, problems) ||
          is_of_the_night(device, test, which + k))
        continue;
      dfgnn_layout layout =
          (which + k) % 2 ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD;
      s.problem =
          problem_of(test, heads[pair % 3], widths[pair / 3], layout, asked);
      if (left_out(&number) || !open_problem(&s))
        continue;
      checks += each_variant(&s, matches_reference, NULL, which + k, met);
    }
    close_shape(&s);
  }
  check_met(&s, met, test);
  free(met);
  return checks;
}

/* ---- edge features ------------------------------------------------------- */

typedef struct edge_problem {
  uint32_t ops;
  int64_t edge_dim;
  dfgnn_edge_use use;
} edge_problem;

#define GT DFGNN_BIT(DFGNN_OP_GT)
#define GATV2 DFGNN_BIT(DFGNN_OP_GATV2)
#define GAT DFGNN_BIT(DFGNN_OP_GAT)

static const edge_problem edge_problems[] = {
    {.ops = GT | GATV2, .edge_dim = 11},
    {.ops = GT | GATV2 | GAT, .edge_dim = DFGNN_EDGE_PROJECTED},
    {.ops = GT, .edge_dim = 5, .use = DFGNN_EDGE_KEYS},
    {.ops = GT, .edge_dim = 64, .use = DFGNN_EDGE_VALUES},
    {.ops = GATV2, .edge_dim = 64},
    {.ops = GT, .edge_dim = 16},
    {.ops = GT, .edge_dim = DFGNN_EDGE_PROJECTED, .use = DFGNN_EDGE_KEYS},
    {.ops = GT | GATV2, .edge_dim = 1},
    {.ops = GT, .edge_dim = DFGNN_EDGE_PROJECTED, .use = DFGNN_EDGE_VALUES},
};
enum { EDGE_PROBLEMS = sizeof edge_problems / sizeof *edge_problems };

int check_edge_features(const char *device, const variant_test *test) {
  static const int flags[] = {PLAIN, BIAS | ACCUMULATE, DROPOUT,
                              WEIGHTS | BIAS | DROPOUT};
  static const int pairs[][2] = {{8, 8}, {4, 16}, {1, 17}, {3, 64}, {2, 100}};
  session s = {.ctx = context(device, test->dtype)};
  int checks = 0, number = 0, turn = (int)test->dtype + (int)test->pass;

  for (int i = 0; i < EDGE_PROBLEMS; i++) {
    const edge_problem *e = &edge_problems[i];
    if (!(e->ops & DFGNN_BIT(test->op)))
      continue;
    for (int k = 0; k < 2; k++) {
      if (is_of_the_night(device, test, i + k) || left_out(&number))
        continue;
      const int *pair = pairs[(turn + i + k) % 5];
      open_shape(&s, (turn + 3 * i + 4 * k) % SHAPES, 0);
      s.problem = problem_of(test, pair[0], pair[1],
                             k ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD,
                             flags[(turn + i + k) % 4]);
      s.problem.edge_dim = e->edge_dim;
      s.problem.edge_use = e->use;
      if (open_problem(&s))
        checks += each_variant(&s, matches_reference, NULL, i + k, NULL);
      close_shape(&s);
    }
  }
  return checks;
}
#undef GT
#undef GATV2
#undef GAT

/* ---- special values ------------------------------------------------------ */

enum { HEADS = 2, DIM = 20 };
#define ROW (HEADS * s->problem.dim)

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

/* Every score of row 1 is -inf; in GAT those of source 2 are, too. */
static void minus_infinity(session *s, dfgnn_op op) {
  if (op == DFGNN_OP_GAT) {
    set(s, "score_dst", HEADS, HEADS, -INFINITY);
    set(s, "score_src", 2 * HEADS, HEADS, -INFINITY);
  } else if (op == DFGNN_OP_GT) {
    set(s, "key", 0, -1, 1);
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
  if (op != DFGNN_OP_GAT && DFGNN_OPS_ATTENTION >> op & 1)
    set(s, "query", 4 * ROW, ROW, 0);
}

/* A softmax that starts from 0 instead of the maximum would lose the row. */
static void far_below_zero(session *s, dfgnn_op op) {
  if (op == DFGNN_OP_GAT) {
    set(s, "score_dst", 0, -1, -4096);
    set(s, "score_src", 0, -1, 0);
  }
  if (op == DFGNN_OP_GT) {
    set(s, "key", 0, -1, -16);
    set(s, "query", 0, -1, 16);
  }
}

/* The scores of a row rise from edge to edge, so far that each makes those
 * before it small: columns are in order, in blocks of ten. */
static void rising(session *s, dfgnn_op op) {
  if (op == DFGNN_OP_GT)
    set(s, "query", 0, -1, 1);
  for (int64_t j = 0; j < s->graph->matrix.sources; j++) {
    const double step = 4 * (double)(j % 10);
    if (op == DFGNN_OP_GT)
      set(s, "key", j * ROW, ROW, step);
    if (op == DFGNN_OP_GAT)
      set(s, "score_src", j * HEADS, HEADS, 4 * step);
  }
}

/* Row 1 and every third edge are masked by their bias. */
static void masked(session *s, dfgnn_op op) {
  const int32_t *offsets = s->graph->matrix.offsets; /* read on the CPU */
  (void)op;
  if (!strcmp(s->ctx->backend->name, "cpu"))
    set(s, "bias", offsets[1] * HEADS, (offsets[2] - offsets[1]) * HEADS,
        -INFINITY);
  for (int64_t e = 0; e < s->graph->matrix.edges; e += 3)
    set(s, "bias", e * HEADS, HEADS, -INFINITY);
}

/* ---- special values of edge features ------------------------------------- */

/* The last row of the shape has edges, and row 8 has none. */
enum { EDGED = 59, ISOLATED = 8 };

/* Sets one number of one edge. */
static void set_edge(session *s, dfgnn_op op, double value) {
  const int32_t *offsets = s->shape.csr.offsets;
  const int64_t width = op == DFGNN_OP_GAT        ? HEADS
                        : s->problem.edge_dim < 0 ? ROW
                                                  : s->problem.edge_dim;
  ck_assert_int_gt(offsets[EDGED + 1], offsets[EDGED] + 1);
  set(s, op == DFGNN_OP_GAT ? "score_edge" : "edge_attr",
      (offsets[EDGED] + 1) * width + width / 2, 1, value);
}

static void nan_edge(session *s, dfgnn_op op) { set_edge(s, op, NAN); }

/* Some variants multiply the gradient of a dropped edge, whose value is NaN, by
 * 0, others leave it out. */
static void nan_dropped(session *s, dfgnn_op op) {
  if (s->problem.pass == DFGNN_PASS_FORWARD ||
      s->problem.edge_use != DFGNN_EDGE_VALUES)
    set_edge(s, op, NAN);
}

/* Sums of products of W and an infinite feature may have no value. */
static void infinite_edge(session *s, dfgnn_op op) {
  if (s->problem.edge_dim < 0)
    set_edge(s, op, INFINITY);
}

/* Nothing reads the features of a node without edges. */
static void nan_without_edges(session *s, dfgnn_op op) {
  const int32_t *offsets = s->shape.csr.offsets;
  ck_assert_int_eq(offsets[ISOLATED], offsets[ISOLATED + 1]);
  if (op == DFGNN_OP_GAT)
    set(s, "score_dst", ISOLATED * HEADS, HEADS, NAN);
  else
    set(s, "query", ISOLATED * ROW, ROW, NAN);
  if (s->problem.pass == DFGNN_PASS_BACKWARD)
    set(s, "grad_out", ISOLATED * ROW, ROW, NAN);
}

/* A row without edges gives zeros even where W is NaN. */
static void nan_weight(session *s, dfgnn_op op) {
  (void)op;
  if (s->problem.edge_dim > 0)
    set(s, "edge_projection", 2, 1, NAN);
}

typedef struct special {
  void (*set)(session *, dfgnn_op);
  int flags;
  int attention; /* 1: only operators of attention are checked */
  int backward;  /* 1: both passes are checked, else forward alone */
  int dim;       /* the width; 0: each of two */
  int edges;     /* 1: of edge features */
} special;

/* Backward is left out where a row's sum is infinite, since its gradient is a
 * cancellation, and where scores are in the thousands, since it has lost its
 * digits in the log-sum-exp. */
static const special specials[] = {
    {.set = plain, .backward = 1},
    {.set = nan_score, .flags = WEIGHTS, .attention = 1, .backward = 1},
    {.set = nan_value},
    {.set = infinite_value, .flags = WEIGHTS},
    {.set = minus_infinity, .attention = 1, .backward = 1},
    {.set = plus_infinity, .flags = WEIGHTS, .attention = 1},
    {.set = zero_norms, .backward = 1},
    {.set = zero_norms, .backward = 1, .dim = 36}, /* by heads on a CPU */
    {.set = far_below_zero, .flags = WEIGHTS, .attention = 1},
    {.set = rising, .attention = 1},
    {.set = masked, .flags = BIAS | WEIGHTS, .attention = 1, .backward = 1},
    {.set = masked, .flags = BIAS | DROPOUT, .attention = 1, .backward = 1},
    {.set = nan_edge, .flags = WEIGHTS, .backward = 1, .edges = 1},
    {.set = nan_dropped, .flags = DROPOUT, .backward = 1, .edges = 1},
    {.set = infinite_edge, .flags = WEIGHTS, .edges = 1},
    {.set = nan_without_edges, .flags = DROPOUT, .backward = 1, .edges = 1},
    {.set = nan_weight, .flags = WEIGHTS, .backward = 1, .edges = 1},
    {.set = masked, .flags = BIAS | WEIGHTS, .backward = 1, .edges = 1},
    {.set = masked, .flags = BIAS | DROPOUT, .backward = 1, .edges = 1},
};

void check_special_values(const char *device, const variant_test *test) {
  session s = {.ctx = context(device, test->dtype)};
  int attention = DFGNN_OPS_ATTENTION >> test->op & 1, checks = 0;

  open_shape(&s, SHAPE_IN_ORDER, 0);
  /* One width whose tiles are staged, and one whose tiles are not. */
  static const int dims[] = {DIM, 32};
  for (size_t i = 0; i < 2 * (sizeof specials / sizeof specials[0]); i++) {
    const special *c = &specials[i / 2];
    if (c->edges != (attention && test->edge_dim != 0) ||
        (c->attention && !attention) ||
        (test->pass == DFGNN_PASS_BACKWARD && !c->backward) ||
        (c->set != plain && !has(test, "value")) || (c->dim && i % 2) ||
        (c->set != plain && is_of_the_night(device, test, (int)i)))
      continue;
    s.problem = problem_of(test, HEADS, c->dim ? c->dim : dims[i % 2],
                           DFGNN_LAYOUT_NHD, c->flags);
    if (!open_problem(&s))
      continue;
    c->set(&s, test->op);
    checks += each_variant(&s, matches_reference, NULL, (int)i / 2, NULL);
  }
  some_were_checked(checks);
  close_shape(&s);
}

/* ---- equal values -------------------------------------------------------- */

/* Just below 2, where the places of floating-point numbers are finest. */
static const double equal_value = 255 / 128.0;

static void gives_the_value(session *s, dfgnn_plan *plan, void *data) {
  const dfgnn_args *args = dfgnn__harness_args(s->harness);
  const int32_t *offsets = s->shape.csr.offsets;
  const int64_t numbers = s->graph->matrix.destinations * ROW;
  const size_t bytes = (size_t)numbers * dfgnn_dtype_size(s->problem.dtype);
  void *out = malloc(bytes);
  (void)data;
  execute(s, plan, args);
  copy(s, out, args->out, bytes);
  for (int64_t i = 0; i < numbers; i++) {
    const double found = dfgnn__number_at(s->problem.dtype, out, i);
    const int has_edges = offsets[i / ROW] < offsets[i / ROW + 1];
    ck_assert_msg(!has_edges || fabs(found - equal_value) < 0x1p-18,
                  "%s: row %d has an average of %.9g of values of %.9g",
                  dfgnn_plan_variant(plan), (int)(i / ROW), found, equal_value);
  }
  free(out);
}

/* The first edge of a row has a bias; the weights of the others are then those
 * just above one half that rounding to 16 bits changes most. */
void check_equal_values(const char *device, const variant_test *test) {
  const double bias = test->dtype == DFGNN_BF16 ? 0.6894 : 0.69268;
  session s = {.ctx = context(device, test->dtype)};
  int checks = 0;
  open_shape(&s, SHAPE_IN_ORDER, 0);
  const dfgnn_matrix *m = &s.graph->matrix;
  const int32_t *offsets = s.shape.csr.offsets;
  for (int k = 0; k < (test->dtype == DFGNN_F32 ? 4 : 2); k++) {
    s.problem = problem_of(test, HEADS, k % 2 ? 32 : DIM, DFGNN_LAYOUT_NHD,
                           k < 2 ? BIAS : BIAS | TF32);
    if (!open_problem(&s))
      continue;
    set(&s, "value", 0, -1, equal_value);
    if (test->op == DFGNN_OP_GT)
      set(&s, "key", 0, -1, 0);
    if (test->op == DFGNN_OP_GAT)
      set(&s, "score_src", 0, -1, 0);
    set(&s, "bias", 0, -1, 0);
    for (int64_t i = 0; i < m->destinations; i++)
      if (offsets[i] < offsets[i + 1])
        set(&s, "bias", offsets[i] * HEADS, HEADS, bias);
    checks += each_variant(&s, gives_the_value, NULL, k, NULL);
  }
  some_were_checked(checks);
  close_shape(&s);
}

/* ---- slices -------------------------------------------------------------- */

void check_slices(const char *device, const variant_test *test) {
  enum { SHARE = 16 }; /* a problem has 1 in SHARE of the variants */
  static const int flags[] = {PLAIN, WEIGHTS | BIAS | DROPOUT, ACCUMULATE};
  session s = {.ctx = context(device, test->dtype)};
  int checks = 0, number = 0;
  for (int wide = 0; wide < 2; wide++) {
    open_shape(&s, SHAPE_OF_LONG_ROWS, wide);
    for (int k = 0; k < 6; k++) {
      s.problem = problem_of(test, heads[k % 3], widths[(k + wide) % 7],
                             DFGNN_LAYOUT_NHD, flags[(k + k / 3) % 3]);
      if (left_out(&number) || !open_problem(&s))
        continue;
      /* The cache holds half of a table, of a head in every other problem. */
      s.ctx->info.cache_bytes = s.shape.csr.destinations * s.problem.dim *
                                (k % 2 ? s.problem.heads : 1) *
                                (int64_t)dfgnn_dtype_size(s.problem.dtype) / 2;
      int visited = 0, turn = 5 * k + wide;
      for (size_t i = 0; i < dfgnn__variant_count() && !(few() && visited);
           i++) {
        const dfgnn_variant *v = dfgnn__variant(i);
        if (meant(v, device, test) && strstr(v->name, "order=slices") &&
            is_wanted(v) && (is_full() || few() || turn++ % SHARE == 0))
          visited += visit_variant(&s, v, matches_reference, NULL);
      }
      checks += visited;
    }
    close_shape(&s);
  }
  printf("%d checks of slices\n", checks);
  some_were_checked(checks);
}

/* ---- wide rows, and rows of narrow heads --------------------------------- */

typedef struct row_problem {
  int heads, dim, asked;
} row_problem;

static void check_rows(const char *device, const variant_test *test,
                       const row_problem *rows, int shape) {
  session s = {.ctx = context(device, test->dtype)};
  open_shape(&s, shape, 0);
  for (int i = 0; rows[i].heads; i++) {
    s.problem = problem_of(test, rows[i].heads, rows[i].dim, DFGNN_LAYOUT_NHD,
                           rows[i].asked);
    ck_assert_msg(open_problem(&s), "%s", dfgnn_last_error());
    some_were_checked(each_variant(&s, matches_reference, NULL, i, NULL));
  }
  close_shape(&s);
}

void check_wide_rows(const char *device, const variant_test *test) {
  static const row_problem rows[] = {{1, 2048, PLAIN},
                                     {2, 1024, PLAIN},
                                     {64, 32, PLAIN},
                                     {8, 8, DROPOUT},
                                     {6, 4, WEIGHTS | BIAS | DROPOUT},
                                     {0}};
  check_rows(device, test, rows, 3);
}

void check_vectors(const char *device, const variant_test *test) {
  static const row_problem rows[] = {
      {1, 6, PLAIN},  {1, 100, PLAIN}, {3, 10, PLAIN},  {1, 50, PLAIN},
      {2, 25, PLAIN}, {1, 7, PLAIN},   {3, 100, PLAIN}, {0}};
  check_rows(device, test, rows, 4);
}

/* ---- strides ------------------------------------------------------------- */

/* Features are adjacent with gaps between heads, or lie apart, or heads are
 * innermost with a gap.  Gaps that fill a vector of 4, 8 or 16 numbers are as
 * wide as the padding that kernels have inside.  Where only rows have a gap or
 * tensors are shifted, narrower vectors serve. */
static const struct {
  int dim, edge_dim;
  dfgnn_strides strides;
  int shift;
} strided_problems[] = {{20, 0, {2 * 23 + 5, 23, 1}, 0},
                        {20, 0, {2 * 60 + 3, 60, 3}, 0},
                        {20, 0, {20 * 3, 1, 3}, 0},
                        {3, DFGNN_EDGE_PROJECTED, {2 * 4, 4, 1}, 0},
                        {7, 11, {2 * 8 + 1, 8, 1}, 0},
                        {13, DFGNN_EDGE_PROJECTED, {2 * 16, 16, 1}, 0},
                        {20, 5, {2 * 20 + 3, 20, 1}, 0},
                        {5, 0, {2 * 8, 8, 1}, 0},
                        {20, 0, {2 * 20 + 2, 20, 1}, 0},
                        {50, 0, {2 * 50, 50, 1}, 2}};
enum { STRIDED = sizeof strided_problems / sizeof *strided_problems };

/* Of sums, edge features are part of a message; GAT has projected ones. */
static int has_edges(const variant_test *test, int edge_dim) {
  return !edge_dim ||
         (DFGNN_OPS_ATTENTION >> test->op & 1 && test->op != DFGNN_OP_AGNN &&
          (test->op != DFGNN_OP_GAT || edge_dim < 0));
}

void check_strides(const char *device, const variant_test *test) {
  session s = {.ctx = context(device, test->dtype)};
  int checks = 0, given = 0;

  for (int k = 0; k < STRIDED; k++) {
    const int ndh = strided_problems[k].strides.head == 1;
    if (!has_edges(test, strided_problems[k].edge_dim) ||
        is_of_another(test, given++, 4) || is_of_the_night(device, test, k))
      continue;
    open_shape(&s, (3 + 2 * k) % SHAPES, 0);
    s.problem = problem_of(test, HEADS, strided_problems[k].dim,
                           ndh ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD, PLAIN);
    if (strided_problems[k].edge_dim) /* else that of a message */
      s.problem.edge_dim = strided_problems[k].edge_dim;
    if (open_strided(&s, &strided_problems[k].strides,
                     strided_problems[k].shift))
      checks += each_variant(&s, matches_reference, NULL, k, NULL);
    close_shape(&s);
  }
  some_were_checked(checks);
}

/* ---- repeated calls ------------------------------------------------------ */

enum { OUTPUT_BYTES = 16 << 20 }; /* room for two calls */

/* Copies all tensors that the operator writes, one after the other, into memory
 * that ends at `room`; returns the end of the copies. */
static char *take_outputs(session *s, char *to, const char *room) {
  dfgnn_args args = *dfgnn__harness_args(s->harness);
  for (const dfgnn_tensor *t = operator_of(s)->tensors; t->name; t++) {
    const void *from = *dfgnn__tensor_slot(t, &args);
    if (dfgnn__role_reads(t->role) || !from)
      continue;
    size_t bytes = bytes_of(s, t);
    ck_assert_int_le((int64_t)bytes, room - to);
    copy(s, to, from, bytes);
    to += bytes;
  }
  return to;
}

static void repeats(session *s, dfgnn_plan *plan, void *data) {
  char *first = data, *second = NULL, *end = NULL;
  for (int k = 0; k < 2; k++) {
    execute(s, plan, dfgnn__harness_args(s->harness));
    second = k ? end : first;
    end = take_outputs(s, second, first + OUTPUT_BYTES);
    ck_assert_ptr_ne(end, second);
  }
  ck_assert_msg(!memcmp(first, second, (size_t)(second - first)),
                "%s differs from call to call", dfgnn_plan_variant(plan));
}

/* The graphs have a row that is cut, many rows, and a batch, and each is shared
 * out to another number of threads. */
void check_repeats(const char *device, const variant_test *test) {
  static const struct { int shape, threads; } runs[] = {{4, 2}, {6, 3}, {8, 5}};
  char *outputs = zeros_of(OUTPUT_BYTES, 1);
  int checks = 0, opened = 0;
  for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
    if (is_of_another(test, (int)k, 3))
      continue;
    session s = {.ctx = context_of(device, runs[k].threads)};
    open_shape(&s, runs[k].shape, 0);
    s.problem = problem_of(test, HEADS, DIM, DFGNN_LAYOUT_NHD, BIAS | DROPOUT);
    if (open_problem(&s)) {
      opened = 1;
      checks += each_variant(&s, repeats, outputs, (int)k, NULL);
    }
    close_shape(&s);
  }
  /* Only gradients may have no forward variant whose results they read. */
  ck_assert(opened || test->pass == DFGNN_PASS_BACKWARD);
  if (opened)
    some_were_checked(checks);
}
