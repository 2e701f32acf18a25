/* check_reorder.c - orders of nodes and the graphs they give */

#include "graph/io/io.h"
#include "graph/reorder/reorder.h"
#include "lib/graph.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"

/* Only METIS may be absent from a build. */
static int built(dfgnn_order order) {
  ck_assert(dfgnn__order_built(order) || order == DFGNN_ORDER_METIS);
  return dfgnn__order_built(order);
}

static dfgnn_csr *data(const char *name) {
  const char *top = getenv("top_srcdir");
  char path[512];
  dfgnn_csr *csr = NULL;
  snprintf(path, sizeof path, "%s/data/%s.npz", top ? top : ".", name);
  ck_ok(dfgnn_csr_read(&csr, path));
  return own_csr(csr);
}

static int64_t *numbers(int64_t count) {
  return zeros_of(count, sizeof(int64_t));
}

static void each_once(const int64_t *order, int64_t count) {
  char *seen = zeros_of(count, 1);
  for (int64_t p = 0; p < count; p++) {
    ck_assert_int_ge(order[p], 0);
    ck_assert_int_lt(order[p], count);
    ck_assert_int_eq(seen[order[p]]++, 0);
  }
}

static int64_t *inverse(const int64_t *order, int64_t count) {
  int64_t *to = numbers(count);
  for (int64_t p = 0; p < count; p++)
    to[order[p]] = p;
  return to;
}

static void same_graph(const dfgnn_csr *a, const dfgnn_csr *b) {
  ck_assert_int_eq(a->destinations, b->destinations);
  ck_assert_int_eq(a->sources, b->sources);
  ck_assert_int_eq(a->edges, b->edges);
  for (int64_t i = 0; i <= a->destinations; i++)
    ck_assert_int_eq(dfgnn__csr_offset(a, i), dfgnn__csr_offset(b, i));
  for (int64_t e = 0; e < a->edges; e++)
    ck_assert_int_eq(dfgnn__csr_index(a, e), dfgnn__csr_index(b, e));
}

static dfgnn_csr *permuted_by(const dfgnn_csr *csr, int64_t *edges,
                              const int64_t *rows, const int64_t *columns) {
  dfgnn_csr *permuted = NULL;
  ck_ok(dfgnn_csr_permute(&permuted, edges, csr, rows, columns));
  return own_csr(permuted);
}

/* The graph with its nodes numbered at random, by a seed. */
static dfgnn_csr *shuffled(const dfgnn_csr *csr, uint64_t seed) {
  int64_t *order = numbers(csr->destinations);
  for (int64_t i = 0; i < csr->destinations; i++)
    order[i] = i;
  for (int64_t i = csr->destinations; i > 1; i--) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    int64_t j = (int64_t)((seed >> 33) % (uint64_t)i), swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
  }
  return permuted_by(csr, NULL, order, order);
}

static dfgnn_csr *reordered(const dfgnn_csr *csr, dfgnn_order order) {
  int64_t *rows = numbers(csr->destinations), *columns = numbers(csr->sources);
  ck_ok(dfgnn_csr_order(rows, columns, csr, order));
  return permuted_by(csr, NULL, rows, columns);
}

static dfgnn_signature signature_of(const dfgnn_csr *csr) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_graph *graph = graph_on(ctx, csr);
  ck_ok(dfgnn_graph_signature(&signature, graph));
  return signature;
}

/* ---- every method on every shape ----------------------------------------- */

TEST_LOOP(an_order_holds_every_node_once, 0, SHAPES *DFGNN_ORDER_COUNT) {
  shape s = shape_make(_i / DFGNN_ORDER_COUNT, shape_seed());
  dfgnn_order order = (dfgnn_order)(_i % DFGNN_ORDER_COUNT);
  int64_t n = s.csr.destinations, m = s.csr.sources;
  int64_t *rows = numbers(n), *columns = numbers(m);
  if (built(order)) {
    ck_ok(dfgnn_csr_order(rows, columns, &s.csr, order));
    each_once(rows, n);
    each_once(columns, m);
    for (int64_t p = 0; n == m && p < n; p++)
      ck_assert_int_eq(rows[p], columns[p]);
  }
}

