/* check_graph.c - matrices that are refused as graphs, and signatures */
#include "tests/unit/fixture.h"

#include <math.h>

static dfgnn_context *ctx;

static void open_context(void) { ctx = cpu_context(""); }

static void refuse(const dfgnn_csr *csr, const char *text) {
  dfgnn_graph *graph = NULL;
  ck_invalid(dfgnn_graph_create_csr(&graph, ctx, csr, NULL), text);
  ck_assert_ptr_null(graph);
}

static const struct {
  int32_t offsets[4], indices[4];
  int64_t edges;
  const char *message;
} wrong[] = {
    {{0, 2, 1, 3}, {0, 1, 2}, 3, "offsets fall at row 1: 1 after 2"},
    {{1, 2, 2, 3}, {0, 1, 2}, 3, "offsets[0] is 1, expected 0"},
    {{0, 1, 2, 3}, {0, 1, 2}, 4, "offsets end at 3, expected edges = 4"},
    {{0, 1, 2, 4},
     {0, 1, 2, 3},
     4,
     "indices[3] = 3 in row 2 is out of range, expected 0..2"},
    {{0, 1, 2, 4}, {0, -5, 2, 1}, 4, "indices[1] = -5 in row 1"}};

TEST_LOOP(what_is_wrong_in_a_matrix_is_named, 0,
          (int)(sizeof wrong / sizeof *wrong)) {
  dfgnn_csr csr = csr32(3, 3, wrong[_i].offsets, wrong[_i].indices);
  csr.edges = wrong[_i].edges;
  refuse(&csr, wrong[_i].message);
}

TEST(a_wide_index_that_does_not_fit_is_named) {
  const int32_t offsets[] = {0, 1, 2};
  const int64_t indices[] = {0, 1LL << 40};
  dfgnn_csr csr = csr32(2, 2, offsets, NULL);
  csr.indices = indices;
  csr.index_type = DFGNN_INDEX_I64;
  refuse(&csr, "indices[1] = 1099511627776");
}

TEST(no_more_wide_indices_are_read_than_offsets_tell_of) {
  const int32_t offsets[] = {0, 1, 2};
  const int64_t indices[] = {0, 1};
  dfgnn_csr csr = csr32(2, 2, offsets, NULL);
  csr.indices = indices;
  csr.index_type = DFGNN_INDEX_I64;
  csr.edges = 1 << 28;
  refuse(&csr, "offsets end at 2, expected edges = 268435456");
}

TEST(missing_arrays_and_sizes_are_named) {
  const int32_t offsets[] = {0, 1}, indices[] = {0};
  dfgnn_csr csr = csr32(1, 1, offsets, indices);
  csr.struct_size = 3;
  refuse(&csr, "csr.struct_size is 3");
  csr = csr32(1, 1, offsets, NULL);
  refuse(&csr, "csr.indices is NULL");
  csr = csr32(1, 1, offsets, indices);
  csr.offsets = NULL;
  refuse(&csr, "csr.offsets is NULL");
  csr = csr32(1, 1, offsets, indices);
  csr.sources = -1;
  refuse(&csr, "csr.sources is -1");
  csr = csr32(1, 1, offsets, indices);
  csr.offset_type = (dfgnn_index_type)9;
  refuse(&csr, "csr.offset_type is 9, expected 0..1");
}

TEST(an_edge_that_leaves_its_graph_is_named) {
  const int32_t offsets[] = {0, 1, 2, 3, 4}, indices[] = {1, 0, 3, 1};
  const int64_t ptr[] = {0, 2, 4};
  dfgnn_csr csr = csr32(4, 4, offsets, indices);
  csr.graphs = 2;
  csr.graph_ptr = ptr;
  refuse(&csr, "edge to 1 in row 3 leaves graph 1, whose nodes are 2..3");
}

static void refuse_options(dfgnn_options options, const char *text) {
  dfgnn_context *none = NULL;
  options.device = "cpu";
  ck_invalid(dfgnn_context_create(&none, &options), text);
  ck_assert_ptr_null(none);
}

TEST(options_out_of_range_are_named) {
  refuse_options(INIT(dfgnn_options, .effort = (dfgnn_effort)77),
                 "options.effort is 77, expected 0..5");
  refuse_options(INIT(dfgnn_options, .log_level = (dfgnn_log_level)42),
                 "options.log_level is 42, expected 0..5");
  refuse_options(INIT(dfgnn_options, .threads = -1),
                 "options.threads is -1, expected 0..4096");
  refuse_options(INIT(dfgnn_options, .paper_capacity = -4),
                 "options.paper_capacity is -4, expected >= 0");
}

static dfgnn_signature signature_of(const dfgnn_csr *csr) {
  dfgnn_signature s = DFGNN_SIGNATURE_INIT;
  dfgnn_graph *graph = graph_on(ctx, csr);
  ck_ok(dfgnn_graph_signature(&s, graph));
  return s;
}

TEST(an_empty_graph_is_a_graph) {
  const int32_t offsets[] = {0, 0, 0, 0};
  dfgnn_csr none = csr32(0, 0, offsets, NULL);
  dfgnn_signature s = signature_of(&none);
  ck_assert_int_eq(s.destinations, 0);
  dfgnn_csr isolated = csr32(3, 3, offsets, NULL);
  s = signature_of(&isolated);
  ck_assert_double_eq(s.isolated, 1);
  ck_assert_int_eq(s.max_degree, 0);
  ck_assert_double_eq(s.histogram[0], 1);
}

