/* Fake families of the CPU backend are right, wrong, failing or slow on purpose
 * and take scripted times, whatever else the machine does; all else is the real
 * path: check, search, store, selection. */
#include "tests/unit/fixture.h"

#include <math.h>

#include "db/store.h"
#include "lib/base/error.h"
#include "lib/graph.h"
#include "lib/operator.h"
#include "lib/registry.h"
#include "lib/signature.h"
#include "tests/common/answer.h"
#include "tuner/compile.h"

enum {
  US,       /* microseconds of a launch */
  BEHAVIOUR /* one of the following */
};
enum { RIGHT, WRONG, FAILS, FAILS_LATER, OVERWRITES, DEAF };

static int launches[16], late;
static double last_us;
static uint64_t noise_state;

static dfgnn_status fake_launch(const dfgnn_launch *l) {
  int behaviour = l->setting.parameter[BEHAVIOUR];
  launches[behaviour]++;
  last_us = l->setting.parameter[US];
  if (behaviour == FAILS || (behaviour == FAILS_LATER && ++late > 3))
    return dfgnn__fail(DFGNN_ERROR_DEVICE, "planted failure");
  dfgnn_problem heard = *l->setting.problem;
  if (behaviour == DEAF)
    heard.bias = heard.dropout = 0;
  dfgnn_status status = answer(&heard, l->setting.matrix, l->args);
  if (behaviour == WRONG)
    ((float *)l->args->out)[3] += 0.5f;
  if (behaviour == OVERWRITES) {
    const dfgnn_problem *p = l->setting.problem;
    int64_t n = l->setting.matrix->destinations * p->heads * p->dim;
    ((float *)l->args->out)[n] = 1;
  }
  if (last_us > 1e5)
    usleep((useconds_t)last_us);
  return status;
}

static dfgnn_status refuse(void **state, const dfgnn_setting *setting,
                           const dfgnn_view *const *views) {
  (void)state, (void)setting, (void)views;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "the graph is odd");
}

#define FAKE(family, behaviour, count, ...)                                    \
  FAKE_FAMILY("cpu.attention.fwd." family, family, .revision = 4, .bias = 1,   \
              .dropout = 1, .launch = fake_launch,                             \
              .parameters = {{"us", count, {__VA_ARGS__}, {NULL}},             \
                             {"do", 1, {behaviour}, {family}}})

static const dfgnn_family fakes[] = {FAKE("fake", RIGHT, 4, 400, 250, 300, 500),
                                     FAKE("fake-wrong", WRONG, 1, 50),
                                     FAKE("fake-tie", RIGHT, 2, 200, 201),
                                     FAKE("fake-fails", FAILS, 1, 50),
                                     FAKE("fake-late", FAILS_LATER, 1, 50),
                                     FAKE("fake-over", OVERWRITES, 1, 50),
                                     FAKE("fake-slow", RIGHT, 1, 120000),
                                     FAKE("fake-deaf", DEAF, 1, 50),
                                     FAKE("fake-serial", RIGHT, 1, 620),
                                     DFGNN_FAMILIES_END};

static dfgnn_family picky[] = {FAKE("fake-picky", RIGHT, 2, 20, 30),
                               DFGNN_FAMILIES_END};

#define NAME(family, us) "cpu.attention.fwd." family "/us=" us ",do=" family
#define FAKE_400 NAME("fake", "400")
#define FAKE_250 NAME("fake", "250")
#define FAKE_300 NAME("fake", "300")
#define FAKE_500 NAME("fake", "500")
#define TIE_200 NAME("fake-tie", "200")
#define TIE_201 NAME("fake-tie", "201")
#define FAKE_WRONG NAME("fake-wrong", "50")
#define FAKE_FAILS NAME("fake-fails", "50")
#define FAKE_LATE NAME("fake-late", "50")
#define FAKE_OVER NAME("fake-over", "50")
#define FAKE_SLOW NAME("fake-slow", "120000")
#define FAKE_DEAF NAME("fake-deaf", "50")
#define FAKE_SERIAL NAME("fake-serial", "620")
#define PICKY_20 NAME("fake-picky", "20")
#define PICKY_30 NAME("fake-picky", "30")

/* The members of the portfolio: the first is the rule's choice. */
static const dfgnn_test_member members[] = {{FAKE_400, NAN}, {NULL, 0}};

