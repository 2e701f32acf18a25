/* Handles that are NULL, of another type or destroyed, and workspaces that are
 * not aligned: a status, never a crash. */
#include "dfgnn_tune.h"
#include "tests/unit/fixture.h"

#define NODES 40
#define DIM 8

static dfgnn_context *ctx;
static dfgnn_graph *graph;
static dfgnn_plan *plan;
static dfgnn_csr csr;
static dfgnn_problem problem = DFGNN_PROBLEM_INIT;
static float feature[NODES * DIM], out[NODES * DIM];

static int degree(int64_t i) { return (int)(i % 4); }

static void begin(void) {
  ctx = cpu_context("");
  csr = ring(NODES, degree);
  problem.dim = DIM;
  for (int i = 0; i < NODES * DIM; i++)
    feature[i] = (float)(i % 7) / 7;
  graph = graph_on(ctx, &csr);
  plan = plan_on(ctx, graph, &problem);
}

static dfgnn_args arguments(void) {
  return ARGS(.query = feature, .key = feature, .value = feature, .out = out);
}

static const char *expected;

static void invalid(dfgnn_status status) { ck_invalid(status, expected); }

/* Calls every function that takes a context. */
static void no_context(dfgnn_context *c) {
  dfgnn_device_info info = DFGNN_DEVICE_INFO_INIT;
  dfgnn_counters counters = DFGNN_COUNTERS_INIT;
  dfgnn_coo coo = DFGNN_COO_INIT;
  dfgnn_args args = arguments();
  char digest[DFGNN_DIGEST_SIZE];
  dfgnn_graph *g = NULL;
  dfgnn_plan *p = NULL;
  invalid(dfgnn_context_reload(c));
  invalid(dfgnn_context_device(&info, c));
  invalid(dfgnn_context_counters(&counters, c));
  invalid(dfgnn_context_digest(digest, c));
  invalid(dfgnn_graph_create_csr(&g, c, &csr, NULL));
  invalid(dfgnn_graph_create_coo(&g, c, &coo, NULL));
  invalid(dfgnn_plan_create(&p, c, graph, &problem));
  invalid(dfgnn_plan_create_forced(&p, c, graph, &problem,
                                   dfgnn_plan_variant(plan)));
  invalid(dfgnn_call(c, graph, &problem, &args, NULL));
  invalid(dfgnn_tune(NULL, c, graph, &problem, NULL));
  ck_assert(!g && !p);
}

/* Calls every function that takes a graph. */
static void no_graph(dfgnn_graph *g) {
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_index_type type = DFGNN_INDEX_I64;
  dfgnn_csr copy = DFGNN_CSR_INIT;
  dfgnn_args args = arguments();
  dfgnn_plan *p = NULL;
  invalid(dfgnn_graph_csr(&copy, g));
  invalid(dfgnn_graph_signature(&signature, g));
  invalid(dfgnn_plan_create(&p, ctx, g, &problem));
  invalid(
      dfgnn_plan_create_forced(&p, ctx, g, &problem, dfgnn_plan_variant(plan)));
  invalid(dfgnn_call(ctx, g, &problem, &args, NULL));
  invalid(dfgnn_tune(NULL, ctx, g, &problem, NULL));
  ck_assert_ptr_null(p);
  ck_assert_ptr_null(dfgnn_graph_edge_order(g, &type));
  ck_assert_int_eq(type, DFGNN_INDEX_I32);
  ck_assert_uint_eq(dfgnn_graph_bytes(g), 0);
}

/* Calls every function that takes a plan. */
static void no_plan(dfgnn_plan *p) {
  dfgnn_explanation *why = NULL;
  dfgnn_args args = arguments();
  invalid(dfgnn_plan_explain(&why, p));
  invalid(dfgnn_execute(p, &args, NULL, NULL));
  ck_assert_ptr_null(why);
  ck_assert_uint_eq(dfgnn_plan_workspace(p), 0);
  ck_assert_ptr_null(dfgnn_plan_variant(p));
  ck_assert_int_eq((int)dfgnn_plan_source(p), -1);
  ck_assert_ptr_null(dfgnn_name(DFGNN_NAMES_SOURCE, dfgnn_plan_source(p)));
}