static int degree_of(int64_t i) { return i == 7 ? 5000 : (int)(i % 4); }

TEST(degrees_are_counted_exactly) {
  dfgnn_csr csr = ring(6000, degree_of);
  dfgnn_signature s = signature_of(&csr);
  ck_assert_int_eq(s.max_degree, 5000);
  ck_assert_int_eq(s.p50_degree, 1);
  ck_assert_int_eq(s.p90_degree, 3);
  ck_assert_int_eq(s.p99_degree, 3);
  ck_assert_int_eq(s.edges, 9000 - 3 + 5000);
  ck_assert_double_eq_tol(s.mean_degree, 13997.0 / 6000, 1e-12);
  ck_assert_double_eq_tol(s.isolated, 0.25, 1e-12);
  ck_assert_double_eq_tol(s.histogram[1], 0.25, 1e-12);         /* degree 1 */
  ck_assert_double_eq_tol(s.histogram[2], 2999. / 6000, 1e-12); /* 2, 3 */
  ck_assert_double_eq_tol(s.histogram[13], 1. / 6000, 1e-12);
  /* 1500 rows of each degree up to 3, but one row of 5000 in place of 3 */
  double mean = 13997.0 / 6000, squares = 1500 * 14 - 9 + 5000.0 * 5000;
  ck_assert_double_eq_tol(s.degree_cv,
                          sqrt(squares / 6000 - mean * mean) / mean, 1e-12);
}

static int one_two_five(int64_t i) { return (int[]){5, 1, 2}[i]; }

/* Percentile p is the degree of the row of rank floor(p (n - 1)). */
TEST(percentiles_are_those_of_a_rank) {
  dfgnn_csr csr = ring(3, one_two_five);
  dfgnn_signature s = signature_of(&csr);
  ck_assert_int_eq(s.p50_degree, 2);
  ck_assert_int_eq(s.p90_degree, 2);
  ck_assert_int_eq(s.p99_degree, 2);
  ck_assert_int_eq(s.max_degree, 5);
}

TEST(width_of_arrays_does_not_change_the_fingerprint) {
  const int32_t offsets[] = {0, 2, 2, 3}, indices[] = {2, 1, 0};
  const int64_t wide_offsets[] = {0, 2, 2, 3}, wide_indices[] = {2, 1, 0};
  dfgnn_csr csr = csr32(3, 3, offsets, indices);
  uint64_t narrow = signature_of(&csr).fingerprint;
  csr.offsets = wide_offsets;
  csr.offset_type = DFGNN_INDEX_I64;
  csr.indices = wide_indices;
  csr.index_type = DFGNN_INDEX_I64;
  ck_assert(signature_of(&csr).fingerprint == narrow);
}

TEST(one_moved_edge_changes_the_fingerprint) {
  const int32_t offsets[] = {0, 2, 2, 3}, moved[] = {0, 1, 2, 3};
  const int32_t indices[] = {2, 1, 0}, other[] = {1, 2, 0};
  dfgnn_csr a = csr32(3, 3, offsets, indices);
  dfgnn_csr b = csr32(3, 3, offsets, other);
  dfgnn_csr c = csr32(3, 3, moved, indices);
  uint64_t f = signature_of(&a).fingerprint;
  ck_assert(f != signature_of(&b).fingerprint);
  ck_assert(f != signature_of(&c).fingerprint);
}

/* blocks {0,1} {2} {3,4,5}, then isolated 6, 7 */
static const int32_t block_offsets[] = {0, 1, 2, 3, 5, 6, 7, 7, 7};
static const int32_t block_indices[] = {1, 0, 2, 4, 5, 3, 3};

TEST(diagonal_blocks_are_found) {
  dfgnn_csr csr = csr32(8, 8, block_offsets, block_indices);
  dfgnn_signature s = signature_of(&csr);
  ck_assert_int_eq(s.graphs, 4);
  ck_assert_int_eq(s.largest_graph, 3);
  ck_assert_double_eq_tol(s.density, 7. / (4 + 1 + 9 + 4), 1e-12);
}

TEST(a_given_graph_ptr_is_used) {
  const int64_t ptr[] = {0, 3, 8};
  dfgnn_csr csr = csr32(8, 8, block_offsets, block_indices);
  csr.graphs = 2;
  csr.graph_ptr = ptr;
  dfgnn_signature s = signature_of(&csr);
  ck_assert_int_eq(s.graphs, 2);
  ck_assert_int_eq(s.largest_graph, 5);
  ck_assert_double_eq_tol(s.density, 7. / (9 + 25), 1e-12);
}

TEST(reuse_counts_distinct_columns_of_a_window) {
  int32_t offsets[17], indices[32];
  for (int i = 0; i <= 16; i++)
    offsets[i] = 2 * i;
  for (int e = 0; e < 32; e++)
    indices[e] = e % 4; /* 4 distinct of 32 */
  dfgnn_csr csr = csr32(16, 16, offsets, indices);
  ck_assert_double_eq_tol(signature_of(&csr).reuse, 4. / 32, 1e-12);
}

TEST_MAIN("graph", .setup = open_context)
