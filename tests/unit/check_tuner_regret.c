/* check_tuner_regret.c - regret of choices and replay of the search, on stored
 * figures and on fake families with scripted times */
#include "tests/unit/fixture.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "lib/describe.h"
#include "lib/signature.h"
#include "tuner/harness.h"
#include "tuner/regret.h"
#include "tuner/replay.h"

#define VARIANTS 6
#define GRAPHS 4

static double scripted_ms[VARIANTS];
static int last;

static dfgnn_status fake_launch(const dfgnn_launch *launch) {
  last = launch->setting.parameter[0];
  return DFGNN_OK;
}

static const dfgnn_family fakes[] = {
    {.name = "cpu.attention.fwd.fake",
     .algorithm = "smmf", /* so that the paper's rule has a choice */
     .backend = "cpu",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_BIT(DFGNN_F64),
     .revision = 2,
     .deterministic = 1,
     .parameters = {{"n", VARIANTS, {0, 1, 2, 3, 4, 5}, {NULL}}},
     .launch = fake_launch},
    DFGNN_FAMILIES_END};

static const char *const names[VARIANTS] = {
    "cpu.attention.fwd.fake/n=0", "cpu.attention.fwd.fake/n=1",
    "cpu.attention.fwd.fake/n=2", "cpu.attention.fwd.fake/n=3",
    "cpu.attention.fwd.fake/n=4", "cpu.attention.fwd.fake/n=5"};

/* Ratios to variant 0 of each graph: graphs 0 and 1 are alike and want variant
 * 1, graphs 2 and 3 want variants 2 and 3. */
static const double ratios[GRAPHS][VARIANTS] = {{1, 0.5, 2, 2, 2, 4},
                                                {1, 0.5, 2, 2, 2, 4},
                                                {1, 3, 0.8, 2, 2, 4},
                                                {1, 3, 2, 0.4, 2, 4}};

static char path[64];
static dfgnn_context *ctx;
static dfgnn_csr csr[GRAPHS];
static dfgnn_graph *graph[GRAPHS];
static dfgnn_problem problem;
static dfgnn_backend scripted;
static uint64_t noise_state;

static int two(int64_t i) { return i == 0 ? 3 : 2; }
static int two_too(int64_t i) { return i == 1 ? 3 : 2; }
static int thirty(int64_t i) { return 30 + (int)(i % 5); }
static int skewed(int64_t i) { return i % 50 == 0 ? 300 : (int)(i % 3); }

static dfgnn_status scripted_time(dfgnn_device *device, dfgnn_sample *sample,
                                  dfgnn_timed_function f, void *data,
                                  int repeats, int cold) {
  (void)device, (void)repeats, (void)cold;
  dfgnn_status status = f(data, NULL);
  double noise = (double)(dfgnn__mix(noise_state++) >> 11) / (1ull << 53);
  sample->ms = scripted_ms[last] * (0.99 + 0.02 * noise);
  return status;
}

static void store_rows(dfgnn_store *store, int g) {
  dfgnn_measurement m;
  dfgnn__describe(&m, ctx, graph[g], &problem);
  m.run = "0123456789abcdef0123456789abcdef";
  m.status = "ok";
  m.anchor = names[0];
  m.revision = m.anchor_revision = 2;
  for (int v = 0; v < VARIANTS; v++) {
    m.variant = names[v];
    m.ratio = ratios[g][v];
    m.ratio_low = m.ratio * 0.999;
    m.ratio_high = m.ratio * 1.001;
    m.median_ms = m.ci_low_ms = m.ci_high_ms = m.ratio;
    m.samples = 20;
    ck_ok(dfgnn__store_record(store, NULL, &m));
  }
}

