#include "tests/common/hubs.h"

#include "tests/common/session.h"

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
  int32_t *offsets = zeros_of(rows, sizeof *offsets);
  int32_t *indices = zeros_of(edges, sizeof *indices);
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

int hub_problem(dfgnn_problem *problem, const hub *h,
                const variant_test *test) {
  dfgnn_problem p =
      PROBLEM(.op = test->op, .pass = test->pass, .dtype = test->dtype,
              .edge_dim = test->edge_dim, .edge_use = test->edge_use,
              .heads = h->heads, .dim = h->dim);
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

void hub_fill(dfgnn_harness *harness, const hub *h,
              const dfgnn_problem *problem) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  const char *tensor =
      dfgnn__tensor_find_used(op, "value", problem) >= 0 ? "value" : "grad_out";
  const int64_t row = problem->heads * problem->dim;
  if (h->alternates)
    ck_ok(dfgnn__harness_fill(harness, tensor, 0, -1, alternating, &row));
}

/* ---- every variant ------------------------------------------------------- */

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

/* Returns 0 if the variant is not for the hub. */
static int check_variant(const dfgnn_variant *v, const hub *h,
                         dfgnn_graph *graph, const dfgnn_problem *problem,
                         dfgnn_harness *harness) {
  dfgnn_plan *plan;
  double error;
  if (!serves(&plan, graph, problem, v))
    return 0;
  dfgnn_status status = dfgnn__harness_check(&error, harness, plan);
  ck_assert_msg(status == DFGNN_OK, "%s on %s, %s %s %s: %s", v->name, h->name,
                dfgnn_name(DFGNN_NAMES_OP, problem->op),
                dfgnn_name(DFGNN_NAMES_PASS, problem->pass),
                dfgnn_name(DFGNN_NAMES_DTYPE, problem->dtype),
                dfgnn_last_error());
  dfgnn_plan_destroy(plan);
  return 1;
}

static int check_hub(const hub *h, dfgnn_context *ctx,
                     const dfgnn_problem *problem, int turn) {
  const dfgnn_csr csr = hub_make(h);
  dfgnn_graph *graph = graph_on(ctx, &csr);
  dfgnn_harness *harness;
  const dfgnn_family *family = NULL;
  size_t first = 0;
  int count = 0, checked = 0;
  ck_ok(dfgnn__harness_create(&harness, ctx, graph, problem, 1));
  hub_fill(harness, h, problem);
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (v->family != family) {
      family = v->family;
      first = i;
      checked = 0;
    }
    /* The first variant that applies is checked, and those whose turn it is. */
    if ((checked && !has_turn(i - first, turn)) ||
        !check_variant(v, h, graph, problem, harness))
      continue;
    checked = 1;
    count++;
  }
  dfgnn__harness_destroy(harness);
  return count;
}

void check_hubs(const char *device, const variant_test *test) {
  dfgnn_context *ctx = context_on(device, "", 2);
  dfgnn_problem problem;
  int count = 0;
  for (int i = 0; i < HUBS; i++)
    if (has_problem(i, test) && hub_problem(&problem, &hubs[i], test))
      count += check_hub(&hubs[i], ctx, &problem, i + (int)test->dtype);
  ck_assert_int_gt(count, 0);
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
    dfgnn_problem problem;
    ck_assert(hub_problem(&problem, &h, test));
    count += check_hub(&h, ctx, &problem, column + (int)test->dtype);
  }
  return count;
}
