/* Fake families of the CPU backend stand in for kernels, so that the tests say
 * which variant is chosen and why, not how fast anything is. */
#include "tests/unit/fixture.h"

#include <math.h>

#include "lib/base/error.h"
#include "lib/graph.h"
#include "lib/registry.h"
#include "tests/unit/measured.h"

static int launches_fail, graphs_are_odd, prepared;

static dfgnn_status fake_launch(const dfgnn_launch *launch) {
  if (launches_fail)
    return DFGNN_ERROR_DEVICE;
  *(float *)launch->args->out = (float)launch->setting.parameter[0];
  return DFGNN_OK;
}

static const char *wide_only(const dfgnn_setting *setting) {
  return setting->problem->dim < 1000 ? "needs 1000 features" : NULL;
}

static size_t megabyte(const dfgnn_setting *setting) {
  (void)setting;
  return 1 << 20;
}

static dfgnn_status picky_prepare(void **state, const dfgnn_setting *setting,
                                  const dfgnn_view *const *views) {
  (void)state, (void)setting, (void)views;
  prepared++;
  return graphs_are_odd
             ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "the graph is odd")
             : DFGNN_OK;
}

#define FAKE(family, ...)                                                      \
  FAKE_FAMILY("cpu.attention.fwd." family, family,                             \
              .ops = DFGNN_OPS_ATTENTION | DFGNN_OPS_REDUCE,                   \
              .dtypes = DFGNN_BIT(DFGNN_F64), .revision = 3, .weights = 1,     \
              .bias = 1, .dropout = 1, .launch = fake_launch, __VA_ARGS__)

static const dfgnn_family fakes[] = {
    FAKE("fake", .parameters = {{"n", 3, {1, 2, 3}, {0}}}),
    FAKE("fake-wide", .applicable = wide_only),
    FAKE("fake-hungry", .workspace = megabyte),
    FAKE_FAMILY("cpu.attention.fwd.fake-plain", "fake-plain",
                .dtypes = DFGNN_BIT(DFGNN_F64), .revision = 3,
                .launch = fake_launch),
    FAKE("fake-picky", .prepare = picky_prepare,
         .parameters = {{"n", 2, {4, 5}, {0}}}),
    DFGNN_FAMILIES_END};

#define FAKE_1 "cpu.attention.fwd.fake/n=1"
#define FAKE_2 "cpu.attention.fwd.fake/n=2"
#define FAKE_3 "cpu.attention.fwd.fake/n=3"
#define PLAIN "cpu.attention.fwd.fake-plain"
#define PICKY_4 "cpu.attention.fwd.fake-picky/n=4"
#define PICKY_5 "cpu.attention.fwd.fake-picky/n=5"

/* The members of every portfolio: measurements of others are complete if they
 * have this one as well, which is their anchor. */
static const dfgnn_test_member members[] = {{FAKE_1, NAN}, {NULL, 0}};

static char path[64];
static dfgnn_csr csr;
static dfgnn_problem problem;
static dfgnn_context *ctx;
static dfgnn_graph *graph;

static int three(int64_t i) {
  (void)i;
  return 3;
}

static void set_up(void) {
  snprintf(path, sizeof path, "/tmp/dfgnn-check-plan-%d.db", (int)getpid());
  unlink(path);
  csr = ring(100, three);
  problem = PROBLEM(.dtype = DFGNN_F64, .dim = 8);
  launches_fail = graphs_are_odd = prepared = 0;
  dfgnn__members_for_tests(members);
}

static void tear_down(void) { remove_store(path); }

/* Stores a measurement of `variant`: it took `ratio` of the anchor's time. */
static void store_row(const char *variant, int revision, const char *arch,
                      double ratio) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_store *store;
  dfgnn_graph *graph = graph_on(ctx, &csr);
  dfgnn_measurement m =
      measurement_of(ctx, graph, &problem, variant, FAKE_1, ratio);
  if (arch)
    m.arch = arch;
  m.revision = revision;
  m.anchor_revision = 3;
  ck_ok(dfgnn__store_open(&store, path, DFGNN_STORE_WRITE));
  ck_ok(dfgnn__store_record(store, NULL, &m));
  dfgnn__store_close(store);
}

/* Opens a context with a store, and the graph in it. */
static void open_store(const char *store) {
  ctx = cpu_context(store);
  graph = graph_on(ctx, &csr);
}

static dfgnn_plan *make_plan(void) { return plan_on(ctx, graph, &problem); }