static char path[64];
static dfgnn_csr csr;
static dfgnn_context *ctx;
static dfgnn_graph *graph;
static dfgnn_problem problem;
static dfgnn_tune_options options;
static dfgnn_tune_report report;

/* The scripted device: others use it while it is loud, and then launches of
 * FAKE_400 and FAKE_500, which stand for two threads, take 30 times as long. */
static int loud;
static double load_clock, load_others, load_ends;

static void scripted_load(dfgnn_device *device, dfgnn_load *load) {
  (void)device;
  load_clock += 0.1;
  loud &= load_clock < load_ends;
  load_others += loud ? 0.19 : 0;
  *load = dfgnn__load_unknown();
  load->at = load_clock;
  load->cores = 2;
  load->average = 9.1;
  load->own = 0;
  load->busy = load_others;
}

/* Sleeps a little, so that a budget means something. */
static dfgnn_status scripted_time(dfgnn_device *device, dfgnn_sample *sample,
                                  dfgnn_timed_function f, void *data,
                                  int repeats, int cold) {
  (void)device, (void)repeats, (void)cold;
  dfgnn_status status = f(data, NULL);
  double noise = (double)(dfgnn__mix(noise_state++) >> 11) / (1ull << 53);
  usleep(500);
  sample->ms = 1e-3 * last_us * (0.99 + 0.02 * noise);
  sample->waited = 0;
  if (loud && (last_us == 400 || last_us == 500)) {
    sample->ms *= 30;
    sample->waited = 0.45;
    sample->tainted = 1;
  }
  return status;
}

static dfgnn_backend scripted;

static int degree(int64_t i) { return (int)(i % 4); }

/* Opens a context whose device "refused" all variants but the fakes. */
static void open_context(const char *store) {
  ctx = cpu_context(store);
  scripted = *ctx->backend;
  scripted.time = scripted_time;
  scripted.load = scripted_load;
  ctx->backend = &scripted;
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    ctx->broken[i] = dfgnn__variant(i)->family->launch != fake_launch;
  graph = graph_on(ctx, &csr);
}

static void close_context(void) {
  done(graph);
  done(ctx);
}

static void set_up(void) {
  dfgnn__members_for_tests(members);
  loud = 0;
  load_ends = INFINITY;
  snprintf(path, sizeof path, "/tmp/dfgnn-check-tune-%d.db", (int)getpid());
  unlink(path);
  csr = ring(20, degree);
  csr.name = "ring";
  problem = PROBLEM(.dim = 4);
  options = INIT(dfgnn_tune_options, .budget_s = 5, .seed = 1);
  report = (dfgnn_tune_report)DFGNN_TUNE_REPORT_INIT;
  open_context(path);
}

static void tear_down(void) { remove_store(path); }

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static dfgnn_status tune(const char *const *names) {
  options.variants = names;
  return dfgnn_tune(&report, ctx, graph, &problem, &options);
}

/* ---- what the store holds ------------------------------------------------ */

typedef struct found {
  const char *variant;
  int rows;
  char status[16], reason[256], anchor[160], tool[64], job[64], noise[160];
  int64_t disturbed;
  double median_ms, ratio, ratio_low, ratio_high;
  int64_t samples;
  int revision;
} found;

static int visit(void *data, const dfgnn_measurement *row) {
  found *f = data;
  if (f->variant && strcmp(row->variant, f->variant))
    return 0;
  f->rows++;
  snprintf(f->status, sizeof f->status, "%s", row->status);
  snprintf(f->reason, sizeof f->reason, "%s", row->reason);
  snprintf(f->anchor, sizeof f->anchor, "%s", row->anchor);
  snprintf(f->tool, sizeof f->tool, "%s", row->tool);
  snprintf(f->job, sizeof f->job, "%s", row->job);
  f->median_ms = row->median_ms;
  f->ratio = row->ratio;
  f->ratio_low = row->ratio_low;
  f->ratio_high = row->ratio_high;
  f->samples = row->samples;
  f->disturbed = row->disturbed;
  snprintf(f->noise, sizeof f->noise, "%s", row->noise);
  f->revision = row->revision;
  return 0;
}

static found stored(const char *variant) {
  found f = {.variant = variant};
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  dfgnn_store *store;
  uint64_t invalid = 0;
  ck_ok(dfgnn__store_open(&store, path, DFGNN_STORE_READ));
  ck_ok(dfgnn__store_each(store, &invalid, &filter, visit, &f));
  dfgnn__store_close(store);
  ck_assert_uint_eq(invalid, 0);
  return f;
}

