#include "tests/common/hubs.h"

#include <math.h>

#include "lib/graph.h"
#include "lib/plan.h"
#include "tests/unit/fixture.h"

/* The hub is the last of OTHERS rows or columns, so that its last edge is the
 * last of the graph. */
enum { OTHERS = 8, HUB = OTHERS - 1, MANY = 40000, MILLION = 1000000 };

const hub hubs[HUBS] = {
    {.name = "a row of 10^6 edges",
     .degree = MILLION,
     .distinct = MILLION,
     .heads = 1,
     .dim = 4,
     .f32_only = 1},
    {.name = "a column of 10^6 edges",
     .degree = MILLION,
     .column = 1,
     .distinct = MILLION,
     .heads = 1,
     .dim = 4,
     .f32_only = 1},
    {.name = "a row", .degree = MANY, .distinct = MANY, .heads = 2, .dim = 20},
    {.name = "a column",
     .degree = MANY,
     .column = 1,
     .distinct = MANY,
     .heads = 2,
     .dim = 20},
    {.name = "a row of seven sources",
     .degree = MANY,
     .distinct = 7,
     .heads = 1,
     .dim = 20},
    {.name = "a row of alternating signs",
     .degree = MANY,
     .distinct = MANY,
     .alternates = 1,
     .heads = 1,
     .dim = 20},
};

/* Every row but the hub has two edges; if the hub is a column, one of them
 * leads to it. */
dfgnn_csr hub_make(const hub *h) {
  int64_t side = h->distinct > OTHERS ? h->distinct : OTHERS;
  int64_t rows = h->column ? side : OTHERS;
  int64_t edges = h->column ? 2 * side : h->degree + 2 * (OTHERS - 1);
  int32_t *offsets = malloc((size_t)(rows + 1) * sizeof *offsets);
  int32_t *indices = malloc((size_t)edges * sizeof *indices);
  int32_t at = 0;
  for (int64_t i = 0; i < rows; i++) {
    int64_t degree = !h->column && i == HUB ? h->degree : 2;
    offsets[i] = at;
    for (int64_t k = 0; k < degree; k++)
      indices[at++] = h->column  ? (int32_t)(k ? HUB : i % HUB)
                      : i == HUB ? (int32_t)(k % h->distinct)
                                 : (int32_t)((i + k) % side);
  }
  offsets[rows] = at;
  return csr32(rows, h->column ? OTHERS : side, offsets, indices);
}

void hub_free(dfgnn_csr *csr) {
  free((void *)csr->offsets);
  free((void *)csr->indices);
}

int hub_problem(dfgnn_problem *problem, const hub *h,
                const variant_test *test) {
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  p.op = test->op;
  p.pass = test->pass;
  p.dtype = test->dtype;
  p.edge_dim = test->edge_dim;
  p.edge_use = test->edge_use;
  p.heads = h->heads;
  p.dim = h->dim;
  if ((h->column && test->pass == DFGNN_PASS_FORWARD) ||
      (h->f32_only && test->dtype != DFGNN_F32))
    return 0;
  return dfgnn__problem_complete(problem, &p) == DFGNN_OK &&
         dfgnn__operator(test->op, test->pass);
}

/* A value of size 0.5 to 1.5 whose sign alternates from node to node. */
static double alternating(const void *row, int64_t i) {
  int64_t node = i / *(const int64_t *)row;
  uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
  double size = 0.5 + (double)(x >> 40) / (double)(1 << 24);
  return node % 2 ? -size : size;
}

dfgnn_status hub_fill(dfgnn_harness *harness, const hub *h,
                      const dfgnn_problem *problem) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  const char *tensor =
      dfgnn__tensor_find_used(op, "value", problem) >= 0 ? "value" : "grad_out";
  int64_t row = problem->heads * problem->dim;
  if (!h->alternates)
    return DFGNN_OK;
  return dfgnn__harness_fill(harness, tensor, 0, -1, alternating, &row);
}

/* ---- every variant ------------------------------------------------------- */

/* Ends the program on an error: tests/accuracy is no test, so Check cannot
 * report it. */
static void must(dfgnn_status status) {
  if (!status)
    return;
  fprintf(stderr, "hubs: %s\n", dfgnn_last_error());
  exit(EXIT_FAILURE);
}

static int is_full(void) { return getenv("DFGNN_TEST_FULL") != NULL; }

