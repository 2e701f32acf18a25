/* check_gpu_variants.c - every CUDA variant against the float64 reference; the
 * promises are those of tests/common/variants.h */
#include "tests/gpu/gpu.h"

#include "tests/common/variants.h"

#define BACKEND "cuda"
#define TESTS VARIANT_TESTS

/* Whether DFGNN_TEST_QUICK checks a test. */
static int in_quick(const variant_test *t) {
  return (t->op == DFGNN_OP_GT && t->dtype == DFGNN_F32) ||
         (t->op == DFGNN_OP_GATV2 && t->dtype == DFGNN_BF16) ||
         (t->op == DFGNN_OP_SPMM_WEIGHTED && t->dtype == DFGNN_F32) ||
         (t->op == DFGNN_OP_REDUCE_PNA && t->dtype == DFGNN_BF16);
}

#define TAKE(i)                                                                \
  variant_test test = variant_test_make(i);                                    \
  if (!in_part(i) || variant_test_count(BACKEND, &test) == 0 ||                \
      (quick() && !in_quick(&test)))                                           \
  return
#include "tests/common/promises.h"

IN_CASE("slices")

TEST_LOOP(slices_of_sources_match_the_reference, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (test.pass == DFGNN_PASS_FORWARD &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_slices(BACKEND, &test);
}

IN_CASE("wide_rows")

TEST_LOOP(rows_of_2048_features_are_served, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (dfgnn__operator(test.op, test.pass) &&
      DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op))
    check_wide_rows(BACKEND, &test);
}

IN_CASE("vectors")

TEST_LOOP(rows_of_any_vector_match_the_reference, 0, VARIANT_TESTS) {
  TAKE(_i);
  if (!(DFGNN_OPS_ATTENTION & DFGNN_BIT(test.op)))
    check_vectors(BACKEND, &test);
}

GPU_MAIN("gpu_variants")