TEST_LOOP(the_same_graph_gives_the_same_order, 0, SHAPES *DFGNN_ORDER_COUNT) {
  shape s = shape_make(_i / DFGNN_ORDER_COUNT, shape_seed());
  dfgnn_order order = (dfgnn_order)(_i % DFGNN_ORDER_COUNT);
  int64_t n = s.csr.destinations, m = s.csr.sources;
  int64_t *first = numbers(n + m), *second = numbers(n + m);
  if (built(order)) {
    ck_ok(dfgnn_csr_order(first, first + n, &s.csr, order));
    shape_widen(&s);
    srand(7);
    ck_ok(dfgnn_csr_order(second, second + n, &s.csr, order));
    ck_assert(!memcmp(first, second, (size_t)(n + m) * sizeof *first));
  }
}

TEST_LOOP(a_permuted_graph_is_the_same_graph, 0, SHAPES *DFGNN_ORDER_COUNT) {
  shape s = shape_make(_i / DFGNN_ORDER_COUNT, shape_seed());
  dfgnn_order order = (dfgnn_order)(_i % DFGNN_ORDER_COUNT);
  int64_t n = s.csr.destinations, m = s.csr.sources;
  int64_t *rows = numbers(n), *columns = numbers(m);
  int64_t *edges = numbers(s.csr.edges);
  dfgnn_csr *permuted = NULL, *back = NULL;
  if (built(order)) {
    ck_ok(dfgnn_csr_order(rows, columns, &s.csr, order));
    permuted = permuted_by(&s.csr, edges, rows, columns);
    each_once(edges, s.csr.edges);
    for (int64_t p = 0; p < n; p++)
      for (int64_t e = dfgnn__csr_offset(permuted, p);
           e < dfgnn__csr_offset(permuted, p + 1); e++) {
        ck_assert_int_ge(edges[e], dfgnn__csr_offset(&s.csr, rows[p]));
        ck_assert_int_lt(edges[e], dfgnn__csr_offset(&s.csr, rows[p] + 1));
        ck_assert_int_eq(dfgnn__csr_index(&s.csr, edges[e]),
                         columns[dfgnn__csr_index(permuted, e)]);
      }
    int64_t *to = inverse(rows, n), *across = inverse(columns, m);
    back = permuted_by(permuted, NULL, to, across);
    same_graph(back, &s.csr);
  }
}

TEST_LOOP(nodes_of_a_batch_stay_in_their_graph, 0, DFGNN_ORDER_COUNT) {
  dfgnn_csr *csr = generated("sbm-pattern:batch=6,seed=5"), *permuted = NULL;
  int64_t *rows = numbers(csr->destinations);
  dfgnn_order order = (dfgnn_order)_i;
  if (built(order)) {
    ck_ok(dfgnn_csr_order(rows, NULL, csr, order));
    each_once(rows, csr->destinations);
    for (int64_t g = 0; g < csr->graphs; g++)
      for (int64_t p = csr->graph_ptr[g]; p < csr->graph_ptr[g + 1]; p++) {
        ck_assert_int_ge(rows[p], csr->graph_ptr[g]);
        ck_assert_int_lt(rows[p], csr->graph_ptr[g + 1]);
      }
    permuted = permuted_by(csr, NULL, rows, rows);
    ck_assert_int_eq(permuted->graphs, 6);
    ck_assert(!memcmp(permuted->graph_ptr, csr->graph_ptr,
                      7 * sizeof *csr->graph_ptr));
  }
}

TEST(nodes_that_change_their_graph_end_the_batch) {
  dfgnn_csr *csr = generated("sbm-pattern:batch=3,seed=5");
  const int64_t n = csr->destinations, first = csr->graph_ptr[1];
  int64_t *kept = numbers(n), *moved = numbers(n);
  for (int64_t i = 0; i < n; i++)
    kept[i] = moved[i] = i;
  moved[first] = first - 1;
  moved[first - 1] = first;
  for (int k = 0; k < 4; k++) {
    dfgnn_csr *permuted = NULL;
    permuted =
        permuted_by(csr, NULL, k & 1 ? moved : kept, k & 2 ? moved : kept);
    ck_assert_int_eq(permuted->graphs, k ? 0 : 3);
    ck_assert_int_eq(permuted->graph_ptr != NULL, !k);
  }
}

