/* check_rule.c - the choice where nothing was measured, and the features of a
 * model */
#include "tests/unit/fixture.h"

#include "lib/feature.h"
#include "lib/operator.h"
#include "lib/registry.h"
#include "lib/select.h"

static const dfgnn_device_info devices[] = {
    {.backend = "cpu",
     .arch = "x86-64",
     .model = "a CPU",
     .units = 8,
     .cache_bytes = 32 << 20,
     .shared_bytes = 1 << 20},
    {.backend = "cuda",
     .arch = "sm_90",
     .model = "a GPU",
     .units = 132,
     .cache_bytes = 50 << 20,
     .memory_bytes = (int64_t)1 << 37,
     .shared_bytes = 227 << 10},
};
enum { DEVICES = sizeof devices / sizeof *devices };

static dfgnn_signature graph_of(int64_t nodes, int64_t edges, int64_t longest,
                                int64_t graphs) {
  double mean = nodes ? (double)edges / (double)nodes : 0;
  return (dfgnn_signature){.struct_size = sizeof(dfgnn_signature),
                           .destinations = nodes,
                           .sources = nodes,
                           .edges = edges,
                           .max_degree = longest,
                           .mean_degree = mean,
                           .p50_degree = (int64_t)mean,
                           .p90_degree = (int64_t)mean,
                           .p99_degree = longest,
                           .max_source_degree = longest,
                           .p50_source_degree = (int64_t)mean,
                           .p99_source_degree = longest,
                           .reuse = 1,
                           .graphs = graphs,
                           .largest_graph = graphs ? nodes / graphs : nodes,
                           .density = 0.01,
                           .fingerprint = 1};
}

static dfgnn_matrix matrix_of(const dfgnn_signature *s) {
  return (dfgnn_matrix){.destinations = s->destinations,
                        .sources = s->sources,
                        .edges = s->edges,
                        .max_degree = s->max_degree};
}

/* One edge, a small graph, a batch, a super node, a large graph. */
static int graphs(dfgnn_signature to[5]) {
  to[0] = graph_of(1, 1, 1, 1);
  to[1] = graph_of(2708, 10556, 168, 1);
  to[2] = graph_of(256 * 24, 256 * 100, 12, 256);
  to[3] = graph_of(10000, 1000000, 9000, 1);
  to[4] = graph_of(2000000, 60000000, 12000, 1);
  return 5;
}

START_TEST(every_problem_on_every_graph_has_a_rule) {
  dfgnn_signature graph[5];
  int checked = 0, kinds = graphs(graph);
  for (int d = 0; d < DEVICES; d++)
    for (int op = 0; op < DFGNN_OP_COUNT; op++)
      for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
        for (int dtype = 0; dtype < DFGNN_DTYPE_COUNT; dtype++)
          for (int g = 0; g < kinds; g++) {
            dfgnn_problem problem = DFGNN_PROBLEM_INIT;
            dfgnn_matrix matrix = matrix_of(&graph[g]);
            dfgnn_choice choice;
            problem.op = (dfgnn_op)op;
            problem.pass = (dfgnn_pass)pass;
            problem.dtype = (dfgnn_dtype)dtype;
            problem.heads = 1 + g;
            problem.dim = 16 << g;
            if (!dfgnn__operator(problem.op, problem.pass))
              continue;
            const dfgnn_query query = {.setting = {.problem = &problem,
                                                   .matrix = &matrix,
                                                   .signature = &graph[g],
                                                   .device = &devices[d]},
                                       .family = ""};
            dfgnn__rule_choice(&choice, &query);
            ck_assert_msg(choice.variant != NULL, "%s %s %s on graph %d of %s",
                          dfgnn_name(DFGNN_NAMES_OP, problem.op),
                          dfgnn_name(DFGNN_NAMES_PASS, problem.pass),
                          dfgnn_name(DFGNN_NAMES_DTYPE, problem.dtype), g,
                          devices[d].backend);
            ck_assert_ptr_null(
                dfgnn__variant_refusal(choice.variant, &query.setting));
            ck_assert_str_eq(choice.variant->family->backend,
                             devices[d].backend);
            ck_assert_int_ne(*choice.because, 0);
            checked++;
          }
  ck_assert_int_ge(checked,
                   DEVICES * (DFGNN_OP_COUNT + 4) * DFGNN_DTYPE_COUNT * kinds);
}
END_TEST

