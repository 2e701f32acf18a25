/* Attention with edge features on the CPU: NaN, infinities and hubs; the
 * promises are those of tests/common/edge_values.h. */
#include <check.h>
#include <stdlib.h>

#include "tests/common/edge_values.h"

/* Test i is a case of one pass and type. */
enum { TESTS = EDGE_CASES * 2 * 4 };

#define TEST(i)                                                                \
  const edge_case *c = &edge_cases[(i) / 8];                                   \
  const dfgnn_pass pass = (dfgnn_pass)((i) / 4 % 2);                           \
  const dfgnn_dtype dtype = (dfgnn_dtype)((i) % 4)

START_TEST(what_is_nan_or_infinite_spoils_what_it_meets_alone) {
  TEST(_i);
  ck_assert_int_gt(check_edge_values("cpu", c, pass, dtype), 0);
}
END_TEST

START_TEST(hubs_are_summed_within_the_bound) {
  TEST(_i);
  ck_assert_int_gt(check_edge_hubs("cpu", c, pass, dtype, 10000), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("edges");
  TCase *tcase = tcase_create("cpu");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, what_is_nan_or_infinite_spoils_what_it_meets_alone,
                      0, TESTS);
  tcase_add_loop_test(tcase, hubs_are_summed_within_the_bound, 0, TESTS);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
