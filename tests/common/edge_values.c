#include "tests/common/edge_values.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/operator.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/common/hubs.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

enum { HEADS = 3, DIM = 20, ROW = HEADS * DIM };

static const edge_case cases[EDGE_CASES] = {
    {.name = "GT", .op = DFGNN_OP_GT, .edge_dim = 5},
    {.name = "GT, keys",
     .op = DFGNN_OP_GT,
     .edge_dim = 5,
     .use = DFGNN_EDGE_KEYS},
    {.name = "GT, values",
     .op = DFGNN_OP_GT,
     .edge_dim = 5,
     .use = DFGNN_EDGE_VALUES},
    {.name = "GT, projected",
     .op = DFGNN_OP_GT,
     .edge_dim = DFGNN_EDGE_PROJECTED},
    {.name = "GATv2", .op = DFGNN_OP_GATV2, .edge_dim = 5},
    {.name = "GATv2, projected",
     .op = DFGNN_OP_GATV2,
     .edge_dim = DFGNN_EDGE_PROJECTED},
    {.name = "GAT", .op = DFGNN_OP_GAT, .edge_dim = DFGNN_EDGE_PROJECTED},
};

edge_test edge_test_make(int i) {
  return (edge_test){
      .c = &cases[i / (int)(DFGNN_DTYPE_COUNT * DFGNN_PASS_COUNT)],
      .pass = (dfgnn_pass)(i / (int)DFGNN_DTYPE_COUNT % (int)DFGNN_PASS_COUNT),
      .dtype = (dfgnn_dtype)(i % (int)DFGNN_DTYPE_COUNT)};
}

/* ---- variants ------------------------------------------------------------ */

typedef struct session {
  const edge_case *c;
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_problem problem;
  dfgnn_harness *harness;
  int64_t first, last; /* edges of row `row` */
  int64_t row, isolated, edges;
} session;

static int checked(const session *s, size_t i, const char *label) {
  const dfgnn_variant *v = dfgnn__variant(i);
  const char *wanted = getenv("DFGNN_TEST_FAMILY");
  const dfgnn_setting setting = dfgnn__setting(s->graph, &s->problem);
  dfgnn_plan *plan;
  double error = 0;
  if (v->family->reference || (wanted && !strstr(v->name, wanted)) ||
      dfgnn__variant_refusal(v, &setting))
    return 0;
  ck_ok(
      dfgnn_plan_create_forced(&plan, s->ctx, s->graph, &s->problem, v->name));
  const dfgnn_status status = dfgnn__harness_check(&error, s->harness, plan);
  ck_assert_msg(status == DFGNN_OK, "%s, %s, %s %s, %s%s: %s", v->name,
                s->c->name, dfgnn_name(DFGNN_NAMES_PASS, s->problem.pass),
                dfgnn_name(DFGNN_NAMES_DTYPE, s->problem.dtype), label,
                s->problem.dropout ? ", dropout" : "", dfgnn_last_error());
  dfgnn_plan_destroy(plan);
  return 1;
}

/* Checks about `most` variants of each family, in turn, and at least one where
 * one applies.  DFGNN_TEST_FEW, DFGNN_TEST_FAMILY and DFGNN_TEST_FULL change
 * that as in tests/common/variants.c.  Returns the number of checks. */
static int check_variants(const session *s, const char *label, size_t most,
                          int turn) {
  int count = 0;
  for (size_t first = 0, end; first < dfgnn__variant_count(); first = end) {
    const dfgnn_family *family = dfgnn__variant(first)->family;
    int found = 0;
    for (end = first;
         end < dfgnn__variant_count() && dfgnn__variant(end)->family == family;)
      end++;
    const size_t size = end - first, start = (size_t)turn * 7 % size;
    const size_t share = getenv("DFGNN_TEST_FULL") ? 1 : 1 + size / most;
    for (size_t k = 0; k < size; k++) {
      const size_t at = first + (start + k) % size;
      if (found && (getenv("DFGNN_TEST_FEW") || k % share))
        continue;
      found += checked(s, at, label);
    }
    count += found;
  }
  return count;
}

static void open_problem(session *s, const edge_test *test, int bias,
                         int dropout) {
  const edge_case *c = test->c;
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  p.op = c->op;
  p.pass = test->pass;
  p.dtype = test->dtype;
  p.heads = HEADS;
  p.dim = DIM;
  p.bias = bias;
  p.dropout = dropout;
  p.weights = test->pass == DFGNN_PASS_FORWARD;
  p.edge_dim = c->edge_dim;
  p.edge_use = c->use;
  s->c = c;
  ck_ok(dfgnn__problem_complete(&s->problem, &p));
  ck_ok(dfgnn__harness_create(&s->harness, s->ctx, s->graph, &s->problem,
                              shape_seed()));
}

/* ---- values -------------------------------------------------------------- */

static void set(const session *s, const char *tensor, int64_t first,
                int64_t count, double value) {
  ck_ok(dfgnn__harness_set(s->harness, tensor, first, count, value));
}

