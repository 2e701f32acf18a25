#define _GNU_SOURCE /* sched_setaffinity */
/* What a machine says of its load is read from planted files: of quiet and
 * crowded hosts, both versions of control groups, and hosts that say nothing;
 * two spinning processes are seen on the machine of the test. */
#include "tests/unit/fixture.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/base/load.h"

static char root[64];

static void set_up(void) { test_folder(root); }

static void plant(const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/'));
       slash++) {
    *slash = 0;
    mkdir(path, 0755);
    *slash = '/';
  }
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
}

/* A line for each of many processors, so that those of this test's affinity
 * are among them. */
static void plant_stat(int user, int steal, int running) {
  char text[1 << 16] = "cpu 1 2 3 4 5 6 7 8 9 10\n";
  size_t n = strlen(text);
  for (int i = 0; i < 1024; i++)
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "cpu%d %d 0 0 100 0 0 0 %d 0 0\n", i, user, steal);
  snprintf(text + n, sizeof text - n, "procs_running %d\nprocs_blocked 0\n",
           running);
  plant("proc/stat", text);
}

static double tick(void) { return 1 / (double)sysconf(_SC_CLK_TCK); }

TEST(a_host_that_says_nothing_is_not_known_and_quiet) {
  char text[256];
  const dfgnn_load a = dfgnn__load_read(root), b = dfgnn__load_read(root);
  ck_assert_double_ge(a.cores, 1);
  ck_assert(isinf(a.limit));
  ck_assert(a.average < 0 && a.running < 0 && a.busy < 0 && a.stolen < 0 &&
            a.throttled < 0 && a.stalled < 0 && a.hot < 0);
  const dfgnn_crowd crowd = dfgnn__load_between(&a, &b);
  ck_assert(crowd.others < 0 && crowd.stolen < 0 && crowd.throttled < 0);
  ck_assert(dfgnn__crowd_is_quiet(&crowd, 1));
  dfgnn__crowd_text(text, sizeof text, &crowd, 1);
  ck_assert_str_eq(text, "");
}