TEST(a_handle_that_is_null_is_named) {
  expected = "ctx is NULL";
  no_context(NULL);
  expected = "graph is NULL";
  no_graph(NULL);
  expected = "plan is NULL";
  no_plan(NULL);
  dfgnn_plan_destroy(NULL);
  dfgnn_graph_destroy(NULL);
  dfgnn_graph_destroy_on(NULL, NULL);
  dfgnn_context_destroy(NULL);
  dfgnn_explanation_free(NULL);
  dfgnn_csr_free(NULL);
}

TEST(a_handle_of_another_type_is_named) {
  expected = "ctx is no dfgnn_context";
  no_context((dfgnn_context *)graph);
  no_context((dfgnn_context *)plan);
  no_context((dfgnn_context *)&csr);
  expected = "graph is no dfgnn_graph";
  no_graph((dfgnn_graph *)ctx);
  no_graph((dfgnn_graph *)plan);
  no_graph((dfgnn_graph *)&csr);
  expected = "plan is no dfgnn_plan";
  no_plan((dfgnn_plan *)graph);
  no_plan((dfgnn_plan *)ctx);
  no_plan((dfgnn_plan *)&problem);
  dfgnn_plan_destroy((dfgnn_plan *)graph);
  dfgnn_graph_destroy((dfgnn_graph *)ctx);
  dfgnn_graph_destroy_on((dfgnn_graph *)plan, NULL);
  dfgnn_context_destroy((dfgnn_context *)plan);
  dfgnn_args args = arguments();
  ck_ok(dfgnn_call(ctx, graph, &problem, &args, NULL));
}

TEST(places_and_descriptors_that_are_null_are_named) {
  dfgnn_args args = arguments();
  int64_t rows[NODES];
  dfgnn_csr *made = NULL;
  dfgnn_graph *g = NULL;
  dfgnn_plan *p = NULL;
  expected = "";
  invalid(dfgnn_context_create(NULL, NULL));
  invalid(dfgnn_context_device(NULL, ctx));
  invalid(dfgnn_context_counters(NULL, ctx));
  invalid(dfgnn_context_digest(NULL, ctx));
  invalid(dfgnn_graph_create_csr(NULL, ctx, &csr, NULL));
  invalid(dfgnn_graph_create_csr(&g, ctx, NULL, NULL));
  invalid(dfgnn_graph_create_coo(NULL, ctx, NULL, NULL));
  invalid(dfgnn_graph_create_coo(&g, ctx, NULL, NULL));
  invalid(dfgnn_graph_csr(NULL, graph));
  invalid(dfgnn_graph_signature(NULL, graph));
  invalid(dfgnn_csr_read(NULL, NULL));
  invalid(dfgnn_csr_read(&made, NULL));
  invalid(dfgnn_csr_write(NULL, NULL));
  invalid(dfgnn_csr_write(&csr, NULL));
  invalid(dfgnn_csr_generate(NULL, NULL));
  invalid(dfgnn_csr_generate(&made, NULL));
  invalid(dfgnn_csr_order(NULL, NULL, &csr, DFGNN_ORDER_DEGREE));
  invalid(dfgnn_csr_order(rows, NULL, NULL, DFGNN_ORDER_DEGREE));
  invalid(dfgnn_csr_permute(NULL, NULL, &csr, NULL, NULL));
  invalid(dfgnn_csr_permute(&made, NULL, NULL, NULL, NULL));
  invalid(dfgnn_plan_create(NULL, ctx, graph, &problem));
  invalid(dfgnn_plan_create(&p, ctx, graph, NULL));
  invalid(dfgnn_plan_create_forced(NULL, ctx, graph, &problem, "x"));
  invalid(dfgnn_plan_create_forced(&p, ctx, graph, &problem, NULL));
  invalid(
      dfgnn_plan_create_forced(&p, ctx, graph, NULL, dfgnn_plan_variant(plan)));
  invalid(dfgnn_plan_explain(NULL, plan));
  invalid(dfgnn_execute(plan, NULL, NULL, NULL));
  invalid(dfgnn_call(ctx, graph, NULL, &args, NULL));
  invalid(dfgnn_call(ctx, graph, &problem, NULL, NULL));
  invalid(dfgnn_variant_get(NULL, 0));
  invalid(dfgnn_tune(NULL, ctx, graph, NULL, NULL));
  ck_assert(!g && !p && !made);
  ck_assert_str_eq(dfgnn_status_string((dfgnn_status)77), "unknown status");
  ck_assert_uint_eq(dfgnn_dtype_size((dfgnn_dtype)-1), 0);
}

