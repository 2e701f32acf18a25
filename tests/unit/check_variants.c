/* Every CPU variant, against the float64 reference. */
#include <check.h>
#include <stdlib.h>

#include "tests/common/variants.h"
#include "tests/unit/fixture.h"

#define TAKE(i)                                                                \
  variant_test test = variant_test_make(i);                                    \
  if (variant_test_count("cpu", &test) == 0)                                   \
  return

TEST_LOOP(every_variant_matches_the_reference_on_every_shape, 0,
          VARIANT_TESTS) {
  TAKE(_i);
  check_every_variant("cpu", &test);
}

TEST_LOOP(every_variant_with_edge_features_matches_the_reference, 0,
          VARIANT_TESTS) {
  TAKE(_i);
  int checks = check_edge_features("cpu", &test);
  if ((test.op == DFGNN_OP_GT || test.op == DFGNN_OP_GATV2) &&
      !getenv("DFGNN_TEST_FAMILY"))
    ck_assert_int_gt(checks, getenv("DFGNN_TEST_FEW") ? 0 : 8);
}

TEST_LOOP(nan_and_infinite_inputs_give_what_the_header_promises, 0,
          VARIANT_TESTS) {
  TAKE(_i);
  check_special_values("cpu", &test);
}

TEST_LOOP(any_strides_are_followed, 0, VARIANT_TESTS) {
  TAKE(_i);
  check_strides("cpu", &test);
}

TEST_LOOP(deterministic_variants_repeat_every_bit, 0, VARIANT_TESTS) {
  TAKE(_i);
  check_repeats("cpu", &test);
}

TEST(every_operator_and_pass_has_variants) {
  check_backend_has_variants("cpu");
}

/* Without this test a mistake in a list of sources would pass for a success. */
TEST(attention_has_variants_of_every_storage_type) {
  for (int i = 0; i < VARIANT_TESTS; i++) {
    variant_test test = variant_test_make(i);
    if (test.op <= DFGNN_OP_GATV2)
      ck_assert_int_gt(variant_test_count("cpu", &test), 1);
  }
}

TEST_MAIN("variants", .timeout = 120)
