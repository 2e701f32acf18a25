/* check_gpu_messages.c - CUDA variants of messages of edges against the float64
 * reference; the promises are those of tests/common/variants.h */
#include "tests/gpu/gpu.h"

#include "tests/common/bare.h"
#include "tests/common/messages.h"

/* Whether DFGNN_TEST_QUICK checks test i: each kind of message, pass and
 * storage type is in some of these tests. */
static int in_quick(int i) { return i % 5 == 0; }

START_TEST(every_variant_matches_the_reference) {
  variant_test test = message_test_make(_i);
  int checks = check_every_variant("cuda", &test);
  printf("%s %s %s of %s, edge_dim %d: %d checks\n",
         dfgnn_name(DFGNN_NAMES_OP, test.op),
         dfgnn_name(DFGNN_NAMES_PASS, test.pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, test.dtype),
         dfgnn_name(DFGNN_NAMES_MESSAGE, test.message), (int)test.edge_dim,
         checks);
}

START_TEST(strides_of_the_caller_are_followed) {
  variant_test test = message_test_make(_i);
  check_strides("cuda", &test);
}

START_TEST(every_call_gives_the_same_bits) {
  variant_test test = message_test_make(_i);
  check_repeats("cuda", &test);
}

START_TEST(what_is_left_out_changes_nothing_else) {
  variant_test test = message_test_make(_i);
  ck_assert_int_gt(check_bare_calls("cuda", &test), 0);
}

int main(void) {
  Suite *suite = suite_create("gpu_messages");
  TCase *tests = tcase_create("messages");
  int number = 0;
  TCase *bare = tcase_create("bare");
  tcase_set_timeout(tests, 0);
  tcase_set_timeout(bare, 0);
  for (int i = 0; i < MESSAGE_TESTS; i++) {
    if ((quick() && !in_quick(i)) || !in_part(number++))
      continue;
    tcase_add_loop_test(tests, every_variant_matches_the_reference, i, i + 1);
    tcase_add_loop_test(tests, strides_of_the_caller_are_followed, i, i + 1);
    tcase_add_loop_test(tests, every_call_gives_the_same_bits, i, i + 1);
    tcase_add_loop_test(bare, what_is_left_out_changes_nothing_else, i, i + 1);
  }
  suite_add_tcase(suite, tests);
  suite_add_tcase(suite, bare);
  return run_on_gpu(suite);
}
