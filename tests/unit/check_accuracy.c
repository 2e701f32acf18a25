/* The bound of kernels/common/accuracy.h calls no right kernel wrong, however
 * long its sums, and finds one missing edge among 10^6. */
#include <math.h>

#include "kernels/common/accuracy.h"
#include "kernels/reference/number.h"
#include "lib/plan.h"
#include "tests/common/answer.h"
#include "tests/common/hubs.h"
#include "tests/unit/fixture.h"

/* ---- planted kernels ----------------------------------------------------- */

typedef enum mistake {
  RIGHT,
  LAST_EDGE, /* the last edge of the graph is left out */
  HEADS,     /* heads are swapped in the gathered tensor */
  STALE,     /* one node has the features of another */
  MISTAKES
} mistake;

static const char *const labels[MISTAKES] = {"none", "edge", "heads", "stale"};

/* The tensor that edges gather. */
static const dfgnn_tensor *gathered(const dfgnn_operator *op) {
  const char *name = op->pass == DFGNN_PASS_FORWARD ? "value" : "grad_out";
  return &op->tensors[dfgnn__tensor_find(op, name)];
}

/* Swaps heads, or makes and returns a copy of the gathered tensor with a stale
 * node. */
static char *spoil(dfgnn_args *args, mistake m, const dfgnn_problem *problem,
                   const dfgnn_matrix *matrix) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  const dfgnn_tensor *t = gathered(op);
  void **slot = dfgnn__tensor_slot(t, args);
  dfgnn_strides *strides = (dfgnn_strides *)((char *)args + t->strides);
  size_t size = dfgnn_dtype_size(problem->dtype);
  if (m == HEADS) {
    *slot =
        (char *)*slot + (size_t)((problem->heads - 1) * strides->head) * size;
    strides->head = -strides->head;
  }
  if (m != STALE)
    return NULL;
  size_t row = (size_t)(problem->heads * problem->dim) * size;
  size_t bytes = row * (size_t)(t->shape & DFGNN_DIM_N ? matrix->destinations
                                                       : matrix->sources);
  char *copy = malloc(bytes);
  memcpy(copy, *slot, bytes);
  memcpy(copy + 5 * row, copy + 4 * row, row);
  *slot = copy;
  return copy;
}

/* A kernel that gives inputs with a mistake to the reference. */
static dfgnn_status planted(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  dfgnn_matrix m = *launch->setting.matrix;
  mistake wrong = (mistake)launch->setting.parameter[0];
  size_t bytes = (size_t)(m.destinations + 1) * sizeof(int32_t);
  int32_t *offsets = malloc(bytes);
  dfgnn_args args = *launch->args;
  memcpy(offsets, m.offsets, bytes);
  m.offsets = offsets;
  if (wrong == LAST_EDGE)
    offsets[m.destinations] = (int32_t)--m.edges;
  char *copy = spoil(&args, wrong, problem, &m);
  dfgnn_status status = answer(problem, &m, &args);
  free(copy);
  free(offsets);
  return status;
}

/* A kernel that adds all edges one after the other. */
static dfgnn_status plain(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *m = launch->setting.matrix;
  const int32_t *offsets = m->offsets;
  const float *value = launch->args->value;
  const float *after = launch->args->scale_dst;
  const float *before = launch->args->scale_src;
  float *out = launch->args->out;
  int64_t row = problem->heads * problem->dim;
  for (int64_t i = 0; i < m->destinations; i++)
    for (int64_t d = 0; d < row; d++) {
      float sum = 0;
      for (int32_t e = offsets[i]; e < offsets[i + 1]; e++)
        sum += before[m->indices[e]] * value[m->indices[e] * row + d];
      out[i * row + d] = after[i] * sum;
    }
  return DFGNN_OK;
}

#define ALL_PASSES                                                             \
  (DFGNN_BIT(DFGNN_PASS_FORWARD) | DFGNN_BIT(DFGNN_PASS_BACKWARD))
#define PLANTED(family_name, edges)                                            \
  FAKE_FAMILY(family_name, "test",                                             \
              .ops = DFGNN_OPS_ATTENTION | DFGNN_OPS_SPMM | DFGNN_OPS_REDUCE,  \
              .passes = ALL_PASSES, .dtypes = DFGNN_DTYPES_ALL, .paper = 1,    \
              .parameters = {{"mistake",                                       \
                              MISTAKES,                                        \
                              {RIGHT, LAST_EDGE, HEADS, STALE},                \
                              {"none", "edge", "heads", "stale"}}},            \
              .launch = planted, .block = (edges))

