/* check_choose.c - the choice among stored decisions: distances, votes, pins
 *
 * A table is made of rows that the tests write, for a device that is not there.
 * Queries are signatures without a graph. */
#include "tests/unit/fixture.h"

#include <math.h>
#include <stdio.h>

#include "lib/key.h"
#include "lib/table.h"

static dfgnn_status no_launch(const dfgnn_launch *launch) {
  (void)launch;
  return DFGNN_ERROR_UNSUPPORTED;
}

enum { FAKES = 3, MOST_ROWS = 64 };
static const dfgnn_family fakes[] = {
    {.name = "cpu.attention.fwd.fake",
     .algorithm = "fake",
     .backend = "cpu",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_BIT(DFGNN_F64),
     .revision = 1,
     .deterministic = 1,
     .bias = 1,
     .parameters = {{"n", FAKES, {1, 2, 3}, {0}}},
     .launch = no_launch},
    DFGNN_FAMILIES_END};
static const char *const names[FAKES] = {"cpu.attention.fwd.fake/n=1",
                                         "cpu.attention.fwd.fake/n=2",
                                         "cpu.attention.fwd.fake/n=3"};

static const dfgnn_device_info device = {.backend = "cpu",
                                         .arch = "x86-64",
                                         .model = "ours",
                                         .units = 4,
                                         .cache_bytes = 1 << 20,
                                         .shared_bytes = 1 << 20};

static dfgnn_problem problem;
static dfgnn_measurement rows[MOST_ROWS];
static size_t count;

static dfgnn_signature graph_of(uint64_t fingerprint, int64_t edges) {
  return (dfgnn_signature){.struct_size = sizeof(dfgnn_signature),
                           .destinations = 1000,
                           .sources = 1000,
                           .edges = edges,
                           .max_degree = 20,
                           .mean_degree = 5,
                           .p50_degree = 5,
                           .p90_degree = 8,
                           .p99_degree = 12,
                           .degree_cv = 0.5,
                           .reuse = 0.5,
                           .locality = 0.5,
                           .graphs = 1,
                           .largest_graph = 1000,
                           .density = 0.005,
                           .fingerprint = fingerprint};
}

static void set_up(void) {
  problem = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  problem.dtype = DFGNN_F64;
  problem.dim = 32;
  count = 0;
}

/* Adds the rows of a graph on a model of device: variant `best` is the fastest,
 * and the others take twice its time. */
static void measured(const dfgnn_signature *graph, int best,
                     const char *model) {
  for (int v = 0; v < FAKES; v++) {
    dfgnn_measurement *row = &rows[count++];
    ck_assert_uint_le(count, MOST_ROWS);
    *row = (dfgnn_measurement){.backend = "cpu",
                               .arch = "x86-64",
                               .model = model,
                               .units = device.units,
                               .cache_bytes = device.cache_bytes,
                               .shared_bytes = device.shared_bytes};
    row->driver = row->runtime = row->library = row->host = row->job = "";
    row->graph = row->family = row->reason = "";
    row->tool = "check_choose";
    row->run = "0123456789abcdef0123456789abcdef";
    dfgnn__key_fill(row, &problem, 0);
    row->signature = *graph;
    row->variant = names[v];
    row->revision = row->anchor_revision = 1;
    row->time = 1;
    row->status = "ok";
    row->anchor = names[best];
    row->ratio = row->ratio_low = row->ratio_high = v == best ? 1 : 2;
    row->median_ms = row->ci_low_ms = row->ci_high_ms = row->ratio;
    row->samples = 9;
  }
}

static dfgnn_table *table(void) {
  dfgnn_table *made = NULL;
  uint64_t invalid = 0;
  ck_ok(dfgnn__table_create(&made, &invalid, &device, rows, count));
  ck_assert_uint_eq(invalid, 0);
  return made;
}

static dfgnn_choice choice_of(const dfgnn_table *from,
                              const dfgnn_signature *graph,
                              const unsigned char *broken, uint64_t exclude) {
  const dfgnn_matrix matrix = {.destinations = graph->destinations,
                               .sources = graph->sources,
                               .edges = graph->edges,
                               .max_degree = graph->max_degree};
  const dfgnn_query query = {.setting = {.problem = &problem,
                                         .matrix = &matrix,
                                         .signature = graph,
                                         .device = &device},
                             .family = "",
                             .broken = broken};
  dfgnn_choice choice;
  dfgnn__table_select(&choice, from, &query, exclude);
  return choice;
}

static void expect(const dfgnn_choice *choice, int variant,
                   dfgnn_source source) {
  ck_assert_ptr_nonnull(choice->variant);
  ck_assert_str_eq(choice->variant->name, names[variant]);
  ck_assert_int_eq(choice->source, source);
}

