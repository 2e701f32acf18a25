/* Fake families of the CPU backend, a model that is fitted to scripted times of
 * them, and the variants that it chooses. */
#include "tests/unit/fixture.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "lib/graph.h"
#include "lib/predict.h"
#include "lib/registry.h"
#include "tests/unit/measured.h"
#include "tuner/search.h"
#include "tuner/train.h"

static int launches;

/* Takes "sleep" milliseconds, whatever the model predicts. */
static dfgnn_status fake_launch(const dfgnn_launch *launch) {
  const struct timespec t = {0, launch->setting.parameter[0] * 1000000L};
  launches++;
  nanosleep(&t, NULL);
  *(float *)launch->args->out = 1;
  return DFGNN_OK;
}

#define FAKE(family, ...)                                                      \
  {                                                                            \
    .name = "cpu.attention.fwd." family, .algorithm = family,                  \
    .backend = "cpu", .ops = DFGNN_OPS_ATTENTION,                              \
    .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .dtypes = DFGNN_BIT(DFGNN_F64),   \
    .revision = 3, .deterministic = 1, .launch = fake_launch, __VA_ARGS__      \
  }

static const dfgnn_family fakes[] = {
    FAKE("fake", .parameters = {{"sleep", 4, {2, 4, 6, 8}, {0}}}),
    DFGNN_FAMILIES_END};

#define SLEEP(n) "cpu.attention.fwd.fake/sleep=" #n

static char store_path[64], model_path[64];
static dfgnn_csr csr;
static dfgnn_problem problem;

static int three(int64_t i) {
  (void)i;
  return 3;
}

static void set_up(void) {
  snprintf(store_path, sizeof store_path, "/tmp/dfgnn-check-predict-%d.db",
           (int)getpid());
  snprintf(model_path, sizeof model_path, "/tmp/dfgnn-check-predict-%d.model",
           (int)getpid());
  unlink(store_path);
  csr = ring(100, three);
  problem = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  problem.dtype = DFGNN_F64;
  problem.dim = 8;
  launches = 0;
}

static void tear_down(void) {
  remove_store(store_path);
  unlink(model_path);
  ring_free(&csr);
}

/* Rows of graphs of several sizes on which "sleep" of `best` is the fastest,
 * and each step away from it costs a fifth; other variants take three times as
 * long. */
enum { GRAPHS = 24 };
static dfgnn_measurement *make_rows(size_t *count, dfgnn_context *ctx,
                                    int best) {
  const size_t most = GRAPHS * 200;
  dfgnn_measurement *rows = calloc(most, sizeof *rows);
  dfgnn_graph *graph;
  *count = 0;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  for (int g = 0; g < GRAPHS; g++)
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      const dfgnn_setting setting = dfgnn__setting(graph, &problem);
      dfgnn_measurement *m = &rows[*count];
      if (v->family->reference || dfgnn__variant_refusal(v, &setting))
        continue;
      const int fake = v->family == &fakes[0];
      double ratio = fake ? 1 + 0.1 * abs(v->parameter[0] - best) : 3;
      if (v->parameter[0] == 8 && fake)
        ratio = 1 + 0.1 * (8 - best);
      ratio /= 1 + 0.1 * (8 - best);
      *m = measurement_of(ctx, graph, &problem, v->name, SLEEP(8), ratio);
      m->graph = "ring"; /* its own names go with the graph */
      m->family = "";
      m->signature.fingerprint += (uint64_t)g * 977;
      m->signature.mean_degree += g;
      m->signature.edges += 1000 * g;
      m->revision = v->family->revision;
      ck_assert_uint_lt(++*count, most);
    }
  dfgnn_graph_destroy(graph);
  return rows;
}

/* Writes a model by which `best` is fastest, and names it in DFGNN_MODEL. */
static void make_model(int best) {
  dfgnn_train_options options = DFGNN_TRAIN_OPTIONS_INIT;
  dfgnn_trained trained;
  size_t count;
  setenv("DFGNN_MODEL", "none", 1);
  dfgnn_context *ctx = cpu_context("");
  dfgnn_measurement *rows = make_rows(&count, ctx, best);
  options.folds = 2;
  options.boost.trees = 60;
  options.boost.least = 3;
  options.least = 2;
  ck_ok(dfgnn__train(&trained, rows, count, NULL, 0, &options));
  ck_assert_uint_eq(trained.forests.count, 1);
  ck_assert_uint_eq(trained.count, GRAPHS);
  for (size_t i = 0; i < trained.count; i++) {
    ck_assert_double_eq_tol(trained.judgement[i].regret[DFGNN_JUDGED_MODEL], 1,
                            1e-9);
    ck_assert_double_eq_tol(trained.judgement[i].regret[DFGNN_JUDGED_RACE], 1,
                            1e-9);
  }
  ck_ok(dfgnn__forests_save(&trained.forests, model_path));
  dfgnn__trained_free(&trained);
  free(rows);
  dfgnn_context_destroy(ctx);
  setenv("DFGNN_MODEL", model_path, 1);
}

