/* fixture.h - contexts, graphs and fake kernels for the tests of lib */
#ifndef DFGNN_TESTS_FIXTURE_H
#define DFGNN_TESTS_FIXTURE_H

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dfgnn.h"
#include "dfgnn_graph.h"
#include "kernels/common/variant.h"

#define ck_ok(expression)                                                      \
  do {                                                                         \
    dfgnn_status ck_status = (expression);                                     \
    ck_assert_msg(ck_status == DFGNN_OK, #expression ": %s",                   \
                  dfgnn_last_error());                                         \
  } while (0)

/* Asserts that a call fails with a status and a message that holds a text. */
#define ck_fails(expression, status, text)                                     \
  do {                                                                         \
    ck_assert_int_eq(expression, status);                                      \
    ck_assert_msg(strstr(dfgnn_last_error(), text) != NULL,                    \
                  "'%s' does not hold '%s'", dfgnn_last_error(), text);        \
  } while (0)

#define ck_invalid(expression, text)                                           \
  ck_fails(expression, DFGNN_ERROR_INVALID, text)

/* INIT(dfgnn_options, .device = "cpu"): a descriptor with members that differ
 * from those of its _INIT; PROBLEM and ARGS have other defaults than 0. */
#define INIT(type, ...) ((type){.struct_size = sizeof(type), __VA_ARGS__})
#define PROBLEM(...)                                                           \
  INIT(dfgnn_problem, .heads = 1, .dim = 64, .deterministic = 1,               \
       .max_workspace = -1, __VA_ARGS__)
#define ARGS(...)                                                              \
  INIT(dfgnn_args, .scale = DFGNN_SCALE_DEFAULT, .slope = 0.2, __VA_ARGS__)
#pragma GCC diagnostic ignored "-Woverride-init" /* the defaults */

/* A family of a fake kernel: attention of floats on a CPU, forward. */
#define FAKE_FAMILY(of, kind, ...)                                             \
  {                                                                            \
    .name = of, .algorithm = kind, .backend = "cpu",                           \
    .ops = DFGNN_OPS_ATTENTION, .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),       \
    .dtypes = DFGNN_BIT(DFGNN_F32), .revision = 1, .deterministic = 1,         \
    __VA_ARGS__                                                                \
  }

/* ---- what a test owns ---------------------------------------------------- */

/* Things that a test made and that are destroyed behind it, the last first.
 * All files and threads of a program share the list. */
typedef struct test_owned {
  void *it;
  void (*destroy)(void *it);
} test_owned;
__attribute__((weak)) test_owned *test_owns;
__attribute__((weak)) int test_owns_count;
__attribute__((weak)) pthread_mutex_t test_owns_lock =
    PTHREAD_MUTEX_INITIALIZER;

static inline void *test_own(void *it, void (*destroy)(void *it)) {
  pthread_mutex_lock(&test_owns_lock);
  if (test_owns_count % 64 == 0)
    test_owns =
        realloc(test_owns, (size_t)(test_owns_count + 64) * sizeof *test_owns);
  test_owns[test_owns_count++] = (test_owned){it, destroy};
  pthread_mutex_unlock(&test_owns_lock);
  return it;
}

static inline void destroy_owned(void) {
  while (test_owns_count > 0) {
    const test_owned last = test_owns[--test_owns_count];
    last.destroy(last.it);
  }
  free(test_owns);
  test_owns = NULL;
}

/* The test owns a thing no more. */
static inline test_owned disown(const void *it) {
  pthread_mutex_lock(&test_owns_lock);
  int i = test_owns_count - 1;
  while (test_owns[i].it != it)
    i--;
  const test_owned found = test_owns[i];
  memmove(&test_owns[i], &test_owns[i + 1],
          (size_t)(--test_owns_count - i) * sizeof *test_owns);
  pthread_mutex_unlock(&test_owns_lock);
  return found;
}

/* Destroys at once what the test owns. */
static inline void done(const void *it) {
  const test_owned found = disown(it);
  found.destroy(found.it);
}