/* ---- promises ------------------------------------------------------------ */

TEST(the_fastest_is_kept_and_dispatched) {
  options.tool = "check 1";
  options.job_hash = "abc";
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_500)));
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_int_eq(report.candidates, 4);
  ck_assert_int_eq(report.measured, 4);
  ck_assert_int_eq(report.wrong + report.failed + report.resumed, 0);
  ck_assert_int_eq(report.separated, 1);
  ck_assert_int_eq(report.kept, 1);
  ck_assert_double_gt(report.median_ms, 0.24);
  ck_assert_double_lt(report.ratio, 1);
  ck_assert_double_gt(report.payback_calls, 1);
  found f = stored(FAKE_250);
  ck_assert_int_eq(f.rows, 1);
  ck_assert_str_eq(f.status, "ok");
  ck_assert_str_eq(f.anchor, report.anchor);
  ck_assert_str_eq(f.tool, "check 1");
  ck_assert_str_eq(f.job, "abc");
  ck_assert_int_eq(f.revision, 4);
  ck_assert_double_le(f.ratio_low, f.ratio);
  ck_assert_double_le(f.ratio, f.ratio_high);

  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_250);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
  done(plan);
  close_context();
  open_context(path);
  plan = plan_on(ctx, graph, &problem);
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_250);
}

static dfgnn_source source_now(void) {
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  return dfgnn_plan_source(plan);
}

TEST(a_variant_that_leaves_bias_or_dropout_out_is_found_wrong) {
  for (int k = 0; k < 3; k++) {
    problem.bias = k & 1;
    problem.dropout = k >> 1;
    ck_ok(tune(NAMES(FAKE_400, FAKE_DEAF)));
    ck_assert_int_eq(report.wrong, k > 0);
    ck_assert_str_eq(report.variant, k > 0 ? FAKE_400 : FAKE_DEAF);
  }
}

TEST(wrong_failing_and_overwriting_ones_are_recorded_and_lose) {
  ck_ok(tune(
      NAMES(FAKE_300, FAKE_250, FAKE_WRONG, FAKE_FAILS, FAKE_LATE, FAKE_OVER)));
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_int_eq(report.wrong, 2);
  ck_assert_int_eq(report.failed, 2);
  ck_assert_str_eq(stored(FAKE_WRONG).status, "wrong");
  ck_assert_ptr_nonnull(strstr(stored(FAKE_WRONG).reason, "row 0"));
  ck_assert_str_eq(stored(FAKE_OVER).status, "wrong");
  ck_assert_str_eq(stored(FAKE_FAILS).status, "failed");
  ck_assert_str_eq(stored(FAKE_FAILS).reason, "planted failure");
  ck_assert_str_eq(stored(FAKE_LATE).status, "failed");
  ck_assert_int_eq(launches[WRONG], 1);
  ck_assert_int_eq(launches[FAILS], 1);
}

TEST(those_that_a_graph_is_not_for_are_recorded_and_passed_over) {
  ck_ok(tune(NAMES(FAKE_300, FAKE_250, PICKY_20, PICKY_30)));
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_str_eq(stored(PICKY_20).status, "refused");
  ck_assert_str_eq(stored(PICKY_30).status, "refused");
  ck_assert_str_eq(stored(PICKY_30).reason, "the graph is odd");
}

TEST(a_rule_that_is_wrong_is_replaced_as_anchor) {
  static const char fake[] = "cpu.attention.fwd.fake/";
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    if (!strncmp(dfgnn__variant(i)->name, fake, sizeof fake - 1))
      ctx->broken[i] = 1; /* so that the wrong one is the rule's choice */
  ck_ok(tune(NAMES(FAKE_WRONG, FAKE_FAILS, TIE_200)));
  ck_assert_str_eq(report.variant, TIE_200);
  ck_assert_str_eq(report.anchor, TIE_200);
  ck_assert_str_eq(stored(FAKE_WRONG).anchor, FAKE_WRONG);
}

TEST(an_over_long_one_runs_but_a_few_times) {
  ck_ok(tune(NAMES(FAKE_250, FAKE_SLOW)));
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_str_eq(stored(FAKE_SLOW).status, "ok");
  ck_assert_int_eq(stored(FAKE_SLOW).samples, 1);
  ck_assert_double_gt(stored(FAKE_SLOW).ratio, 20);
}