TEST(a_name_is_parsed_into_a_place) {
  static const struct {
    dfgnn_names of;
    const char *name;
    int value;
  } known[] = {{DFGNN_NAMES_OP, "gat", DFGNN_OP_GAT},
               {DFGNN_NAMES_PASS, "backward", DFGNN_PASS_BACKWARD},
               {DFGNN_NAMES_DTYPE, "bf16", DFGNN_BF16},
               {DFGNN_NAMES_MATH, "tf32", DFGNN_MATH_TF32},
               {DFGNN_NAMES_LAYOUT, "ndh", DFGNN_LAYOUT_NDH},
               {DFGNN_NAMES_EDGE_USE, "values", DFGNN_EDGE_VALUES},
               {DFGNN_NAMES_MESSAGE, "gate-value", DFGNN_MESSAGE_GATE_VALUE},
               {DFGNN_NAMES_EFFORT, "measure", DFGNN_EFFORT_MEASURE},
               {DFGNN_NAMES_SOURCE, "model", DFGNN_SOURCE_MODEL},
               {DFGNN_NAMES_ORDER, "community", DFGNN_ORDER_COMMUNITY},
               {DFGNN_NAMES_PARTITIONING, "range", DFGNN_PARTITION_RANGE}};
  expected = "";
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    dfgnn_names of = known[k].of;
    int value = -1;
    ck_ok(dfgnn_parse(&value, of, known[k].name));
    ck_assert_int_eq(value, known[k].value);
    ck_assert_str_eq(dfgnn_name(of, value), known[k].name);
    invalid(dfgnn_parse(NULL, of, known[k].name));
    invalid(dfgnn_parse(&value, of, NULL));
    invalid(dfgnn_parse(&value, of, "rabbit"));
    ck_assert_ptr_nonnull(strstr(dfgnn_last_error(), known[k].name));
    ck_assert_ptr_null(dfgnn_name(of, 99));
    ck_assert_ptr_null(dfgnn_name(of, -1));
  }
  int value;
  invalid(dfgnn_parse(&value, DFGNN_NAMES_NONE, "gat"));
  invalid(dfgnn_parse(&value, DFGNN_NAMES_COUNT, "gat"));
  ck_assert_ptr_null(dfgnn_name(DFGNN_NAMES_NONE, 0));
  ck_assert_ptr_null(dfgnn_name(DFGNN_NAMES_COUNT, 0));
}

TEST(a_thread_count_has_bounds) {
  static const int wrong[] = {-1, 4097, 1 << 30};
  for (int k = 0; k < 3; k++) {
    dfgnn_context *c = NULL;
    dfgnn_options options =
        INIT(dfgnn_options, .device = "cpu", .store = "", .threads = wrong[k]);
    ck_invalid(dfgnn_context_create(&c, &options), "expected 0..4096");
    ck_assert_ptr_null(c);
  }
}

/* ---- orders of destruction ----------------------------------------------- */

static char logged[4096];

static void keep(void *data, dfgnn_log_level level, const char *message) {
  (void)data;
  snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%d %s\n",
           (int)level, message);
}

static dfgnn_context *logging_context(void) {
  dfgnn_context *c = NULL;
  dfgnn_options options = INIT(dfgnn_options, .device = "cpu", .store = "",
                               .log = keep, .log_level = DFGNN_LOG_DEBUG);
  ck_ok(dfgnn_context_create(&c, &options));
  *logged = 0;
  return c;
}

