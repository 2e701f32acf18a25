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
  if (variant_test_count("cuda", &test) == 0 || (quick() && !in_quick(&test))) \
  return

START_TEST(every_variant_matches_the_reference) {
  TAKE(_i);
  int checks = check_every_variant("cuda", &test);
  printf("%s %s %s: %d checks\n", dfgnn_name(DFGNN_NAMES_OP, test.op),
         dfgnn_name(DFGNN_NAMES_PASS, test.pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, test.dtype), checks);
}

START_TEST(every_variant_with_edge_features_matches_the_reference) {
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

START_TEST(special_values_follow_ieee_arithmetic) {
  TAKE(_i);
  check_special_values("cuda", &test);
}

START_TEST(slices_of_sources_match_the_reference) {
  TAKE(_i);
  if (DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_slices("cuda", &test);
}

START_TEST(strides_of_the_caller_are_followed) {
  TAKE(_i);
  check_strides("cuda", &test);
}

START_TEST(rows_of_2048_features_are_served) {
  TAKE(_i);
  if (dfgnn__operator(test.op, test.pass) &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_wide_rows("cuda", &test);
}

START_TEST(every_operator_and_pass_has_variants) {
  check_backend_has_variants("cuda");
}

int main(void) {
  /* Check's CK_RUN_CASE runs one of these alone. */
  const struct {
    const char *name;
    const TTest *test;
  } cases[] = {
      {"variants", every_variant_matches_the_reference},
      {"edge_features", every_variant_with_edge_features_matches_the_reference},
      {"special_values", special_values_follow_ieee_arithmetic},
      {"slices", slices_of_sources_match_the_reference},
      {"strides", strides_of_the_caller_are_followed},
      {"wide_rows", rows_of_2048_features_are_served}};
  Suite *suite = suite_create("gpu_variants");
  TCase *registry = tcase_create("registry");
  tcase_add_test(registry, every_operator_and_pass_has_variants);
  suite_add_tcase(suite, registry);
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    TCase *tests = tcase_create(cases[k].name);
    tcase_set_timeout(tests, 0);
    for (int i = 0; i < VARIANT_TESTS; i++)
      if (in_part(i))
        tcase_add_loop_test(tests, cases[k].test, i, i + 1);
    suite_add_tcase(suite, tests);
  }
  return run_on_gpu(suite);
}