TEST(a_second_run_measures_nothing_and_decides_the_same) {
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_WRONG)));
  char anchor[160];
  snprintf(anchor, sizeof anchor, "%s", report.anchor);
  double ratio = report.ratio;
  int rows = stored(NULL).rows, before = launches[RIGHT] + launches[WRONG];
  double begin = seconds_now();
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_WRONG)));
  ck_assert_double_lt(seconds_now() - begin, 1);
  ck_assert_int_eq(launches[RIGHT] + launches[WRONG], before);
  ck_assert_int_eq(stored(NULL).rows, rows);
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_str_eq(report.anchor, anchor);
  ck_assert_double_eq(report.ratio, ratio);
  ck_assert_int_eq(report.resumed, 4);
  ck_assert_int_eq(report.wrong, 1);
  ck_assert_int_eq(report.measured, 0);
}

/* Tuning knows the rows of its store, also those that others write meanwhile.
 */
TEST(rows_of_another_process_are_taken_over) {
  char digest[DFGNN_DIGEST_SIZE], fresh[DFGNN_DIGEST_SIZE];
  dfgnn_context *mine = ctx;
  dfgnn_graph *known = graph;
  ck_ok(tune(NAMES(FAKE_400, FAKE_500)));
  ck_ok(dfgnn_context_digest(digest, ctx));
  open_context(path); /* of another process, as it were */
  ck_ok(dfgnn_context_digest(fresh, ctx));
  ck_assert_str_eq(digest, fresh);
  ck_ok(tune(NAMES(FAKE_400, FAKE_300)));
  close_context();
  ctx = mine;
  graph = known;
  const int before = launches[RIGHT];
  ck_ok(tune(NAMES(FAKE_400, FAKE_300, FAKE_500)));
  ck_assert_int_eq(launches[RIGHT], before);
  ck_assert_int_eq(report.resumed, 3);
  ck_ok(tune(NAMES(FAKE_400, FAKE_250)));
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_ok(dfgnn_context_digest(digest, ctx));
  ck_ok(dfgnn_context_reload(ctx));
  ck_ok(dfgnn_context_digest(fresh, ctx));
  ck_assert_str_eq(digest, fresh);
}

TEST(a_new_candidate_is_measured_beside_the_stored_ones) {
  ck_ok(tune(NAMES(FAKE_400, FAKE_300)));
  ck_assert_str_eq(report.variant, FAKE_300);
  int before = stored(FAKE_300).rows;
  ck_ok(tune(NAMES(FAKE_400, FAKE_300, FAKE_250)));
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_int_eq(report.resumed, 2);
  ck_assert_int_eq(stored(FAKE_300).rows, before);
}

/* Writes the store anew as a library had it whose revision of one variant was
 * lower. */
static void age(const char *variant) {
  dfgnn_measurement old[16];
  dfgnn_rows *rows;
  dfgnn_store *store;
  size_t count;
  ck_ok(dfgnn__store_open(&store, path, DFGNN_STORE_READ));
  ck_ok(dfgnn__rows_create(&rows));
  ck_ok(dfgnn__rows_load(rows, NULL, store, NULL));
  dfgnn__store_close(store);
  const dfgnn_measurement *row = dfgnn__rows_get(rows, &count);
  ck_assert_uint_le(count, 16);
  memcpy(old, row, count * sizeof *row);
  for (size_t i = 0; i < count; i++)
    if (!strcmp(old[i].variant, variant))
      old[i].revision--;
  unlink(path);
  ck_ok(dfgnn__store_open(&store, path, DFGNN_STORE_WRITE));
  ck_ok(dfgnn__store_record_all(store, NULL, old, count));
  dfgnn__store_close(store);
  dfgnn__rows_free(rows);
}

TEST(a_raised_revision_expires_the_rows_of_that_variant_alone) {
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300)));
  const char *raised = strcmp(report.anchor, FAKE_300) ? FAKE_300 : FAKE_400;
  const char *other = strcmp(report.anchor, FAKE_250) ? FAKE_250 : FAKE_400;
  close_context();
  age(raised);
  open_context(path);
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300)));
  ck_assert_int_eq(report.resumed, 2);
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_int_eq(stored(raised).rows, 2);
  ck_assert_int_eq(stored(other).rows, 1);
}

