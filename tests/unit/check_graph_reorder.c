/* check_graph_reorder.c - graphs whose nodes are numbered anew */

#include "graph/io/io.h"
#include "graph/reorder/reorder.h"
#include "lib/reorder.h"
#include "tests/common/inside.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"

static dfgnn_graph *plain_graph(dfgnn_context *ctx, const dfgnn_csr *csr) {
  dfgnn_graph *graph = NULL;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, csr, NULL));
  return graph;
}

static dfgnn_graph *reordered(dfgnn_context *ctx, const dfgnn_csr *csr,
                              dfgnn_order order, int inside, int keep) {
  dfgnn_reordering how = DFGNN_REORDERING_INIT;
  dfgnn_graph *graph = NULL;
  how.order = order;
  how.inside = inside;
  how.keep_columns = keep;
  ck_ok(dfgnn_graph_create_reordered(&graph, ctx, csr, &how, NULL));
  return graph;
}

static dfgnn_signature signature_of(const dfgnn_graph *graph) {
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  ck_ok(dfgnn_graph_signature(&signature, graph));
  return signature;
}

/* ---- results of calls ---------------------------------------------------- */

START_TEST(an_inside_graph_keeps_the_callers_order) {
  shape s = shape_make(_i, shape_seed());
  dfgnn_context *ctx = cpu_context("");
  int ran = 0;
  for (int c = 0; c < INSIDE_CASES; c++)
    for (int keep = 0; keep < 2; keep++)
      ran += inside_matches(ctx, &s.csr,
                            (c + _i) % 2 ? DFGNN_ORDER_RCM : DFGNN_ORDER_DEGREE,
                            keep, c, DFGNN_F64);
  ck_assert_int_ge(ran, 8); /* at least attention forward */
  dfgnn_context_destroy(ctx);
  shape_free(&s);
}
END_TEST

/* A batch whose rows are not in csr's order, with strides of its own. */
START_TEST(strides_of_the_caller_are_kept) {
  enum { H = 2, D = 3, NODE = 11, HEAD = 5 };
  dfgnn_csr *csr = generated("sbm-pattern:batch=3,seed=4");
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *plain = plain_graph(ctx, csr);
  dfgnn_graph *inside = reordered(ctx, csr, DFGNN_ORDER_COMMUNITY, 1, 0);
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  size_t n = (size_t)csr->destinations;
  float *x = malloc(n * NODE * sizeof *x), *key = malloc(n * H * D * 4);
  float *out[2];
  p.heads = H;
  p.dim = D;
  for (size_t i = 0; i < n * NODE; i++)
    x[i] = (float)(i * 37 % 101) / 50 - 1;
  for (size_t i = 0; i < n * H * D; i++)
    key[i] = (float)(i * 53 % 103) / 50 - 1;
  for (int k = 0; k < 2; k++) {
    dfgnn_args args = DFGNN_ARGS_INIT;
    out[k] = malloc(n * NODE * sizeof *x);
    for (size_t i = 0; i < n * NODE; i++)
      out[k][i] = 77;
    args.query = args.value = x;
    args.key = key;
    args.out = out[k];
    args.query_strides = (dfgnn_strides){NODE, HEAD, 1};
    args.value_strides = (dfgnn_strides){NODE, 1, 4};
    args.out_strides = (dfgnn_strides){NODE, HEAD, 2};
    ck_ok(dfgnn_call(ctx, k ? inside : plain, &p, &args, NULL));
  }
  for (size_t i = 0; i < n * NODE; i++)
    ck_assert_float_eq_tol(out[1][i], out[0][i], 1e-5f);
  ck_assert_float_eq(out[1][1], 77); /* between the features */
  for (int k = 0; k < 2; k++)
    free(out[k]);
  free(x);
  free(key);
  dfgnn_graph_destroy(inside);
  dfgnn_graph_destroy(plain);
  dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
}
END_TEST