static dfgnn_plan *plan_of(dfgnn_context *ctx, dfgnn_graph *graph) {
  dfgnn_plan *plan = NULL;
  ck_ok(dfgnn_plan_create(&plan, ctx, graph, &problem));
  return plan;
}

static void expect(const char *store, const char *variant,
                   dfgnn_source source) {
  dfgnn_context *ctx = cpu_context(store);
  dfgnn_graph *graph;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  dfgnn_plan *plan = plan_of(ctx, graph);
  dfgnn_explanation *explanation;
  ck_ok(dfgnn_plan_explain(&explanation, plan));
  ck_assert_msg(dfgnn_plan_source(plan) == source,
                "found source %d, not %d: %s", (int)dfgnn_plan_source(plan),
                (int)source, explanation->because);
  dfgnn_explanation_free(explanation);
  if (variant)
    ck_assert_str_eq(dfgnn_plan_variant(plan), variant);
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}

/* Stores a measurement of sleep=4 on a graph whose edges and mean degree are
 * larger by the arguments. */
static void store_row(int64_t edges_more, double mean_more) {
  setenv("DFGNN_MODEL", "none", 1);
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  dfgnn_store *store;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  dfgnn_measurement m =
      measurement_of(ctx, graph, &problem, SLEEP(4), SLEEP(4), 1);
  m.signature.fingerprint++;
  m.signature.edges += edges_more;
  m.signature.mean_degree += mean_more;
  m.revision = 3;
  ck_ok(dfgnn__store_open(&store, store_path, DFGNN_STORE_WRITE));
  ck_ok(dfgnn__store_record(store, NULL, &m));
  dfgnn__store_close(store);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  setenv("DFGNN_MODEL", model_path, 1);
}

START_TEST(what_nobody_measured_is_chosen_by_the_model) {
  expect("", NULL, DFGNN_SOURCE_RULE);
  make_model(6);
  expect("", SLEEP(6), DFGNN_SOURCE_MODEL);
  make_model(2);
  expect("", SLEEP(2), DFGNN_SOURCE_MODEL);
  problem.effort = DFGNN_EFFORT_STORED;
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  dfgnn_plan *plan = NULL;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  ck_fails(dfgnn_plan_create(&plan, ctx, graph, &problem),
           DFGNN_ERROR_NOT_TUNED, "nothing stored");
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}
END_TEST

START_TEST(near_graphs_come_before_the_model_and_far_ones_after) {
  make_model(6);
  store_row(100, 0.5);
  expect(store_path, SLEEP(4), DFGNN_SOURCE_NEAREST);
  unlink(store_path);
  store_row(200, 2);
  expect(store_path, SLEEP(6), DFGNN_SOURCE_MODEL);
  setenv("DFGNN_MODEL", "none", 1);
  expect(store_path, SLEEP(4), DFGNN_SOURCE_NEAREST);
}
END_TEST

START_TEST(the_digest_tells_models_apart) {
  char none[DFGNN_DIGEST_SIZE], one[DFGNN_DIGEST_SIZE], two[DFGNN_DIGEST_SIZE];
  char *const digest[] = {none, one, two};
  for (int k = 0; k < 3; k++) {
    if (k)
      make_model(2 * k);
    dfgnn_context *ctx = cpu_context("");
    ck_ok(dfgnn_context_digest(digest[k], ctx));
    dfgnn_context_destroy(ctx);
  }
  ck_assert_str_ne(none, one);
  ck_assert_str_ne(one, two);
}
END_TEST

START_TEST(a_model_that_was_named_must_be_one) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx;
  options.device = "cpu";
  setenv("DFGNN_MODEL", "/tmp/dfgnn-no-such.model", 1);
  ck_fails(dfgnn_context_create(&ctx, &options), DFGNN_ERROR_IO,
           "DFGNN_MODEL: /tmp/dfgnn-no-such.model");
}
END_TEST

/* The first member of the forest predicts the opposite of what it was fitted
 * to. */
START_TEST(members_that_disagree_abstain) {
  make_model(6);
  dfgnn_forests forests;
  ck_ok(dfgnn__forests_load(&forests, model_path));
  dfgnn_forest *f = &forests.forest[0];
  const size_t first = f->root[f->trees[0]];
  ck_assert_uint_gt(first, 0);
  ck_assert_uint_lt(first, f->nodes);
  for (size_t i = 0; i < first; i++)
    if (f->node[i].feature == DFGNN_FOREST_LEAF)
      f->node[i].value = (int16_t)-f->node[i].value;
  ck_ok(dfgnn__forests_save(&forests, model_path));
  dfgnn__forests_free(&forests);
  expect("", NULL, DFGNN_SOURCE_RULE);
}
END_TEST

