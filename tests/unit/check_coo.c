/* check_coo.c - graphs of edge lists, and transposed views */
#include "tests/unit/fixture.h"

#include "kernels/common/number.h"
#include "lib/graph.h"

static dfgnn_context *ctx;

static void open_context(void) { ctx = cpu_context(""); }

static dfgnn_coo list32(int64_t destinations, int64_t sources, int64_t edges,
                        const int32_t *dst, const int32_t *src) {
  return INIT(dfgnn_coo, .destinations = destinations, .sources = sources,
              .edges = edges, .destination = dst, .source = src);
}

static const int32_t dst[] = {3, 0, 3, 1, 0, 3}, src[] = {4, 1, 0, 2, 1, 4};

TEST(edges_in_any_order_become_rows_that_keep_it) {
  static const int32_t offsets[] = {0, 2, 3, 3, 6};
  static const int32_t indices[] = {1, 1, 2, 4, 0, 4};
  static const int32_t order[] = {1, 4, 3, 0, 2, 5};
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_index_type type;
  dfgnn_graph *graph = listed_on(ctx, &coo);
  ck_ok(dfgnn_graph_csr(&csr, graph));
  ck_assert_int_eq(csr.destinations, 4);
  ck_assert_int_eq(csr.sources, 5);
  ck_assert_int_eq(csr.edges, 6);
  ck_assert_mem_eq(csr.offsets, offsets, sizeof offsets);
  ck_assert_mem_eq(csr.indices, indices, sizeof indices);
  ck_assert_mem_eq(dfgnn_graph_edge_order(graph, &type), order, sizeof order);
  ck_assert_int_eq(type, DFGNN_INDEX_I32);
  /* beside the columns, which the next test looks at */
  ck_assert_uint_eq(dfgnn_graph_bytes(graph) - graph->view_bytes,
                    sizeof offsets + sizeof indices + sizeof order);
}

TEST(sorted_edges_need_no_order) {
  static const int64_t sorted[] = {0, 0, 1, 3}, from[] = {2, 1, 0, 4};
  dfgnn_coo coo = list32(4, 5, 4, NULL, NULL);
  coo.destination = sorted;
  coo.source = from;
  coo.index_type = DFGNN_INDEX_I64;
  dfgnn_graph *graph = listed_on(ctx, &coo);
  ck_assert_ptr_null(dfgnn_graph_edge_order(graph, NULL));
}

TEST(a_list_without_edges_is_a_graph) {
  dfgnn_coo coo = list32(3, 2, 0, NULL, NULL);
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_graph *graph = listed_on(ctx, &coo);
  ck_ok(dfgnn_graph_signature(&signature, graph));
  ck_assert_int_eq(signature.destinations, 3);
  ck_assert(signature.isolated == 1);
}

static void refuse(const dfgnn_coo *coo, const char *text) {
  dfgnn_graph *graph = NULL;
  ck_invalid(dfgnn_graph_create_coo(&graph, ctx, coo, NULL), text);
  ck_assert_ptr_null(graph);
}

TEST(the_first_edge_out_of_range_is_named) {
  dfgnn_coo coo = list32(3, 5, 6, dst, src);
  refuse(&coo, "destination[0] = 3 is out of range, expected 0..2");
  coo = list32(4, 2, 6, dst, src);
  refuse(&coo, "source[0] = 4 is out of range, expected 0..1");
  coo = list32(4, 5, 6, dst, NULL);
  refuse(&coo, "coo.source is NULL, but coo.edges is 6");
  coo = list32(-1, 5, 6, dst, src);
  refuse(&coo, "coo.destinations is -1");
  coo.struct_size = 3;
  refuse(&coo, "coo.struct_size is 3");
  static const int64_t beyond[] = {1LL << 40}, zero[] = {0};
  coo = list32(4, 5, 1, NULL, NULL);
  coo.destination = beyond;
  coo.source = zero;
  coo.index_type = DFGNN_INDEX_I64;
  refuse(&coo, "destination[0] = 1099511627776 is out of range");
}