static dfgnn_counters count_plans(void) {
  dfgnn_counters counters = DFGNN_COUNTERS_INIT;
  ck_ok(dfgnn_context_counters(&counters, ctx));
  return counters;
}

/* Asserts that no plan is made, and why. */
static void refuse_plan(dfgnn_status status, const char *text) {
  dfgnn_plan *plan = NULL;
  ck_fails(dfgnn_plan_create(&plan, ctx, graph, &problem), status, text);
  ck_assert_ptr_null(plan);
}

/* Asserts which variant a program gets from the store, and its source. */
static void expect(const char *variant, dfgnn_source source) {
  open_store(path);
  dfgnn_plan *plan = make_plan();
  ck_assert_int_eq(dfgnn_plan_source(plan), source);
  if (variant)
    ck_assert_str_eq(dfgnn_plan_variant(plan), variant);
}

TEST(a_measured_problem_is_dispatched_from_the_store) {
  store_row(FAKE_1, 3, NULL, 1);
  store_row(FAKE_2, 3, NULL, 0.5);
  expect(FAKE_2, DFGNN_SOURCE_EXACT);
}

TEST(another_architecture_is_never_used) {
  store_row(FAKE_2, 3, "sm_90", 0.5);
  expect(NULL, DFGNN_SOURCE_RULE);
}

TEST(an_older_revision_and_an_unknown_variant_are_misses) {
  store_row(FAKE_2, 2, NULL, 0.5);
  store_row("cpu.attention.fwd.gone/n=1", 3, NULL, 0.1);
  expect(NULL, DFGNN_SOURCE_RULE);
}

TEST(a_near_graph_answers_for_an_unmeasured_one) {
  store_row(FAKE_1, 3, NULL, 1);
  store_row(FAKE_3, 3, NULL, 0.5);
  csr = ring(103, three); /* not the graph that was measured, but like it */
  open_store(path);
  dfgnn_plan *plan = make_plan();
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_3);
  ck_assert(dfgnn_plan_source(plan) == DFGNN_SOURCE_NEAR);
  ck_assert_uint_eq(count_plans().near, 1);
  ck_assert_uint_eq(count_plans().loaded_rows, 2);
}

TEST(a_family_that_a_graph_is_not_for_is_passed_over) {
  store_row(FAKE_1, 3, NULL, 1);
  store_row(FAKE_2, 3, NULL, 0.5);
  store_row(PICKY_4, 3, NULL, 0.1);
  store_row(PICKY_5, 3, NULL, 0.2);
  expect(PICKY_4, DFGNN_SOURCE_EXACT);
  ck_assert_int_eq(prepared, 1);
  csr = ring(103, three);
  graphs_are_odd = 1;
  prepared = 0;
  open_store(path);
  dfgnn_explanation *e;
  dfgnn_plan *plan = make_plan();
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_2);
  ck_assert_int_eq(prepared, 1); /* once, not once a variant */
  ck_ok(dfgnn_plan_explain(&e, plan));
  ck_assert_msg(strstr(e->because, "not cpu.attention.fwd.fake-picky") != NULL,
                "%s", e->because);
  dfgnn_explanation_free(e);
  ck_assert_uint_eq(count_plans().near, 1);
  dfgnn_plan *again = make_plan();
  ck_assert_ptr_eq(again, plan);
  ck_assert_int_eq(prepared, 1);
  dfgnn_plan *forced = NULL;
  ck_fails(dfgnn_plan_create_forced(&forced, ctx, graph, &problem, PICKY_5),
           DFGNN_ERROR_UNSUPPORTED, "the graph is odd");
}

TEST(a_plainer_problem_answers_for_one_that_is_not_measured) {
  store_row(FAKE_3, 3, NULL, 0.5);
  problem.deterministic = 0;
  expect(FAKE_3, DFGNN_SOURCE_NEAR);
  problem.weights = 1;
  expect(FAKE_3, DFGNN_SOURCE_NEAR);
  store_row(FAKE_2, 3, NULL, 0.4);
  expect(FAKE_2, DFGNN_SOURCE_EXACT);
  problem.weights = 0;
  expect(FAKE_3, DFGNN_SOURCE_NEAR);
}