/* One variant in twelve of a family is checked on a hub, in turn. */
static int has_turn(size_t in_family, int turn) {
  return is_full() ||
         (!getenv("DFGNN_TEST_FEW") && (in_family + (size_t)turn) % 12 == 0);
}

/* Operators, of which a family serves several, take turns on the longest. Types
 * other than f32 take every second hub: sums are added by the same blocks. */
static int has_problem(int number, const variant_test *test) {
  const int turn = number + (int)test->op;
  return is_full() ||
         (hubs[number].degree < MILLION
              ? test->dtype == DFGNN_F32 || (turn + (int)test->dtype) % 2 == 0
              : turn % 3 == 0);
}

static int check_variant(hub_result *r, dfgnn_context *ctx, dfgnn_graph *graph,
                         dfgnn_harness *harness) {
  dfgnn_setting setting = dfgnn__setting(graph, &r->problem);
  dfgnn_plan *plan;
  double error;
  if (strcmp(r->variant->family->backend, ctx->backend->name) != 0 ||
      dfgnn__variant_refusal(r->variant, &setting))
    return 0;
  dfgnn_status status = dfgnn_plan_create_forced(&plan, ctx, graph, &r->problem,
                                                 r->variant->name);
  if (status == DFGNN_ERROR_UNSUPPORTED)
    return 0;
  must(status);
  r->status = dfgnn__harness_check(&error, harness, plan);
  r->accuracy = dfgnn__harness_accuracy(harness);
  dfgnn_plan_destroy(plan);
  return 1;
}

static int visit_hub(hub_result *r, dfgnn_context *ctx, int turn,
                     void (*visit)(const hub_result *, void *), void *data) {
  dfgnn_csr csr = hub_make(r->hub);
  dfgnn_graph *graph;
  dfgnn_harness *harness;
  const dfgnn_family *family = NULL;
  size_t first = 0;
  int count = 0, checked = 0;
  must(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  must(dfgnn__harness_create(&harness, ctx, graph, &r->problem, 1));
  must(hub_fill(harness, r->hub, &r->problem));
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    r->variant = dfgnn__variant(i);
    if (r->variant->family != family) {
      family = r->variant->family;
      first = i;
      checked = 0;
    }
    /* The first variant that applies is checked, and those whose turn it is. */
    if (checked && !has_turn(i - first, turn))
      continue;
    if (!check_variant(r, ctx, graph, harness))
      continue;
    checked = 1;
    count++;
    visit(r, data);
  }
  dfgnn__harness_destroy(harness);
  dfgnn_graph_destroy(graph);
  hub_free(&csr);
  return count;
}

int hubs_visit(const char *device, const variant_test *test,
               void (*visit)(const hub_result *, void *), void *data) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx = NULL;
  int count = 0;
  options.device = device;
  options.store = "";
  options.threads = 2;
  must(dfgnn_context_create(&ctx, &options));
  for (int i = 0; i < HUBS; i++) {
    hub_result r = {.hub = &hubs[i]};
    if (has_problem(i, test) && hub_problem(&r.problem, r.hub, test))
      count += visit_hub(&r, ctx, i + (int)test->dtype, visit, data);
  }
  dfgnn_context_destroy(ctx);
  return count;
}

static void is_right(const hub_result *r, void *data) {
  (void)data;
  ck_assert_msg(
      r->status == DFGNN_OK, "%s on %s, %s %s %s: %s", r->variant->name,
      r->hub->name, dfgnn_name(DFGNN_NAMES_OP, r->problem.op),
      dfgnn_name(DFGNN_NAMES_PASS, r->problem.pass),
      dfgnn_name(DFGNN_NAMES_DTYPE, r->problem.dtype), dfgnn_last_error());
}

void check_hubs(const char *device, const variant_test *test) {
  ck_assert_int_gt(hubs_visit(device, test, is_right, NULL), 0);
}

int check_edge_hubs(const char *device, const variant_test *test,
                    int64_t degree) {
  dfgnn_context *ctx = context_on(device, "", 2);
  int count = 0;
  for (int column = 0; column <= (int)test->pass; column++) {
    const hub h = {.name =
                       column ? "a column with features" : "a row with them",
                   .degree = degree,
                   .column = column,
                   .distinct = column ? degree : degree / 3,
                   .heads = 3,
                   .dim = 20};
    hub_result r = {.hub = &h};
    ck_assert(hub_problem(&r.problem, &h, test));
    count += visit_hub(&r, ctx, column + (int)test->dtype, is_right, NULL);
  }
  return count;
}