START_TEST(features_may_be_permuted_by_the_caller) {
  shape s = shape_make(_i / 2, shape_seed());
  int keep = _i % 2;
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *plain = plain_graph(ctx, &s.csr);
  dfgnn_graph *graph = reordered(ctx, &s.csr, DFGNN_ORDER_RCM, 0, keep);
  size_t n = (size_t)s.csr.destinations, m = (size_t)s.csr.sources;
  size_t edges = (size_t)s.csr.edges;
  int64_t *rows = malloc((n + 1) * sizeof *rows);
  int64_t *columns = malloc((m + 1) * sizeof *columns);
  double *memory = calloc(4 * n + 4 * m + 2 * edges + 8, sizeof *memory);
  double *a = memory, *b = a + n, *h = b + m, *weights = h + m, *out = weights;
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_index_type type = DFGNN_INDEX_I64;
  ck_ok(dfgnn_graph_order(rows, columns, graph));
  const int32_t *order = dfgnn_graph_edge_order(graph, &type);
  ck_assert_int_eq(type, DFGNN_INDEX_I32);
  ck_assert_ptr_null(dfgnn_graph_edge_order(plain, NULL));
  for (size_t j = 0; keep && j < m; j++)
    ck_assert_int_eq(columns[j], (int64_t)j);
  p.op = DFGNN_OP_GAT;
  p.dtype = DFGNN_F64;
  p.dim = 1;
  p.weights = 1;
  out = weights + edges;
  double *found = out + n, *found_weights = found + n;
  double *mine = found_weights + edges; /* a, b, h in the new order */
  for (size_t i = 0; i < n + 2 * m; i++)
    a[i] = cos((double)(7 * i));
  args.score_dst = a;
  args.score_src = b;
  args.value = h;
  args.out = out;
  args.weights = weights;
  ck_ok(dfgnn_call(ctx, plain, &p, &args, NULL));
  for (size_t i = 0; i < n; i++)
    mine[i] = a[rows[i]];
  for (size_t j = 0; j < m; j++) {
    mine[n + j] = b[columns[j]];
    mine[n + m + j] = h[columns[j]];
  }
  args.score_dst = mine;
  args.score_src = mine + n;
  args.value = mine + n + m;
  args.out = found;
  args.weights = found_weights;
  ck_ok(dfgnn_call(ctx, graph, &p, &args, NULL));
  for (size_t i = 0; i < n; i++)
    ck_assert_double_eq_tol(found[i], out[rows[i]], 1e-12);
  for (size_t e = 0; e < edges; e++)
    ck_assert_double_eq_tol(found_weights[e], weights[order[e]], 1e-12);
  free(memory);
  free(rows);
  free(columns);
  dfgnn_graph_destroy(graph);
  dfgnn_graph_destroy(plain);
  dfgnn_context_destroy(ctx);
  shape_free(&s);
}
END_TEST

/* ---- matrices and orders ------------------------------------------------- */

START_TEST(the_order_is_that_of_the_matrix) {
  shape s = shape_make(5, shape_seed());
  dfgnn_context *ctx = cpu_context("");
  size_t n = (size_t)s.csr.destinations, m = (size_t)s.csr.sources;
  int64_t *expected = malloc((n + m) * sizeof *expected);
  int64_t *found = malloc((n + m) * sizeof *found);
  ck_ok(dfgnn_csr_order(expected, expected + n, &s.csr, DFGNN_ORDER_RCM));
  dfgnn_graph *graph = reordered(ctx, &s.csr, DFGNN_ORDER_RCM, 1, 0);
  ck_ok(dfgnn_graph_order(found, found + n, graph));
  ck_assert(!memcmp(found, expected, (n + m) * sizeof *found));
  dfgnn_graph_destroy(graph);
  dfgnn_reordering how = DFGNN_REORDERING_INIT;
  how.rows = expected;
  how.columns = expected + n;
  ck_ok(dfgnn_graph_create_reordered(&graph, ctx, &s.csr, &how, NULL));
  memset(found, 0, (n + m) * sizeof *found);
  ck_ok(dfgnn_graph_order(found, found + n, graph));
  ck_assert(!memcmp(found, expected, (n + m) * sizeof *found));
  dfgnn_graph_destroy(graph);
  graph = plain_graph(ctx, &s.csr);
  ck_ok(dfgnn_graph_order(found, NULL, graph));
  for (size_t i = 0; i < n; i++)
    ck_assert_int_eq(found[i], (int64_t)i);
  dfgnn_graph_destroy(graph);
  free(expected);
  free(found);
  dfgnn_context_destroy(ctx);
  shape_free(&s);
}
END_TEST

START_TEST(kept_columns_keep_the_locality) {
  dfgnn_csr *csr = generated("powerlaw:nodes=9000,edges=90000,"
                             "max-degree=400,columns=random");
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *both = reordered(ctx, csr, DFGNN_ORDER_COMMUNITY, 1, 0);
  dfgnn_graph *rows = reordered(ctx, csr, DFGNN_ORDER_COMMUNITY, 1, 1);
  dfgnn_signature x = signature_of(both), y = signature_of(rows);
  ck_assert_double_eq(x.locality, y.locality);
  ck_assert_double_eq(x.reuse, y.reuse);
  ck_assert_uint_ne(x.fingerprint, y.fingerprint);
  dfgnn_graph_destroy(both);
  dfgnn_graph_destroy(rows);
  dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
}
END_TEST