static void set_up(void) {
  static int (*const degrees[GRAPHS])(int64_t) = {two, two_too, thirty, skewed};
  dfgnn_store *store;
  snprintf(path, sizeof path, "/tmp/dfgnn-check-regret-%d.db", (int)getpid());
  unlink(path);
  ctx = cpu_context(path);
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    ctx->broken[i] = dfgnn__variant(i)->family->launch != fake_launch;
  scripted = *ctx->backend;
  scripted.time = scripted_time;
  ctx->backend = &scripted;
  problem = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  problem.dtype = DFGNN_F64;
  problem.dim = 8;
  ck_ok(dfgnn__store_open(&store, path, DFGNN_STORE_WRITE));
  for (int g = 0; g < GRAPHS; g++) {
    csr[g] = ring(400, degrees[g]);
    ck_ok(dfgnn_graph_create_csr(&graph[g], ctx, &csr[g], NULL));
    store_rows(store, g);
  }
  dfgnn__store_close(store);
  ck_ok(dfgnn_context_reload(ctx));
}

static void tear_down(void) {
  for (int g = 0; g < GRAPHS; g++) {
    dfgnn_graph_destroy(graph[g]);
    ring_free(&csr[g]);
  }
  dfgnn_context_destroy(ctx);
  remove_store(path);
}

static const dfgnn_decision *decision_of(int g) {
  dfgnn_query query = {.setting = dfgnn__setting(graph[g], &problem),
                       .family = ""};
  const dfgnn_decision *decision = dfgnn__table_exact(ctx->table, &query);
  ck_assert_ptr_nonnull(decision);
  return decision;
}

START_TEST(stored_figures_give_the_regret_of_each_choice) {
  dfgnn_regret r[GRAPHS];
  for (int g = 0; g < GRAPHS; g++) {
    ck_ok(dfgnn__regret_stored(&r[g], ctx->table, decision_of(g), &ctx->info,
                               12288));
    ck_assert_double_eq_tol(r[g].regret[DFGNN_REGRET_EXACT], 1, 1e-9);
    ck_assert_uint_eq(r[g].candidates, VARIANTS);
  }
  /* The graph that is like the one left out answers for it. */
  ck_assert_str_eq(r[0].choice[DFGNN_REGRET_LEFT_OUT]->name, names[1]);
  ck_assert_double_eq_tol(r[0].regret[DFGNN_REGRET_LEFT_OUT], 1, 1e-9);
  ck_assert_int_ne(r[0].left_out_source, DFGNN_SOURCE_EXACT);
  ck_assert_int_ne(r[0].left_out_source, DFGNN_SOURCE_RULE);
  ck_assert_str_eq(r[0].best->name, names[1]);
  ck_assert_double_eq_tol(r[0].spread, 8, 1e-9);
  ck_assert_double_eq_tol(r[3].spread, 10, 1e-9);
  /* A choice is never better than the best. */
  for (int g = 0; g < GRAPHS; g++)
    for (int c = 0; c < DFGNN_REGRET_CHOICES; c++)
      ck_assert(!(r[g].regret[c] < 1 - 1e-9));
  const dfgnn_variant *paper = r[2].choice[DFGNN_REGRET_PAPER];
  ck_assert_ptr_nonnull(paper);
}
END_TEST

START_TEST(a_live_measurement_finds_what_the_store_has_wrong) {
  dfgnn_regret r;
  /* The machine has changed: variant 4 takes half of the stored best's time
   * now, but is not among the choices unless it was among the best five. */
  for (int v = 0; v < VARIANTS; v++)
    scripted_ms[v] = ratios[2][v];
  ck_ok(dfgnn__regret_live(&r, ctx, graph[2], &problem, 9, 1));
  ck_assert_double_eq_tol(r.regret[DFGNN_REGRET_EXACT], 1, 0.02);
  ck_assert_str_eq(r.best->name, names[2]);
  ck_assert_double_eq_tol(r.best_ms, 0.8, 0.02);
  scripted_ms[4] = 0.4;
  ck_ok(dfgnn__regret_live(&r, ctx, graph[2], &problem, 9, 1));
  ck_assert_double_eq_tol(r.regret[DFGNN_REGRET_EXACT], 2, 0.05);
  ck_assert_str_eq(r.best->name, names[4]);
}
END_TEST

