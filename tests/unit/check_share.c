/* Programs on many ranks and threads rely on equal choices, on stores that may
 * change, and on no store doing worse than to choose a slower variant. */
#include "tests/unit/fixture.h"

#include <math.h>
#include <stdatomic.h>

#include "lib/graph.h"
#include "lib/registry.h"
#include "tests/unit/measured.h"
#include "tests/unit/rows.h"

static dfgnn_status fake_launch(const dfgnn_launch *launch) {
  *(double *)launch->args->out = launch->setting.parameter[0];
  return DFGNN_OK;
}

static const dfgnn_family fakes[] = {
    FAKE_FAMILY("cpu.attention.fwd.fake", "fake",
                .dtypes = DFGNN_BIT(DFGNN_F64), .revision = 3,
                .launch = fake_launch,
                .parameters = {{"n", 3, {1, 2, 3}, {0}}}),
    DFGNN_FAMILIES_END};

static const char *const fake_names[] = {"cpu.attention.fwd.fake/n=1",
                                         "cpu.attention.fwd.fake/n=2",
                                         "cpu.attention.fwd.fake/n=3"};

/* The only member of every portfolio: rows of one that were measured beside it
 * are complete. */
static dfgnn_test_member members[2];

static void be_member(const char *variant) {
  members[0] = (dfgnn_test_member){variant, NAN};
  dfgnn__members_for_tests(members);
}

static char directory[64], path[96], other[96];
static dfgnn_csr csr;
static dfgnn_problem problem;

static int degree(int64_t i) { return (int)(i % 7); }

static void set_up(void) {
  test_folder(directory);
  snprintf(path, sizeof path, "%s/a.db", directory);
  snprintf(other, sizeof other, "%s/b.db", directory);
  csr = ring(100, degree);
  problem = PROBLEM(.dtype = DFGNN_F64, .dim = 8);
  be_member(fake_names[0]);
}

/* A measurement of this device, graph and problem. */
static dfgnn_measurement measured(const dfgnn_context *ctx,
                                  const dfgnn_graph *graph, const char *variant,
                                  double ratio) {
  dfgnn_measurement m =
      measurement_of(ctx, graph, &problem, variant, fake_names[0], ratio);
  m.revision = 3;
  m.run = RUN_A;
  m.ratio_low = ratio * .996;
  m.ratio_high = ratio * 1.004;
  return m;
}

static void record_rows(const char *file, const dfgnn_measurement *rows,
                        size_t count) {
  dfgnn_store *store;
  ck_ok(dfgnn__store_open(&store, file, DFGNN_STORE_WRITE));
  ck_ok(dfgnn__store_record_all(store, NULL, rows, count));
  dfgnn__store_close(store);
}

static void choice_of(char variant[160], char digest[DFGNN_DIGEST_SIZE],
                      const char *stores) {
  dfgnn_context *ctx = cpu_context(stores);
  dfgnn_graph *graph = graph_on(ctx, &csr);
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  snprintf(variant, 160, "%s", dfgnn_plan_variant(plan));
  ck_ok(dfgnn_context_digest(digest, ctx));
}

/* ---- ranks --------------------------------------------------------------- */

TEST(ranks_with_the_same_rows_have_the_same_digest) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_measurement rows[3], reversed[3];
  char variant[160], empty[DFGNN_DIGEST_SIZE], a[DFGNN_DIGEST_SIZE],
      b[DFGNN_DIGEST_SIZE], both[192];
  dfgnn_graph *graph = graph_on(ctx, &csr);
  for (int i = 0; i < 3; i++) {
    rows[i] = measured(ctx, graph, fake_names[i], 1 - .1 * i);
    reversed[2 - i] = rows[i];
  }
  choice_of(variant, empty, "");
  ck_assert_uint_eq(strlen(empty), 32);
  record_rows(path, rows, 3);
  record_rows(other, reversed, 3);
  choice_of(variant, a, path);
  ck_assert_str_eq(variant, fake_names[2]);
  ck_assert_str_ne(a, empty);
  choice_of(variant, b, other);
  ck_assert_str_eq(a, b);
  snprintf(both, sizeof both, "%s:%s", other, path); /* layers do not count */
  choice_of(variant, b, both);
  ck_assert_str_eq(a, b);

  dfgnn_store *store; /* a pin does, and so does another measurement */
  ck_ok(dfgnn__store_open(&store, other, DFGNN_STORE_WRITE));
  ck_ok(dfgnn__store_pin(store, &(dfgnn_pin){.op = "gt",
                                             .pass = "forward",
                                             .dtype = "f64",
                                             .fingerprint = 0,
                                             .variant = fake_names[1]}));
  choice_of(variant, b, other);
  ck_assert_str_eq(variant, fake_names[1]);
  ck_assert_str_ne(a, b);
  ck_ok(dfgnn__store_pin(store, &(dfgnn_pin){.op = "gt",
                                             .pass = "forward",
                                             .dtype = "f64",
                                             .fingerprint = 0,
                                             .variant = NULL}));
  choice_of(variant, b, other);
  ck_assert_str_eq(a, b);
  dfgnn__store_close(store);
  rows[1] = measured(ctx, graph, fake_names[1], .8);
  rows[1].run = RUN_B;
  record_rows(other, &rows[1], 1);
  choice_of(variant, b, other);
  ck_assert_str_ne(a, b);
}

/* ---- threads ------------------------------------------------------------- */

#define THREADS 16

static atomic_int going;

typedef struct worker {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  int number, calls;
} worker;