static int64_t numbers_of_edge(const session *s) {
  return s->c->op == DFGNN_OP_GAT  ? HEADS
         : s->problem.edge_dim < 0 ? ROW
                                   : s->problem.edge_dim;
}

/* Sets one number of one edge of row s->row. */
static void set_edge(const session *s, double value) {
  const int64_t width = numbers_of_edge(s);
  set(s, s->c->op == DFGNN_OP_GAT ? "score_edge" : "edge_attr",
      (s->first + 1) * width + width / 2, 1, value);
}

static void one_nan(const session *s) { set_edge(s, NAN); }
static void one_infinite(const session *s) { set_edge(s, INFINITY); }

/* Nothing reads the features of a node without edges. */
static void nan_without_edges(const session *s) {
  if (s->c->op == DFGNN_OP_GAT)
    set(s, "score_dst", s->isolated * HEADS, HEADS, NAN);
  else
    set(s, "query", s->isolated * ROW, ROW, NAN);
  if (s->problem.pass == DFGNN_PASS_BACKWARD)
    set(s, "grad_out", s->isolated * ROW, ROW, NAN);
}

/* A row without edges gives zeros even where W is NaN. */
static void nan_weight(const session *s) {
  if (s->problem.edge_dim > 0)
    set(s, "edge_weight", 2, 1, NAN);
}

/* Masks every third edge and all of row s->row, which then gives zeros. */
static void masked(const session *s) {
  set(s, "bias", s->first * HEADS, (s->last - s->first) * HEADS, -INFINITY);
  for (int64_t e = 0; e < s->edges; e += 3)
    set(s, "bias", e * HEADS, HEADS, -INFINITY);
}

typedef struct special {
  const char *name;
  void (*set)(const session *);
  int bias, forward_only, given_only;
} special;

static const special specials[] = {
    {.name = "one NaN", .set = one_nan},
    {.name = "one infinite number",
     .set = one_infinite,
     .forward_only = 1,
     .given_only = 1},
    {.name = "NaN in a node without edges", .set = nan_without_edges},
    {.name = "NaN in W", .set = nan_weight},
    {.name = "masked edges", .set = masked, .bias = 1},
};

int check_edge_values(const char *device, const edge_test *test) {
  enum { WITH_ISOLATED_ROWS = 3, VARIANTS = 2 };
  session s = {.ctx = context_on(device, "", 2)};
  shape graph = shape_make(WITH_ISOLATED_ROWS, shape_seed());
  const int32_t *offsets = graph.csr.offsets;
  int checks = 0;
  for (s.row = 12; offsets[s.row + 1] - offsets[s.row] < 3;)
    s.row++;
  for (s.isolated = 1; offsets[s.isolated + 1] != offsets[s.isolated];)
    s.isolated++;
  s.first = offsets[s.row];
  s.last = offsets[s.row + 1];
  s.edges = graph.csr.edges;
  ck_ok(dfgnn_graph_create_csr(&s.graph, s.ctx, &graph.csr, NULL));
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
    for (int dropout = 0; dropout < 2; dropout++) {
      const special *x = &specials[i];
      if ((x->forward_only && test->pass != DFGNN_PASS_FORWARD) ||
          (x->given_only && test->c->edge_dim > 0))
        continue;
      /* An edge that was dropped and whose value is NaN: some variants multiply
       * its gradient by 0, others leave it out. */
      if (x->set == one_nan && dropout && test->pass == DFGNN_PASS_BACKWARD &&
          test->c->use == DFGNN_EDGE_VALUES)
        continue;
      open_problem(&s, test, x->bias, dropout);
      x->set(&s);
      checks += check_variants(&s, x->name, VARIANTS, (int)i + dropout);
      dfgnn__harness_destroy(s.harness);
    }
  dfgnn_graph_destroy(s.graph);
  dfgnn_context_destroy(s.ctx);
  return checks;
}

/* ---- hubs ---------------------------------------------------------------- */

int check_edge_hubs(const char *device, const edge_test *test, int64_t degree) {
  enum { VARIANTS = 4 };
  session s = {.ctx = context_on(device, "", 2)};
  const int columns = test->pass == DFGNN_PASS_BACKWARD;
  int checks = 0;
  for (int column = 0; column <= columns; column++) {
    const hub h = {.degree = degree,
                   .column = column,
                   .distinct = column ? degree : degree / 3};
    dfgnn_csr csr = hub_make(&h);
    ck_ok(dfgnn_graph_create_csr(&s.graph, s.ctx, &csr, NULL));
    open_problem(&s, test, column, column);
    checks += check_variants(
        &s, column ? "a column of many edges" : "a row of many edges", VARIANTS,
        column + (int)test->dtype);
    dfgnn__harness_destroy(s.harness);
    dfgnn_graph_destroy(s.graph);
    hub_free(&csr);
  }
  dfgnn_context_destroy(s.ctx);
  return checks;
}
