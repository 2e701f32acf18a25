/* SpMM beyond the loops over the registry: small sums by hand, gradients. */
#include <math.h>

#include "tests/common/aggregate.h"

/* 0 <- 1, 2; 1: none; 2 <- 0, 0, 2 */
static const int32_t offsets[] = {0, 2, 2, 5}, indices[] = {1, 2, 0, 0, 2};
enum { NODES = 3, EDGES = 5 };

typedef struct expected {
  const double *found, *numbers;
  int count;
} expected;

static void matches(const void *data, const char *variant) {
  const expected *e = data;
  for (int i = 0; i < e->count; i++)
    ck_assert_msg(fabs(e->found[i] - e->numbers[i]) < 1e-12 ||
                      (isnan(e->found[i]) && isnan(e->numbers[i])) ||
                      e->found[i] == e->numbers[i],
                  "%s: number %d is %g, expected %g", variant, i, e->found[i],
                  e->numbers[i]);
}

static void forward(dfgnn_op op, dfgnn_args *args, int heads, int dim,
                    dfgnn_layout layout, const double *numbers) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  double out[64];
  dfgnn_csr csr = csr32(NODES, NODES, offsets, indices);
  dfgnn_problem problem =
      aggregate_problem(op, DFGNN_PASS_FORWARD, DFGNN_F64, heads, dim);
  expected e = {out, numbers, NODES * heads * dim};
  problem.layout = layout;
  args->out = out;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  each_variant(ctx, graph, &problem, args, matches, &e);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}

TEST(sums_count_duplicate_edges_twice_and_empty_rows_as_zero) {
  const double x[] = {1, 2, 10, 20, 100, 200};
  const double out[] = {110, 220, 0, 0, 102, 204};
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = x;
  forward(DFGNN_OP_SPMM_SUM, &args, 1, 2, DFGNN_LAYOUT_NHD, out);
}

TEST(means_divide_by_the_number_of_edges) {
  const double x[] = {1, 2, 10, 20, 100, 200};
  const double out[] = {55, 110, 0, 0, 34, 68};
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = x;
  forward(DFGNN_OP_SPMM_MEAN, &args, 1, 2, DFGNN_LAYOUT_NHD, out);
}

TEST(scales_of_rows_and_columns_normalise_without_an_edge_array) {
  const double x[] = {1, 10, 100}, r[] = {2, 3, 5}, c[] = {7, 11, 13};
  const double sum[] = {2 * (110. + 1300), 0, 5 * (7. + 7 + 1300)};
  const double mean[] = {sum[0] / 2, 0, sum[2] / 3};
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = x;
  args.scale_dst = r;
  args.scale_src = c;
  forward(DFGNN_OP_SPMM_SUM, &args, 1, 1, DFGNN_LAYOUT_NHD, sum);
  forward(DFGNN_OP_SPMM_MEAN, &args, 1, 1, DFGNN_LAYOUT_NHD, mean);
}

TEST(an_infinite_scale_of_an_empty_row_leaves_zero) {
  const double x[] = {1, 10, 100}, r[] = {1, INFINITY, NAN};
  const double out[] = {110, 0, NAN};
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = x;
  args.scale_dst = r;
  forward(DFGNN_OP_SPMM_SUM, &args, 1, 1, DFGNN_LAYOUT_NHD, out);
}

