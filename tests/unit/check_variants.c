/* Every CPU variant, against the float64 reference. */
#include <check.h>
#include <stdlib.h>

#include "tests/common/variants.h"

#define PROBLEMS (DFGNN_OP_COUNT * DFGNN_DTYPE_COUNT)
#define OP(i) ((dfgnn_op)((i) % DFGNN_OP_COUNT))
#define DTYPE(i) ((dfgnn_dtype)((i) / DFGNN_OP_COUNT))

START_TEST(every_variant_matches_the_reference_on_every_shape) {
  ck_assert_int_gt(check_every_variant("cpu", OP(_i), DTYPE(_i)), 100);
}
END_TEST

START_TEST(nan_and_infinite_inputs_give_what_the_header_promises) {
  check_special_values("cpu", OP(_i), DTYPE(_i));
}
END_TEST

START_TEST(any_strides_are_followed) {
  check_strides("cpu", OP(_i), DTYPE(_i));
}
END_TEST

START_TEST(deterministic_variants_repeat_every_bit) {
  check_repeats("cpu", OP(_i), DTYPE(_i));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("variants");
  TCase *tcase = tcase_create("cpu");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, every_variant_matches_the_reference_on_every_shape,
                      0, PROBLEMS);
  tcase_add_loop_test(tcase,
                      nan_and_infinite_inputs_give_what_the_header_promises, 0,
                      PROBLEMS);
  tcase_add_loop_test(tcase, any_strides_are_followed, 0, PROBLEMS);
  tcase_add_loop_test(tcase, deterministic_variants_repeat_every_bit, 0,
                      PROBLEMS);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
