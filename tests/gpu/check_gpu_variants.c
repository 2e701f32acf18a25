/* check_gpu_variants.c - every CUDA variant against the float64 reference; the
 * promises are those of tests/common/variants.h */
#include "tests/gpu/gpu.h"

#include "tests/common/variants.h"

/* Whether DFGNN_TEST_QUICK checks a test. */
static int in_quick(const variant_test *t) {
  return (t->op == DFGNN_OP_GT && t->dtype == DFGNN_F32) ||
         (t->op == DFGNN_OP_GATV2 && t->dtype == DFGNN_BF16) ||
         (t->op == DFGNN_OP_SPMM_WEIGHTED && t->dtype == DFGNN_F32) ||
         (t->op == DFGNN_OP_REDUCE_PNA && t->dtype == DFGNN_BF16);
}

#define TAKE(i)                                                                \
  variant_test test = variant_test_make(i);                                    \
  if (!in_part(i) || variant_test_count("cuda", &test) == 0 ||                 \
      (quick() && !in_quick(&test)))                                           \
  return

IN_CASE("variants")

TEST_LOOP(every_variant_matches_the_reference, 0, VARIANT_TESTS) {
  TAKE(_i);
  int checks = check_every_variant("cuda", &test);
  printf("%s %s %s: %d checks\n", dfgnn_name(DFGNN_NAMES_OP, test.op),
         dfgnn_name(DFGNN_NAMES_PASS, test.pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, test.dtype), checks);
}

IN_CASE("edge_features")

TEST_LOOP(every_variant_with_edge_features_matches_the_reference, 0,
          VARIANT_TESTS) {
  TAKE(_i);
  int checks = check_edge_features("cuda", &test);
  if (!getenv("DFGNN_TEST_FAMILY") &&
      (test.op == DFGNN_OP_GT || test.op == DFGNN_OP_GATV2 ||
       test.op == DFGNN_OP_GAT))
    ck_assert_int_gt(checks, 0);
  printf("%s %s %s, edge features: %d checks\n",
         dfgnn_name(DFGNN_NAMES_OP, test.op),
         dfgnn_name(DFGNN_NAMES_PASS, test.pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, test.dtype), checks);
}

IN_CASE("special_values")

TEST_LOOP(special_values_follow_ieee_arithmetic, 0, VARIANT_TESTS) {
  TAKE(_i);
  check_special_values("cuda", &test);
}

IN_CASE("equal_values")

TEST_LOOP(averages_of_equal_values_are_the_value, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (test.pass == DFGNN_PASS_FORWARD &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_equal_values("cuda", &test);
}

IN_CASE("slices")

TEST_LOOP(slices_of_sources_match_the_reference, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (test.pass == DFGNN_PASS_FORWARD &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_slices("cuda", &test);
}

IN_CASE("strides")

TEST_LOOP(strides_of_the_caller_are_followed, 0, VARIANT_TESTS) {
  TAKE(_i);
  check_strides("cuda", &test);
}

IN_CASE("repeats")

TEST_LOOP(deterministic_variants_repeat_every_bit, 0, VARIANT_TESTS) {
  TAKE(_i);
  check_repeats("cuda", &test);
}

IN_CASE("wide_rows")

TEST_LOOP(rows_of_2048_features_are_served, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (dfgnn__operator(test.op, test.pass) &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_wide_rows("cuda", &test);
}

IN_CASE("vectors")

TEST_LOOP(rows_of_any_vector_match_the_reference, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (!(DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op)))
    check_vectors("cuda", &test);
}

IN_CASE("registry")

TEST(every_operator_and_pass_has_variants) {
  check_backend_has_variants("cuda");
}

GPU_MAIN("gpu_variants")