TEST(a_list_that_is_not_sorted_as_was_said_is_refused) {
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  coo.sorted = 1;
  refuse(
      &coo,
      "destination[1] = 0 comes after 3, but the list was said to be sorted");
}

TEST(a_trusted_list_is_the_same_graph) {
  for (int sorted = 0; sorted < 2; sorted++) {
    static const int32_t rising[] = {0, 0, 1, 3, 3, 3};
    dfgnn_coo coo = list32(4, 5, 6, sorted ? rising : dst, src);
    dfgnn_csr found = DFGNN_CSR_INIT, expected = DFGNN_CSR_INIT;
    dfgnn_graph *checked, *trusted;
    checked = listed_on(ctx, &coo);
    coo.sorted = sorted;
    coo.trusted = 1;
    trusted = listed_on(ctx, &coo);
    ck_ok(dfgnn_graph_csr(&expected, checked));
    ck_ok(dfgnn_graph_csr(&found, trusted));
    ck_assert_int_eq(found.edges, 6);
    ck_assert_mem_eq(found.offsets, expected.offsets, 5 * sizeof(int32_t));
    ck_assert_mem_eq(found.indices, expected.indices, 6 * sizeof(int32_t));
    const void *order = dfgnn_graph_edge_order(trusted, NULL);
    ck_assert_int_eq(order == NULL, sorted);
    if (order)
      ck_assert_mem_eq(order, dfgnn_graph_edge_order(checked, NULL),
                       6 * sizeof(int32_t));
  }
}

TEST(self_loops_are_replaced_by_one_a_node) {
  /* Nodes 0 .. 2 are both sources and destinations, so they get a loop each;
   * node 1 has two loops already. */
  static const int32_t to[] = {2, 1, 0, 1, 4, 1}, from[] = {0, 1, 2, 1, 2, 0};
  static const int32_t offsets[] = {0, 2, 4, 6, 6, 7};
  static const int32_t indices[] = {2, 0, 0, 1, 0, 2, 2};
  static const int32_t order[] = {2, 6, 5, 7, 0, 8, 4};
  for (int trusted = 0; trusted < 2; trusted++) {
    dfgnn_coo coo = list32(5, 3, 6, to, from);
    dfgnn_csr csr = DFGNN_CSR_INIT;
    coo.self_loops = 1;
    coo.trusted = trusted;
    dfgnn_graph *graph = listed_on(ctx, &coo);
    ck_ok(dfgnn_graph_csr(&csr, graph));
    ck_assert_int_eq(csr.edges, 7);
    ck_assert_mem_eq(csr.offsets, offsets, sizeof offsets);
    ck_assert_mem_eq(csr.indices, indices, sizeof indices);
    ck_assert_mem_eq(dfgnn_graph_edge_order(graph, NULL), order, sizeof order);
  }
}

static double value_of(dfgnn_dtype type, const void *array, int64_t k) {
  return dfgnn__number_at(type, array, k);
}