TEST(remeasuring_adds_rows) {
  ck_ok(tune(NAMES(FAKE_400, FAKE_250)));
  options.remeasure = 1;
  ck_ok(tune(NAMES(FAKE_400, FAKE_250)));
  ck_assert_int_eq(report.resumed, 0);
  ck_assert_int_eq(stored(FAKE_250).rows, 2);
  ck_assert_str_eq(report.variant, FAKE_250);
}

TEST(a_tie_gives_the_canonical_member_from_any_seed) {
  for (uint64_t seed = 1; seed <= 6; seed++) {
    options.seed = seed;
    options.remeasure = 1;
    ck_ok(tune(NAMES(TIE_201, TIE_200, FAKE_400)));
    ck_assert_msg(!strcmp(report.variant, TIE_200), "seed %d gave %s",
                  (int)seed, report.variant);
    ck_assert_int_eq(report.separated, 0);
  }
}

static int stop_after;
static int stop(void *data) {
  (void)data;
  return --stop_after < 0;
}

TEST(stopping_keeps_what_is_measured_and_resuming_goes_on) {
  options.stop = stop;
  stop_after = 7;
  ck_fails(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_500)),
           DFGNN_ERROR_INTERRUPTED, "kept");
  ck_assert_int_eq(report.kept, 1);
  int rows = stored(NULL).rows;
  ck_assert_int_ge(rows, 2);
  stop_after = 1 << 30;
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_500)));
  ck_assert_str_eq(report.variant, FAKE_250);
  rows = stored(NULL).rows - rows;
  ck_assert_int_gt(rows, 0);
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_500)));
  ck_assert_int_eq(report.resumed, 4);
  ck_assert_int_eq(report.measured, 0);
}

TEST(exhaustive_runs_measure_every_candidate_to_the_end) {
  options.budget_s = 0; /* none */
  options.exhaustive = 1;
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_500, TIE_200, TIE_201)));
  ck_assert_int_eq(stored(FAKE_300).samples, 32);
  ck_assert_int_eq(stored(FAKE_500).samples, 32);
}

static double seconds_of_tuning(void) {
  double begin = seconds_now();
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300, FAKE_500, TIE_200, TIE_201)));
  return seconds_now() - begin;
}

/* Without a disk to wait for; a busy machine may still be late now and then. */
TEST(the_budget_is_kept) {
  close_context();
  open_context("");
  options.exhaustive = options.remeasure = 1;
  for (int attempt = 0;; attempt++) {
    options.budget_s = 0;
    double whole = seconds_of_tuning();
    options.budget_s = whole / 5;
    double spent = seconds_of_tuning();
    ck_assert_int_ge(report.measured, 2);
    if (spent < whole / 2)
      break;
    ck_assert_msg(attempt < 9, "%g s of %g s with a fifth of the time", spent,
                  whole);
  }
}

static void ck_exact(const char *variant) {
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  ck_assert_str_eq(dfgnn_plan_variant(plan), variant);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
}

/* The time of a call by the script of a quiet device. */
static double quiet_us(const char *variant) {
  const char *us = strstr(variant, "us=");
  ck_assert_ptr_nonnull(us);
  return atof(us + 3);
}

/* Nobody waits for programs that cannot be ready in time. */
TEST(a_short_budget_compiles_no_more_than_what_is_owed) {
  ck_assert_uint_eq(dfgnn__compile_ahead_most(0.3, 16), 3);
  ck_assert_uint_eq(dfgnn__compile_ahead_most(2.5, 16), 3 + 2 * 16);
  ck_assert_uint_eq(dfgnn__compile_ahead_most(INFINITY, 16), SIZE_MAX);
}

/* However short the budget is, the tuner measures the variant that a near
 * graph's rows choose beside the rule's, so that a lone row of the rule's does
 * not take the place of a better choice. */
TEST(a_budget_that_is_too_short_makes_no_choice_worse) {
  dfgnn_graph *first = graph;
  dfgnn_csr near = ring(21, degree);
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300)));
  ck_exact(FAKE_250);
  near.name = "near";
  graph = graph_on(ctx, &near);
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_250);
  ck_assert_int_ne(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
  done(plan);
  options.budget_s = 1e-9;
  ck_ok(tune(NULL));
  ck_assert_str_eq(report.anchor, FAKE_400);
  ck_assert_int_eq(report.measured, 2);
  ck_exact(FAKE_250);
  done(graph);
  graph = first;
}