/* Asserts what a program gets, and the reason that explain gives. */
static void expect_because(const char *variant, dfgnn_source source,
                           const char *because) {
  open_store(path);
  dfgnn_explanation *e;
  dfgnn_plan *plan = make_plan();
  ck_ok(dfgnn_plan_explain(&e, plan));
  ck_assert_str_eq(e->variant, variant);
  ck_assert_int_eq(e->source, source);
  ck_assert_msg(strstr(e->because, because) != NULL, "%s", e->because);
  dfgnn_explanation_free(e);
}

TEST(measurements_with_an_extra_answer_for_none_without_it) {
  problem.dropout = 1;
  store_row(FAKE_3, 3, NULL, 0.1);
  problem.dropout = 0;
  expect(NULL, DFGNN_SOURCE_RULE);
  problem.effort = DFGNN_EFFORT_STORED;
  open_store(path);
  refuse_plan(DFGNN_ERROR_NOT_TUNED, "1 heads of 8, f64; tune");
  problem.bias = 1;
  refuse_plan(DFGNN_ERROR_NOT_TUNED, "f64, with bias; tune");
}

TEST(this_graph_without_an_extra_answers_before_another_with_it) {
  dfgnn_csr here = csr;
  store_row(FAKE_2, 3, NULL, 0.5);
  csr = ring(400, three); /* near, not the same */
  problem.dropout = 1;
  store_row(FAKE_3, 3, NULL, 0.5);
  csr = ring(410, three); /* not measured, and nearer to the graph with it */
  expect(FAKE_3, DFGNN_SOURCE_NEAR);
  csr = ring(97, three); /* nearer to the graph without it */
  expect_because(FAKE_2, DFGNN_SOURCE_NEAR, "without dropout");
  csr = here;
  expect_because(FAKE_2, DFGNN_SOURCE_NEAR, "measured on this graph");
}

TEST(a_like_operator_answers_for_one_that_is_not_measured) {
  problem.op = DFGNN_OP_REDUCE_MAX;
  store_row(FAKE_3, 3, NULL, 0.5);
  problem.op = DFGNN_OP_REDUCE_MIN;
  expect(FAKE_3, DFGNN_SOURCE_NEAR);
  store_row(FAKE_2, 3, NULL, 0.4);
  expect(FAKE_2, DFGNN_SOURCE_EXACT);
}

TEST(a_family_name_answers_for_graphs_of_any_shape) {
  csr.family = "neighbour-sampler";
  store_row(FAKE_3, 3, NULL, 0.5);
  csr = ring(3000, three);
  csr.family = "neighbour-sampler";
  expect(FAKE_3, DFGNN_SOURCE_NEAR);
}

/* ---- graphs of a shape that was chosen for ------------------------------- */

/* A graph of a list that has `each` edges into each row. */
static dfgnn_graph *graph_of_list(dfgnn_context *ctx, int rows, int each,
                                  const char *family) {
  int32_t *dst = zeros_of(rows * each, sizeof *dst);
  int32_t *src = zeros_of(rows * each, sizeof *src);
  for (int e = 0; e < rows * each; e++) {
    dst[e] = e / each;
    src[e] = (e * 7 + e / each) % rows;
  }
  dfgnn_coo coo = INIT(dfgnn_coo, .destinations = rows, .sources = rows,
                       .edges = rows * each, .destination = dst, .source = src,
                       .family = family);
  return listed_on(ctx, &coo);
}

/* Chooses a variant; returns whether the signature was asked for. */
static int choose_for(dfgnn_context *on, int rows, int each, const char *family,
                      char variant[96]) {
  dfgnn_graph *other = graph_of_list(on, rows, each, family);
  ck_assert(!dfgnn__graph_known(other));
  dfgnn_plan *plan = plan_on(on, other, &problem);
  int known = dfgnn__graph_known(other);
  snprintf(variant, 96, "%s", dfgnn_plan_variant(plan));
  return known;
}

TEST(a_graph_of_a_shape_seen_before_is_chosen_for_without_a_search) {
  char first[96], second[96];
  open_store("");
  ck_assert(choose_for(ctx, 1000, 3, NULL, first));
  ck_assert(!choose_for(ctx, 1000, 3, NULL, second));
  ck_assert_str_eq(first, second);
  ck_assert(!choose_for(ctx, 1010, 3, NULL, second)); /* rounds alike */
  ck_assert(choose_for(ctx, 4000, 3, NULL, second));
  problem.heads = 2;
  ck_assert(choose_for(ctx, 1000, 3, NULL, second));
  ck_ok(dfgnn_context_reload(ctx)); /* forgets */
  ck_assert(choose_for(ctx, 1000, 3, NULL, second));
}