TEST(loops_get_the_features_of_their_rows) {
  /* Row 1 has the edges 5 and, as a loop that is left out, 1; row 2 edge 0,
   * row 4, which gets no loop, edge 4. */
  static const int32_t to[] = {2, 1, 0, 1, 4, 1}, from[] = {0, 1, 2, 1, 2, 0};
  static const float given32[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  static const double given64[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  /* the order of self_loops_are_replaced_by_one_a_node: 2, loop, 5, loop, ...
   */
  static const double filled[] = {5,  6, 5, 6, 11, 12, 11,
                                  12, 1, 2, 1, 2,  9,  10};
  static const double spread[] = {20, 22, 0, 0, 4, 6, 0, 0, 13, 14, 12, 14};
  float grad32[14], found32[14];
  double grad64[14], found64[14];
  for (int k = 0; k < 14; k++)
    grad32[k] = (float)(grad64[k] = k + 1);
  for (int wide = 0; wide < 2; wide++)
    for (int mean = 0; mean < 2; mean++) {
      const dfgnn_dtype type = wide ? DFGNN_F64 : DFGNN_F32;
      void *found = wide ? (void *)found64 : found32;
      const void *given = wide ? (const void *)given64 : given32;
      const void *grad = wide ? (const void *)grad64 : grad32;
      dfgnn_coo coo = list32(5, 3, 6, to, from);
      coo.self_loops = 1;
      dfgnn_graph *graph = listed_on(ctx, &coo);
      ck_ok(dfgnn_graph_fill_loops(graph, type, 2, mean, given, found));
      for (int k = 0; k < 14; k++)
        ck_assert_double_eq(value_of(type, found, k), filled[k]);
      ck_ok(dfgnn_graph_fill_loops_backward(graph, type, 2, mean, grad, found));
      for (int k = 0; k < 12; k++)
        ck_assert_double_eq(value_of(type, found, k), spread[k]);
    }
}

TEST(loops_get_the_mean_or_the_sum) {
  static const int32_t to[] = {1, 1, 1, 1}, from[] = {0, 2, 1, 0};
  static const uint16_t bf16[] = {0x3f80, 0x4000, 0x42c8,
                                  0x40c0}; /* 1 2 100 6 */
  static const uint16_t one[] = {0x3f80, 0x3f80, 0x3f80,
                                 0x3f80, 0x3f80, 0x3f80};
  uint16_t found[6];
  for (int mean = 0; mean < 2; mean++) {
    dfgnn_coo coo = list32(3, 3, 4, to, from);
    coo.self_loops = 1;
    dfgnn_graph *graph = listed_on(ctx, &coo);
    ck_ok(dfgnn_graph_fill_loops(graph, DFGNN_BF16, 1, mean, bf16, found));
    ck_assert_double_eq(value_of(DFGNN_BF16, found, 0), 0); /* no edges */
    ck_assert_double_eq(value_of(DFGNN_BF16, found, 3), 6);
    ck_assert_double_eq(value_of(DFGNN_BF16, found, 4), mean ? 3 : 9);
    ck_ok(dfgnn_graph_fill_loops_backward(graph, DFGNN_BF16, 1, mean, one,
                                          found));
    ck_assert_double_eq_tol(value_of(DFGNN_BF16, found, 0),
                            mean ? 1 + 1.0 / 3 : 2, 0.005);
    ck_assert_double_eq(value_of(DFGNN_BF16, found, 2), 0); /* left out */
  }
}

TEST(loops_that_are_not_there_are_not_filled) {
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  float numbers[24] = {0};
  dfgnn_graph *graph = listed_on(ctx, &coo);
  ck_invalid(dfgnn_graph_fill_loops(graph, DFGNN_F32, 2, 1, numbers, numbers),
             "was not made of a list with coo.self_loops");
  done(graph);
  coo.self_loops = 1;
  graph = listed_on(ctx, &coo);
  ck_invalid(dfgnn_graph_fill_loops(graph, DFGNN_F32, 0, 1, numbers, numbers),
             "width is 0, expected 1..2147483647");
  ck_invalid(dfgnn_graph_fill_loops(graph, DFGNN_F32, 2, 1, NULL, numbers),
             "given is NULL");
  ck_invalid(
      dfgnn_graph_fill_loops_backward(graph, DFGNN_F32, 2, 1, numbers, NULL),
      "grad_given is NULL");
  ck_invalid(dfgnn_graph_fill_loops(graph, (dfgnn_dtype)9, 2, 1, NULL, numbers),
             "dtype is 9, expected 0..3");
}

/* ---- signatures on demand ------------------------------------------------ */

TEST(the_signature_of_a_list_is_made_when_it_is_asked_for) {
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  dfgnn_signature late = DFGNN_SIGNATURE_INIT, at_once = DFGNN_SIGNATURE_INIT;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_graph *graph, *same;
  graph = listed_on(ctx, &coo);
  ck_assert(!dfgnn__graph_known(graph));
  ck_ok(dfgnn_graph_csr(&csr, graph));
  ck_assert(!dfgnn__graph_known(graph));
  same = graph_on(ctx, &csr);
  ck_assert(dfgnn__graph_known(same));
  ck_ok(dfgnn_graph_signature(&late, graph));
  ck_assert(dfgnn__graph_known(graph));
  ck_ok(dfgnn_graph_signature(&at_once, same));
  ck_assert_mem_eq(&late, &at_once, sizeof late);
  ck_assert_int_eq(late.max_degree, 3);
}

TEST(a_trusted_matrix_is_not_looked_at) {
  static const int32_t offsets[] = {0, 2, 3, 3, 6};
  static const int32_t beyond[] = {1, 1, 2, 4, 0, 99};
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_graph *graph = NULL;
  dfgnn_csr csr = INIT(dfgnn_csr, .destinations = 4, .sources = 5, .edges = 6,
                       .offsets = offsets, .indices = beyond);
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL),
             "indices[5] = 99 in row 3 is out of range");
  csr.trusted = 1;
  graph = graph_on(ctx, &csr);
  ck_assert_int_eq(graph->matrix.max_degree, 3);
  /* asking for the signature checks the matrix after all, each time */
  for (int again = 0; again < 2; again++)
    ck_invalid(dfgnn_graph_signature(&signature, graph),
               "indices[5] = 99 in row 3 is out of range");
}

