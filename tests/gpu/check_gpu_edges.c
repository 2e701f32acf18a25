/* check_gpu_edges.c - attention with edge features on CUDA: NaN and infinities,
 * and rows and columns of 10^5 edges; the promises are those of
 * tests/common/variants.h and hubs.h */
#include "tests/common/hubs.h"
#include "tests/gpu/gpu.h"

#define TAKE(i)                                                                \
  const variant_test test = edge_test_make(i);                                 \
  if (!in_part(i) || (quick() && (i) % 5))                                     \
  return

IN_CASE("values")

TEST_LOOP(what_is_nan_or_infinite_spoils_what_it_meets_alone, 0, EDGE_TESTS) {
  TAKE(_i);
  check_special_values("cuda", &test);
}

IN_CASE("hubs")

/* Under compute-sanitizer and the emulator a hub is smaller. */
TEST_LOOP(hubs_are_shared_out, 0, EDGE_TESTS) {
  TAKE(_i);
  const int64_t degree = quick() || few() > 1 ? 5000 : 100000;
  ck_assert_int_gt(check_edge_hubs("cuda", &test, degree), 0);
}

GPU_MAIN("gpu_edges")