TEST(weights_belong_to_an_edge_and_a_head_in_both_layouts) {
  const double w[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const double nhd[] = {1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400};
  const double out[] = {310, 620, 1260, 1680, 0,    0,
                        0,   0,   912,  1824, 3042, 4056};
  const double ndh[] = {1, 3, 2, 4, 10, 30, 20, 40, 100, 300, 200, 400};
  const double out_ndh[] = {310, 1260, 620, 1680, 0,    0,
                            0,   0,    912, 3042, 1824, 4056};
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.edge_weight = w;
  args.value = nhd;
  forward(DFGNN_OP_SPMM_WEIGHTED, &args, 2, 2, DFGNN_LAYOUT_NHD, out);
  args.value = ndh;
  forward(DFGNN_OP_SPMM_WEIGHTED, &args, 2, 2, DFGNN_LAYOUT_NDH, out_ndh);
}

TEST(nan_and_infinity_reach_their_own_rows_and_features_only) {
  const double x[] = {1, INFINITY, 10, NAN, 100, -INFINITY};
  const double out[] = {110, NAN, 0, 0, 102, NAN};
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = x;
  forward(DFGNN_OP_SPMM_SUM, &args, 1, 2, DFGNN_LAYOUT_NHD, out);
}

/* ---- gradients ----------------------------------------------------------- */

enum { HEADS = 2, DIM = 3, ROW = HEADS * DIM };

typedef struct numbers {
  double value[NODES * ROW], weight[EDGES * HEADS], r[NODES], c[NODES];
  double grad[NODES * ROW], out[NODES * ROW];
} numbers;

static numbers make_numbers(void) {
  numbers n;
  uint64_t seed = 7;
  double *all = (double *)&n;
  for (size_t i = 0; i < sizeof n / sizeof *all; i++)
    all[i] = uniform(&seed);
  return n;
}

static dfgnn_args args_of(numbers *n, dfgnn_op op) {
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.value = n->value;
  if (op == DFGNN_OP_SPMM_WEIGHTED)
    args.edge_weight = n->weight;
  args.scale_dst = n->r;
  args.scale_src = n->c;
  args.out = n->out;
  args.grad_out = n->grad;
  return args;
}

static double loss(dfgnn_context *ctx, dfgnn_graph *graph, dfgnn_op op,
                   numbers *n) {
  dfgnn_problem problem =
      aggregate_problem(op, DFGNN_PASS_FORWARD, DFGNN_F64, HEADS, DIM);
  dfgnn_args args = args_of(n, op);
  double sum = 0;
  run_variant(ctx, graph, &problem, &args, "cpu.spmm.fwd.reference");
  for (int i = 0; i < NODES * ROW; i++)
    sum += n->out[i] * n->grad[i];
  return sum;
}

static double slope(dfgnn_context *ctx, dfgnn_graph *graph, dfgnn_op op,
                    numbers *n, double *x) {
  const double step = 1e-4;
  double old = *x;
  *x = old + step;
  double above = loss(ctx, graph, op, n);
  *x = old - step;
  double below = loss(ctx, graph, op, n);
  *x = old;
  return (above - below) / (2 * step);
}

TEST_LOOP(gradients_of_the_reference_are_slopes_of_the_loss, DFGNN_OP_SPMM_SUM,
          DFGNN_OP_SPMM_WEIGHTED + 1) {
  dfgnn_op op = (dfgnn_op)_i;
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  dfgnn_csr csr = csr32(NODES, NODES, offsets, indices);
  dfgnn_problem problem =
      aggregate_problem(op, DFGNN_PASS_BACKWARD, DFGNN_F64, HEADS, DIM);
  numbers n = make_numbers();
  double value[NODES * ROW], weight[EDGES * HEADS];
  dfgnn_args args = args_of(&n, op);
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  args.grad_value = value;
  if (op == DFGNN_OP_SPMM_WEIGHTED)
    args.grad_edge_weight = weight;
  run_variant(ctx, graph, &problem, &args, "cpu.spmm.bwd.reference");
  for (int i = 0; i < NODES * ROW; i++)
    ck_assert_double_eq_tol(value[i], slope(ctx, graph, op, &n, &n.value[i]),
                            1e-8);
  for (int i = 0; op == DFGNN_OP_SPMM_WEIGHTED && i < EDGES * HEADS; i++)
    ck_assert_double_eq_tol(weight[i], slope(ctx, graph, op, &n, &n.weight[i]),
                            1e-8);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}

typedef struct pair {
  const double *value, *weight;
  const double *value_alone, *weight_alone;
} pair;

static void both_written(const void *data, const char *variant) {
  const pair *p = data;
  for (int i = 0; i < NODES * ROW; i++)
    ck_assert_msg(fabs(p->value[i] - p->value_alone[i]) < 1e-12,
                  "%s: grad_value alone differs", variant);
  for (int i = 0; i < EDGES * HEADS; i++)
    ck_assert_msg(fabs(p->weight[i] - p->weight_alone[i]) < 1e-12,
                  "%s: grad_edge_weight alone differs", variant);
}

static void nothing(const void *data, const char *variant) {
  (void)data, (void)variant;
}

TEST(each_gradient_may_be_asked_for_alone) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  dfgnn_csr csr = csr32(NODES, NODES, offsets, indices);
  dfgnn_problem problem = aggregate_problem(
      DFGNN_OP_SPMM_WEIGHTED, DFGNN_PASS_BACKWARD, DFGNN_F64, HEADS, DIM);
  numbers n = make_numbers();
  double value[2][NODES * ROW], weight[2][EDGES * HEADS];
  dfgnn_args both = args_of(&n, problem.op), one = both;
  pair p = {value[0], weight[0], value[1], weight[1]};
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  one.grad_value = value[1];
  each_variant(ctx, graph, &problem, &one, nothing, NULL);
  one.grad_value = NULL;
  one.grad_edge_weight = weight[1];
  each_variant(ctx, graph, &problem, &one, nothing, NULL);
  both.grad_value = value[0];
  both.grad_edge_weight = weight[0];
  each_variant(ctx, graph, &problem, &both, both_written, &p);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}

