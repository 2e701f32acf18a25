/* check_old.c - a program that was written before the names of dfgnn.h changed
 * still compiles and runs */
#undef DFGNN_NO_OLD_NAMES
#include "dfgnn_tune.h"

#include "tests/unit/fixture.h"

#define OLD(kind, good)                                                        \
  do {                                                                         \
    dfgnn_##kind value = (dfgnn_##kind)0;                                      \
    ck_assert_int_eq(dfgnn_##kind##_parse(&value, good), DFGNN_OK);            \
    ck_assert_str_eq(dfgnn_##kind##_name(value), good);                        \
  } while (0)

START_TEST(old_functions_of_names_work) {
  OLD(op, "gat");
  OLD(pass, "backward");
  OLD(dtype, "bf16");
  OLD(math, "tf32");
  OLD(layout, "ndh");
  OLD(effort, "measure");
  OLD(edge_use, "values");
  OLD(message, "gate-value");
  OLD(order, "community");
  OLD(partitioning, "range");
  ck_assert_str_eq(dfgnn_source_name(DFGNN_SOURCE_MODEL), "model");
}
END_TEST

START_TEST(old_ways_to_make_a_graph_work) {
  static const int32_t offsets[] = {0, 2, 3, 3}, indices[] = {0, 1, 2};
  static const int32_t dst[] = {1, 0, 0}, src[] = {2, 0, 1};
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx;
  dfgnn_graph *graph[3];
  options.device = "cpu";
  options.store = "";
  ck_assert_int_eq(dfgnn_context_create(&ctx, &options), DFGNN_OK);

  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = csr.sources = csr.edges = 3;
  csr.offsets = offsets;
  csr.indices = indices;
  csr.stream = NULL;
  ck_assert_int_eq(dfgnn_graph_create(&graph[0], ctx, &csr), DFGNN_OK);

  dfgnn_coo coo = DFGNN_COO_INIT;
  coo.destinations = coo.sources = coo.edges = 3;
  coo.dst = dst;
  coo.src = src;
  ck_assert_int_eq(dfgnn_graph_create_coo(&graph[1], ctx, &coo, NULL),
                   DFGNN_OK);

  dfgnn_reordering how = DFGNN_REORDERING_INIT;
  ck_assert_int_eq(dfgnn_graph_reorder(&graph[2], ctx, &csr, &how), DFGNN_OK);
  for (int k = 0; k < 3; k++) {
    dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
    ck_assert_int_eq(dfgnn_graph_signature(&signature, graph[k]), DFGNN_OK);
    ck_assert_int_eq(signature.edges, 3);
    ck_assert_int_eq(signature.max_degree, 2);
    dfgnn_graph_destroy(graph[k]);
  }
  dfgnn_context_destroy(ctx);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("old");
  TCase *tests = tcase_create("old names");
  tcase_add_test(tests, old_functions_of_names_work);
  tcase_add_test(tests, old_ways_to_make_a_graph_work);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