/* ---- what each method promises ------------------------------------------- */

TEST(degree_falls) {
  dfgnn_csr *csr = data("wiki_vote"); /* directed */
  int64_t n = csr->destinations, *rows = numbers(n), *degree = numbers(n);
  memset(degree, 0, (size_t)n * sizeof *degree);
  for (int64_t i = 0; i < n; i++)
    degree[i] += dfgnn__csr_offset(csr, i + 1) - dfgnn__csr_offset(csr, i);
  for (int64_t e = 0; e < csr->edges; e++)
    degree[dfgnn__csr_index(csr, e)]++;
  ck_ok(dfgnn_csr_order(rows, NULL, csr, DFGNN_ORDER_DEGREE));
  for (int64_t p = 1; p < n; p++)
    ck_assert(
        degree[rows[p - 1]] > degree[rows[p]] ||
        (degree[rows[p - 1]] == degree[rows[p]] && rows[p - 1] < rows[p]));
}

static int64_t bandwidth(const dfgnn_csr *csr) {
  int64_t most = 0;
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++)
      if (llabs(i - dfgnn__csr_index(csr, e)) > most)
        most = llabs(i - dfgnn__csr_index(csr, e));
  return most;
}

/* SciPy 1.16's reverse_cuthill_mckee found these on A + A^T. */
static const struct {
  const char *name;
  int64_t bandwidth;
} scipy[] = {{"airfoil1", 191},  {"bcsstk16", 320},    {"power", 465},
             {"pubmed", 8439},   {"minesweeper", 199}, {"email_eu_core", 708},
             {"wiki_vote", 4808}};

TEST_LOOP(rcm_is_as_narrow_as_that_of_scipy, 0,
          (int)(sizeof scipy / sizeof *scipy)) {
  dfgnn_csr *csr = data(scipy[_i].name);
  dfgnn_csr *narrow = reordered(csr, DFGNN_ORDER_RCM);
  ck_assert_int_le(bandwidth(narrow), scipy[_i].bandwidth);
}

TEST(rcm_finds_the_band_of_a_shuffled_grid) {
  dfgnn_csr *grid = generated("grid:rows=200,columns=9");
  dfgnn_csr *mixed = shuffled(grid, 3);
  dfgnn_csr *narrow = reordered(mixed, DFGNN_ORDER_RCM);
  ck_assert_int_gt(bandwidth(mixed), 1000);
  ck_assert_int_le(bandwidth(narrow), 20);
}

/* Modularity of the outermost communities. */
static double modularity(const dfgnn_csr *csr, int64_t *communities) {
  dfgnn__adjacency graph;
  ck_ok(dfgnn__adjacency_build(&graph, csr));
  size_t n = (size_t)graph.nodes;
  int32_t *order = zeros_of(graph.nodes, sizeof *order);
  int32_t *community = zeros_of(graph.nodes, sizeof *community);
  double *degree = zeros_of(graph.nodes, sizeof *degree), inside = 0, total = 0;
  ck_ok(dfgnn__order_community(order, community, &graph));
  for (size_t i = 0; i < n; i++)
    for (int64_t k = graph.offsets[i]; k < graph.offsets[i + 1]; k++) {
      total += graph.weights[k];
      degree[community[i]] += graph.weights[k];
      if (community[i] == community[graph.neighbors[k]])
        inside += graph.weights[k];
    }
  double q = inside / total;
  *communities = 0;
  for (size_t i = 0; i < n; i++) {
    q -= degree[i] / total * degree[i] / total;
    *communities += community[i] == (int32_t)i;
  }
  dfgnn__adjacency_free(&graph);
  return q;
}

/* NetworkX 3.4's louvain_communities found these with seed 1. */
static const struct {
  const char *name;
  double modularity;
} louvain[] = {{"cora", .8158},  {"citeseer", .8898},    {"pubmed", .7638},
               {"power", .9352}, {"minesweeper", .8888}, {"nell", .8266}};

TEST_LOOP(communities_are_nearly_those_of_louvain, 0,
          (int)(sizeof louvain / sizeof *louvain)) {
  dfgnn_csr *csr = data(louvain[_i].name);
  int64_t communities;
  double q = modularity(csr, &communities);
  ck_assert_double_ge(q, .95 * louvain[_i].modularity);
  ck_assert_double_le(q, 1);
}

