/* Every CPU variant, against the float64 reference. */
#include <math.h>

#include "kernels/common/cpu_halves.h"
#include "kernels/common/half.h"
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

TEST_LOOP(averages_of_equal_values_are_the_value, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (test.pass == DFGNN_PASS_FORWARD &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_equal_values("cpu", &test);
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

/* Every 16-bit number, and floats of every exponent with bits that round. */
TEST_LOOP(rows_of_16_bits_convert_as_single_numbers_do, 0, 2) {
  enum { NUMBERS = (1 << 16) + 3 };
  const dfgnn_dtype dtype = _i ? DFGNN_BF16 : DFGNN_F16;
  uint16_t *narrow = malloc(NUMBERS * sizeof *narrow);
  float *wide = malloc(NUMBERS * sizeof *wide);
  for (int i = 0; i < NUMBERS; i++)
    narrow[i] = (uint16_t)i;
  dfgnn__widen_row(dtype, wide, narrow, NUMBERS);
  for (int i = 0; i < NUMBERS; i++) {
    const float one =
        _i ? dfgnn__bf16_to_float(narrow[i]) : dfgnn__f16_to_float(narrow[i]);
    ck_assert_int_eq(isnan(wide[i]), isnan(one));
    ck_assert(isnan(one) || !memcmp(&wide[i], &one, sizeof one));
  }
  for (int i = 0; i < NUMBERS; i++)
    wide[i] = dfgnn__bits_float((uint32_t)i * 2654435761u);
  dfgnn__narrow_row(dtype, narrow, wide, NUMBERS);
  for (int i = 0; i < NUMBERS; i++)
    ck_assert_uint_eq(narrow[i], _i ? dfgnn__bf16_from_float(wide[i])
                                    : dfgnn__f16_from_float(wide[i]));
  free(narrow);
  free(wide);
}

TEST_MAIN("variants", .timeout = 120)
