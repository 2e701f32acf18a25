/* fixture.h - contexts, graphs and fake kernels for the tests of lib */
#ifndef DFGNN_TESTS_FIXTURE_H
#define DFGNN_TESTS_FIXTURE_H

#include <check.h>
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

static inline dfgnn_context *context_on(const char *device, const char *store,
                                        int threads) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx = NULL;
  options.device = device;
  options.store = store;
  options.threads = threads;
  ck_ok(dfgnn_context_create(&ctx, &options));
  return ctx;
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
  return csr;
}

/* A square graph whose row i has degree(i) edges to i + 1, i + 2, ... */
static inline dfgnn_csr ring(int64_t n, int (*degree)(int64_t i)) {
  int32_t *offsets = malloc(((size_t)n + 1) * sizeof *offsets);
  offsets[0] = 0;
  for (int64_t i = 0; i < n; i++)
    offsets[i + 1] = offsets[i] + degree(i);
  int32_t *indices = malloc(((size_t)offsets[n] + 1) * sizeof *indices);
  for (int64_t i = 0; i < n; i++)
    for (int32_t e = offsets[i]; e < offsets[i + 1]; e++)
      indices[e] = (int32_t)((i + 1 + e - offsets[i]) % n);
  return csr32(n, n, offsets, indices);
}

static inline void ring_free(dfgnn_csr *csr) {
  free((void *)csr->offsets);
  free((void *)csr->indices);
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
 * tests of a program, in the order of the file; TEST_MAIN ends it, with the
 * members of test_case that it needs. */
#define TEST_LOOP(name, first, end)                                            \
  static void name(int _i);                                                    \
  static const TTest name##_test = {#name, name, __FILE__, __LINE__};          \
  __attribute__((constructor)) static void name##_is_a_test(void) {            \
    test_add(&name##_test, first, end);                                        \
  }                                                                            \
  static void name(int _i CK_ATTRIBUTE_UNUSED)
#define TEST(name) TEST_LOOP(name, 0, 1)
#define TEST_MAIN(of, ...)                                                     \
  int main(void) { return run_case(&(test_case){.name = of, ##__VA_ARGS__}); }

typedef struct test_case {
  const char *name;
  void (*setup)(void), (*teardown)(void);
  double timeout; /* seconds; 0: Check's */
} test_case;

static struct {
  const TTest *test;
  int first, end;
} test_list[200];
static int test_count;

static inline void test_add(const TTest *test, int first, int end) {
  if (test_count == (int)(sizeof test_list / sizeof *test_list))
    abort();
  test_list[test_count].test = test;
  test_list[test_count].first = first;
  test_list[test_count++].end = end;
}

static inline int run_case(const test_case *of) {
  Suite *suite = suite_create(of->name);
  TCase *tests = tcase_create(of->name);
  tcase_add_checked_fixture(tests, of->setup, of->teardown);
  if (of->timeout > 0)
    tcase_set_timeout(tests, of->timeout);
  for (int i = 0; i < test_count; i++)
    tcase_add_loop_test(tests, test_list[i].test, test_list[i].first,
                        test_list[i].end);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}

#endif