TEST(shuffled_communities_are_found_again) {
  dfgnn_csr *csr = generated("sbm-pattern:batch=16,seed=2");
  dfgnn_csr *mixed = shuffled(csr, 9);
  dfgnn_csr *found = reordered(mixed, DFGNN_ORDER_COMMUNITY);
  dfgnn_signature before = signature_of(mixed), after = signature_of(found);
  int64_t communities;
  ck_assert_int_eq(mixed->graphs, 0);
  ck_assert_double_ge(modularity(mixed, &communities), .92);
  ck_assert_int_ge(communities, 16);
  ck_assert_int_eq(after.graphs, 16);
  ck_assert_double_lt(after.reuse, .3 * before.reuse);
  ck_assert_double_gt(after.locality, before.locality + .1);
  ck_assert_int_eq(after.max_degree, before.max_degree);
}

TEST_LOOP(a_graph_of_local_columns_gets_its_locality_back,
          DFGNN_ORDER_COMMUNITY, DFGNN_ORDER_COMMUNITY + 1) {
  dfgnn_csr *csr = generated("powerlaw:nodes=20000,edges=200000,"
                             "max-degree=900,columns=local");
  dfgnn_csr *mixed = shuffled(csr, 4);
  dfgnn_csr *found = reordered(mixed, (dfgnn_order)_i);
  dfgnn_signature before = signature_of(mixed), after = signature_of(found);
  ck_assert_double_gt(after.locality, 3 * before.locality);
  ck_assert_double_lt(after.reuse, before.reuse);
}

TEST(communities_of_a_million_edges_take_seconds) {
  dfgnn_csr *csr = generated("powerlaw:nodes=150000,edges=1600000,"
                             "max-degree=9000,columns=local");
  dfgnn_csr *mixed = shuffled(csr, 4);
  int64_t *rows = numbers(csr->destinations);
  clock_t began = clock();
  ck_ok(dfgnn_csr_order(rows, NULL, mixed, DFGNN_ORDER_COMMUNITY));
  double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
  ck_assert_double_lt(seconds, 10);
  each_once(rows, csr->destinations);
}

TEST(repeated_edges_weigh_more) {
  /* two pairs joined by a single edge: 0 = 1 - 2 = 3 */
  static const int32_t offsets[] = {0, 3, 3, 4, 8};
  static const int32_t indices[] = {1, 1, 1, 1, 2, 2, 2, 3};
  dfgnn_csr csr = csr32(4, 4, offsets, indices);
  dfgnn__adjacency graph;
  int32_t order[4], community[4];
  ck_ok(dfgnn__adjacency_build(&graph, &csr));
  ck_assert_int_eq(graph.offsets[4], 6);
  ck_assert_int_eq(graph.weights[0], 3);
  ck_ok(dfgnn__order_community(order, community, &graph));
  ck_assert_int_eq(community[0], community[1]);
  ck_assert_int_eq(community[2], community[3]);
  ck_assert_int_ne(community[1], community[2]);
  dfgnn__adjacency_free(&graph);
}

TEST(metis_is_unsupported_without_it) {
  dfgnn_csr *csr = data("cora");
  int64_t *rows = numbers(csr->destinations);
  if (built(DFGNN_ORDER_METIS))
    ck_ok(dfgnn_csr_order(rows, NULL, csr, DFGNN_ORDER_METIS));
  else
    ck_fails(dfgnn_csr_order(rows, NULL, csr, DFGNN_ORDER_METIS),
             DFGNN_ERROR_UNSUPPORTED, "built without METIS");
}

/* ---- what is refused ----------------------------------------------------- */