TEST(graphs_of_a_family_need_not_be_of_one_size) {
  char variant[96];
  open_store("");
  ck_assert(choose_for(ctx, 1000, 3, "sampler", variant));
  ck_assert(!choose_for(ctx, 1300, 3, "sampler", variant));
  ck_assert(choose_for(ctx, 1300, 3, "another", variant));
}

/* Stores rows of a list of 1000 rows by which `fastest` takes half of the time
 * of FAKE_1. */
static void store_rows_of_list(const char *fastest) {
  open_store("");
  dfgnn_graph *listed = graph_of_list(ctx, 1000, 3, NULL);
  dfgnn_csr own = csr;
  csr = (dfgnn_csr)DFGNN_CSR_INIT;
  ck_ok(dfgnn_graph_csr(&csr, listed));
  store_row(FAKE_1, 3, NULL, 1);
  store_row(fastest, 3, NULL, 0.5);
  csr = own;
}

TEST(a_measured_graph_follows_no_other) {
  char variant[96];
  store_rows_of_list(FAKE_3);
  dfgnn_context *stored = cpu_context(path);
  ck_assert(choose_for(stored, 1001, 3, NULL, variant));
  ck_assert(
      choose_for(stored, 1000, 3, NULL, variant)); /* it may be measured */
  ck_assert_str_eq(variant, FAKE_3);
  dfgnn_graph *same = graph_of_list(stored, 1000, 3, NULL);
  dfgnn_plan *plan = plan_on(stored, same, &problem);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
}

TEST(a_choice_that_a_graph_is_not_for_is_not_followed) {
  char variant[96];
  store_rows_of_list(PICKY_4);
  dfgnn_context *stored = cpu_context(path);
  ck_assert(choose_for(stored, 1001, 3, NULL, variant));
  ck_assert_str_eq(variant, PICKY_4);
  ck_assert(!choose_for(stored, 1001, 3, NULL, variant));
  ck_assert_str_eq(variant, PICKY_4);
  graphs_are_odd = 1;
  ck_assert(choose_for(stored, 1001, 3, NULL, variant));
  ck_assert_str_eq(variant, FAKE_1);
}

TEST(a_pin_overrides_measurements) {
  dfgnn_store *store;
  store_row(FAKE_2, 3, NULL, 0.5);
  ck_ok(dfgnn__store_open(&store, path, DFGNN_STORE_WRITE));
  ck_ok(dfgnn__store_pin(store, &(dfgnn_pin){.op = "gt",
                                             .pass = "forward",
                                             .dtype = "f64",
                                             .fingerprint = 0,
                                             .variant = FAKE_3}));
  dfgnn__store_close(store);
  expect(FAKE_3, DFGNN_SOURCE_PINNED);
}

TEST(effort_stored_reports_a_miss) {
  open_store("");
  problem.effort = DFGNN_EFFORT_STORED;
  refuse_plan(DFGNN_ERROR_NOT_TUNED, "dfgnn-tune run");
}

TEST(the_paper_rule_reads_its_capacity) {
  dfgnn_options options = INIT(dfgnn_options, .device = "cpu", .store = "");
  ck_assert_int_eq(csr.edges, 300);
  for (int super = 0; super < 2; super++) {
    dfgnn_variant_info info = DFGNN_VARIANT_INFO_INIT;
    options.paper_capacity = super ? 3 * 4 : 3 * 4 + 4; /* max degree is 3 */
    ck_ok(dfgnn_context_create(&ctx, &options));
    own_context(ctx);
    graph = graph_on(ctx, &csr);
    problem.dtype = DFGNN_F32;
    problem.effort = DFGNN_EFFORT_PAPER;
    dfgnn_plan *plan = make_plan();
    ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_PAPER);
    size_t i = 0;
    do
      ck_ok(dfgnn_variant_get(&info, i++));
    while (strcmp(info.name, dfgnn_plan_variant(plan)));
    ck_assert_str_eq(info.algorithm, super ? "pmf" : "smmf");
  }
}

TEST(the_same_problem_gives_the_same_plan) {
  open_store("");
  dfgnn_plan *a = make_plan(), *b = make_plan();
  problem.dim = 9;
  dfgnn_plan *c = make_plan();
  ck_assert_ptr_eq(a, b);
  ck_assert_ptr_ne(a, c);
  ck_assert_uint_eq(count_plans().cached, 1);
  ck_assert_uint_eq(count_plans().rule, 2);
}