/* The model's choice is measured beside the rule's, and the rest once there is
 * time: until then the graph is not exact. */
TEST(a_run_that_saw_few_members_is_gone_on_with) {
  static const dfgnn_test_member ranked[] = {{FAKE_400, 0.4},
                                             {FAKE_500, 0.5},
                                             {FAKE_250, 0.3},
                                             {FAKE_300, 0.2},
                                             {NULL, 0}};
  dfgnn__members_for_tests(ranked);
  ck_assert_int_eq(source_now(), DFGNN_SOURCE_MODEL);
  options.budget_s = 1e-9;
  ck_ok(tune(NULL));
  ck_assert_int_eq(report.candidates, 4);
  ck_assert_int_eq(report.measured, 2);
  ck_assert_str_eq(report.anchor, FAKE_400);
  ck_assert_str_eq(report.variant, FAKE_300);
  ck_assert_int_eq(source_now(), DFGNN_SOURCE_NEAR);
  options.budget_s = 5;
  ck_ok(tune(NULL));
  ck_assert_int_eq(report.resumed, 2);
  ck_exact(FAKE_250);
}

/* HACKING promises it to whoever adds a kernel. */
TEST(a_family_that_no_portfolio_knows_is_found) {
  dfgnn__members_for_tests(NULL);
  ck_ok(tune(NULL)); /* all but the fakes are broken */
  ck_assert_int_ge(report.candidates, 8);
  ck_assert_int_ge(report.wrong, 1);
  ck_assert_double_le(quiet_us(report.variant), 250);
  ck_exact(report.variant);
}

static dfgnn_status tune_call(float *out, double most_s) {
  static float in[20 * 4];
  for (int i = 0; i < 20 * 4; i++)
    in[i] = (float)(i % 7);
  dfgnn_args args = ARGS(.query = in, .key = in, .value = in, .out = out);
  return dfgnn_tune_call(&report, ctx, graph, &problem, &args, most_s);
}

TEST(a_call_is_measured_with_its_own_tensors) {
  static const dfgnn_test_member ranked[] = {
      {FAKE_400, 0.2}, {FAKE_500, 0}, {FAKE_250, 0}, {FAKE_300, 0}, {NULL, 0}};
  float out[20 * 4 + 1];
  dfgnn__members_for_tests(ranked);
  out[20 * 4] = 42;
  ck_ok(tune_call(out, 10));
  ck_assert_int_eq(report.measured, 4);
  ck_assert_double_eq(out[20 * 4], 42);
  ck_assert(isfinite(out[3]));
  ck_exact(FAKE_250);
  ck_assert_str_eq(stored(FAKE_250).tool, "libdfgnn call");
  launches[RIGHT] = 0; /* the next finds it */
  ck_ok(tune_call(out, 10));
  ck_assert_int_eq(launches[RIGHT], 0);
}

TEST(a_call_that_would_take_long_is_left_to_a_race) {
  float out[20 * 4];
  ck_fails(tune_call(out, .4e-3 * 30), DFGNN_ERROR_NOT_TUNED, "at most");
  ck_assert_int_eq(source_now(), DFGNN_SOURCE_RULE);
  problem.pass = DFGNN_PASS_BACKWARD;
  problem.accumulate = 1;
  ck_fails(tune_call(out, 1), DFGNN_ERROR_UNSUPPORTED, "accumulate");
  problem.accumulate = 0;
  ck_invalid(dfgnn_tune_call(NULL, ctx, graph, &problem, NULL, 1), "args");
  ck_invalid(tune_call(out, 0), "most_s");
}

/* There are no kernels to compile on a CPU. */
TEST(what_is_prepared_costs_a_tuning_nothing) {
  dfgnn_tune_kernels *kernels = NULL;
  ck_ok(dfgnn_tune_prepare(&kernels, ctx, graph, &problem));
  ck_assert_int_eq(dfgnn_tune_prepared(kernels), 1);
  dfgnn_tune_release(kernels);
  ck_assert_int_eq(launches[RIGHT], 0);
  problem.heads = 0;
  ck_invalid(dfgnn_tune_prepare(&kernels, ctx, graph, &problem), "heads");
  ck_invalid(dfgnn_tune_prepare(NULL, ctx, graph, &problem), "kernels");
  ck_assert_int_eq(dfgnn_tune_prepared(NULL), 1);
  dfgnn_tune_release(NULL);
}