/* ---- super nodes --------------------------------------------------------- */

static int hub_degree(int64_t i) { return i == 2 ? 5000 : (int)(i % 3); }

TEST_LOOP(a_super_node_is_cut_the_same_way_each_time, 0, 2) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  dfgnn_csr csr = ring(6000, hub_degree);
  dfgnn_pass pass = (dfgnn_pass)_i;
  dfgnn_problem problem =
      aggregate_problem(DFGNN_OP_SPMM_SUM, pass, DFGNN_F32, 1, 40);
  size_t count = 6000 * 40, bytes = count * sizeof(float);
  float *x = malloc(bytes), *first = malloc(bytes), *again = malloc(bytes);
  uint64_t seed = 3;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_problem complete;
  int cut = 0;
  for (size_t i = 0; i < count; i++)
    x[i] = (float)uniform(&seed);
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  ck_ok(dfgnn__problem_complete(&complete, &problem));
  args.value = args.grad_out = x;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    dfgnn_setting setting = dfgnn__setting(graph, &complete);
    if (v->family->reference || dfgnn__variant_refusal(v, &setting))
      continue;
    args.out = args.grad_value = first;
    run_variant(ctx, graph, &problem, &args, v->name);
    args.out = args.grad_value = again;
    for (int k = 0; k < 3; k++) {
      run_variant(ctx, graph, &problem, &args, v->name);
      ck_assert_msg(!memcmp(first, again, bytes), "%s differs", v->name);
    }
    cut += !strcmp(v->family->algorithm, "balanced");
  }
  ck_assert_int_gt(cut, 0);
  free(x);
  free(first);
  free(again);
  dfgnn_graph_destroy(graph);
  ring_free(&csr);
  dfgnn_context_destroy(ctx);
}

TEST(the_sum_of_a_super_node_keeps_its_digits) {
  enum { EDGES = 100000, DIM = 3 };
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph;
  static const int32_t begins[] = {0, EDGES};
  static int32_t columns[EDGES];
  static float x[EDGES * DIM];
  double sum[DIM] = {0};
  float out[DIM];
  dfgnn_problem problem = aggregate_problem(
                    DFGNN_OP_SPMM_SUM, DFGNN_PASS_FORWARD, DFGNN_F32, 1, DIM),
                complete;
  uint64_t seed = 5;
  int checked = 0;
  dfgnn_args args = DFGNN_ARGS_INIT;
  for (int e = 0; e < EDGES; e++) {
    columns[e] = e;
    for (int d = 0; d < DIM; d++)
      sum[d] += x[e * DIM + d] = (float)(0.5 + uniform(&seed));
  }
  dfgnn_csr csr = csr32(1, EDGES, begins, columns);
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  ck_ok(dfgnn__problem_complete(&complete, &problem));
  args.value = x;
  args.out = out;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    dfgnn_setting setting = dfgnn__setting(graph, &complete);
    if (dfgnn__variant_refusal(v, &setting))
      continue;
    run_variant(ctx, graph, &problem, &args, v->name);
    for (int d = 0; d < DIM; d++)
      ck_assert_msg(fabs(out[d] - sum[d]) < 2e-6 * sum[d],
                    "%s found %.9g, expected %.9g", v->name, out[d], sum[d]);
    checked++;
  }
  ck_assert_int_gt(checked, 1);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}

TEST_MAIN("spmm", .timeout = 60)
