/* check_gpu_variants.c - every CUDA variant against the float64 reference; the
 * promises are those of tests/common/variants.h */
#include "tests/gpu/gpu.h"

#include "tests/common/variants.h"

/* DFGNN_TEST_QUICK checks these alone. */
static int in_quick(int op, int dtype) {
  return (op == DFGNN_OP_GT && dtype == DFGNN_F32) ||
         (op == DFGNN_OP_GATV2 && dtype == DFGNN_BF16);
}

static int next(int *op, int *dtype, int i) {
  *op = i / DFGNN_DTYPE_COUNT;
  *dtype = i % DFGNN_DTYPE_COUNT;
  return !quick() || in_quick(*op, *dtype);
}

START_TEST(every_variant_matches_the_reference) {
  int op, dtype;
  if (!next(&op, &dtype, _i))
    return;
  int checks = check_every_variant("cuda", (dfgnn_op)op, (dfgnn_dtype)dtype);
  printf("%s %s: %d checks\n", dfgnn_op_name((dfgnn_op)op),
         dfgnn_dtype_name((dfgnn_dtype)dtype), checks);
  ck_assert_int_gt(checks, 0);
}
END_TEST

START_TEST(special_values_follow_ieee_arithmetic) {
  int op, dtype;
  if (next(&op, &dtype, _i))
    check_special_values("cuda", (dfgnn_op)op, (dfgnn_dtype)dtype);
}
END_TEST

START_TEST(strides_of_the_caller_are_followed) {
  int op, dtype;
  if (next(&op, &dtype, _i))
    check_strides("cuda", (dfgnn_op)op, (dfgnn_dtype)dtype);
}
END_TEST

int main(void) {
  const int pairs = (int)DFGNN_OP_COUNT * (int)DFGNN_DTYPE_COUNT;
  Suite *suite = suite_create("gpu_variants");
  TCase *tests = tcase_create("variants");
  tcase_set_timeout(tests, 0);
  tcase_add_loop_test(tests, every_variant_matches_the_reference, 0, pairs);
  tcase_add_loop_test(tests, special_values_follow_ieee_arithmetic, 0, pairs);
  tcase_add_loop_test(tests, strides_of_the_caller_are_followed, 0, pairs);
  suite_add_tcase(suite, tests);
  return run_on_gpu(suite);
}
