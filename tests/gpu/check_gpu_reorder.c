/* check_gpu_reorder.c - graphs reordered inside, on a GPU */
#include "tests/common/inside.h"
#include "tests/common/shapes.h"
#include "tests/gpu/gpu.h"

static dfgnn_context *ctx;

START_TEST(an_inside_graph_keeps_the_callers_order) {
  shape s = shape_make(_i, shape_seed());
  int ran = 0;
  for (int c = 0; c < INSIDE_CASES; c++)
    for (int keep = 0; keep < 2; keep++)
      ran += inside_matches(ctx, &s.csr,
                            (c + _i) % 2 ? DFGNN_ORDER_RCM : DFGNN_ORDER_DEGREE,
                            keep, c, DFGNN_F32);
  ck_assert_int_ge(ran, 8); /* at least attention forward */
  shape_free(&s);
}

START_TEST(the_order_is_that_of_the_cpu) {
  shape s = shape_make(_i, shape_seed());
  dfgnn_context *cpu = cpu_context("");
  dfgnn_graph *graph[2] = {NULL, NULL};
  dfgnn_signature signature[2];
  dfgnn_reordering how = DFGNN_REORDERING_INIT;
  how.order = DFGNN_ORDER_COMMUNITY;
  for (int k = 0; k < 2; k++) {
    signature[k] = (dfgnn_signature)DFGNN_SIGNATURE_INIT;
    ck_ok(dfgnn_graph_create_reordered(&graph[k], k ? ctx : cpu, &s.csr, &how,
                                       NULL));
    ck_ok(dfgnn_graph_signature(&signature[k], graph[k]));
    dfgnn_graph_destroy(graph[k]);
  }
  ck_assert_uint_eq(signature[0].fingerprint, signature[1].fingerprint);
  dfgnn_context_destroy(cpu);
  shape_free(&s);
}

static void open_context(void) { ctx = gpu_context(); }

static void close_context(void) { dfgnn_context_destroy(ctx); }

int main(void) {
  Suite *suite = suite_create("gpu_reorder");
  TCase *tc = tcase_create("gpu_reorder");
  tcase_add_unchecked_fixture(tc, open_context, close_context);
  tcase_set_timeout(tc, 0);
  tcase_add_loop_test(tc, an_inside_graph_keeps_the_callers_order, 0,
                      quick() ? 4 : SHAPES);
  tcase_add_loop_test(tc, the_order_is_that_of_the_cpu, 0, SHAPES);
  suite_add_tcase(suite, tc);
  return run_on_gpu(suite);
}
