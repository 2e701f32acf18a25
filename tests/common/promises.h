/* promises.h - the promises of variants.h as tests of one backend
 *
 * A file includes it that has defined BACKEND, its name, TESTS, and TAKE(i),
 * which makes `test`, the i-th, or returns.  Files of messages (messages.h) get
 * the first three alone. */
#ifndef DFGNN_TESTS_PROMISES_H
#define DFGNN_TESTS_PROMISES_H

#include "tests/common/variants.h"
#include "tests/unit/fixture.h"

IN_CASE("variants")

TEST_LOOP(every_variant_matches_the_reference_on_every_shape, 0, TESTS) {
  TAKE(_i);
  check_every_variant(BACKEND, &test);
}

IN_CASE("strides")

TEST_LOOP(any_strides_are_followed, 0, TESTS) {
  TAKE(_i);
  check_strides(BACKEND, &test);
}

IN_CASE("repeats")

TEST_LOOP(deterministic_variants_repeat_every_bit, 0, TESTS) {
  TAKE(_i);
  check_repeats(BACKEND, &test);
}

#ifndef MESSAGE_TESTS

IN_CASE("edge_features")

TEST_LOOP(every_variant_with_edge_features_matches_the_reference, 0, TESTS) {
  TAKE(_i);
  const int checks = check_edge_features(BACKEND, &test);
  const int on_cpu = !strcmp(BACKEND, "cpu");
  if (!getenv("DFGNN_TEST_FAMILY") &&
      (test.op == DFGNN_OP_GT || test.op == DFGNN_OP_GATV2 ||
       (test.op == DFGNN_OP_GAT && !on_cpu)))
    ck_assert_int_gt(checks, on_cpu && !getenv("DFGNN_TEST_FEW") ? 8 : 0);
}

IN_CASE("special_values")

TEST_LOOP(nan_and_infinite_inputs_give_what_the_header_promises, 0, TESTS) {
  TAKE(_i);
  check_special_values(BACKEND, &test);
}

IN_CASE("equal_values")

TEST_LOOP(averages_of_equal_values_are_the_value, 0, TESTS) {
  TAKE(_i);
  if (test.pass == DFGNN_PASS_FORWARD &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_equal_values(BACKEND, &test);
}

IN_CASE("registry")

TEST(every_operator_and_pass_has_variants) {
  check_backend_has_variants(BACKEND);
}

#endif

#endif