/* OWNED(graph, dfgnn_graph, dfgnn_graph_destroy): own_graph(g) is g, which the
 * test then owns. */
#define OWNED(name, type, destroy)                                             \
  static inline void destroy_##name(void *it) { destroy((type *)it); }         \
  static inline type *own_##name(type *it) {                                   \
    return (type *)test_own(it, destroy_##name);                               \
  }
OWNED(context, dfgnn_context, dfgnn_context_destroy)
OWNED(graph, dfgnn_graph, dfgnn_graph_destroy)
OWNED(plan, dfgnn_plan, dfgnn_plan_destroy)
OWNED(csr, dfgnn_csr, dfgnn_csr_free)

/* Memory of zeros. */
static inline void *zeros_of(int64_t count, size_t size) {
  return test_own(calloc((size_t)count + 1, size), free);
}

static inline dfgnn_context *context_on(const char *device, const char *store,
                                        int threads) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx = NULL;
  options.device = device;
  options.store = store;
  options.threads = threads;
  ck_ok(dfgnn_context_create(&ctx, &options));
  return own_context(ctx);
}

static inline dfgnn_context *cpu_context(const char *store) {
  return context_on("cpu", store, 2);
}

static inline dfgnn_csr csr32(int64_t n, int64_t m, const int32_t *offsets,
                              const int32_t *indices) {
  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = n;
  csr.sources = m;
  csr.edges = offsets[n];
  csr.offsets = offsets;
  csr.indices = indices;
  return csr;
}

static inline dfgnn_csr *generated(const char *spec) {
  dfgnn_csr *csr = NULL;
  ck_ok(dfgnn_csr_generate(&csr, spec));
  return own_csr(csr);
}

static inline dfgnn_graph *graph_on(dfgnn_context *ctx, const dfgnn_csr *csr) {
  dfgnn_graph *graph = NULL;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, csr, NULL));
  return own_graph(graph);
}

static inline dfgnn_graph *listed_on(dfgnn_context *ctx, const dfgnn_coo *coo) {
  dfgnn_graph *graph = NULL;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, coo, NULL));
  return own_graph(graph);
}

static inline dfgnn_plan *plan_on(dfgnn_context *ctx, dfgnn_graph *graph,
                                  const dfgnn_problem *problem) {
  dfgnn_plan *plan = NULL;
  ck_ok(dfgnn_plan_create(&plan, ctx, graph, problem));
  return own_plan(plan);
}

static inline dfgnn_plan *forced_on(dfgnn_context *ctx, dfgnn_graph *graph,
                                    const dfgnn_problem *problem,
                                    const char *variant) {
  dfgnn_plan *plan = NULL;
  ck_ok(dfgnn_plan_create_forced(&plan, ctx, graph, problem, variant));
  return own_plan(plan);
}

/* Executes a plan with a workspace of 0xff bytes. */
static inline void execute_plan(const dfgnn_plan *plan,
                                const dfgnn_args *args) {
  const size_t bytes = (dfgnn_plan_workspace(plan) + 255) / 256 * 256;
  void *workspace = bytes ? aligned_alloc(256, bytes) : NULL;
  if (bytes)
    memset(workspace, 0xff, bytes);
  ck_ok(dfgnn_execute(plan, args, workspace, NULL));
  free(workspace);
}

/* A square graph whose row i has degree(i) edges to i + 1, i + 2, ... */
static inline dfgnn_csr ring(int64_t n, int (*degree)(int64_t i)) {
  int32_t *offsets = zeros_of(n + 1, sizeof *offsets);
  for (int64_t i = 0; i < n; i++)
    offsets[i + 1] = offsets[i] + degree(i);
  int32_t *indices = zeros_of(offsets[n], sizeof *indices);
  for (int64_t i = 0; i < n; i++)
    for (int32_t e = offsets[i]; e < offsets[i + 1]; e++)
      indices[e] = (int32_t)((i + 1 + e - offsets[i]) % n);
  return csr32(n, n, offsets, indices);
}