static const dfgnn_family families[] = {
    PLANTED("test.planted", 0),
    PLANTED("test.blocked", 256),
    FAKE_FAMILY("test.plain", "test", .ops = DFGNN_BIT(DFGNN_OP_SPMM_SUM),
                .paper = 1, .launch = plain),
    DFGNN_FAMILIES_END,
};

/* ---- sessions ------------------------------------------------------------ */

typedef struct session {
  dfgnn_context *ctx;
  dfgnn_csr csr;
  dfgnn_graph *graph;
  dfgnn_problem problem;
  dfgnn_harness *harness;
} session;

static session open_session(const hub *h, const variant_test *test) {
  session s;
  dfgnn__registry_add(families);
  s.ctx = cpu_context("");
  s.csr = hub_make(h);
  s.graph = graph_on(s.ctx, &s.csr);
  ck_assert(hub_problem(&s.problem, h, test));
  ck_ok(dfgnn__harness_create(&s.harness, s.ctx, s.graph, &s.problem, 1));
  hub_fill(s.harness, h, &s.problem);
  return s;
}

static void close_session(session *s) { dfgnn__harness_destroy(s->harness); }

static dfgnn_status check(session *s, const char *variant) {
  double error;
  dfgnn_plan *plan = forced_on(s->ctx, s->graph, &s->problem, variant);
  return dfgnn__harness_check(&error, s->harness, plan);
}

static void expect_wrong(session *s, mistake m, const char *family,
                         const char *hub_name) {
  char name[64];
  snprintf(name, sizeof name, "%s/mistake=%s", family, labels[m]);
  dfgnn_status status = check(s, name);
  ck_assert_msg(status == (m == RIGHT ? DFGNN_OK : DFGNN_ERROR_WRONG),
                "%s %s on %s, mistake %s: status %d, %g of the bound: %s",
                dfgnn_name(DFGNN_NAMES_OP, s->problem.op),
                dfgnn_name(DFGNN_NAMES_PASS, s->problem.pass), hub_name,
                labels[m], (int)status,
                dfgnn__harness_accuracy(s->harness).of_bound,
                status ? dfgnn_last_error() : "");
}

/* ---- tests --------------------------------------------------------------- */

TEST(every_operator_and_pass_has_variants) {
  check_backend_has_variants("cpu");
}

TEST_LOOP(no_variant_is_called_wrong_on_a_hub, 0, VARIANT_TESTS) {
  variant_test test = variant_test_make(_i);
  if (variant_test_count("cpu", &test))
    check_hubs("cpu", &test);
}

/* A family without blocks may round as one loop over all edges does. */
TEST(a_plain_loop_over_a_million_edges_is_right) {
  const variant_test test = {.op = DFGNN_OP_SPMM_SUM};
  int checked = 0;
  for (int i = 0; i < HUBS; i++) {
    dfgnn_problem problem;
    if (!hub_problem(&problem, &hubs[i], &test))
      continue;
    session s = open_session(&hubs[i], &test);
    dfgnn_status status = check(&s, "test.plain");
    ck_assert_msg(status == DFGNN_OK, "%s: %s", hubs[i].name,
                  dfgnn_last_error());
    close_session(&s);
    checked++;
  }
  ck_assert_int_eq(checked, 4); /* the hubs that are rows */
}

/* The number of edges among which one lost edge is found, where edges are added
 * in blocks, as all CPU variants do, or one after the other. */
typedef struct visible {
  dfgnn_op op;
  dfgnn_pass pass;
  int64_t blocked, plain;
} visible;

/* A variance has no terms of opposite sign, and a mean beside it is summed as
 * differences to one value, so that their rounding hides one edge of more than
 * some thousands.  The last edge of GT and AGNN has a fraction of the weight
 * that edges have on average. */
enum { MILLION = 1000000, MANY = 100000, THOUSAND = 1000 };