TEST(a_graph_destroyed_before_its_plans_is_reported) {
  dfgnn_context *c = logging_context();
  dfgnn_csr named = csr;
  named.name = "ring";
  dfgnn_graph *g;
  dfgnn_plan *cached, *forced;
  dfgnn_explanation *why = NULL;
  dfgnn_args args = arguments();
  ck_ok(dfgnn_graph_create_csr(&g, c, &named, NULL));
  ck_ok(dfgnn_plan_create(&cached, c, g, &problem));
  ck_ok(dfgnn_plan_create_forced(&forced, c, g, &problem,
                                 dfgnn_plan_variant(cached)));
  dfgnn_graph_destroy(g);
  ck_assert_msg(
      strstr(logged, "5 graph ring destroyed before 2 of its plans") != NULL,
      "logged: %s", logged);
  for (int k = 0; k < 2; k++) {
    dfgnn_plan *left = k ? forced : cached;
    expected = "the plan's graph was destroyed before it";
    invalid(dfgnn_execute(left, &args, NULL, NULL));
    invalid(dfgnn_plan_explain(&why, left));
    ck_assert_ptr_nonnull(dfgnn_plan_variant(left));
    dfgnn_plan_destroy(left);
  }
  dfgnn_context_destroy(c);
}

TEST(plans_destroyed_first_are_not_reported) {
  dfgnn_context *c = logging_context();
  dfgnn_graph *g;
  dfgnn_plan *a, *b;
  ck_ok(dfgnn_graph_create_csr(&g, c, &csr, NULL));
  ck_ok(dfgnn_plan_create(&a, c, g, &problem));
  ck_ok(dfgnn_plan_create(&b, c, g, &problem));
  ck_assert_ptr_eq(a, b);
  dfgnn_plan_destroy(a);
  dfgnn_plan_destroy(b);
  dfgnn_graph_destroy(g);
  ck_assert_msg(!strstr(logged, "destroyed before"), "logged: %s", logged);
  dfgnn_context_destroy(c);
}

TEST(a_context_lives_as_long_as_its_graphs) {
  dfgnn_context *c = logging_context();
  dfgnn_args args = arguments();
  dfgnn_graph *g;
  dfgnn_plan *p;
  ck_ok(dfgnn_graph_create_csr(&g, c, &csr, NULL));
  ck_ok(dfgnn_plan_create(&p, c, g, &problem));
  dfgnn_context_destroy(c);
  ck_assert_msg(strstr(logged, "context destroyed before 1 of its graphs"),
                "logged: %s", logged);
  expected = "ctx is no dfgnn_context, or one that was destroyed";
  invalid(dfgnn_call(c, g, &problem, &args, NULL));
  dfgnn_context_destroy(c); /* nothing happens */
  dfgnn_plan_destroy(p);
  dfgnn_graph_destroy(g);
}

/* ---- workspaces ---------------------------------------------------------- */

TEST(a_workspace_that_is_not_aligned_is_refused) {
  dfgnn_args args = arguments();
  size_t count = dfgnn_variant_count(), checked = 0;
  char *memory = NULL;
  ck_assert_int_eq(posix_memalign((void **)&memory, 256, 1 << 22), 0);
  for (size_t i = 0; i < count; i++) {
    dfgnn_variant_info info = DFGNN_VARIANT_INFO_INIT;
    dfgnn_plan *p = NULL;
    ck_ok(dfgnn_variant_get(&info, i));
    if (strcmp(info.backend, "cpu") ||
        dfgnn_plan_create_forced(&p, ctx, graph, &problem, info.name))
      continue;
    size_t bytes = dfgnn_plan_workspace(p);
    ck_assert_uint_lt(bytes, (1 << 22) - 256);
    if (bytes) {
      expected = "expected an address aligned to 64";
      for (int off = 1; off < 64; off *= 2)
        invalid(dfgnn_execute(p, &args, memory + off, NULL));
      expected = "workspace is NULL";
      invalid(dfgnn_execute(p, &args, NULL, NULL));
      ck_ok(dfgnn_execute(p, &args, memory + 64, NULL));
      checked++;
    }
    dfgnn_plan_destroy(p);
  }
  free(memory);
  ck_assert_uint_gt(checked, 0);
}

TEST_MAIN("handles", .setup = begin, .timeout = 60)