TEST(a_named_variant_is_forced_or_refused_with_its_reason) {
  open_store("");
  dfgnn_plan *plan = forced_on(ctx, graph, &problem, FAKE_2);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_FORCED);
  ck_fails(dfgnn_plan_create_forced(&plan, ctx, graph, &problem,
                                    "cpu.attention.fwd.fake-wide"),
           DFGNN_ERROR_UNSUPPORTED, "needs 1000 features");
  ck_invalid(dfgnn_plan_create_forced(&plan, ctx, graph, &problem, "nonsense"),
             "unknown variant 'nonsense'");
  problem.max_workspace = 1000;
  ck_fails(dfgnn_plan_create_forced(&plan, ctx, graph, &problem,
                                    "cpu.attention.fwd.fake-hungry"),
           DFGNN_ERROR_UNSUPPORTED, "max_workspace");
}

static const char *reason_of(const dfgnn_explanation *e, const char *variant) {
  for (size_t i = 0; i < e->count; i++)
    if (!strcmp(e->candidates[i].variant, variant))
      return e->candidates[i].reason;
  return "absent";
}

TEST(explain_gives_every_candidate_a_reason) {
  static const dfgnn_test_member two[] = {
      {FAKE_1, 0.2}, {FAKE_3, 0.3}, {NULL, 0}};
  dfgnn_explanation *e;
  dfgnn__members_for_tests(two);
  store_row(FAKE_1, 3, NULL, 1);
  store_row(FAKE_2, 3, NULL, 0.5);
  open_store(path);
  dfgnn_plan *plan = make_plan();
  ck_ok(dfgnn_plan_explain(&e, plan));
  ck_assert_str_eq(e->variant, FAKE_2);
  ck_assert_double_eq(e->distance, 0);
  ck_assert_str_eq(reason_of(e, FAKE_2), "chosen");
  ck_assert_str_eq(reason_of(e, FAKE_1), "slower: 2.00x");
  ck_assert_str_eq(reason_of(e, FAKE_3),
                   "not measured on this graph; predicted 1.11x");
  ck_assert_uint_eq(e->count, 3);
  ck_assert_str_eq(e->candidates[0].variant, FAKE_2);
  dfgnn_explanation_free(e);
}

static int warnings;
static void count_warnings(void *data, dfgnn_log_level level,
                           const char *message) {
  (void)data, (void)message;
  warnings += level == DFGNN_LOG_WARN;
}

TEST(a_refused_launch_is_avoided_by_the_next_plan) {
  store_row(FAKE_1, 3, NULL, 1);
  store_row(FAKE_2, 3, NULL, 0.5);
  static double tensor[100 * 8];
  dfgnn_args args =
      ARGS(.query = tensor, .key = tensor, .value = tensor, .out = tensor);
  dfgnn_options options = INIT(dfgnn_options, .device = "cpu", .store = path,
                               .log = count_warnings);
  ck_ok(dfgnn_context_create(&ctx, &options));
  own_context(ctx);
  graph = graph_on(ctx, &csr);
  dfgnn_plan *plan = make_plan();
  warnings = 0;
  launches_fail = 1;
  ck_assert_int_eq(dfgnn_execute(plan, &args, NULL, NULL), DFGNN_ERROR_DEVICE);
  launches_fail = 0;
  dfgnn_plan *next = make_plan();
  ck_assert_str_eq(dfgnn_plan_variant(next), FAKE_1);
  ck_assert_int_eq(warnings, 1);
  ck_ok(dfgnn_execute(next, &args, NULL, NULL));
}

TEST(reload_sees_new_rows_and_leaves_plans_alone) {
  store_row(FAKE_2, 3, NULL, 0.5);
  open_store(path);
  dfgnn_plan *before = make_plan();
  store_row(FAKE_3, 3, NULL, 0.1);
  ck_ok(dfgnn_context_reload(ctx));
  ck_assert_str_eq(dfgnn_plan_variant(before), FAKE_2);
  dfgnn_plan *after = plan_on(ctx, graph_on(ctx, &csr), &problem);
  ck_assert_str_eq(dfgnn_plan_variant(after), FAKE_3);
}

