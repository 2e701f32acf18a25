/* SpMM beyond the loops over the registry: small sums by hand. */
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
  double out[64];
  dfgnn_csr csr = csr32(NODES, NODES, offsets, indices);
  dfgnn_problem problem =
      PROBLEM(.op = op, .dtype = DFGNN_F64, .heads = heads, .dim = dim);
  expected e = {out, numbers, NODES * heads * dim};
  problem.layout = layout;
  args->out = out;
  dfgnn_graph *graph = graph_on(ctx, &csr);
  each_variant(ctx, graph, &problem, args, matches, &e);
}

TEST(sums_count_duplicate_edges_twice_and_empty_rows_as_zero) {
  const double x[] = {1, 2, 10, 20, 100, 200};
  const double out[] = {110, 220, 0, 0, 102, 204};
  dfgnn_args args = ARGS(.value = x);
  forward(DFGNN_OP_SPMM_SUM, &args, 1, 2, DFGNN_LAYOUT_NHD, out);
}

TEST(means_divide_by_the_number_of_edges) {
  const double x[] = {1, 2, 10, 20, 100, 200};
  const double out[] = {55, 110, 0, 0, 34, 68};
  dfgnn_args args = ARGS(.value = x);
  forward(DFGNN_OP_SPMM_MEAN, &args, 1, 2, DFGNN_LAYOUT_NHD, out);
}

TEST(scales_of_rows_and_columns_normalise_without_an_edge_array) {
  const double x[] = {1, 10, 100}, r[] = {2, 3, 5}, c[] = {7, 11, 13};
  const double sum[] = {2 * (110. + 1300), 0, 5 * (7. + 7 + 1300)};
  const double mean[] = {sum[0] / 2, 0, sum[2] / 3};
  dfgnn_args args = ARGS(.value = x, .scale_dst = r, .scale_src = c);
  forward(DFGNN_OP_SPMM_SUM, &args, 1, 1, DFGNN_LAYOUT_NHD, sum);
  forward(DFGNN_OP_SPMM_MEAN, &args, 1, 1, DFGNN_LAYOUT_NHD, mean);
}

TEST(an_infinite_scale_of_an_empty_row_leaves_zero) {
  const double x[] = {1, 10, 100}, r[] = {1, INFINITY, NAN};
  const double out[] = {110, 0, NAN};
  dfgnn_args args = ARGS(.value = x, .scale_dst = r);
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
  dfgnn_args args = ARGS(.edge_weight = w, .value = nhd);
  forward(DFGNN_OP_SPMM_WEIGHTED, &args, 2, 2, DFGNN_LAYOUT_NHD, out);
  args.value = ndh;
  forward(DFGNN_OP_SPMM_WEIGHTED, &args, 2, 2, DFGNN_LAYOUT_NDH, out_ndh);
}

TEST(nan_and_infinity_reach_their_own_rows_and_features_only) {
  const double x[] = {1, INFINITY, 10, NAN, 100, -INFINITY};
  const double out[] = {110, NAN, 0, 0, 102, NAN};
  dfgnn_args args = ARGS(.value = x);
  forward(DFGNN_OP_SPMM_SUM, &args, 1, 2, DFGNN_LAYOUT_NHD, out);
}

TEST_MAIN("spmm", .timeout = 60)