/* Says in the model's file that families were measured on so many graphs. */
static void set_covers(int fakes_on, int others_on) {
  dfgnn_forests forests;
  int changed = 0;
  ck_ok(dfgnn__forests_load(&forests, model_path));
  dfgnn_forest *f = &forests.forest[0];
  for (size_t i = 0; i < f->covers; i++) {
    const int fake = strstr(f->cover[i].family, ".fake") != NULL;
    ck_assert_str_eq(f->cover[i].cell, "gt forward, one head, 64 bits");
    ck_assert_int_eq(f->cover[i].graphs, GRAPHS);
    f->cover[i].graphs = fake ? fakes_on : others_on;
    changed += fake;
  }
  ck_assert_int_eq(changed, 1);
  ck_ok(dfgnn__forests_save(&forests, model_path));
  dfgnn__forests_free(&forests);
}

/* The fakes are predicted to take a third of the time of the rule's choice: a
 * gain that is believed after few graphs, but not after none, and not if the
 * rule's family was never measured. */
START_TEST(a_family_that_was_hardly_measured_is_not_believed) {
  make_model(6);
  expect("", SLEEP(6), DFGNN_SOURCE_MODEL);
  set_covers(3, GRAPHS);
  expect("", SLEEP(6), DFGNN_SOURCE_MODEL);
  make_model(6);
  set_covers(0, 0);
  expect("", NULL, DFGNN_SOURCE_RULE);
  make_model(6);
  set_covers(3, 0);
  expect("", NULL, DFGNN_SOURCE_RULE);
}
END_TEST

START_TEST(evidence_is_weighed_as_the_header_says) {
  const double margin = dfgnn__gain_margin;
  const struct {
    dfgnn_evidence evidence;
    int suffices;
  } cases[] = {
      {{.graphs = -1, .gain = NAN}, 1},
      {{.graphs = -1, .disagreement = 1, .gain = 9}, 0},
      {{.graphs = -1, .gain = 0.1, .spread = 0.2}, 0},
      {{.graphs = DFGNN_COVERED_GRAPHS, .gain = NAN}, 1},
      {{.graphs = DFGNN_COVERED_GRAPHS, .disagreement = 1, .gain = NAN}, 0},
      {{.graphs = DFGNN_COVERED_GRAPHS, .disagreement = 1, .gain = 0.5}, 1},
      {{.graphs = DFGNN_COVERED_GRAPHS}, 0},
      {{.graphs = DFGNN_COVERED_GRAPHS, .gain = margin + 0.01}, 1},
      {{.graphs = DFGNN_COVERED_GRAPHS, .gain = margin + 0.01, .spread = 0.015},
       1},
      {{.graphs = DFGNN_COVERED_GRAPHS, .gain = margin + 0.01, .spread = 0.03},
       0},
      {{.graphs = 7, .gain = NAN}, 0},
      {{.graphs = 7, .gain = margin}, 0},
      {{.graphs = 7, .gain = margin + 0.01}, 1},
      {{.graphs = 7, .gain = margin + 0.01, .spread = 0.02}, 0},
      {{.graphs = 0, .gain = 3}, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_msg(dfgnn__evidence_suffices(&cases[i].evidence) ==
                      cases[i].suffices,
                  "case %zu", i);
}
END_TEST

START_TEST(explain_sets_predictions_beside_measurements) {
  make_model(6);
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  dfgnn_explanation *why;
  int predicted = 0, compared = 0;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  dfgnn_plan *plan = plan_of(ctx, graph);
  ck_ok(dfgnn_plan_explain(&why, plan));
  ck_assert_ptr_nonnull(strstr(why->model, "parameter sleep"));
  ck_assert_ptr_nonnull(strstr(why->because, "least predicted time"));
  for (size_t i = 0; i < why->count; i++) {
    const dfgnn_candidate *c = &why->candidates[i];
    predicted += c->predicted > 0;
    ck_assert(c->measured == 0);
    if (!strcmp(c->variant, SLEEP(6))) {
      ck_assert(c->predicted == 1);
      compared++;
    }
    if (!strcmp(c->variant, SLEEP(2))) {
      ck_assert_double_eq_tol(c->predicted, 1.4, 0.15);
      compared++;
    }
  }
  ck_assert_int_gt(predicted, 4);
  ck_assert_int_eq(compared, 2);
  dfgnn_explanation_free(why);
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}
END_TEST

enum { MOST_WORKSPACE = 1 << 19 };

static void call(dfgnn_plan *plan) {
  static double zeros[8 * 100], out[8 * 100];
  static _Alignas(256) char workspace[MOST_WORKSPACE];
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.query = args.key = args.value = zeros;
  args.out = out;
  const size_t wanted = dfgnn_plan_workspace(plan);
  ck_assert_uint_le(wanted, MOST_WORKSPACE);
  ck_ok(dfgnn_execute(plan, &args, workspace, NULL));
}

/* The model predicts that the fakes, which sleep, are three times as fast as
 * families that compute.  The calls find that it is wrong, and the store has it
 * afterwards. */
START_TEST(a_race_finds_a_family_that_the_model_thinks_slow) {
  enum { CALLS = 40 };
  make_model(8);
  dfgnn_context *ctx = cpu_context(store_path);
  dfgnn_graph *graph;
  problem.effort = DFGNN_EFFORT_RACE;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  dfgnn_plan *plan = plan_of(ctx, graph);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_MODEL);
  ck_assert_str_eq(dfgnn_plan_variant(plan), SLEEP(8));
  for (int i = 0; i < CALLS; i++)
    call(plan);
  ck_assert_ptr_null(strstr(dfgnn_plan_variant(plan), ".fake/"));
  ck_assert_int_gt(launches, 0);
  ck_assert_int_lt(launches, CALLS / 2);
  dfgnn_plan_destroy(plan);
  dfgnn_plan_destroy(plan_of(ctx, graph)); /* which stores */
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  problem.effort = DFGNN_EFFORT_ESTIMATE;
  /* Of two that are nearly as fast the store may have either. */
  ctx = cpu_context(store_path);
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  plan = plan_of(ctx, graph);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
  ck_assert_ptr_null(strstr(dfgnn_plan_variant(plan), ".fake/"));
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}
END_TEST

START_TEST(what_is_measured_does_not_race) {
  make_model(8);
  store_row(0, 0);
  dfgnn_context *ctx = cpu_context(store_path);
  dfgnn_graph *graph;
  problem.effort = DFGNN_EFFORT_RACE;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  dfgnn_plan *plan = plan_of(ctx, graph);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_SIMILAR);
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}
END_TEST

