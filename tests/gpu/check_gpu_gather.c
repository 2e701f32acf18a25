/* check_gpu_gather.c - calls of SpMM and reductions that leave out scales, the
 * edges of extremes, or a gradient: kernels of their own serve them */
#include "tests/gpu/gpu.h"

#include "tests/common/bare.h"

static int meant(const variant_test *t) {
  if (!(DFGNN_BIT(t->op) & (DFGNN_OPS_SPMM | DFGNN_OPS_REDUCE)))
    return 0;
  return !quick() ||
         (t->op == DFGNN_OP_SPMM_WEIGHTED && t->dtype == DFGNN_F32) ||
         (t->op == DFGNN_OP_REDUCE_PNA && t->dtype == DFGNN_BF16);
}

IN_CASE("gather")

TEST_LOOP(what_is_left_out_changes_nothing_else, 0, VARIANT_TESTS) {
  variant_test test = variant_test_make(_i);
  if (!meant(&test) || variant_test_count("cuda", &test) == 0)
    return;
  ck_assert_int_gt(check_bare_calls("cuda", &test), 0);
}

TEST(every_operator_and_pass_has_variants) {
  check_backend_has_variants("cuda");
}

GPU_MAIN("gpu_gather")