/* Plans, runs and counts; every fourth thread reloads as well. */
static void *work(void *data) {
  worker *w = data;
  dfgnn_problem mine = problem;
  double out[100 * 8 * 3];
  dfgnn_args args = ARGS(.query = out, .key = out, .value = out, .out = out);
  while (atomic_load(&going)) {
    dfgnn_counters counters = DFGNN_COUNTERS_INIT;
    char digest[DFGNN_DIGEST_SIZE];
    mine.dim = 1 + (w->calls + w->number) % 8;
    memset(out, 0, sizeof out);
    dfgnn_plan *plan = plan_on(w->ctx, w->graph, &mine);
    execute_plan(plan, &args);
    done(plan);
    if (w->number % 4 == 0)
      ck_ok(dfgnn_context_reload(w->ctx));
    ck_ok(dfgnn_context_counters(&counters, w->ctx));
    ck_ok(dfgnn_context_digest(digest, w->ctx));
    w->calls++;
  }
  return NULL;
}

TEST(sixteen_threads_run_while_the_store_changes) {
  dfgnn_context *ctx = NULL;
  pthread_t threads[THREADS];
  worker workers[THREADS];
  dfgnn_counters counters = DFGNN_COUNTERS_INIT;
  dfgnn_options options = INIT(dfgnn_options, .device = "cpu", .store = path);
  options.threads = 1; /* ThreadSanitizer does not see through OpenMP's */
  ck_ok(dfgnn_context_create(&ctx, &options));
  own_context(ctx);
  dfgnn_graph *graph = graph_on(ctx, &csr);
  atomic_store(&going, 1);
  for (int t = 0; t < THREADS; t++) {
    workers[t] = (worker){ctx, graph, t, 0};
    ck_assert_int_eq(pthread_create(&threads[t], NULL, work, &workers[t]), 0);
  }
  for (int i = 0; i < 20; i++) {
    dfgnn_measurement row = measured(ctx, graph, fake_names[i % 3], .9);
    row.time = 2 + i;
    record_rows(path, &row, 1);
    usleep(20000);
  }
  atomic_store(&going, 0);
  for (int t = 0; t < THREADS; t++) {
    pthread_join(threads[t], NULL);
    ck_assert_int_gt(workers[t].calls, 0);
  }
  ck_ok(dfgnn_context_reload(ctx));
  ck_ok(dfgnn_context_counters(&counters, ctx));
  ck_assert_uint_eq(counters.loaded_rows, 20);
}

/* ---- hostile stores ------------------------------------------------------ */

static void fill(float *x, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; i++)
    x[i] = (float)(random_next(&seed) >> 40) / 0x1p24f - .5f;
}

/* Computes a call as a program does with these stores. */
static void compute(float *out, char variant[160], const char *stores,
                    const float *q, const float *k, const float *v) {
  dfgnn_context *ctx = cpu_context(stores);
  dfgnn_args args = ARGS(.query = q, .key = k, .value = v, .out = out);
  dfgnn_graph *graph = graph_on(ctx, &csr);
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  snprintf(variant, 160, "%s", dfgnn_plan_variant(plan));
  done(plan);
  ck_ok(dfgnn_call(ctx, graph, &problem, &args, NULL));
}

TEST(a_hostile_store_can_only_choose_a_slower_variant) {
  static float q[100 * 16], k[100 * 16], v[100 * 16], good[100 * 16],
      out[100 * 16];
  char variant[160];
  size_t obeyed = 0, asked = 0;
  problem.dtype = DFGNN_F32;
  problem.dim = 16;
  fill(q, 1600, 1);
  fill(k, 1600, 2);
  fill(v, 1600, 3);
  dfgnn__members_for_tests(NULL);
  compute(good, variant, "", q, k, v);
  const dfgnn_variant *rule = dfgnn__variant_find(variant);
  be_member(rule->name);
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = graph_on(ctx, &csr);
  for (size_t i = 0, last = dfgnn__variant_count() - 1; i <= last;
       i = i + 7 < last || i == last ? i + 7 : last) {
    /* the store calls this one the fastest; the last has no f32 */
    const dfgnn_variant *best = dfgnn__variant(i);
    dfgnn_measurement rows[5];
    for (int r = 0; r < 5; r++) {
      const dfgnn_variant *named = r < 4 ? best : rule;
      rows[r] = measured(ctx, graph, named->name, r < 4 ? 2e-9 : 1);
      rows[r].revision = named->family->revision;
    }
    rows[1].variant = "cpu.attention.fwd.exec/cmd=reboot";
    rows[2].revision = 0x7fffffff;
    rows[3].variant = "../../../../lib/x.so";
    snprintf(path, sizeof path, "%s/h%zu.db", directory, i);
    record_rows(path, rows, 5);
    memset(out, 0xff, sizeof out);
    compute(out, variant, path, q, k, v);
    obeyed += strcmp(variant, best->name) == 0;
    asked++;
    for (size_t j = 0; j < 1600; j++)
      ck_assert_msg(fabsf(out[j] - good[j]) < 1e-4f, "%s: %g, expected %g",
                    variant, out[j], good[j]);
  }
  printf("%zu of %zu stores were obeyed\n", obeyed, asked);
  ck_assert_uint_gt(obeyed, 0);
  ck_assert_uint_lt(obeyed, asked);
}

int main(void) {
  dfgnn__registry_add(fakes);
  return run_case(
      &(test_case){.name = "share", .setup = set_up, .timeout = 120});
}