/* How many variants of a family of tiles run on a graph. */
static int tiles_that_run(const char *family, dfgnn_op op, double density,
                          double locality) {
  dfgnn_signature graph = graph_of(5000, 9800, 24, 1);
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  int count = 0;
  graph.density = density;
  graph.locality = locality;
  const dfgnn_matrix matrix = matrix_of(&graph);
  problem.op = op;
  problem.dtype = DFGNN_F16;
  problem.dim = 64;
  const dfgnn_setting setting = {.problem = &problem,
                                 .matrix = &matrix,
                                 .signature = &graph,
                                 .device = &devices[1]};
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    count += !strcmp(dfgnn__variant(i)->family->name, family) &&
             !dfgnn__variant_refusal(dfgnn__variant(i), &setting);
  return count;
}

/* A model that knows no such graph would choose them: 50 and 300 times the time
 * of the rule's choice. */
START_TEST(walks_over_tiles_are_not_for_graphs_that_leave_tiles_empty) {
  const char *window = "cuda.attention.fwd.window",
             *dense = "cuda.attention.fwd.dense";
  ck_assert_int_gt(tiles_that_run(window, DFGNN_OP_GATV2, 0.01, 0.9), 0);
  ck_assert_int_eq(tiles_that_run(window, DFGNN_OP_GATV2, 0.01, 0.2), 0);
  ck_assert_int_eq(tiles_that_run(window, DFGNN_OP_AGNN, 0.01, 0.2), 0);
  ck_assert_int_gt(tiles_that_run(window, DFGNN_OP_GT, 0.01, 0.2), 0);
  ck_assert_int_gt(tiles_that_run(dense, DFGNN_OP_GT, 0.1, 1), 0);
  ck_assert_int_eq(tiles_that_run(dense, DFGNN_OP_GT, 0.03, 1), 0);
}
END_TEST

/* The rule's choice on the GPU, and whether it goes before models. */
static int rule_on_gpu(dfgnn_choice *choice, const dfgnn_problem *problem,
                       const dfgnn_signature *graph) {
  const dfgnn_matrix matrix = matrix_of(graph);
  const dfgnn_query query = {.setting = {.problem = problem,
                                         .matrix = &matrix,
                                         .signature = graph,
                                         .device = &devices[1]},
                             .family = ""};
  const int knows = dfgnn__rule_knows(choice, &query);
  dfgnn__rule_choice(choice, &query);
  ck_assert_ptr_nonnull(choice->variant);
  return knows;
}

/* The same of attention with 11 edge features and 32 features a head, on a
 * graph with a hub or without one. */
static int rule_with_edges(dfgnn_choice *choice, dfgnn_op op, int pass,
                           dfgnn_dtype dtype, int64_t heads, int hub) {
  dfgnn_signature graph = graph_of(10000, 300000, hub ? 1500 : 40, 1);
  graph.degree_cv = graph.source_cv = hub ? 2 : 0.1;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  problem.op = op;
  problem.pass = (dfgnn_pass)pass;
  problem.dtype = dtype;
  problem.heads = heads;
  problem.dim = 32;
  problem.edge_dim = 11;
  return rule_on_gpu(choice, &problem, &graph);
}