START_TEST(a_problem_that_is_not_measured_is_a_status) {
  dfgnn_regret r;
  problem.dim = 16;
  ck_fails(dfgnn__regret_live(&r, ctx, graph[0], &problem, 5, 1),
           DFGNN_ERROR_NOT_TUNED, "not measured");
}
END_TEST

START_TEST(a_summary_is_a_geometric_mean_and_a_worst) {
  dfgnn_regret r[3] = {{.spread = 2, .candidates = 3},
                       {.spread = 8, .candidates = 7},
                       {.spread = 4, .candidates = 5}};
  static const double exact[] = {1, 2, 4};
  dfgnn_regret_summary s;
  for (int k = 0; k < 3; k++) {
    r[k].regret[DFGNN_REGRET_EXACT] = exact[k];
    r[k].regret[DFGNN_REGRET_LEFT_OUT] = k ? 1.1 : 1.3;
    r[k].regret[DFGNN_REGRET_RULE] = 1;
    r[k].regret[DFGNN_REGRET_PAPER] = k ? NAN : 3;
  }
  dfgnn__regret_summarize(&s, r, 3);
  ck_assert_double_eq_tol(s.mean[DFGNN_REGRET_EXACT], 2, 1e-12);
  ck_assert_double_eq(s.worst[DFGNN_REGRET_EXACT], 4);
  ck_assert_double_eq(s.worst[DFGNN_REGRET_LEFT_OUT], 1.3);
  ck_assert_uint_eq(s.count[DFGNN_REGRET_PAPER], 1);
  ck_assert_double_eq_tol(s.mean[DFGNN_REGRET_PAPER], 3, 1e-12);
  ck_assert_double_eq_tol(s.spread, 4, 1e-12);
  ck_assert_uint_eq(s.candidates, 7);
}
END_TEST

START_TEST(a_replay_finds_the_best_in_a_quarter_of_the_exhaustive_time) {
  dfgnn_ranked ranked[80];
  static char text[80][16];
  int near = 0;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    for (size_t i = 0; i < 80; i++) {
      double spread = (double)(dfgnn__mix(seed * 100 + i) >> 40) / (1 << 24);
      snprintf(text[i], sizeof text[i], "v%02zu", i);
      ranked[i] = (dfgnn_ranked){.variant = text[i],
                                 .log_ratio = i == 37 ? 0 : 1.2 * spread,
                                 .median_ms = 3};
    }
    for (size_t i = 0; i < 80; i++)
      ranked[i].median_ms *= exp(ranked[i].log_ratio);
    dfgnn_decision decision = {.count = 80, .ranked = ranked};
    dfgnn_replay_options options = {
        .noise = 0.03, .sample_ms = 1, .check_ms = 5, .seed = seed};
    dfgnn_replayed whole, quarter;
    options.exhaustive = 1;
    ck_ok(dfgnn__replay(&whole, &decision, &options));
    options.exhaustive = 0;
    options.budget_s = whole.seconds / 4;
    ck_ok(dfgnn__replay(&quarter, &decision, &options));
    ck_assert_double_le(quarter.seconds, whole.seconds * 0.26);
    ck_assert_uint_lt(quarter.samples * 3, whole.samples);
    near += quarter.regret <= whole.regret * 1.02;
  }
  ck_assert_msg(near >= 38, "seeds 1..40: %d within 2 %%", near);
}
END_TEST

int main(void) {
  dfgnn__registry_add(fakes);
  Suite *suite = suite_create("tuner regret");
  TCase *all = tcase_create("all");
  tcase_set_timeout(all, 30);
  tcase_add_checked_fixture(all, set_up, tear_down);
  tcase_add_test(all, stored_figures_give_the_regret_of_each_choice);
  tcase_add_test(all, a_live_measurement_finds_what_the_store_has_wrong);
  tcase_add_test(all, a_problem_that_is_not_measured_is_a_status);
  tcase_add_test(all, a_summary_is_a_geometric_mean_and_a_worst);
  tcase_add_test(all,
                 a_replay_finds_the_best_in_a_quarter_of_the_exhaustive_time);
  suite_add_tcase(suite, all);
  return run_tests(suite);
}