START_TEST(a_batch_stays_one) {
  dfgnn_csr *csr = generated("sbm-pattern:batch=5,seed=4");
  dfgnn_context *ctx = cpu_context("");
  for (int keep = 0; keep < 2; keep++) {
    dfgnn_graph *graph = reordered(ctx, csr, DFGNN_ORDER_DEGREE, 1, keep);
    ck_assert_int_eq(signature_of(graph).graphs, 5);
    dfgnn_graph_destroy(graph);
  }
  dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
}
END_TEST

START_TEST(arrays_of_a_device_are_read_too) {
  shape s = shape_make(7, shape_seed());
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *host = reordered(ctx, &s.csr, DFGNN_ORDER_RCM, 0, 0);
  shape_widen(&s);
  s.csr.on_device = 1;
  dfgnn_graph *device = reordered(ctx, &s.csr, DFGNN_ORDER_RCM, 0, 0);
  ck_assert_uint_eq(signature_of(host).fingerprint,
                    signature_of(device).fingerprint);
  shape_free(&s); /* the graph keeps none of it */
  dfgnn_csr csr = DFGNN_CSR_INIT;
  ck_ok(dfgnn_graph_csr(&csr, device));
  ck_assert_int_eq(csr.destinations, 33);
  ck_assert_uint_gt(dfgnn_graph_bytes(device), 0);
  dfgnn_graph_destroy(host);
  dfgnn_graph_destroy(device);
  dfgnn_context_destroy(ctx);
}
END_TEST

/* ---- plans --------------------------------------------------------------- */

START_TEST(plans_of_an_inside_graph_are_cached) {
  dfgnn_csr *csr = generated("powerlaw:nodes=300,edges=2400,max-degree=90");
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = reordered(ctx, csr, DFGNN_ORDER_COMMUNITY, 1, 1);
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  dfgnn_plan *first = NULL, *second = NULL;
  dfgnn_counters before = DFGNN_COUNTERS_INIT, after = DFGNN_COUNTERS_INIT;
  dfgnn_explanation *why = NULL;
  ck_ok(dfgnn_context_counters(&before, ctx));
  ck_ok(dfgnn_plan_create(&first, ctx, graph, &p));
  ck_ok(dfgnn_plan_create(&second, ctx, graph, &p));
  ck_assert_ptr_eq(first, second);
  ck_ok(dfgnn_context_counters(&after, ctx));
  ck_assert_uint_eq(after.rule, before.rule + 1);
  ck_assert_uint_eq(after.cached, before.cached + 1);
  ck_ok(dfgnn_plan_explain(&why, first));
  ck_assert_str_eq(why->variant, dfgnn_plan_variant(first));
  dfgnn_explanation_free(why);
  /* query and out are copied, 300 rows of 64 floats each; lse and weights would
   * be, too */
  ck_assert_uint_ge(dfgnn_plan_workspace(first), 2 * 300 * 64 * 4);
  ck_fails(dfgnn_execute(first, NULL, NULL, NULL), DFGNN_ERROR_INVALID,
           "args is NULL");
  dfgnn_plan_destroy(first);
  dfgnn_plan_destroy(second);
  ck_ok(dfgnn_plan_create_forced(&first, ctx, graph, &p,
                                 "cpu.attention.fwd.reference"));
  ck_assert_str_eq(dfgnn_plan_variant(first), "cpu.attention.fwd.reference");
  dfgnn_plan_destroy(first);
  ck_fails(dfgnn_plan_create_forced(&first, ctx, graph, &p, "none"),
           DFGNN_ERROR_INVALID, "unknown variant 'none'");
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
}
END_TEST

