/* check_coo.c - graphs of edge lists, and transposed views */
#include "tests/unit/fixture.h"

#include "lib/graph.h"

static dfgnn_context *ctx;

static void open_context(void) { ctx = cpu_context(""); }
static void close_context(void) { dfgnn_context_destroy(ctx); }

static dfgnn_coo list32(int64_t destinations, int64_t sources, int64_t edges,
                        const int32_t *dst, const int32_t *src) {
  dfgnn_coo coo = DFGNN_COO_INIT;
  coo.destinations = destinations;
  coo.sources = sources;
  coo.edges = edges;
  coo.dst = dst;
  coo.src = src;
  return coo;
}

static const int32_t dst[] = {3, 0, 3, 1, 0, 3}, src[] = {4, 1, 0, 2, 1, 4};

START_TEST(edges_in_any_order_become_rows_that_keep_it) {
  static const int32_t offsets[] = {0, 2, 3, 3, 6};
  static const int32_t indices[] = {1, 1, 2, 4, 0, 4};
  static const int32_t order[] = {1, 4, 3, 0, 2, 5};
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_index_type type;
  dfgnn_graph *graph;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  ck_ok(dfgnn_graph_csr(&csr, graph));
  ck_assert_int_eq(csr.destinations, 4);
  ck_assert_int_eq(csr.sources, 5);
  ck_assert_int_eq(csr.edges, 6);
  ck_assert_mem_eq(csr.offsets, offsets, sizeof offsets);
  ck_assert_mem_eq(csr.indices, indices, sizeof indices);
  ck_assert_mem_eq(dfgnn_graph_edge_order(graph, &type), order, sizeof order);
  ck_assert_int_eq(type, DFGNN_INDEX_I32);
  ck_assert_uint_eq(dfgnn_graph_bytes(graph),
                    sizeof offsets + sizeof indices + sizeof order);
  dfgnn_graph_destroy(graph);
}
END_TEST

START_TEST(sorted_edges_need_no_order) {
  static const int64_t sorted[] = {0, 0, 1, 3}, from[] = {2, 1, 0, 4};
  dfgnn_coo coo = list32(4, 5, 4, NULL, NULL);
  dfgnn_graph *graph;
  coo.dst = sorted;
  coo.src = from;
  coo.index_type = DFGNN_INDEX_I64;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  ck_assert_ptr_null(dfgnn_graph_edge_order(graph, NULL));
  dfgnn_graph_destroy(graph);
}
END_TEST

START_TEST(a_list_without_edges_is_a_graph) {
  dfgnn_coo coo = list32(3, 2, 0, NULL, NULL);
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_graph *graph;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  ck_ok(dfgnn_graph_signature(&signature, graph));
  ck_assert_int_eq(signature.destinations, 3);
  ck_assert(signature.isolated == 1);
  dfgnn_graph_destroy(graph);
}
END_TEST

static void refuse(const dfgnn_coo *coo, const char *text) {
  dfgnn_graph *graph = NULL;
  ck_fails(dfgnn_graph_create_coo(&graph, ctx, coo, NULL), DFGNN_ERROR_INVALID,
           text);
  ck_assert_ptr_null(graph);
}

START_TEST(the_first_edge_out_of_range_is_named) {
  dfgnn_coo coo = list32(3, 5, 6, dst, src);
  refuse(&coo, "dst[0] = 3 is out of range, expected 0..2");
  coo = list32(4, 2, 6, dst, src);
  refuse(&coo, "src[0] = 4 is out of range, expected 0..1");
  coo = list32(4, 5, 6, dst, NULL);
  refuse(&coo, "coo.src is NULL, but coo.edges is 6");
  coo = list32(-1, 5, 6, dst, src);
  refuse(&coo, "coo.destinations is -1");
  coo.struct_size = 3;
  refuse(&coo, "coo.struct_size is 3");
  static const int64_t beyond[] = {1LL << 40}, zero[] = {0};
  coo = list32(4, 5, 1, NULL, NULL);
  coo.dst = beyond;
  coo.src = zero;
  coo.index_type = DFGNN_INDEX_I64;
  refuse(&coo, "dst[0] = 1099511627776 is out of range");
}
END_TEST

START_TEST(columns_list_their_edges_in_order) {
  static const int32_t offsets[] = {0, 1, 3, 4, 4, 6};
  static const int32_t rows[] = {3, 0, 0, 1, 3, 3},
                       edges[] = {4, 0, 1, 2, 3, 5};
  const dfgnn_view_request request = {.kind = DFGNN_VIEW_TRANSPOSE};
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  const dfgnn_view *view, *again;
  dfgnn_graph *graph;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  size_t before = dfgnn_graph_bytes(graph);
  ck_ok(dfgnn__graph_view(&view, graph, &request));
  ck_assert_int_eq(view->count, 5);
  ck_assert_int_eq(view->extra, 2);
  ck_assert_mem_eq(view->array[0], offsets, sizeof offsets);
  ck_assert_mem_eq(view->array[1], rows, sizeof rows);
  ck_assert_mem_eq(view->array[2], edges, sizeof edges);
  ck_assert_uint_gt(dfgnn_graph_bytes(graph), before);
  ck_ok(dfgnn__graph_view(&again, graph, &request));
  ck_assert_ptr_eq(view, again);
  dfgnn_graph_destroy(graph);
}
END_TEST

START_TEST(views_of_columns_are_those_of_the_transposed_matrix) {
  static const int32_t order[] = {1, 4, 0, 2, 3};
  static const int32_t item_rows[] = {0, 1, 1, 2, 3, 4, 4};
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  const dfgnn_view *view;
  dfgnn_graph *graph;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  ck_ok(dfgnn__graph_view(
      &view, graph,
      &(dfgnn_view_request){.kind = DFGNN_VIEW_DEGREE_ORDER, .transposed = 1}));
  ck_assert_int_eq(view->count, 5);
  ck_assert_mem_eq(view->array[0], order, sizeof order);
  ck_ok(dfgnn__graph_view(&view, graph,
                          &(dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                                .parameter = 1,
                                                .transposed = 1}));
  ck_assert_int_eq(view->count, 7);
  ck_assert_int_eq(view->extra, 2);
  ck_assert_mem_eq(view->array[0], item_rows, sizeof item_rows);
  dfgnn_graph_destroy(graph);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("coo");
  TCase *tc = tcase_create("coo");
  tcase_add_checked_fixture(tc, open_context, close_context);
  tcase_add_test(tc, edges_in_any_order_become_rows_that_keep_it);
  tcase_add_test(tc, sorted_edges_need_no_order);
  tcase_add_test(tc, a_list_without_edges_is_a_graph);
  tcase_add_test(tc, the_first_edge_out_of_range_is_named);
  tcase_add_test(tc, columns_list_their_edges_in_order);
  tcase_add_test(tc, views_of_columns_are_those_of_the_transposed_matrix);
  suite_add_tcase(suite, tc);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