/* ---- the tuner ----------------------------------------------------------- */

START_TEST(arms_predicted_not_to_win_are_not_looked_at) {
  enum { ARMS = 40 };
  dfgnn_search s;
  double predicted[ARMS];
  ck_assert(dfgnn__search_init(&s, ARMS));
  for (int i = 0; i < ARMS; i++)
    predicted[i] = 0.02 * i;
  ck_assert(dfgnn__search_may_win(&s, 39));
  s.predicted = predicted;
  ck_assert(dfgnn__search_may_win(&s, 39));
  for (int i = 1; i < 20; i++) { /* as predicted, give or take a percent */
    s.arm[i].state = DFGNN_ARM_STORED;
    s.arm[i].ratio.center = predicted[i] + (i % 2 ? 0.01 : -0.01);
  }
  ck_assert(!dfgnn__search_may_win(&s, 39));
  ck_assert(!dfgnn__search_may_win(&s, 25));
  s.exhaustive = 1;
  ck_assert(dfgnn__search_may_win(&s, 39));
  s.exhaustive = 0;
  for (int i = 1; i < 20; i++) /* predictions that are off by a half */
    s.arm[i].ratio.center = predicted[i] + (i % 2 ? 0.5 : -0.5);
  ck_assert(dfgnn__search_may_win(&s, 22));
  dfgnn__search_free(&s);
}
END_TEST

int main(void) {
  setenv("DFGNN_MODEL", "none", 1);
  dfgnn__registry_add(fakes);
  Suite *suite = suite_create("predict");
  TCase *tests = tcase_create("predict");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, what_nobody_measured_is_chosen_by_the_model);
  tcase_add_test(tests, near_graphs_come_before_the_model_and_far_ones_after);
  tcase_add_test(tests, the_digest_tells_models_apart);
  tcase_add_test(tests, a_model_that_was_named_must_be_one);
  tcase_add_test(tests, members_that_disagree_abstain);
  tcase_add_test(tests, explain_sets_predictions_beside_measurements);
  tcase_add_test(tests, a_race_finds_a_family_that_the_model_thinks_slow);
  tcase_add_test(tests, a_family_that_was_hardly_measured_is_not_believed);
  tcase_add_test(tests, evidence_is_weighed_as_the_header_says);
  tcase_add_test(tests, what_is_measured_does_not_race);
  tcase_add_test(tests, arms_predicted_not_to_win_are_not_looked_at);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
