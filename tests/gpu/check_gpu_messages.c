/* check_gpu_messages.c - CUDA variants of messages of edges against the float64
 * reference; the promises are those of tests/common/variants.h */
#include "tests/gpu/gpu.h"

#include "tests/common/bare.h"
#include "tests/common/messages.h"

#define BACKEND "cuda"
#define TESTS MESSAGE_TESTS

/* DFGNN_TEST_QUICK takes one test in five: each kind of message, pass and
 * storage type is in some of these. */
#define TAKE(i)                                                                \
  variant_test test = message_test_make(i);                                    \
  if (quick() ? (i) % 5 || !in_part((i) / 5) : !in_part(i))                    \
  return
#include "tests/common/promises.h"

IN_CASE("vectors")

TEST_LOOP(rows_of_any_vector_match_the_reference, 0, MESSAGE_TESTS) {
  TAKE(_i);
  check_vectors(BACKEND, &test);
}

IN_CASE("bare")

TEST_LOOP(what_is_left_out_changes_nothing_else, 0, MESSAGE_TESTS) {
  TAKE(_i);
  ck_assert_int_gt(check_bare_calls(BACKEND, &test), 0);
}

GPU_MAIN("gpu_messages")
