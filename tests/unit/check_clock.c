/* Clocks that tell a time before 1970, or of no calendar: nothing measured is
 * lost, and no budget waits for them. */
#include "dfgnn_tune.h"
#include "tests/unit/fixture.h"

#include "db/store.h"

static time_t told;

/* The library's calls of time() come here: a program's symbols go first. */
time_t time(time_t *t) {
  if (t)
    *t = told;
  return told;
}

static int degree(int64_t i) { return (int)(i % 4); }

static int count(void *data, const dfgnn_measurement *row) {
  int64_t *seen = data;
  ck_assert_int_ge(row->time, 0);
  seen[0]++;
  seen[1] = row->time;
  return 0;
}

static void tuned_at(time_t now, int64_t stamp) {
  char path[] = "/tmp/dfgnn-clock-XXXXXX.db";
  int64_t seen[2] = {0};
  dfgnn_tune_report report = DFGNN_TUNE_REPORT_INIT;
  dfgnn_csr csr = ring(50, degree);
  dfgnn_store *store;
  int fd = mkstemps(path, 3);
  ck_assert_int_ge(fd, 0);
  close(fd);
  unlink(path);
  told = now;
  ck_assert_int_eq(time(NULL), now);
  dfgnn_context *ctx = cpu_context(path);
  dfgnn_graph *graph = graph_on(ctx, &csr);
  dfgnn_problem problem = PROBLEM(.dim = 4);
  dfgnn_tune_options options = INIT(dfgnn_tune_options, .budget_s = 0.2);
  ck_ok(dfgnn_tune(&report, ctx, graph, &problem, &options));
  ck_assert_int_eq(report.kept, 1);
  ck_assert_int_gt(report.measured, 0);
  ck_assert_double_lt(report.seconds, 60);
  done(graph);
  done(ctx);
  ck_ok(dfgnn__store_open(&store, path, DFGNN_STORE_READ));
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  ck_ok(dfgnn__store_each(store, NULL, &filter, count, seen));
  dfgnn__store_close(store);
  ck_assert_int_ge(seen[0], report.measured);
  ck_assert_int_eq(seen[1], stamp);
  remove_store(path);
}

TEST(a_clock_before_1970_loses_nothing) { tuned_at(-86400, 0); }

TEST(a_clock_beyond_all_calendars_loses_nothing) {
  tuned_at((time_t)1 << 60, 253402300799);
}

TEST(a_clock_that_is_right_is_stamped) { tuned_at(1800000000, 1800000000); }

TEST_MAIN("clock", .timeout = 120)