TEST(the_files_of_a_host_are_read) {
  plant("proc/loadavg", "9.13 4.50 2.25 11/233 4711\n");
  plant("proc/pressure/cpu",
        "some avg10=98.78 avg60=9.60 avg300=7.17 total=2500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  plant_stat(700, 30, 11);
  const dfgnn_load load = dfgnn__load_read(root);
  ck_assert_double_eq(load.average, 9.13);
  ck_assert_double_eq(load.running, 11);
  ck_assert_double_eq_tol(load.busy, load.cores * 700 * tick(), 1e-9);
  ck_assert_double_eq_tol(load.stolen, load.cores * 30 * tick(), 1e-9);
  ck_assert_double_eq_tol(load.stalled, 2.5, 1e-12);
}

TEST(limits_of_version_2_are_those_of_the_group_and_its_parents) {
  plant("proc/self/cgroup", "0::/a/b\n");
  plant("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  plant("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 7\nthrottled_usec 1500000\n");
  plant("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  const dfgnn_load load = dfgnn__load_read(root);
  ck_assert_double_eq_tol(load.limit, 1.5, 1e-12);
  ck_assert_double_eq_tol(load.throttled, 1.5, 1e-12);
}

TEST(limits_of_version_1_and_of_a_container_are_found) {
  plant("proc/self/cgroup",
        "5:memory:/x\n3:cpu,cpuacct:/docker/0123\n1:name=systemd:/\n");
  /* The path is the host's; inside the container its root is the group. */
  plant("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  plant("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  plant("sys/fs/cgroup/cpu/cpu.stat",
        "nr_periods 4\nnr_throttled 2\nthrottled_time 500000000\n");
  dfgnn_load load = dfgnn__load_read(root);
  ck_assert_double_eq_tol(load.limit, 2.5, 1e-12);
  ck_assert_double_eq_tol(load.throttled, 0.5, 1e-12);
  plant("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  load = dfgnn__load_read(root);
  ck_assert(isinf(load.limit));
}

TEST(broken_files_are_not_known) {
  plant("proc/loadavg", "much\n");
  plant("proc/stat", "cpu\ncpu0 1 2\ncpuX 1 2 3 4 5 6 7\nprocs_running\n");
  plant("proc/pressure/cpu", "some avg10=x total=\n");
  plant("proc/self/cgroup", "nonsense\n0:\n::\n0::/a\n");
  plant("sys/fs/cgroup/a/cpu.max", "100000 0\n");
  plant("sys/fs/cgroup/a/cpu.stat", "throttled_usec -\n");
  const dfgnn_load load = dfgnn__load_read(root);
  ck_assert(load.average < 0 && load.running < 0 && load.busy < 0 &&
            load.stalled < 0 && load.throttled < 0);
  ck_assert(isinf(load.limit));
}

/* Two readings a second apart, of four cores, in which nothing happened. */
static void readings(dfgnn_load *a, dfgnn_load *b) {
  *a = dfgnn__load_unknown();
  a->at = 10;
  a->cores = 4;
  a->average = 0.5;
  a->busy = a->own = a->stolen = a->throttled = a->hot = 0;
  *b = *a;
  b->at = 11;
}

static void ck_loud(const dfgnn_load *a, const dfgnn_load *b, int threads,
                    const char *words) {
  char text[256];
  const dfgnn_crowd crowd = dfgnn__load_between(a, b);
  ck_assert(!dfgnn__crowd_is_quiet(&crowd, threads));
  dfgnn__crowd_text(text, sizeof text, &crowd, threads);
  ck_assert_str_eq(text, words);
}

TEST(own_work_and_free_cores_are_quiet) {
  dfgnn_load a, b;
  readings(&a, &b);
  b.busy = 4;
  b.own = 4;
  dfgnn_crowd crowd = dfgnn__load_between(&a, &b);
  ck_assert_double_eq(crowd.others, 0);
  ck_assert(dfgnn__crowd_is_quiet(&crowd, 4));
  b.own = 1; /* three cores are others', one is free for one thread */
  crowd = dfgnn__load_between(&a, &b);
  ck_assert_double_eq(crowd.others, 3);
  ck_assert(dfgnn__crowd_is_quiet(&crowd, 1));
  ck_assert(!dfgnn__crowd_is_quiet(&crowd, 2));
}

TEST(each_disturbance_is_said_in_words) {
  dfgnn_load a, b;
  readings(&a, &b);
  b.busy = 4;
  b.own = 1;
  ck_loud(&a, &b, 4, "others keep 3.0 of 4 cores busy");
  readings(&a, &b);
  b.stolen = 0.4;
  ck_loud(&a, &b, 4, "10 % of the time is stolen by other machines");
  readings(&a, &b);
  b.limit = 2;
  ck_loud(&a, &b, 4, "4 threads on 2 cores");
  b.throttled = 0.25;
  ck_loud(&a, &b, 2, "a limit of 2 cores stops threads 25 % of the time");
  readings(&a, &b);
  b.hot = 3;
  ck_loud(&a, &b, 1, "processors are slowed by heat");
}

TEST(the_disturbances_of_a_gpu_are_said_in_words) {
  dfgnn_load a = dfgnn__load_unknown(), b;
  a.cores = 1;
  b = a;
  b.at = a.at + 1;
  b.use = 0.6;
  ck_loud(&a, &b, 0, "others use the GPU 60 % of the time");
  b.use = 0;
  b.mhz = 1980;
  b.top_mhz = 1980;
  b.slowed = 0;
  const dfgnn_crowd crowd = dfgnn__load_between(&a, &b);
  ck_assert(dfgnn__crowd_is_quiet(&crowd, 0));
  b.mhz = 1200;
  ck_loud(&a, &b, 0, "the clock is at 1200 of 1980 MHz");
  b.slowed = 1;
  b.mhz = 0;
  ck_loud(&a, &b, 0, "heat or power slows the GPU");
}

TEST(counters_that_go_back_are_no_growth) {
  dfgnn_load a, b;
  readings(&a, &b);
  a.busy = 9;
  a.stolen = 9;
  const dfgnn_crowd crowd = dfgnn__load_between(&a, &b);
  ck_assert_double_eq(crowd.others, 0);
  ck_assert_double_eq(crowd.stolen, 0);
}

static pid_t spin(void) {
  const pid_t child = fork();
  if (child == 0)
    for (volatile unsigned i = 0;; i++)
      ;
  return child;
}

/* Two processes spin on the first core that this one may use, and this one has
 * to share it: it waits, and the others are seen.  Whatever else runs makes
 * both figures larger, so that any load of the machine will do. */
TEST(two_spinning_processes_are_seen) {
  cpu_set_t before, one;
  struct timespec pause = {0, 300000000};
  ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET((unsigned)core, &before))
    core++;
  CPU_ZERO(&one);
  CPU_SET((unsigned)core, &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
  const pid_t child[2] = {spin(), spin()};
  const dfgnn_load a = dfgnn__load_read("");
  const double waited = dfgnn__load_waited();
  nanosleep(&pause, NULL);
  for (double end = a.at + 1.5; dfgnn__load_unknown().at < end;)
    ;
  const dfgnn_load b = dfgnn__load_read("");
  const double more = dfgnn__load_waited() - waited;
  kill(child[0], SIGKILL);
  kill(child[1], SIGKILL);
  waitpid(child[0], NULL, 0);
  waitpid(child[1], NULL, 0);
  sched_setaffinity(0, sizeof before, &before);
  const dfgnn_crowd crowd = dfgnn__load_between(&a, &b);
  ck_assert_double_eq(a.cores, 1);
  if (crowd.others >= 0) /* the system has /proc/stat */
    ck_assert_msg(crowd.others > DFGNN_QUIET_CORES &&
                      !dfgnn__crowd_is_quiet(&crowd, 1),
                  "others kept %g of a core", crowd.others);
  if (waited >= 0)
    ck_assert_msg(more > 0.1, "waited for %g s", more);
}

TEST_MAIN("load", .timeout = 60, .setup = set_up)
