/* Attention with edge features on the CPU: NaN, infinities and hubs; the
 * promises are those of tests/common/variants.h and hubs.h. */
#include "tests/common/hubs.h"
#include "tests/unit/fixture.h"

TEST_LOOP(what_is_nan_or_infinite_spoils_what_it_meets_alone, 0, EDGE_TESTS) {
  const variant_test test = edge_test_make(_i);
  check_special_values("cpu", &test);
}

TEST_LOOP(hubs_are_summed_within_the_bound, 0, EDGE_TESTS) {
  const variant_test test = edge_test_make(_i);
  ck_assert_int_gt(check_edge_hubs("cpu", &test, 10000), 0);
}

TEST_MAIN("cpu", .timeout = 120)