TEST(what_the_rule_has_learnt_is_measured_beside_older_rows) {
  ck_ok(tune(NAMES(FAKE_400, FAKE_500)));
  age(FAKE_400);
  ck_ok(dfgnn_context_reload(ctx));
  ck_assert_int_eq(source_now(), DFGNN_SOURCE_RULE);
  options.budget_s = 1e-9;
  ck_ok(tune(NULL));
  ck_assert_str_eq(report.anchor, FAKE_500);
  ck_assert_int_eq(report.measured, 2);
  ck_exact(FAKE_400);
}

static int stop_at_once(void *data) {
  int *calls = data;
  return ++*calls > 1; /* after the rule's choice was admitted */
}

TEST(a_run_that_is_stopped_early_stores_no_lone_choice_of_the_rule) {
  int calls = 0;
  dfgnn_graph *first = graph;
  dfgnn_csr near = ring(21, degree);
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_300)));
  graph = graph_on(ctx, &near);
  options.stop = stop_at_once;
  options.data = &calls;
  ck_fails(tune(NULL), DFGNN_ERROR_INTERRUPTED, "stopped");
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_250);
  ck_assert_int_ne(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
  done(plan);
  done(graph);
  graph = first;
}

static int warnings;
static char warning[512];
static void count_warning(void *data, dfgnn_log_level level,
                          const char *message) {
  (void)data;
  if (level == DFGNN_LOG_WARN) {
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
  }
}

TEST(without_a_store_to_write_measurements_answer_in_their_context) {
  static const char *const stores[] = {"", "/dev/null/tuning.db"};
  for (int i = 0; i < 2; i++) {
    close_context();
    open_context(stores[i]);
    warnings = 0;
    ctx->log = count_warning;
    ctx->log_level = DFGNN_LOG_WARN;
    ck_ok(tune(NAMES(FAKE_400, FAKE_250)));
    ck_assert_str_eq(report.variant, FAKE_250);
    ck_assert_int_eq(report.kept, 0);
    ck_exact(FAKE_250);
    problem.dim = 6;
    ck_ok(tune(NAMES(FAKE_400, FAKE_300)));
    ck_exact(FAKE_300);
    problem.dim = 4;
    ck_ok(dfgnn_context_reload(ctx));
    ck_exact(FAKE_250);
    ck_ok(tune(NAMES(FAKE_400, FAKE_250)));
    ck_assert_int_eq(report.resumed, 2);
    /* it is said once, where a store was asked for */
    ck_assert_int_eq(warnings, i);
  }
  ck_assert_ptr_nonnull(strstr(warning, "cannot be kept: /dev/null/tuning.db"));
}

/* ---- loads --------------------------------------------------------------- */

TEST(a_load_is_warned_of_once_and_marked) {
  loud = 1;
  warnings = 0;
  ctx->log = count_warning;
  ctx->log_level = DFGNN_LOG_WARN;
  options.budget_s = 1;
  ck_ok(tune(NAMES(FAKE_400, FAKE_500)));
  problem.dim = 6;
  ck_ok(tune(NAMES(FAKE_400, FAKE_500)));
  ck_assert_int_eq(warnings, 1);
  ck_assert_ptr_nonnull(strstr(
      warning, "2 cores, load 9.1: others keep 1.9 of 2 cores busy: times will "
               "be noisy"));
  found f = stored(FAKE_500);
  ck_assert_int_eq(f.disturbed, f.samples);
  ck_assert_str_eq(f.noise, "threads waited for a processor 45 % of the time");
  ck_assert_double_ge(f.ratio_high / f.ratio_low, 1);
}

/* The rule's choice has two threads, which the load slows; one thread looks ten
 * times as fast beside it, and is slower in truth. */
