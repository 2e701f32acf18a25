/* check_gpu_edges.c - attention with edge features on CUDA: NaN and infinities,
 * and rows and columns of 10^5 edges; the promises are those of
 * tests/common/edge_values.h */
#include "tests/common/edge_values.h"
#include "tests/gpu/gpu.h"

/* Test i is a case of one pass and type. */
enum { TESTS = EDGE_CASES * 2 * 4 };

#define TEST(i)                                                                \
  const edge_case *c = &edge_cases[(i) / 8];                                   \
  const dfgnn_pass pass = (dfgnn_pass)((i) / 4 % 2);                           \
  const dfgnn_dtype dtype = (dfgnn_dtype)((i) % 4)

static void some(int checks, const edge_case *c, dfgnn_pass pass,
                 dfgnn_dtype dtype, const char *what) {
  if (!getenv("DFGNN_TEST_FAMILY"))
    ck_assert_int_gt(checks, 0);
  printf("%s %s %s, %s: %d checks\n", c->name, dfgnn_pass_name(pass),
         dfgnn_dtype_name(dtype), what, checks);
}

START_TEST(what_is_nan_or_infinite_spoils_what_it_meets_alone) {
  TEST(_i);
  some(check_edge_values("cuda", c, pass, dtype), c, pass, dtype, "values");
}
END_TEST

/* Under compute-sanitizer and the emulator a hub is smaller. */
START_TEST(hubs_are_shared_out) {
  TEST(_i);
  const int64_t degree = quick() || few() > 1 ? 5000 : 100000;
  some(check_edge_hubs("cuda", c, pass, dtype, degree), c, pass, dtype, "hubs");
}
END_TEST

/* DFGNN_TEST_PART=i/n takes every n-th test from the i-th, for several
 * processes side by side. */
static int in_part(int number) {
  const char *value = getenv("DFGNN_TEST_PART");
  int part = 0, parts = 1;
  if (value && (sscanf(value, "%d/%d", &part, &parts) != 2 || parts < 1)) {
    fprintf(stderr, "DFGNN_TEST_PART is %s, expected i/n\n", value);
    exit(EXIT_FAILURE);
  }
  return number % parts == part % parts;
}

int main(void) {
  /* Check's CK_RUN_CASE runs one of these alone. */
  const struct {
    const char *name;
    const TTest *test;
  } cases[] = {{"values", what_is_nan_or_infinite_spoils_what_it_meets_alone},
               {"hubs", hubs_are_shared_out}};
  Suite *suite = suite_create("gpu_edges");
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    TCase *tests = tcase_create(cases[k].name);
    tcase_set_timeout(tests, 0);
    for (int i = 0; i < TESTS; i++)
      if (in_part(i) && !(quick() && i % 5))
        tcase_add_loop_test(tests, cases[k].test, i, i + 1);
    suite_add_tcase(suite, tests);
  }
  return run_on_gpu(suite);
}
