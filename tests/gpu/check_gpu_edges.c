/* check_gpu_edges.c - attention with edge features on CUDA: NaN and infinities,
 * and rows and columns of 10^5 edges; the promises are those of
 * tests/common/edge_values.h */
#include "tests/common/edge_values.h"
#include "tests/gpu/gpu.h"

static void some_were_checked(int checks, const edge_test *test,
                              const char *label) {
  if (!getenv("DFGNN_TEST_FAMILY"))
    ck_assert_int_gt(checks, 0);
  printf("%s %s %s, %s: %d checks\n", test->c->name,
         dfgnn_name(DFGNN_NAMES_PASS, test->pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, test->dtype), label, checks);
}

IN_CASE("values")

TEST_LOOP(what_is_nan_or_infinite_spoils_what_it_meets_alone, 0, EDGE_TESTS) {
  const edge_test test = edge_test_make(_i);
  if (!in_part(_i) || (quick() && _i % 5))
    return;
  some_were_checked(check_edge_values("cuda", &test), &test, "values");
}

IN_CASE("hubs")

/* Under compute-sanitizer and the emulator a hub is smaller. */
TEST_LOOP(hubs_are_shared_out, 0, EDGE_TESTS) {
  const edge_test test = edge_test_make(_i);
  if (!in_part(_i) || (quick() && _i % 5))
    return;
  const int64_t degree = quick() || few() > 1 ? 5000 : 100000;
  some_were_checked(check_edge_hubs("cuda", &test, degree), &test, "hubs");
}

GPU_MAIN("gpu_edges")