/* A hub among short rows is cut where edges have features, too. */
START_TEST(rows_with_edge_features_are_cut_at_hubs) {
  static const dfgnn_op ops[] = {DFGNN_OP_GT, DFGNN_OP_GATV2};
  for (int k = 0; k < 2; k++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
      for (int hub = 0; hub < 2; hub++) {
        dfgnn_choice choice;
        rule_with_edges(&choice, ops[k], pass, DFGNN_F32, 4, hub);
        ck_assert_str_eq(choice.variant->family->algorithm,
                         ops[k] == DFGNN_OP_GT ? "edges" : "lift");
        ck_assert_ptr_nonnull(
            strstr(choice.variant->name, hub ? "edges=128" : "edges=all"));
      }
}
END_TEST

/* Where the lanes make W e of many heads, a walk takes tiles of them: all at
 * once do not stay in registers (73 ms in place of GT's 5 on arxiv). */
START_TEST(many_heads_with_edge_features_go_by_tiles) {
  int checked = 0;
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
    for (int hub = 0; hub < 2; hub++) {
      dfgnn_choice choice;
      ck_assert_int_eq(
          rule_with_edges(&choice, DFGNN_OP_GATV2, pass, DFGNN_F16, 16, hub),
          1);
      ck_assert_ptr_nonnull(strstr(choice.variant->name, "lanes=32"));
      ck_assert_ptr_nonnull(strstr(choice.variant->name, "warps=4,blocks=3"));
      ck_assert_ptr_nonnull(
          strstr(choice.variant->name, hub ? "edges=128" : "edges=all"));
      checked++;
    }
  ck_assert_int_eq(checked, 2 * DFGNN_PASS_COUNT);
}
END_TEST

/* Where most rows are short and some are long, blocks take these, for sums
 * whatever a model says that was fitted before they did, or tensor cores add up
 * narrow sums of bfloat16; not where they were not measured: hubs, which sums
 * know better than attention. */
START_TEST(blocks_take_a_few_long_rows) {
  static const struct {
    dfgnn_op op;
    dfgnn_dtype dtype;
    int64_t dim, longest;
    int knows;
    const char *algorithm;
  } cases[] = {{DFGNN_OP_GT, DFGNN_F32, 128, 700, 0, "block"},
               {DFGNN_OP_GT, DFGNN_F32, 128, 3000, 0, "split"},
               {DFGNN_OP_GT, DFGNN_F16, 128, 700, 0, "block"},
               {DFGNN_OP_SPMM_SUM, DFGNN_F32, 128, 700, 1, "block"},
               {DFGNN_OP_SPMM_SUM, DFGNN_F16, 128, 700, 1, "block"},
               {DFGNN_OP_SPMM_SUM, DFGNN_F32, 128, 9000, 1, "block"},
               {DFGNN_OP_SPMM_SUM, DFGNN_F32, 128, 12000, 0, "split"},
               {DFGNN_OP_SPMM_SUM, DFGNN_BF16, 128, 700, 1, "block"},
               {DFGNN_OP_SPMM_SUM, DFGNN_BF16, 64, 700, 1, "fours"},
               {DFGNN_OP_SPMM_SUM, DFGNN_BF16, 40, 700, 1, "block"},
               {DFGNN_OP_SPMM_WEIGHTED, DFGNN_BF16, 32, 700, 1, "block"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dfgnn_signature graph = graph_of(20000, 150000, cases[i].longest, 1);
    graph.degree_cv = graph.source_cv = 1.5;
    dfgnn_problem problem = DFGNN_PROBLEM_INIT;
    dfgnn_choice choice;
    problem.op = cases[i].op;
    problem.dtype = cases[i].dtype;
    problem.dim = cases[i].dim;
    ck_assert_int_eq(rule_on_gpu(&choice, &problem, &graph), cases[i].knows);
    ck_assert_str_eq(choice.variant->family->algorithm, cases[i].algorithm);
  }
}
END_TEST

/* Long rows that gather from all over tables beyond the L2 do so by slices of
 * them; not from nearby, nor short rows, nor tables that the L2 holds. */
START_TEST(tables_beyond_the_cache_are_sliced) {
  static const struct {
    dfgnn_op op;
    int64_t nodes, mean;
    double locality;
    int forward, backward;
  } cases[] = {{DFGNN_OP_GT, 232965, 492, 0.01, 1, 1},
               {DFGNN_OP_GT, 232965, 492, 0.5, 0, 0},
               {DFGNN_OP_GT, 232965, 40, 0.01, 0, 0},
               {DFGNN_OP_GT, 140000, 492, 0.01, 0, 0},
               {DFGNN_OP_GATV2, 232965, 492, 0.01, 0, 0},
               {DFGNN_OP_GAT, 232965, 492, 0.01, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
      dfgnn_signature graph =
          graph_of(cases[i].nodes, cases[i].nodes * cases[i].mean, 21657, 1);
      dfgnn_problem problem = DFGNN_PROBLEM_INIT;
      dfgnn_choice choice;
      graph.locality = cases[i].locality;
      problem.op = cases[i].op;
      problem.pass = (dfgnn_pass)pass;
      problem.dim = 128;
      const int knows = rule_on_gpu(&choice, &problem, &graph);
      const int expected =
          pass == DFGNN_PASS_BACKWARD ? cases[i].backward : cases[i].forward;
      ck_assert_int_eq(knows, expected);
      ck_assert_int_eq(
          strstr(choice.variant->parameters, "order=slices") != NULL, expected);
    }
}
END_TEST

/* Pieces of hubs among short rows are sorted where there are many of them. */
START_TEST(hubs_among_short_rows_are_sorted) {
  static const struct {
    int64_t nodes, edges, longest;
    int sorted;
  } cases[] = {{37700, 578006, 9458, 1},
               {65755, 251550, 4549, 1},
               {20000, 150000, 3000, 0},
               {11631, 341546, 3546, 0},
               {37700, 578006, 1000, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dfgnn_signature graph =
        graph_of(cases[i].nodes, cases[i].edges, cases[i].longest, 1);
    dfgnn_problem problem = DFGNN_PROBLEM_INIT;
    dfgnn_choice choice;
    graph.degree_cv = 4;
    problem.dim = 128;
    const int knows = rule_on_gpu(&choice, &problem, &graph);
    const int found = strstr(choice.variant->parameters, "span=sorted") != NULL;
    ck_assert_int_eq(found, cases[i].sorted);
    ck_assert(knows || !found);
  }
}
END_TEST

/* Rows of few loads leave no lane of an edge idle; 3 x 24 floats, 18 loads, are
 * laid as 3 x 32 are. */
START_TEST(narrow_rows_take_as_many_lanes_as_they_fill) {
  static const struct {
    dfgnn_op op;
    int pass, dtype, heads, dim, mean;
    double cv;
    const char *parameters;
  } cases[] = {{DFGNN_OP_GT, 0, DFGNN_F32, 1, 16, 20, 0, "lanes=4,unroll=4"},
               {DFGNN_OP_GT, 0, DFGNN_F32, 1, 32, 20, 0, "lanes=8,unroll=4"},
               {DFGNN_OP_GT, 0, DFGNN_F16, 8, 8, 20, 0, "lanes=8,unroll=4"},
               {DFGNN_OP_GT, 0, DFGNN_F32, 1, 64, 20, 0, "lanes=16,unroll=4"},
               {DFGNN_OP_GT, 0, DFGNN_F32, 3, 24, 20, 0, "lanes=16,unroll=4"},
               {DFGNN_OP_GT, 0, DFGNN_F32, 1, 128, 20, 0, "lanes=16,unroll=4"},
               {DFGNN_OP_GT, 0, DFGNN_F16, 16, 32, 20, 0, "lanes=32,unroll=4"},
               {DFGNN_OP_GAT, 0, DFGNN_F32, 1, 64, 6, 0, "lanes=8,unroll=2"},
               {DFGNN_OP_GAT, 0, DFGNN_F16, 16, 32, 6, 0, "rows=2"},
               {DFGNN_OP_GT, 1, DFGNN_F32, 1, 32, 20, 2, "lanes=8,unroll=2"},
               {DFGNN_OP_GT, 1, DFGNN_F16, 16, 32, 20, 2, "lanes=32,unroll=2"},
               {DFGNN_OP_SPMM_SUM, 0, DFGNN_F32, 1, 32, 6, 0, "rows=8"},
               {DFGNN_OP_SPMM_SUM, 0, DFGNN_F32, 1, 64, 6, 0, "rows=4"},
               {DFGNN_OP_SPMM_SUM, 0, DFGNN_F32, 1, 128, 6, 0, "rows=2"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dfgnn_signature graph =
        graph_of(20000, 20000 * cases[i].mean, cases[i].cv ? 3000 : 40, 1);
    dfgnn_problem problem = DFGNN_PROBLEM_INIT;
    dfgnn_choice choice;
    graph.degree_cv = graph.source_cv = cases[i].cv;
    problem.op = cases[i].op;
    problem.pass = (dfgnn_pass)cases[i].pass;
    problem.dtype = (dfgnn_dtype)cases[i].dtype;
    problem.heads = cases[i].heads;
    problem.dim = cases[i].dim;
    rule_on_gpu(&choice, &problem, &graph);
    ck_assert_msg(strstr(choice.variant->parameters, cases[i].parameters) !=
                      NULL,
                  "case %zu: %s", i, choice.variant->name);
  }
}
END_TEST

/* A row has a warp of its own where all of them have one at once. */
START_TEST(few_rows_have_a_warp_each) {
  for (int many = 0; many < 2; many++) {
    dfgnn_signature graph = graph_of(many ? 9000 : 2700, 10500, 100, 1);
    dfgnn_problem problem = DFGNN_PROBLEM_INIT;
    dfgnn_choice choice;
    graph.degree_cv = 2;
    problem.dim = 128;
    rule_on_gpu(&choice, &problem, &graph);
    ck_assert_ptr_nonnull(strstr(choice.variant->parameters,
                                 many ? "warps=4,rows=2" : "warps=8,rows=1"));
    problem.op = DFGNN_OP_SPMM_SUM;
    rule_on_gpu(&choice, &problem, &graph);
    ck_assert_ptr_nonnull(
        strstr(choice.variant->parameters, many ? "rows=2" : "rows=1"));
  }
}
END_TEST

/* Narrow heads on batches of small dense graphs go from memory into tensor
 * cores, whatever a model says where there are tiles for all multiprocessors;
 * not where rows were faster. */
START_TEST(narrow_heads_on_dense_graphs_go_into_tensor_cores) {
  enum { ROWS, DIRECT, DENSE };
  static const struct {
    int dim, dtype, dropout, bias, forward, backward;
  } cases[] = {{16, DFGNN_F32, 0, 0, DIRECT, DIRECT},
               {16, DFGNN_F32, 1, 0, DIRECT, ROWS},
               {32, DFGNN_BF16, 1, 0, DIRECT, DIRECT},
               {16, DFGNN_F16, 1, 1, ROWS, ROWS},
               {24, DFGNN_F16, 1, 0, ROWS, ROWS},
               {64, DFGNN_F16, 1, 0, DENSE, DENSE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
      for (int many = 0; many < 2; many++) {
        const int batch = many ? 128 : 32;
        dfgnn_signature graph = graph_of(batch * 119, batch * 6079, 100, batch);
        dfgnn_problem problem = DFGNN_PROBLEM_INIT;
        dfgnn_choice choice;
        graph.density = 0.43;
        problem.op = DFGNN_OP_GT;
        problem.pass = (dfgnn_pass)pass;
        problem.dtype = (dfgnn_dtype)cases[i].dtype;
        problem.heads = 8;
        problem.dim = cases[i].dim;
        problem.dropout = cases[i].dropout;
        problem.bias = cases[i].bias;
        const int knows = rule_on_gpu(&choice, &problem, &graph);
        const char *algorithm = choice.variant->family->algorithm;
        const int found = !strcmp(algorithm, "direct")  ? DIRECT
                          : !strcmp(algorithm, "dense") ? DENSE
                                                        : ROWS;
        ck_assert_int_eq(found, pass == DFGNN_PASS_BACKWARD ? cases[i].backward
                                                            : cases[i].forward);
        ck_assert_int_eq(knows, many && found == DIRECT);
      }
}
END_TEST

/* Rows of as many edges as the capacity holds elements are super nodes. */
START_TEST(the_papers_rule_turns_at_its_capacity) {
  static const struct {
    dfgnn_op op;
    dfgnn_dtype dtype;
    int64_t longest;
    const char *algorithm;
  } expected[] = {
      {DFGNN_OP_GT, DFGNN_F32, 3071, "smmf"},
      {DFGNN_OP_GT, DFGNN_F32, 3072, "pmf"},
      {DFGNN_OP_GT, DFGNN_F16, 6143, "smmf"},
      {DFGNN_OP_GT, DFGNN_F16, 6144, "pmf"},
      {DFGNN_OP_AGNN, DFGNN_F64, 1535, "smmf"},
      {DFGNN_OP_AGNN, DFGNN_F64, 1536, "pmf"},
      {DFGNN_OP_GAT, DFGNN_F32, 3072, "smmf"}, /* no dot product */
      {DFGNN_OP_GATV2, DFGNN_F32, 21657, "smmf"},
  };
  for (size_t k = 0; k < sizeof expected / sizeof *expected; k++)
    for (int d = 0; d < DEVICES; d++) {
      const dfgnn_signature graph =
          graph_of(30000, 900000, expected[k].longest, 1);
      const dfgnn_matrix matrix = matrix_of(&graph);
      dfgnn_problem problem = DFGNN_PROBLEM_INIT;
      dfgnn_choice choice;
      problem.op = expected[k].op;
      problem.dtype = expected[k].dtype;
      problem.dim = 64;
      const dfgnn_query query = {.setting = {.problem = &problem,
                                             .matrix = &matrix,
                                             .signature = &graph,
                                             .device = &devices[d]},
                                 .family = ""};
      dfgnn__paper_choice(&choice, &query, DFGNN_PAPER_CAPACITY);
      ck_assert_int_eq(choice.source, DFGNN_SOURCE_PAPER);
      ck_assert_ptr_nonnull(choice.variant);
      ck_assert_msg(
          !strcmp(choice.variant->family->algorithm, expected[k].algorithm),
          "%s of %lld edges: found %s, expected %s",
          dfgnn_name(DFGNN_NAMES_OP, problem.op),
          (long long)expected[k].longest, choice.variant->family->algorithm,
          expected[k].algorithm);
      dfgnn__rule_choice(&choice, &query);
      ck_assert(dfgnn__variant_offered(choice.variant));
    }
}
END_TEST

/* On a GPU SMMF alone writes weights without a workspace. */
START_TEST(a_papers_variant_serves_where_nothing_else_does) {
  const dfgnn_signature graph = graph_of(30000, 900000, 100, 1);
  const dfgnn_matrix matrix = matrix_of(&graph);
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_choice choice;
  problem.weights = 1;
  problem.max_workspace = 0;
  const dfgnn_query query = {.setting = {.problem = &problem,
                                         .matrix = &matrix,
                                         .signature = &graph,
                                         .device = &devices[1]},
                             .family = ""};
  dfgnn__rule_choice(&choice, &query);
  ck_assert_ptr_nonnull(choice.variant);
  ck_assert_int_eq(choice.variant->family->paper, 1);
}
END_TEST

/* ---- features ------------------------------------------------------------ */

static double pair_number(const char *name, const dfgnn_setting *setting,
                          const int *value) {
  for (size_t i = 0; i < dfgnn__pair_feature_count(); i++)
    if (!strcmp(dfgnn__pair_feature(i)->name, name))
      return dfgnn__pair_feature(i)->number(setting, value);
  ck_abort_msg("no feature is called %s", name);
}

/* The class of rows of 4 to 7 edges stands for rows of 6: 8 edges in flight
 * leave two idle, 4 in flight take two rounds. */
START_TEST(slots_an_edge_are_those_of_whole_rounds) {
  dfgnn_signature graph = graph_of(100, 600, 7, 1);
  const dfgnn_setting setting = {.signature = &graph, .device = &devices[1]};
  graph.histogram[3] = 1;
  ck_assert_double_eq_tol(
      pair_number("slots an edge", &setting, (int[]){4, 1, 0}), 8.0 / 6, 1e-12);
  ck_assert_double_eq_tol(
      pair_number("slots an edge", &setting, (int[]){8, 1, 0}), 8.0 / 6, 1e-12);
  ck_assert_double_eq_tol(
      pair_number("slots an edge", &setting, (int[]){4, 2, 0}), 16.0 / 6,
      1e-12);
}
END_TEST

/* 18 loads by 8 lanes are three of each, of which a quarter is idle; by 16,
 * where heads lie two by two, two of each. */
START_TEST(idle_lanes_are_a_feature) {
  static const struct {
    dfgnn_op op;
    int heads, dim, lanes;
    double loads, lanes_a_load;
  } cases[] = {{DFGNN_OP_GT, 3, 24, 8, 3, 24 / 18.},
               {DFGNN_OP_GT, 3, 24, 16, 2, 32 / 18.},
               {DFGNN_OP_GT, 3, 24, 4, 6, 24 / 18.},
               {DFGNN_OP_GT, 4, 32, 16, 2, 1},
               {DFGNN_OP_GT, 1, 32, 32, 1, 4},
               {DFGNN_OP_GT, 1, 17, 8, 3, 24 / 17.},
               {DFGNN_OP_SPMM_SUM, 1, 96, 8, 3, 1},
               {DFGNN_OP_SPMM_SUM, 2, 48, 16, 2, 32 / 24.}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dfgnn_problem problem = DFGNN_PROBLEM_INIT;
    const dfgnn_setting setting = {.problem = &problem};
    problem.op = cases[i].op;
    problem.heads = cases[i].heads;
    problem.dim = cases[i].dim;
    ck_assert_double_eq_tol(
        pair_number("loads a lane", &setting, &cases[i].lanes), cases[i].loads,
        1e-12);
    ck_assert_double_eq_tol(
        pair_number("lanes a load", &setting, &cases[i].lanes),
        cases[i].lanes_a_load, 1e-12);
  }
}
END_TEST

START_TEST(features_of_a_problem_have_names_that_differ) {
  size_t count = dfgnn__problem_feature_count();
  ck_assert_uint_gt(count, 30);
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < i; j++)
      ck_assert_str_ne(dfgnn__problem_feature_name(i),
                       dfgnn__problem_feature_name(j));
}
END_TEST

/* The variant of the rule for attention of f32 on a CPU. */
static const dfgnn_variant *variant_on_cpu(dfgnn_op op, dfgnn_pass pass,
                                           int64_t heads, int64_t dim,
                                           const dfgnn_signature *graph) {
  dfgnn_problem given = DFGNN_PROBLEM_INIT, problem;
  given.op = op;
  given.pass = pass;
  given.heads = heads;
  given.dim = dim;
  ck_ok(dfgnn__problem_complete(&problem, &given));
  const dfgnn_matrix matrix = matrix_of(graph);
  const dfgnn_query query = {.setting = {.problem = &problem,
                                         .matrix = &matrix,
                                         .signature = graph,
                                         .device = &devices[0]},
                             .family = ""};
  dfgnn_choice choice;
  dfgnn__rule_choice(&choice, &query);
  ck_assert_ptr_nonnull(choice.variant);
  return choice.variant;
}

static const char *on_cpu(dfgnn_op op, dfgnn_pass pass, int64_t heads,
                          int64_t dim, const dfgnn_signature *graph) {
  return variant_on_cpu(op, pass, heads, dim, graph)->family->algorithm;
}

START_TEST(only_gathers_from_memory_are_prefetched_on_a_cpu) {
  static const struct {
    int64_t nodes, edges;
    const char *prefetch;
  } graphs_of[] = {{1000, 25000, "prefetch=0"},
                   {1000, 4000, "prefetch=24"},
                   {100000, 2500000, "prefetch=24"}};
  for (size_t i = 0; i < sizeof graphs_of / sizeof *graphs_of; i++) {
    const dfgnn_signature graph =
        graph_of(graphs_of[i].nodes, graphs_of[i].edges, 100, 1);
    const dfgnn_variant *v =
        variant_on_cpu(DFGNN_OP_GT, DFGNN_PASS_FORWARD, 8, 8, &graph);
    ck_assert_ptr_nonnull(strstr(v->name, graphs_of[i].prefetch));
    ck_assert_str_eq(v->family->algorithm, "online");
  }
}
END_TEST

START_TEST(narrow_heads_are_taken_side_by_side_on_a_cpu) {
  static const dfgnn_op ops[] = {DFGNN_OP_GT, DFGNN_OP_GAT, DFGNN_OP_GATV2,
                                 DFGNN_OP_AGNN};
  dfgnn_signature graph[5];
  graphs(graph);
  graph[3] = graph_of(10000, 100000, 50000, 1); /* one row dominates */
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    const dfgnn_pass forward = DFGNN_PASS_FORWARD, back = DFGNN_PASS_BACKWARD;
    ck_assert_str_eq(on_cpu(ops[i], forward, 8, 8, &graph[1]), "online");
    ck_assert_str_eq(on_cpu(ops[i], forward, 4, 16, &graph[2]), "online");
    ck_assert_str_eq(on_cpu(ops[i], forward, 8, 8, &graph[3]), "split");
    ck_assert_str_eq(on_cpu(ops[i], forward, 1, 64, &graph[1]), "smmf");
    ck_assert_str_eq(on_cpu(ops[i], forward, 4, 64, &graph[1]), "smmf");
    ck_assert_str_eq(on_cpu(ops[i], back, 8, 8, &graph[1]), "spill");
    ck_assert_str_eq(on_cpu(ops[i], back, 8, 8, &graph[3]), "split");
    ck_assert_str_eq(on_cpu(ops[i], back, 1, 64, &graph[1]), "spill");
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("rule");
  TCase *tests = tcase_create("rule");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, every_problem_on_every_graph_has_a_rule);
  tcase_add_test(tests,
                 walks_over_tiles_are_not_for_graphs_that_leave_tiles_empty);
  tcase_add_test(tests, only_gathers_from_memory_are_prefetched_on_a_cpu);
  tcase_add_test(tests, narrow_heads_are_taken_side_by_side_on_a_cpu);
  tcase_add_test(tests, rows_with_edge_features_are_cut_at_hubs);
  tcase_add_test(tests, many_heads_with_edge_features_go_by_tiles);
  tcase_add_test(tests, blocks_take_a_few_long_rows);
  tcase_add_test(tests, tables_beyond_the_cache_are_sliced);
  tcase_add_test(tests, hubs_among_short_rows_are_sorted);
  tcase_add_test(tests, narrow_rows_take_as_many_lanes_as_they_fill);
  tcase_add_test(tests, few_rows_have_a_warp_each);
  tcase_add_test(tests, idle_lanes_are_a_feature);
  tcase_add_test(tests, narrow_heads_on_dense_graphs_go_into_tensor_cores);
  tcase_add_test(tests, the_papers_rule_turns_at_its_capacity);
  tcase_add_test(tests, a_papers_variant_serves_where_nothing_else_does);
  tcase_add_test(tests, slots_an_edge_are_those_of_whole_rounds);
  tcase_add_test(tests, features_of_a_problem_have_names_that_differ);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