START_TEST(an_inside_graph_is_tuned_as_what_runs) {
  static const char *const variants[] = {"cpu.attention.fwd.reference", NULL};
  dfgnn_csr *csr = generated("powerlaw:nodes=200,edges=1200,max-degree=90");
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = reordered(ctx, csr, DFGNN_ORDER_COMMUNITY, 1, 0);
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  dfgnn_plan *plan = NULL;
  dfgnn_tune_options options = DFGNN_TUNE_OPTIONS_INIT;
  dfgnn_tune_report report = DFGNN_TUNE_REPORT_INIT;
  p.dim = 8;
  options.budget_s = 0.3;
  options.variants = variants;
  ck_ok(dfgnn_plan_create(&plan, ctx, graph, &p));
  ck_assert_int_gt(dfgnn_plan_source(plan), DFGNN_SOURCE_NEAR);
  dfgnn_plan_destroy(plan);
  ck_ok(dfgnn_tune(&report, ctx, graph, &p, &options));
  ck_assert_int_eq(report.wrong, 0);
  ck_assert_int_ge(report.measured, 1);
  ck_ok(dfgnn_plan_create(&plan, ctx, graph, &p));
  ck_assert_int_le(dfgnn_plan_source(plan), DFGNN_SOURCE_NEAR);
  ck_assert_str_eq(dfgnn_plan_variant(plan), report.variant);
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
}
END_TEST

/* ---- what is refused ----------------------------------------------------- */

START_TEST(a_wrong_reordering_is_refused) {
  static const int32_t offsets[] = {0, 1, 2}, indices[] = {1, 0};
  static const int64_t twice[] = {0, 0}, fine[] = {1, 0};
  dfgnn_csr csr = csr32(2, 2, offsets, indices),
            wide = csr32(2, 3, offsets, indices);
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = NULL;
  dfgnn_reordering how = DFGNN_REORDERING_INIT;
  ck_fails(dfgnn_graph_create_reordered(NULL, ctx, &csr, &how, NULL),
           DFGNN_ERROR_INVALID, "graph is NULL");
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, NULL, &how, NULL),
           DFGNN_ERROR_INVALID, "csr is NULL");
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &csr, NULL, NULL),
           DFGNN_ERROR_INVALID, "how is NULL");
  how.order = (dfgnn_order)7;
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &csr, &how, NULL),
           DFGNN_ERROR_INVALID, "how.order is 7, expected 0..3");
  how.rows = twice;
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &csr, &how, NULL),
           DFGNN_ERROR_INVALID, "how.rows[1] is 0, expected each of 0..1 once");
  how.columns = fine;
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &csr, &how, NULL),
           DFGNN_ERROR_INVALID, "rows[1] is 0, expected each of 0..1 once");
  how.keep_columns = 1;
  how.rows = fine;
  how.columns = twice;
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &csr, &how, NULL),
           DFGNN_ERROR_INVALID, "columns[1] is 0");
  how.columns = NULL;
  how.keep_columns = 0;
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &wide, &how, NULL),
           DFGNN_ERROR_INVALID, "2 x 3 needs both orders");
  how.keep_columns = 1;
  ck_ok(dfgnn_graph_create_reordered(&graph, ctx, &wide, &how, NULL));
  dfgnn_graph_destroy(graph);
  graph = NULL;
  how.rows = NULL;
  how.columns = fine;
  how.order = DFGNN_ORDER_RCM;
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &csr, &how, NULL),
           DFGNN_ERROR_INVALID, "how.columns is set, but how.rows is NULL");
  how.columns = NULL;
  csr.edges = 3;
  ck_fails(dfgnn_graph_create_reordered(&graph, ctx, &csr, &how, NULL),
           DFGNN_ERROR_INVALID, "offsets end at 2, expected 3");
  ck_fails(dfgnn_graph_order(NULL, NULL, NULL), DFGNN_ERROR_INVALID,
           "graph is NULL");
  ck_assert_ptr_null(graph);
  dfgnn_context_destroy(ctx);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("graph_reorder");
  TCase *tc = tcase_create("graph_reorder");
  shape_seed();
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, an_inside_graph_keeps_the_callers_order, 0, SHAPES);
  tcase_add_test(tc, strides_of_the_caller_are_kept);
  tcase_add_loop_test(tc, features_may_be_permuted_by_the_caller, 0,
                      2 * SHAPES);
  tcase_add_test(tc, the_order_is_that_of_the_matrix);
  tcase_add_test(tc, kept_columns_keep_the_locality);
  tcase_add_test(tc, a_batch_stays_one);
  tcase_add_test(tc, arrays_of_a_device_are_read_too);
  tcase_add_test(tc, plans_of_an_inside_graph_are_cached);
  tcase_add_test(tc, an_inside_graph_is_tuned_as_what_runs);
  tcase_add_test(tc, a_wrong_reordering_is_refused);
  suite_add_tcase(suite, tc);
  return run_tests(suite);
}
