/* Attention with edge features on the CPU: NaN, infinities and hubs; the
 * promises are those of tests/common/edge_values.h. */
#include <check.h>
#include <stdlib.h>

#include "tests/common/edge_values.h"
#include "tests/unit/fixture.h"

START_TEST(what_is_nan_or_infinite_spoils_what_it_meets_alone) {
  const edge_test test = edge_test_make(_i);
  ck_assert_int_gt(check_edge_values("cpu", &test), 0);
}
END_TEST

START_TEST(hubs_are_summed_within_the_bound) {
  const edge_test test = edge_test_make(_i);
  ck_assert_int_gt(check_edge_hubs("cpu", &test, 10000), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("edges");
  TCase *tcase = tcase_create("cpu");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, what_is_nan_or_infinite_spoils_what_it_meets_alone,
                      0, EDGE_TESTS);
  tcase_add_loop_test(tcase, hubs_are_summed_within_the_bound, 0, EDGE_TESTS);
  suite_add_tcase(suite, tcase);
  return run_tests(suite);
}