TEST(names_are_parsed) {
  dfgnn_order order;
  for (int i = 0; i < DFGNN_ORDER_COUNT; i++) {
    ck_ok(dfgnn_parse((int *)&order, DFGNN_NAMES_ORDER,
                      dfgnn_name(DFGNN_NAMES_ORDER, (dfgnn_order)i)));
    ck_assert_int_eq(order, i);
  }
  ck_assert_ptr_null(dfgnn_name(DFGNN_NAMES_ORDER, DFGNN_ORDER_COUNT));
  ck_assert_ptr_null(dfgnn_name(DFGNN_NAMES_ORDER, (dfgnn_order)-1));
  ck_invalid(
      dfgnn_parse((int *)&order, DFGNN_NAMES_ORDER, "rabbit"),
      "unknown order 'rabbit', expected one of: degree, rcm, metis, community");
  ck_invalid(dfgnn_parse((int *)&order, DFGNN_NAMES_ORDER, NULL), "(null)");
}

TEST(a_wrong_matrix_is_refused) {
  static const int32_t rising[] = {0, 1, 2}, beyond[] = {1, 3}, fine[] = {1, 0};
  static const int64_t cut[] = {0, 1, 2}, loose[] = {0, 1};
  int64_t rows[2], columns[3];
  dfgnn_csr csr = csr32(2, 2, rising, fine), *out = NULL;
  ck_ok(dfgnn_csr_order(rows, NULL, &csr, DFGNN_ORDER_RCM));
  ck_invalid(dfgnn_csr_order(NULL, NULL, &csr, DFGNN_ORDER_RCM),
             "rows or columns is NULL");
  ck_invalid(dfgnn_csr_order(rows, NULL, &csr, (dfgnn_order)9),
             "order is 9, expected 0..3");
  ck_invalid(dfgnn_csr_order(rows, NULL, NULL, DFGNN_ORDER_RCM), "csr is NULL");
  csr.on_device = 1;
  ck_invalid(dfgnn_csr_order(rows, NULL, &csr, DFGNN_ORDER_RCM),
             "expected host arrays");
  csr.on_device = 0;
  csr.graphs = 2;
  csr.graph_ptr = cut;
  ck_invalid(dfgnn_csr_order(rows, NULL, &csr, DFGNN_ORDER_RCM),
             "an edge leaves its graph");
  csr.graphs = 1;
  csr.graph_ptr = loose;
  ck_invalid(dfgnn_csr_order(rows, NULL, &csr, DFGNN_ORDER_RCM),
             "graph_ptr is not a rising list");
  csr = csr32(2, 3, rising, beyond);
  ck_invalid(dfgnn_csr_order(rows, columns, &csr, DFGNN_ORDER_RCM),
             "row 1: csr.indices[1] is 3, expected 0..2");
  ck_invalid(dfgnn_csr_permute(&out, NULL, &csr, NULL, NULL),
             "indices[1] is 3");
  csr = csr32(2, 3, rising, fine);
  ck_invalid(dfgnn_csr_order(rows, NULL, &csr, DFGNN_ORDER_RCM),
             "2 x 3 needs both");
}

TEST(too_many_nodes_are_refused) {
  /* 1.2e9 columns beside as many rows, none of which is read */
  dfgnn__adjacency graph;
  dfgnn_csr csr =
      INIT(dfgnn_csr, .destinations = 1200000000, .sources = 1200000001);
  ck_fails(dfgnn__adjacency_build(&graph, &csr), DFGNN_ERROR_UNSUPPORTED,
           "2400000001 rows and columns, expected at most 2147483647");
}

TEST(a_list_that_is_no_order_is_refused) {
  static const int32_t offsets[] = {0, 1, 2}, indices[] = {1, 0};
  static const int64_t twice[] = {1, 1}, beyond[] = {0, 2}, below[] = {-1, 0};
  dfgnn_csr csr = csr32(2, 2, offsets, indices), *out = NULL;
  ck_invalid(dfgnn_csr_permute(&out, NULL, &csr, twice, NULL),
             "rows[1] is 1, expected each of 0..1 once");
  ck_invalid(dfgnn_csr_permute(&out, NULL, &csr, NULL, beyond),
             "columns[1] is 2");
  ck_invalid(dfgnn_csr_permute(&out, NULL, &csr, below, NULL), "rows[0] is -1");
  ck_invalid(dfgnn_csr_permute(NULL, NULL, &csr, NULL, NULL),
             "permuted is NULL");
  ck_assert_ptr_null(out);
}

int main(void) {
  shape_seed();
  return run_case(&(test_case){.name = "reorder", .timeout = 120});
}
