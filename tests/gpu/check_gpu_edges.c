/* check_gpu_edges.c - attention with edge features on CUDA: NaN and infinities,
 * and rows and columns of 10^5 edges; the promises are those of
 * tests/common/edge_values.h */
#include "tests/common/edge_values.h"
#include "tests/gpu/gpu.h"

static void some_were_checked(int checks, const edge_test *test,
                              const char *label) {
  if (!getenv("DFGNN_TEST_FAMILY"))
    ck_assert_int_gt(checks, 0);
  printf("%s %s %s, %s: %d checks\n", test->c->name,
         dfgnn_name(DFGNN_NAMES_PASS, test->pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, test->dtype), label, checks);
}

START_TEST(what_is_nan_or_infinite_spoils_what_it_meets_alone) {
  const edge_test test = edge_test_make(_i);
  some_were_checked(check_edge_values("cuda", &test), &test, "values");
}

/* Under compute-sanitizer and the emulator a hub is smaller. */
START_TEST(hubs_are_shared_out) {
  const edge_test test = edge_test_make(_i);
  const int64_t degree = quick() || few() > 1 ? 5000 : 100000;
  some_were_checked(check_edge_hubs("cuda", &test, degree), &test, "hubs");
}

int main(void) {
  /* Check's CK_RUN_CASE runs one of these alone. */
  const struct {
    const char *name;
    const TTest *test;
  } cases[] = {{"values", what_is_nan_or_infinite_spoils_what_it_meets_alone},
               {"hubs", hubs_are_shared_out}};
  Suite *suite = suite_create("gpu_edges");
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    TCase *tests = tcase_create(cases[k].name);
    tcase_set_timeout(tests, 0);
    for (int i = 0; i < EDGE_TESTS; i++)
      if (in_part(i) && !(quick() && i % 5))
        tcase_add_loop_test(tests, cases[k].test, i, i + 1);
    suite_add_tcase(suite, tests);
  }
  return run_on_gpu(suite);
}