static inline void remove_folder(void *path) {
  char command[256];
  snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'",
           (char *)path, (char *)path);
  ck_assert_int_eq(system(command), 0);
}

/* Makes a folder in the folder of temporary files, and writes its path. */
static inline void test_folder(char path[64]) {
  const char *at = getenv("TMPDIR");
  ck_assert_int_lt(snprintf(path, 64, "%s/dfgnn-test-XXXXXX", at ? at : "/tmp"),
                   64);
  ck_assert_ptr_nonnull(mkdtemp(path));
  test_own(path, remove_folder);
}

/* Removes a store and the files that SQLite keeps beside it. */
static inline void remove_store(const char *path) {
  static const char *const suffixes[] = {"", "-wal", "-shm"};
  char name[128];
  for (int k = 0; k < 3; k++) {
    snprintf(name, sizeof name, "%s%s", path, suffixes[k]);
    unlink(name);
  }
}

static inline double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs all tests of a runner and gives main's result: a failure where no test
 * ran, too. */
static inline int run_all(SRunner *runner) {
  srunner_run_all(runner, CK_ENV);
  int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  if (!ran)
    fprintf(stderr, "no test ran\n");
  return ran && !failed ? EXIT_SUCCESS : EXIT_FAILURE;
}

static inline int run_tests(Suite *suite) {
  return run_all(srunner_create(suite));
}

/* TEST(name) { ... } and TEST_LOOP(name, first, end) { ... _i ... } are the
 * tests of a program, in the order of the file; those behind IN_CASE("name")
 * are of a case, which CK_RUN_CASE=name runs alone.  TEST_MAIN ends the file,
 * with the members of test_case that it needs. */
#define TEST_LOOP(name, first, end)                                            \
  static void name(int _i);                                                    \
  static const TTest name##_test = {#name, name, __FILE__, __LINE__};          \
  __attribute__((constructor)) static void name##_is_a_test(void) {            \
    test_add(&name##_test, first, end);                                        \
  }                                                                            \
  static void name(int _i CK_ATTRIBUTE_UNUSED)
#define TEST(name) TEST_LOOP(name, 0, 1)
#define IN_CASE(name) IN_CASE_OF(name, __COUNTER__)
#define IN_CASE_OF(name, number) IN_CASE_AT(name, number)
#define IN_CASE_AT(name, number)                                               \
  __attribute__((constructor)) static void begins_case_##number(void) {        \
    test_case_now = name;                                                      \
  }
#define TEST_MAIN(of, ...)                                                     \
  int main(void) { return run_case(&(test_case){.name = of, ##__VA_ARGS__}); }

typedef struct test_case {
  const char *name;
  void (*setup)(void), (*teardown)(void);
  double timeout; /* seconds; 0: Check's */
} test_case;

static struct {
  const TTest *test;
  const char *in; /* the case; NULL: the one of the program's name */
  int first, end;
} test_list[200];
static int test_count;
static const char *test_case_now;

static inline void test_add(const TTest *test, int first, int end) {
  if (test_count == (int)(sizeof test_list / sizeof *test_list))
    abort();
  test_list[test_count].test = test;
  test_list[test_count].in = test_case_now;
  test_list[test_count].first = first;
  test_list[test_count++].end = end;
}

static inline Suite *suite_of(const test_case *of) {
  Suite *suite = suite_create(of->name);
  TCase *tests = NULL;
  for (int i = 0; i < test_count; i++) {
    if (!i || test_list[i].in != test_list[i - 1].in) {
      tests = tcase_create(test_list[i].in ? test_list[i].in : of->name);
      tcase_add_checked_fixture(tests, of->setup, of->teardown);
      tcase_add_checked_fixture(tests, NULL, destroy_owned); /* goes first */
      if (of->timeout > 0)
        tcase_set_timeout(tests, of->timeout);
      suite_add_tcase(suite, tests);
    }
    tcase_add_loop_test(tests, test_list[i].test, test_list[i].first,
                        test_list[i].end);
  }
  return suite;
}

static inline int run_case(const test_case *of) {
  return run_tests(suite_of(of));
}

#endif