/* ---- distances ----------------------------------------------------------- */

static double between(const dfgnn_signature *a, int64_t heads_a, int64_t dim_a,
                      const dfgnn_signature *b, int64_t heads_b,
                      int64_t dim_b) {
  double x[DFGNN_FEATURES], y[DFGNN_FEATURES];
  dfgnn__features(x, a, heads_a, dim_a, 4, &device);
  dfgnn__features(y, b, heads_b, dim_b, 4, &device);
  double found = dfgnn__distance(x, y);
  ck_assert_double_eq(found, dfgnn__distance(y, x));
  return found;
}

START_TEST(whatever_differs_is_a_distance) {
  const dfgnn_signature a = graph_of(1, 5000);
  int checked = 0;
  ck_assert_double_eq(between(&a, 1, 32, &a, 1, 32), 0);
#define DIFFERS(member, value)                                                 \
  do {                                                                         \
    dfgnn_signature b = a;                                                     \
    b.member = value;                                                          \
    ck_assert_msg(between(&a, 1, 32, &b, 1, 32) > 0.01,                        \
                  #member " is no distance");                                  \
    checked++;                                                                 \
  } while (0)
  DIFFERS(destinations, 4000);
  DIFFERS(sources, 4000);
  DIFFERS(edges, 40000);
  DIFFERS(max_degree, 900);
  DIFFERS(mean_degree, 20);
  DIFFERS(p99_degree, 100);
  DIFFERS(degree_cv, 3);
  DIFFERS(isolated, 0.4);
  DIFFERS(reuse, 1);
  DIFFERS(locality, 1);
  DIFFERS(graphs, 64);
  DIFFERS(density, 0.5);
#undef DIFFERS
  ck_assert_int_eq(checked, 12);
}

/* The gathered features grow with both, and whether they fit the cache is a
 * distance, too. */
START_TEST(heads_and_width_are_distances_of_their_own) {
  dfgnn_signature tiny = graph_of(1, 5000);
  tiny.sources = 10; /* so that all fits the cache */
  ck_assert_double_eq_tol(between(&tiny, 1, 32, &tiny, 2, 32), 0.5, 1e-12);
  ck_assert_double_eq_tol(between(&tiny, 1, 32, &tiny, 1, 64), 0.9, 1e-12);
}

/* On one axis, the distance by way of a point between is the direct one. */
START_TEST(distances_along_an_axis_add_up) {
  dfgnn_signature tiny = graph_of(1, 5000);
  tiny.sources = 10;
  ck_assert_double_eq_tol(between(&tiny, 1, 8, &tiny, 4, 8) +
                              between(&tiny, 4, 8, &tiny, 8, 8),
                          between(&tiny, 1, 8, &tiny, 8, 8), 1e-12);
}

START_TEST(a_batch_of_four_times_the_graphs_is_near) {
  dfgnn_signature a = graph_of(1, 5000), b = a;
  a.graphs = 256;
  b.graphs = 1024;
  b.destinations = b.sources = 4000;
  b.edges = 20000;
  ck_assert_double_lt(between(&a, 1, 32, &b, 1, 32), dfgnn__trusted_radius / 2);
}

/* ---- votes --------------------------------------------------------------- */

START_TEST(nearer_graphs_have_more_say) {
  const dfgnn_signature asked = graph_of(9, 5000);
  const dfgnn_signature near = graph_of(1, 7000);
  const dfgnn_signature far[] = {graph_of(2, 100000), graph_of(3, 110000)};
  measured(&near, 1, "ours");
  measured(&far[0], 2, "ours");
  measured(&far[1], 2, "ours");
  dfgnn_table *t = table();
  dfgnn_choice choice = choice_of(t, &asked, NULL, 0);
  expect(&choice, 1, DFGNN_SOURCE_NEAREST);
  double x[DFGNN_FEATURES], y[DFGNN_FEATURES];
  dfgnn__features(x, &asked, 1, 32, 8, &device);
  dfgnn__features(y, &near, 1, 32, 8, &device);
  ck_assert_double_eq(choice.distance, dfgnn__distance(x, y));
  dfgnn__table_destroy(t);
}

START_TEST(the_nearest_four_vote) {
  const dfgnn_signature asked = graph_of(9, 5000);
  dfgnn_signature near[4], far[8];
  for (int k = 0; k < 4; k++) {
    near[k] = graph_of(10 + k, 7000 + 10 * k);
    measured(&near[k], 1, "ours");
  }
  for (int k = 0; k < 8; k++) {
    far[k] = graph_of(20 + k, 9000 + 10 * k);
    measured(&far[k], 2, "ours");
  }
  dfgnn_table *t = table();
  dfgnn_choice choice = choice_of(t, &asked, NULL, 0);
  expect(&choice, 1, DFGNN_SOURCE_NEAREST);
  ck_assert_ptr_nonnull(strstr(choice.because, "over 4 near graphs"));
  dfgnn__table_destroy(t);
}

START_TEST(what_is_too_far_away_does_not_answer) {
  const dfgnn_signature asked = graph_of(9, 5000);
  dfgnn_signature far = graph_of(1, 5000);
  far.mean_degree = 5 * 16;
  measured(&far, 1, "ours");
  dfgnn_table *t = table();
  dfgnn_choice choice = choice_of(t, &asked, NULL, 0);
  ck_assert_ptr_null(choice.variant);
  ck_assert_double_gt(choice.distance, dfgnn__trusted_radius);
  dfgnn__table_destroy(t);
}

START_TEST(a_graph_that_is_left_out_is_no_neighbour_of_its_own) {
  const dfgnn_signature graph = graph_of(7, 5000);
  measured(&graph, 1, "ours");
  dfgnn_table *t = table();
  dfgnn_choice choice = choice_of(t, &graph, NULL, 0);
  expect(&choice, 1, DFGNN_SOURCE_EXACT);
  choice = choice_of(t, &graph, NULL, graph.fingerprint);
  ck_assert_ptr_null(choice.variant);
  dfgnn__table_destroy(t);
}

START_TEST(what_a_device_refused_is_passed_over) {
  const dfgnn_signature graph = graph_of(7, 5000);
  unsigned char *broken = calloc(dfgnn__variant_count(), 1);
  measured(&graph, 1, "ours");
  dfgnn_table *t = table();
  broken[dfgnn__variant_index(dfgnn__variant_find(names[1]))] = 1;
  dfgnn_choice choice = choice_of(t, &graph, broken, 0);
  expect(&choice, 0, DFGNN_SOURCE_EXACT);
  dfgnn__table_destroy(t);
  free(broken);
}

START_TEST(this_model_answers_before_others_of_its_architecture) {
  const dfgnn_signature graph = graph_of(7, 5000);
  const char *const others[] = {"another", "zoo"}; /* before and after "ours" */
  for (int k = 0; k < 2; k++) {
    count = 0;
    measured(&graph, 2, others[k]);
    measured(&graph, 1, "ours");
    dfgnn_table *t = table();
    dfgnn_choice choice = choice_of(t, &graph, NULL, 0);
    expect(&choice, 1, DFGNN_SOURCE_EXACT);
    dfgnn__table_destroy(t);
  }
}

/* What one thread was fastest with says little of four; of two it is near. */
START_TEST(measurements_with_other_units_are_near_at_best) {
  const dfgnn_signature graph = graph_of(7, 5000);
  static const int units[] = {1, 2, 8, 64, 4};
  static const double distance[] = {1, .5, .5, 2, 0};
  for (int k = 0; k < 5; k++) {
    count = 0;
    measured(&graph, 1, "ours");
    for (size_t i = 0; i < count; i++)
      rows[i].units = units[k];
    dfgnn_table *t = table();
    dfgnn_choice choice = choice_of(t, &graph, NULL, 0);
    const int same = units[k] == device.units;
    expect(&choice, 1, same ? DFGNN_SOURCE_EXACT : DFGNN_SOURCE_NEAREST);
    ck_assert_double_eq_tol(choice.distance, distance[k], 1e-12);
    ck_assert_int_eq(strstr(choice.because, "units, not 4") == NULL, same);
    dfgnn__table_destroy(t);
  }
}

START_TEST(rows_of_these_units_answer_before_others) {
  const dfgnn_signature graph = graph_of(7, 5000);
  measured(&graph, 2, "ours");
  for (size_t i = 0; i < count; i++)
    rows[i].units = 1;
  measured(&graph, 1, "another");
  dfgnn_table *t = table();
  dfgnn_choice choice = choice_of(t, &graph, NULL, 0);
  expect(&choice, 1, DFGNN_SOURCE_EXACT);
  dfgnn__table_destroy(t);
}

/* ---- tuning -------------------------------------------------------------- */

static void same_digest(const dfgnn_table *a, const dfgnn_table *b) {
  char of_a[DFGNN_DIGEST_SIZE], of_b[DFGNN_DIGEST_SIZE];
  dfgnn__table_digest(of_a, a, NULL);
  dfgnn__table_digest(of_b, b, NULL);
  ck_assert_str_eq(of_a, of_b);
}

/* Rows of a problem come into a table, in any order of the problems, again, and
 * beside rows of another model, as if it were made anew. */
START_TEST(a_problem_that_is_put_is_as_if_it_had_been_there) {
  const char *const models[] = {"ours", "another", "ours", "zoo", "ours"};
  const uint64_t graphs[] = {9, 7, 7, 7, 3};
  for (size_t first = 0; first < 5; first++) {
    count = 0;
    dfgnn_table *t = table();
    for (size_t k = 0; k < 5; k++) {
      const size_t i = (first + 2 * k) % 5, begin = count;
      const dfgnn_signature graph = graph_of(graphs[i], 5000);
      measured(&graph, (int)(i % FAKES), models[i]);
      ck_ok(dfgnn__table_put(t, &rows[begin], count - begin));
      dfgnn_table *fresh = table();
      same_digest(t, fresh);
      ck_assert(dfgnn__table_has_graph(t, graph.fingerprint));
      dfgnn__table_destroy(fresh);
    }
    ck_assert(!dfgnn__table_has_graph(t, 8));
    for (size_t i = count - FAKES; i < count; i++)
      rows[i].status = "wrong"; /* none is left of the last problem */
    ck_ok(dfgnn__table_put(t, &rows[count - FAKES], FAKES));
    dfgnn_table *fresh = table();
    same_digest(t, fresh);
    dfgnn__table_destroy(fresh);
    dfgnn__table_destroy(t);
  }
}

/* ---- pins ---------------------------------------------------------------- */

static dfgnn_pin pin_of(int variant, uint64_t fingerprint, int bias) {
  return (dfgnn_pin){.op = "gt",
                     .pass = "forward",
                     .dtype = "f64",
                     .bias = bias,
                     .fingerprint = fingerprint,
                     .variant = names[variant]};
}

START_TEST(a_pin_of_this_graph_goes_before_one_of_any) {
  const dfgnn_signature graph = graph_of(7, 5000), other = graph_of(8, 5000);
  const dfgnn_pin pins[] = {pin_of(1, 7, 0), pin_of(2, 0, 0)};
  for (int first = 0; first < 2; first++) {
    dfgnn_table *t = table();
    ck_ok(dfgnn__table_pin(t, &pins[first]));
    ck_ok(dfgnn__table_pin(t, &pins[1 - first]));
    dfgnn_choice choice = choice_of(t, &graph, NULL, 0);
    expect(&choice, 1, DFGNN_SOURCE_PINNED);
    choice = choice_of(t, &other, NULL, 0);
    expect(&choice, 2, DFGNN_SOURCE_PINNED);
    dfgnn__table_destroy(t);
  }
}

START_TEST(a_pin_for_bias_answers_where_there_is_bias) {
  const dfgnn_signature graph = graph_of(7, 5000);
  const dfgnn_pin pin = pin_of(1, 0, 1);
  dfgnn_table *t = table();
  ck_ok(dfgnn__table_pin(t, &pin));
  dfgnn_choice choice = choice_of(t, &graph, NULL, 0);
  ck_assert_ptr_null(choice.variant);
  problem.bias = 1;
  choice = choice_of(t, &graph, NULL, 0);
  expect(&choice, 1, DFGNN_SOURCE_PINNED);
  dfgnn__table_destroy(t);
}

int main(void) {
  dfgnn__registry_add(fakes);
  Suite *suite = suite_create("choose");
  TCase *tests = tcase_create("choose");
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, whatever_differs_is_a_distance);
  tcase_add_test(tests, heads_and_width_are_distances_of_their_own);
  tcase_add_test(tests, distances_along_an_axis_add_up);
  tcase_add_test(tests, a_batch_of_four_times_the_graphs_is_near);
  tcase_add_test(tests, nearer_graphs_have_more_say);
  tcase_add_test(tests, the_nearest_four_vote);
  tcase_add_test(tests, what_is_too_far_away_does_not_answer);
  tcase_add_test(tests, a_graph_that_is_left_out_is_no_neighbour_of_its_own);
  tcase_add_test(tests, what_a_device_refused_is_passed_over);
  tcase_add_test(tests, this_model_answers_before_others_of_its_architecture);
  tcase_add_test(tests, measurements_with_other_units_are_near_at_best);
  tcase_add_test(tests, rows_of_these_units_answer_before_others);
  tcase_add_test(tests, a_problem_that_is_put_is_as_if_it_had_been_there);
  tcase_add_test(tests, a_pin_of_this_graph_goes_before_one_of_any);
  tcase_add_test(tests, a_pin_for_bias_answers_where_there_is_bias);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
