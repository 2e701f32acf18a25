/* check_gpu_messages.c - CUDA variants of messages of edges against the float64
 * reference; the promises are those of tests/common/variants.h */
#include "tests/gpu/gpu.h"

#include "tests/common/bare.h"
#include "tests/common/messages.h"

/* DFGNN_TEST_QUICK takes one test in five: each kind of message, pass and
 * storage type is in some of these. */
#define TAKE(i)                                                                \
  variant_test test = message_test_make(i);                                    \
  if (quick() ? (i) % 5 || !in_part((i) / 5) : !in_part(i))                    \
  return

IN_CASE("messages")

TEST_LOOP(every_variant_matches_the_reference, 0, MESSAGE_TESTS) {
  TAKE(_i);
  int checks = check_every_variant("cuda", &test);
  printf("%s %s %s of %s, edge_dim %d: %d checks\n",
         dfgnn_name(DFGNN_NAMES_OP, test.op),
         dfgnn_name(DFGNN_NAMES_PASS, test.pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, test.dtype),
         dfgnn_name(DFGNN_NAMES_MESSAGE, test.message), (int)test.edge_dim,
         checks);
}

TEST_LOOP(rows_of_any_vector_match_the_reference, 0, MESSAGE_TESTS) {
  TAKE(_i);
  check_vectors("cuda", &test);
}

TEST_LOOP(strides_of_the_caller_are_followed, 0, MESSAGE_TESTS) {
  TAKE(_i);
  check_strides("cuda", &test);
}

TEST_LOOP(every_call_gives_the_same_bits, 0, MESSAGE_TESTS) {
  TAKE(_i);
  check_repeats("cuda", &test);
}

IN_CASE("bare")

TEST_LOOP(what_is_left_out_changes_nothing_else, 0, MESSAGE_TESTS) {
  TAKE(_i);
  ck_assert_int_gt(check_bare_calls("cuda", &test), 0);
}

GPU_MAIN("gpu_messages")