TEST(a_store_that_nothing_can_make_is_an_error) {
  dfgnn_context *ctx = NULL;
  dfgnn_options options = INIT(dfgnn_options, .device = "cpu",
                               .store = "/tmp/dfgnn-no-such-folder/tuning.db");
  ck_fails(dfgnn_context_create(&ctx, &options), DFGNN_ERROR_STORE,
           "there is no folder /tmp/dfgnn-no-such-folder");
  ck_assert_ptr_null(ctx);
  options.store = "/tmp/dfgnn-no-such-store.db"; /* tuning can make it */
  ck_ok(dfgnn_context_create(&ctx, &options));
  own_context(ctx);
}

TEST(bad_problems_and_arguments_are_named) {
  open_store("");
  dfgnn_plan *plan = NULL;
  static double tensor[100 * 8];
  dfgnn_problem bad = problem;
  bad.dim = 0;
  ck_invalid(dfgnn_plan_create(&plan, ctx, graph, &bad), "problem.dim is 0");
  bad = problem;
  bad.op = 77;
  ck_invalid(dfgnn_plan_create(&plan, ctx, graph, &bad),
             "problem.op is 77, expected 0..12 (reduce-pna) or ");
  dfgnn_tensor_info info = DFGNN_TENSOR_INFO_INIT;
  ck_fails(dfgnn_operator_tensor(&info, DFGNN_OP_REDUCE_VAR, 7, 0),
           DFGNN_ERROR_UNSUPPORTED, "found operator 10 and pass 7, expected");
  bad = problem;
  bad.struct_size = 1;
  ck_invalid(dfgnn_plan_create(&plan, ctx, graph, &bad), "problem.struct_size");
  bad = problem;
  bad.pass = DFGNN_PASS_BACKWARD;
  bad.max_workspace = 0;
  ck_fails(dfgnn_plan_create(&plan, ctx, graph, &bad), DFGNN_ERROR_UNSUPPORTED,
           "with problem.max_workspace 0: the least that one needs is");
  bad.max_workspace = atoll(strstr(dfgnn_last_error(), "needs is") + 8);
  plan_on(ctx, graph, &bad);
  plan = make_plan();
  dfgnn_args args = ARGS(.query = tensor, .value = tensor, .out = tensor);
  ck_invalid(dfgnn_execute(plan, &args, NULL, NULL), "args.key is NULL");
  args.key = tensor;
  args.dropout = 0.5;
  ck_invalid(dfgnn_execute(plan, &args, NULL, NULL),
             "args.dropout is 0.5, but problem.dropout is not set");
  args.dropout = 0;
  args.weights = tensor;
  ck_invalid(dfgnn_execute(plan, &args, NULL, NULL),
             "args.weights is set, but problem.weights is not");
  args.weights = NULL;
  args.bias = tensor;
  ck_invalid(dfgnn_execute(plan, &args, NULL, NULL),
             "args.bias is set, but problem.bias is not");
}

static void *make_plans(void *data) {
  dfgnn_graph *graph = data;
  dfgnn_problem mine = problem;
  for (int k = 0; k < 300; k++) {
    mine.dim = 1 + k % 37;
    dfgnn_plan *plan = plan_on(graph->ctx, graph, &mine);
    done(plan);
  }
  return NULL;
}

TEST(sixteen_threads_share_a_graph) {
  open_store("");
  pthread_t threads[16];
  for (int t = 0; t < 16; t++)
    pthread_create(&threads[t], NULL, make_plans, graph);
  for (int t = 0; t < 16; t++)
    pthread_join(threads[t], NULL);
  ck_assert_uint_eq(count_plans().cached + count_plans().rule, 16 * 300);
}

TEST(a_named_device_or_store_that_is_absent_is_an_error) {
  dfgnn_context *ctx = NULL;
  dfgnn_options options = INIT(dfgnn_options, .store = "", .device = "tpu");
  ck_invalid(dfgnn_context_create(&ctx, &options), "unknown device 'tpu'");
  options.device = "cuda:99";
  ck_fails(dfgnn_context_create(&ctx, &options), DFGNN_ERROR_DEVICE,
           "device 'cuda:99'");
  options.device = "cpu";
  options.store = "/tmp";
  ck_fails(dfgnn_context_create(&ctx, &options), DFGNN_ERROR_STORE, "/tmp");
  ck_assert_ptr_null(ctx);
}

int main(void) {
  dfgnn__registry_add(fakes);
  return run_case(&(test_case){
      .name = "plan", .setup = set_up, .teardown = tear_down, .timeout = 60});
}
