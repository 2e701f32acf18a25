/* Graphs whose arrays get the edges of other graphs: plans that were made
 * before serve the edges that are there. */
#include "dfgnn_tune.h"
#include "lib/graph.h"
#include "lib/registry.h"
#include "tests/unit/fixture.h"

enum { ROWS = 4, COLUMNS = 5, EDGES = 6, WIDTH = 8, NUMBERS = 5 * WIDTH };

typedef struct edges {
  int32_t offsets[ROWS + 1], indices[EDGES];
  int32_t column_offsets[COLUMNS + 1], column_rows[EDGES], column_edges[EDGES];
} edges;

static const edges first = {{0, 2, 3, 3, 6},
                            {1, 1, 2, 4, 0, 4},
                            {0, 1, 3, 4, 4, 6},
                            {3, 0, 0, 1, 3, 3},
                            {4, 0, 1, 2, 3, 5}};
/* all edges in the last row, and none in most columns */
static const edges second = {{0, 0, 0, 0, 6},
                             {3, 3, 3, 0, 3, 3},
                             {0, 1, 1, 1, 6, 6},
                             {3, 3, 3, 3, 3, 3},
                             {3, 0, 1, 2, 4, 5}};

static dfgnn_context *ctx;

static void open_context(void) { ctx = cpu_context(NULL); }

static dfgnn_csr csr_of(const edges *e) {
  dfgnn_csr csr = csr32(ROWS, COLUMNS, e->offsets, e->indices);
  csr.column_offsets = e->column_offsets;
  csr.column_rows = e->column_rows;
  csr.column_edges = e->column_edges;
  csr.trusted = 1;
  return csr;
}

typedef struct tensors {
  float in[4][NUMBERS], out[4][NUMBERS];
  int32_t arg[NUMBERS];
} tensors;

/* Values that differ, and results of 7, which every call has to overwrite. */
static void fill(tensors *t) {
  for (int k = 0; k < NUMBERS; k++) {
    for (int i = 0; i < 4; i++) {
      t->in[i][k] = (float)((k * 37 + i * 11) % 23) / 8 - 1;
      t->out[i][k] = 7;
    }
    t->arg[k] = -1;
  }
}

static void execute(const dfgnn_plan *plan, dfgnn_pass pass, tensors *t) {
  void *workspace =
      aligned_alloc(256, (dfgnn_plan_workspace(plan) / 256 + 1) * 256);
  dfgnn_args args = ARGS(.query = t->in[0], .key = t->in[1], .value = t->in[2],
                         .lse = t->out[3]);
  if (pass == DFGNN_PASS_FORWARD) {
    args.out = t->out[0];
    args.arg_max = t->arg;
  } else {
    args.out = t->in[3];
    args.grad_out = t->in[3];
    args.grad_query = t->out[0];
    args.grad_key = t->out[1];
    args.grad_value = t->out[2];
    args.arg_max = t->arg;
  }
  ck_ok(dfgnn_execute(plan, &args, workspace, NULL));
  free(workspace);
}

static dfgnn_problem problem_of(dfgnn_op op, dfgnn_pass pass) {
  return PROBLEM(.op = op, .pass = pass, .heads = 1, .dim = WIDTH);
}

/* Compares a plan of a graph that held other edges with one of a graph that
 * never did; 0 if the variant does not apply. */
static int compare(const char *variant, dfgnn_op op, dfgnn_pass pass) {
  edges place = first;
  dfgnn_csr changing = csr_of(&place), fixed = csr_of(&second);
  const dfgnn_problem problem = problem_of(op, pass);
  dfgnn_graph *graph, *other;
  dfgnn_plan *plan, *expected;
  tensors found, right;
  changing.refilled = 1;
  graph = graph_on(ctx, &changing);
  dfgnn_status status =
      dfgnn_plan_create_forced(&plan, ctx, graph, &problem, variant);
  if (status == DFGNN_ERROR_UNSUPPORTED) {
    return 0;
  }
  ck_ok(status);
  fill(&found);
  execute(plan, pass, &found);
  place = second;
  fill(&found);
  execute(plan, pass, &found);
  other = graph_on(ctx, &fixed);
  expected = forced_on(ctx, other, &problem, variant);
  fill(&right);
  execute(expected, pass, &right);
  ck_assert_msg(!memcmp(&found, &right, sizeof found), "%s, %s %s", variant,
                dfgnn_name(DFGNN_NAMES_OP, op),
                dfgnn_name(DFGNN_NAMES_PASS, pass));
  dfgnn_plan_destroy(plan);
  return 1;
}

static const dfgnn_op operators[] = {DFGNN_OP_GT, DFGNN_OP_SPMM_SUM,
                                     DFGNN_OP_SPMM_MEAN, DFGNN_OP_REDUCE_MAX};

TEST_LOOP(every_variant_that_applies_serves_the_edges_that_are_there, 0,
          2 * (int)(sizeof operators / sizeof *operators)) {
  const dfgnn_op op = operators[_i / 2];
  const dfgnn_pass pass = (dfgnn_pass)(_i % 2);
  int compared = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    if (!strcmp(dfgnn__variant(i)->family->backend, "cpu"))
      compared += compare(dfgnn__variant(i)->name, op, pass);
  ck_assert_int_gt(compared, 0);
}

TEST(a_view_that_learns_of_the_edges_is_refused) {
  const dfgnn_view_request items = {.kind = DFGNN_VIEW_WORK_ITEMS,
                                    .parameter = 2};
  edges place = first;
  dfgnn_csr csr = csr_of(&place);
  const dfgnn_view *view;
  csr.refilled = 1;
  dfgnn_graph *graph = graph_on(ctx, &csr);
  ck_fails(dfgnn__graph_view(&view, graph, &items), DFGNN_ERROR_UNSUPPORTED,
           "refilled");
}

TEST(a_plan_is_chosen_by_the_numbers_of_nodes_and_edges) {
  edges place = first;
  dfgnn_csr csr = csr_of(&place);
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  const dfgnn_problem problem = problem_of(DFGNN_OP_GT, DFGNN_PASS_BACKWARD);
  csr.refilled = 1;
  dfgnn_graph *graph = graph_on(ctx, &csr);
  ck_ok(dfgnn_graph_signature(&signature, graph));
  ck_assert_int_eq(signature.max_degree, EDGES);
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  done(plan);
  ck_invalid(dfgnn_tune(NULL, ctx, graph, &problem, NULL), "a refilled graph");
}

TEST(what_could_not_be_refilled_is_refused) {
  dfgnn_csr csr = csr_of(&first);
  dfgnn_graph *graph = NULL;
  csr.refilled = 1;
  csr.trusted = 0;
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL), "csr.trusted");
  csr.trusted = 1;
  csr.column_offsets = NULL;
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL),
             "csr.column_offsets");
}

TEST_MAIN("refilled", .setup = open_context, .timeout = 60)