TEST(a_load_never_makes_a_choice_worse_than_the_rules) {
  loud = 1;
  options.budget_s = 1;
  options.seed = 7;
  ck_ok(tune(NAMES(FAKE_400, FAKE_SERIAL)));
  ck_assert_str_eq(report.anchor, FAKE_400);
  ck_assert_double_le(quiet_us(report.variant), 1.1 * quiet_us(FAKE_400));
  ck_assert_int_eq(report.separated, 0);
  found f = stored(FAKE_SERIAL);
  ck_assert_int_gt(f.disturbed, f.samples / 2);
  ck_exact(FAKE_400);

  /* Later it is quiet: what is noisy is measured again, once. */
  loud = 0;
  options.remeasure = DFGNN_REMEASURE_NOISY;
  ck_ok(tune(NAMES(FAKE_400, FAKE_SERIAL)));
  ck_assert_int_eq(report.measured, 2);
  ck_assert_str_eq(report.variant, FAKE_400);
  ck_assert_int_eq(report.separated, 1);
  ck_assert_int_eq(stored(FAKE_SERIAL).rows, 2);
  ck_ok(tune(NAMES(FAKE_400, FAKE_SERIAL)));
  ck_assert_int_eq(report.measured, 0);
  ck_assert_int_eq(stored(FAKE_SERIAL).rows, 2);
}

TEST(a_short_load_is_waited_for) {
  loud = 1;
  options.budget_s = 5;
  load_ends = load_clock + 0.8;
  ck_ok(tune(NAMES(FAKE_400, FAKE_250, FAKE_500)));
  ck_assert_str_eq(report.variant, FAKE_250);
  ck_assert_int_eq(loud, 0);
  ck_assert_int_eq(stored(FAKE_500).disturbed, 0);
  ck_assert_int_eq(stored(FAKE_250).disturbed, 0);
}

static int calls;
static double last;
static void progress(void *data, double done, const char *message) {
  ck_assert_ptr_eq(data, &calls);
  ck_assert_double_ge(done, last);
  ck_assert_double_le(done, 1);
  ck_assert_ptr_nonnull(strstr(message, "left"));
  last = done;
  calls++;
}

TEST(progress_rises_to_one) {
  options.progress = progress;
  options.data = &calls;
  ck_ok(tune(NAMES(FAKE_400, FAKE_250)));
  ck_assert_int_ge(calls, 3);
  ck_assert_double_eq(last, 1);
}

TEST(effort_measure_tunes_a_miss_once) {
  static const dfgnn_test_member both[] = {
      {FAKE_400, NAN}, {FAKE_250, NAN}, {NULL, 0}};
  dfgnn__members_for_tests(both);
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    if (strcmp(dfgnn__variant(i)->name, FAKE_400) &&
        strcmp(dfgnn__variant(i)->name, FAKE_250))
      ctx->broken[i] = 1;
  problem.effort = DFGNN_EFFORT_MEASURE;
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_250);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
  done(plan);
  int before = launches[RIGHT];
  problem.effort = DFGNN_EFFORT_STORED;
  plan = plan_on(ctx, graph, &problem);
  ck_assert_str_eq(dfgnn_plan_variant(plan), FAKE_250);
  ck_assert_int_eq(launches[RIGHT], before);
  done(plan);
  problem.effort = DFGNN_EFFORT_MEASURE; /* dropout was not measured yet */
  problem.dropout = 1;
  plan = plan_on(ctx, graph, &problem);
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_EXACT);
  ck_assert_int_gt(launches[RIGHT], before);
}

static int none(int64_t i) {
  (void)i;
  return 0;
}

TEST(a_graph_without_edges_is_tuned) {
  dfgnn_csr empty = ring(5, none);
  dfgnn__members_for_tests(NULL);
  close_context();
  ctx = cpu_context(path);
  graph = graph_on(ctx, &empty);
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    ctx->broken[i] = dfgnn__variant(i)->family->launch == fake_launch;
  options.budget_s = 0.5;
  ck_ok(tune(NULL));
  ck_assert_int_eq(report.wrong + report.failed, 0);
  ck_assert_int_ge(report.measured, 1);
  ck_assert_double_gt(report.median_ms, 0);
}

TEST(what_is_wrong_in_the_options_is_named) {
  ck_invalid(tune(NAMES("nonsense")), "nonsense");
  options.budget_s = -1;
  ck_invalid(tune(NULL), "budget_s");
  options.budget_s = 1;
  options.margin = 2;
  ck_invalid(tune(NULL), "margin");
  ck_invalid(dfgnn_tune(NULL, ctx, NULL, &problem, NULL), "graph");
}

int main(void) {
  dfgnn__registry_add(fakes);
  picky[0].prepare = refuse;
  dfgnn__registry_add(picky);
  return run_case(&(test_case){.name = "tuner tune",
                               .setup = set_up,
                               .teardown = tear_down,
                               .timeout = 30});
}