/* ---- columns ------------------------------------------------------------- */

static const int32_t row_offsets[] = {0, 2, 3, 3, 6};
static const int32_t row_indices[] = {1, 1, 2, 4, 0, 4};
static const int32_t column_offsets[] = {0, 1, 3, 4, 4, 6};
static const int32_t column_rows[] = {3, 0, 0, 1, 3, 3};
static const int32_t column_edges[] = {4, 0, 1, 2, 3, 5};

static dfgnn_csr both_ways(void) {
  return INIT(dfgnn_csr, .destinations = 4, .sources = 5, .edges = 6,
              .offsets = row_offsets, .indices = row_indices,
              .column_offsets = column_offsets, .column_rows = column_rows,
              .column_edges = column_edges);
}

TEST(columns_that_are_given_are_not_made) {
  const dfgnn_view_request request = {.kind = DFGNN_VIEW_TRANSPOSE};
  for (int trusted = 0; trusted < 2; trusted++) {
    dfgnn_csr csr = both_ways();
    const dfgnn_view *view;
    csr.trusted = trusted;
    dfgnn_graph *graph = graph_on(ctx, &csr);
    ck_ok(dfgnn__graph_view(&view, graph, &request));
    ck_assert_ptr_eq(view->array[0], column_offsets);
    ck_assert_ptr_eq(view->array[1], column_rows);
    ck_assert_ptr_eq(view->array[2], column_edges);
    ck_assert_int_eq(view->count, 5);
    ck_assert_int_eq(view->extra, 2);
    ck_assert_uint_eq(dfgnn_graph_bytes(graph), 0);
  }
}

TEST(columns_of_another_matrix_are_refused) {
  static const int32_t falling[] = {4, 1, 0, 2, 3, 5};
  static const int32_t elsewhere[] = {3, 0, 1, 1, 3, 3};
  static const int32_t short_of[] = {0, 1, 3, 4, 4, 5};
  dfgnn_csr csr = both_ways();
  dfgnn_graph *graph = NULL;
  csr.column_edges = falling;
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL),
             "column_edges[2] = 0 of row 0 in column 1 is not");
  csr = both_ways();
  csr.column_rows = elsewhere;
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL),
             "column_edges[2] = 1 of row 1 in column 1 is not");
  csr = both_ways();
  csr.column_offsets = short_of;
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL),
             "column_offsets go from 0 to 5, expected 0 to 6");
  csr = both_ways();
  csr.column_rows = NULL;
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL),
             "csr.column_rows is NULL, but csr.column_offsets is not");
  ck_assert_ptr_null(graph);
}