#define FORWARD(name)                                                          \
  { DFGNN_OP_##name, DFGNN_PASS_FORWARD, MILLION, MANY }
#define BACKWARD(name)                                                         \
  { DFGNN_OP_##name, DFGNN_PASS_BACKWARD, MANY, MANY }
static const visible edges[] = {
    FORWARD(SPMM_SUM),
    FORWARD(SPMM_MEAN),
    FORWARD(SPMM_WEIGHTED),
    FORWARD(REDUCE_MEAN),
    {DFGNN_OP_REDUCE_PNA, DFGNN_PASS_FORWARD, THOUSAND, THOUSAND},
    {DFGNN_OP_REDUCE_VAR, DFGNN_PASS_FORWARD, THOUSAND, THOUSAND},
    {DFGNN_OP_REDUCE_STD, DFGNN_PASS_FORWARD, THOUSAND, THOUSAND},
    {DFGNN_OP_GT, DFGNN_PASS_FORWARD, MANY, MANY / 5},
    {DFGNN_OP_AGNN, DFGNN_PASS_FORWARD, MANY, MANY / 5},
    FORWARD(GAT),
    FORWARD(GATV2),
    BACKWARD(SPMM_SUM),
    BACKWARD(SPMM_MEAN),
    BACKWARD(SPMM_WEIGHTED),
    BACKWARD(REDUCE_MEAN),
    BACKWARD(REDUCE_PNA),
    BACKWARD(REDUCE_VAR),
    BACKWARD(REDUCE_STD),
    BACKWARD(GT),
    BACKWARD(AGNN),
    BACKWARD(GAT),
    BACKWARD(GATV2),
};

enum { VISIBLE = sizeof edges / sizeof *edges };

static void find_missing_edge(const visible *v, int64_t degree,
                              const char *const *names) {
  const variant_test test = {.op = v->op, .pass = v->pass};
  const hub h = {.name = "a hub",
                 .degree = degree,
                 .distinct = degree,
                 .column = v->pass == DFGNN_PASS_BACKWARD,
                 .heads = 1,
                 .dim = 12};
  session s = open_session(&h, &test);
  for (; *names; names++) {
    expect_wrong(&s, RIGHT, *names, h.name);
    expect_wrong(&s, LAST_EDGE, *names, h.name);
  }
  close_session(&s);
}

TEST_LOOP(a_missing_edge_is_found, 0, VISIBLE) {
  const visible *v = &edges[_i];
  static const char *const both[] = {"test.blocked", "test.planted", NULL};
  static const char *const blocked[] = {"test.blocked", NULL};
  find_missing_edge(v, v->plain, v->plain == v->blocked ? both : both + 1);
  if (v->plain != v->blocked)
    find_missing_edge(v, v->blocked, blocked);
}

/* Types of 32 and of 16 bits, by whose roundings the bound differs most. */
TEST_LOOP(swapped_heads_and_stale_features_are_found, 0, VARIANT_TESTS) {
  variant_test test = variant_test_make(_i);
  if (test.dtype != DFGNN_F32 && test.dtype != DFGNN_BF16)
    return;
  const hub *h = &hubs[test.pass == DFGNN_PASS_FORWARD ? 2 : 3];
  session s = open_session(h, &test);
  expect_wrong(&s, RIGHT, "test.planted", h->name);
  expect_wrong(&s, HEADS, "test.planted", h->name);
  expect_wrong(&s, STALE, "test.planted", h->name);
  close_session(&s);
}

/* One rounding of the output counts 2^-24, and the others count 5 times the
 * root of the sum of their squares. */
TEST(the_bound_is_what_the_header_says) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  const dfgnn_family blocked = {.block = 256};
  dfgnn_arithmetic a = dfgnn__arithmetic(&problem, NULL);
  double u = 0x1p-24, tiny = 1e-10;
  ck_assert_double_eq_tol(dfgnn__bound(&a, DFGNN_F32, 1, 0, 1, 100),
                          u * (1 + 5 * 10), tiny);
  ck_assert_double_eq_tol(dfgnn__bound(&a, DFGNN_F32, 1, 3, 4, 1),
                          u * (1 + 5 * 5), tiny);
  ck_assert_double_eq_tol(dfgnn__bound(&a, DFGNN_F32, 0, 0, 1, MILLION),
                          u * 5 * 1000, tiny);
  a = dfgnn__arithmetic(&problem, &blocked);
  ck_assert_double_eq_tol(dfgnn__bound(&a, DFGNN_F32, 0, 0, 1, MILLION),
                          u * 5 * sqrt(256 + 4e6 / 256), tiny);
  ck_assert_double_eq(dfgnn__bound(&a, DFGNN_F32, 7, 0, 0, 1000), 0);
  ck_assert_double_eq(dfgnn__bound(&a, DFGNN_DTYPE_COUNT, 7, 0, 1, 1000), 0);
  ck_assert_double_eq(dfgnn__bound(&a, DFGNN_DTYPE_COUNT, 7, 3, 1, 1000), 3);
}

/* Any result is right then, where a NaN would call all of them wrong. */
TEST(a_product_with_an_infinite_factor_has_an_infinite_variance) {
  const double a[] = {INFINITY, 1}, b[] = {2, -1};
  for (int roundings = 0; roundings < 3; roundings++)
    ck_assert_double_infinite(num_dot(a, b, 2, roundings).fixed);
}

TEST_MAIN("accuracy", .timeout = 120)