TEST(columns_list_their_edges_in_order) {
  const dfgnn_view_request request = {.kind = DFGNN_VIEW_TRANSPOSE};
  dfgnn_csr csr = both_ways();
  const dfgnn_view *view, *again;
  csr.column_offsets = csr.column_rows = csr.column_edges = NULL;
  dfgnn_graph *graph = graph_on(ctx, &csr);
  size_t before = dfgnn_graph_bytes(graph);
  ck_ok(dfgnn__graph_view(&view, graph, &request));
  ck_assert_int_eq(view->count, 5);
  ck_assert_int_eq(view->extra, 2);
  ck_assert_mem_eq(view->array[0], column_offsets, sizeof column_offsets);
  ck_assert_mem_eq(view->array[1], column_rows, sizeof column_rows);
  ck_assert_mem_eq(view->array[2], column_edges, sizeof column_edges);
  ck_assert_uint_gt(dfgnn_graph_bytes(graph), before);
  ck_ok(dfgnn__graph_view(&again, graph, &request));
  ck_assert_ptr_eq(view, again);
}

/* Compares the columns of a list with those that a view builds of its matrix;
 * returns the number of edges. */
static int64_t compare_columns(const dfgnn_coo *coo) {
  const dfgnn_view_request request = {.kind = DFGNN_VIEW_TRANSPOSE};
  const dfgnn_view *found, *expected;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_graph *graph, *same;
  graph = listed_on(ctx, coo);
  const size_t bytes = dfgnn_graph_bytes(graph);
  ck_ok(dfgnn__graph_view(&found, graph, &request));
  ck_assert_uint_eq(dfgnn_graph_bytes(graph), bytes); /* it was there */
  ck_ok(dfgnn_graph_csr(&csr, graph));
  same = graph_on(ctx, &csr);
  ck_ok(dfgnn__graph_view(&expected, same, &request));
  const size_t edges = (size_t)csr.edges * sizeof(int32_t);
  ck_assert_int_eq(found->count, expected->count);
  ck_assert_int_eq(found->extra, expected->extra);
  ck_assert_mem_eq(found->array[0], expected->array[0],
                   ((size_t)csr.sources + 1) * sizeof(int32_t));
  ck_assert_mem_eq(found->array[1], expected->array[1], edges);
  ck_assert_mem_eq(found->array[2], expected->array[2], edges);
  ck_assert_int_eq(graph->matrix.max_degree, same->matrix.max_degree);
  return csr.edges;
}

TEST(a_short_list_becomes_columns_as_it_becomes_rows) {
  enum { NODES = 40, SOURCES = 33, EDGES = 200 };
  int32_t to[EDGES], from[EDGES];
  int64_t wide_to[EDGES], wide_from[EDGES], edges = 0;
  uint32_t random = 7;
  for (int e = 0; e < EDGES; e++) {
    random = random * 1664525u + 1013904223u;
    from[e] = (int32_t)(random >> 8) % SOURCES;
    to[e] = (int32_t)(random >> 20) % NODES;
  }
  for (int kind = 0; kind < 16; kind++) { /* wide, loops, trusted, sorted */
    dfgnn_coo coo = list32(NODES, SOURCES, EDGES, to, from);
    for (int e = 0; kind == 8 && e < EDGES; e++)
      to[e] = e * NODES / EDGES;
    for (int e = 0; e < EDGES; e++) {
      wide_to[e] = to[e];
      wide_from[e] = from[e];
    }
    if (kind & 1) {
      coo.destination = wide_to;
      coo.source = wide_from;
      coo.index_type = DFGNN_INDEX_I64;
    }
    coo.self_loops = kind >> 1 & 1;
    coo.trusted = kind >> 2 & 1;
    edges += compare_columns(&coo);
  }
  ck_assert_int_gt(edges, 15 * EDGES);
}

TEST(views_of_columns_are_those_of_the_transposed_matrix) {
  static const int32_t order[] = {1, 4, 0, 2, 3};
  static const int32_t item_rows[] = {0, 1, 1, 2, 3, 4, 4};
  dfgnn_coo coo = list32(4, 5, 6, dst, src);
  const dfgnn_view *view;
  dfgnn_graph *graph = listed_on(ctx, &coo);
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
}

TEST_MAIN("coo", .setup = open_context)
