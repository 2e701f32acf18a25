/* check_select.c - the sources of a choice, in their order
 *
 * A table is made of rows that the tests write, for a device that is not there.
 * Queries are signatures without a graph. */
#include "tests/unit/fixture.h"

#include <math.h>

#include "lib/key.h"
#include "select/table.h"

static dfgnn_status no_launch(const dfgnn_launch *launch) {
  (void)launch;
  return DFGNN_ERROR_UNSUPPORTED;
}

enum { FAKES = 4, MOST_ROWS = 64 };
static const dfgnn_family fakes[] = {
    FAKE_FAMILY("cpu.attention.fwd.fake", "fake",
                .dtypes = DFGNN_BIT(DFGNN_F64), .bias = 1,
                .parameters = {{"n", FAKES, {1, 2, 3, 4}, {0}}},
                .launch = no_launch),
    DFGNN_FAMILIES_END};
static const char *const names[FAKES] = {
    "cpu.attention.fwd.fake/n=1", "cpu.attention.fwd.fake/n=2",
    "cpu.attention.fwd.fake/n=3", "cpu.attention.fwd.fake/n=4"};
/* The portfolio: the default, and two others; the model knows nothing of it. */
static const dfgnn_test_member members[] = {{"cpu.attention.fwd.fake/n=1", NAN},
                                            {"cpu.attention.fwd.fake/n=2", NAN},
                                            {"cpu.attention.fwd.fake/n=3", NAN},
                                            {NULL, 0}};
/* The same, and it thinks the second fastest. */
static const dfgnn_test_member ranked[] = {{"cpu.attention.fwd.fake/n=1", 0.3},
                                           {"cpu.attention.fwd.fake/n=2", 0.1},
                                           {"cpu.attention.fwd.fake/n=3", 0.2},
                                           {NULL, 0}};

static const dfgnn_device_info device = {.backend = "cpu",
                                         .arch = "x86-64",
                                         .model = "ours",
                                         .units = 4,
                                         .cache_bytes = 1 << 20,
                                         .shared_bytes = 1 << 20};

static dfgnn_problem problem;
static dfgnn_measurement rows[MOST_ROWS];
static size_t count, own; /* the first rows are the user's */
static const char *family;

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
  problem = PROBLEM(.dtype = DFGNN_F64, .dim = 32);
  count = own = 0;
  family = "";
  dfgnn__members_for_tests(members);
}

/* Adds rows of the first variants on a graph and a model of device: `best` is
 * the fastest, and the others take twice its time. */
static void measured_first(const dfgnn_signature *graph, int best,
                           const char *model, int variants) {
  for (int v = 0; v < variants; v++) {
    dfgnn_measurement *row = &rows[count++];
    ck_assert_uint_le(count, MOST_ROWS);
    *row = (dfgnn_measurement){.backend = "cpu",
                               .arch = "x86-64",
                               .model = model,
                               .units = device.units,
                               .cache_bytes = device.cache_bytes,
                               .shared_bytes = device.shared_bytes};
    row->driver = row->runtime = row->library = row->host = row->job = "";
    row->graph = row->reason = "";
    row->family = family;
    row->tool = "check_select";
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

static void measured(const dfgnn_signature *graph, int best,
                     const char *model) {
  measured_first(graph, best, model, FAKES);
}

OWNED(table, dfgnn_table, dfgnn__table_destroy)

static dfgnn_table *table(void) {
  dfgnn_table *made = NULL;
  uint64_t invalid = 0;
  ck_ok(dfgnn__table_create(&made, &invalid, &device, rows, own, count));
  ck_assert_uint_eq(invalid, 0);
  return own_table(made);
}

static dfgnn_choice choice_of(const dfgnn_table *from,
                              const dfgnn_signature *graph,
                              const unsigned char *broken) {
  const dfgnn_matrix matrix = {.destinations = graph->destinations,
                               .sources = graph->sources,
                               .edges = graph->edges,
                               .max_degree = graph->max_degree};
  const dfgnn_query query = {.setting = {.problem = &problem,
                                         .matrix = &matrix,
                                         .signature = graph,
                                         .device = &device},
                             .family = family,
                             .broken = broken};
  dfgnn_choice choice;
  dfgnn__select(&choice, from, &query);
  return choice;
}

static dfgnn_choice expect(dfgnn_choice choice, int variant,
                           dfgnn_source source) {
  ck_assert_ptr_nonnull(choice.variant);
  ck_assert_str_eq(choice.variant->name, names[variant]);
  ck_assert_int_eq(choice.source, source);
  return choice;
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

TEST(whatever_differs_is_a_distance) {
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
TEST(heads_and_width_are_distances_of_their_own) {
  dfgnn_signature tiny = graph_of(1, 5000);
  tiny.sources = 10; /* so that all fits the cache */
  ck_assert_double_eq_tol(between(&tiny, 1, 32, &tiny, 2, 32), 0.5, 1e-12);
  ck_assert_double_eq_tol(between(&tiny, 1, 32, &tiny, 1, 64), 0.9, 1e-12);
}

/* On one axis, the distance by way of a point between is the direct one. */
TEST(distances_along_an_axis_add_up) {
  dfgnn_signature tiny = graph_of(1, 5000);
  tiny.sources = 10;
  ck_assert_double_eq_tol(between(&tiny, 1, 8, &tiny, 4, 8) +
                              between(&tiny, 4, 8, &tiny, 8, 8),
                          between(&tiny, 1, 8, &tiny, 8, 8), 1e-12);
}

TEST(a_batch_of_four_times_the_graphs_is_near) {
  dfgnn_signature a = graph_of(1, 5000), b = a;
  a.graphs = 256;
  b.graphs = 1024;
  b.destinations = b.sources = 4000;
  b.edges = 20000;
  ck_assert_double_lt(between(&a, 1, 32, &b, 1, 32), 1);
}

/* ---- near ---------------------------------------------------------------- */

/* The distance from graph_of(9, 5000), whose mean degree alone differs. */
static dfgnn_signature at_distance(uint64_t fingerprint, double distance) {
  dfgnn_signature graph = graph_of(fingerprint, 5000);
  graph.mean_degree = 5 * exp2(distance / 0.6);
  graph.p99_degree = (int64_t)(12 * graph.mean_degree / 5);
  return graph;
}

TEST(the_nearest_graph_answers) {
  const dfgnn_signature asked = graph_of(9, 5000);
  const dfgnn_signature near = at_distance(1, 0.1), far = at_distance(2, 0.2);
  for (int order = 0; order < 2; order++) {
    count = 0;
    measured(order ? &near : &far, order ? 1 : 2, "ours");
    measured(order ? &far : &near, order ? 2 : 1, "ours");
    const dfgnn_choice choice =
        expect(choice_of(table(), &asked, NULL), 1, DFGNN_SOURCE_NEAR);
    ck_assert_double_eq_tol(choice.distance, 0.1, 0.05);
  }
}

TEST(what_is_too_far_away_does_not_answer) {
  const dfgnn_signature asked = graph_of(9, 5000);
  const dfgnn_signature near = at_distance(1, 0.4), far = at_distance(1, 0.6);
  measured(&near, 1, "ours");
  dfgnn_table *t = table();
  expect(choice_of(t, &asked, NULL), 1, DFGNN_SOURCE_NEAR);
  count = 0;
  measured(&far, 1, "ours");
  t = table();
  expect(choice_of(t, &asked, NULL), 0, DFGNN_SOURCE_RULE);
}

TEST(at_one_distance_the_users_rows_come_first) {
  const dfgnn_signature asked = graph_of(9, 5000);
  const dfgnn_signature here = at_distance(2, 0.1), there = at_distance(1, 0.1);
  measured(&here, 2, "ours");
  own = count;
  measured(&there, 1, "ours");
  expect(choice_of(table(), &asked, NULL), 2, DFGNN_SOURCE_NEAR);
}

/* Neither a model nor its silence hides what the user measured. */
TEST(measurements_go_before_the_model) {
  const dfgnn_signature asked = graph_of(9, 5000), near = at_distance(1, 0.4);
  dfgnn__members_for_tests(ranked);
  expect(choice_of(NULL, &asked, NULL), 1, DFGNN_SOURCE_MODEL);
  measured(&near, 2, "ours");
  own = count;
  expect(choice_of(table(), &asked, NULL), 2, DFGNN_SOURCE_NEAR);
}

TEST(a_near_graph_that_saw_few_members_does_not_answer) {
  const dfgnn_signature asked = graph_of(9, 5000), near = at_distance(1, 0.1);
  measured_first(&near, 1, "ours", 2);
  expect(choice_of(table(), &asked, NULL), 0, DFGNN_SOURCE_RULE);
}

/* ---- exact --------------------------------------------------------------- */

/* Rows that saw some of the members alone are near, and answer only where what
 * would be chosen without them is among them. */
TEST(a_graph_is_exact_once_all_members_were_seen) {
  const dfgnn_signature graph = graph_of(7, 5000);
  measured_first(&graph, 1, "ours", 2);
  dfgnn_table *t = table();
  const dfgnn_choice choice =
      expect(choice_of(t, &graph, NULL), 1, DFGNN_SOURCE_NEAR);
  ck_assert_double_eq(choice.distance, 0);
  ck_assert_ptr_nonnull(strstr(choice.because, "not yet of all"));
  static const dfgnn_test_member other[] = {{"cpu.attention.fwd.fake/n=3", NAN},
                                            {"cpu.attention.fwd.fake/n=1", NAN},
                                            {NULL, 0}};
  dfgnn__members_for_tests(other); /* whose default was not measured */
  expect(choice_of(t, &graph, NULL), 2, DFGNN_SOURCE_RULE);
  dfgnn__members_for_tests(members);
  measured_first(&graph, 1, "ours", 3);
  t = table();
  expect(choice_of(t, &graph, NULL), 1, DFGNN_SOURCE_EXACT);
}

TEST(a_member_that_was_found_wrong_was_seen) {
  const dfgnn_signature graph = graph_of(7, 5000);
  measured_first(&graph, 1, "ours", 3);
  rows[2].status = "wrong";
  expect(choice_of(table(), &graph, NULL), 1, DFGNN_SOURCE_EXACT);
}

TEST(a_variant_that_is_no_member_may_be_the_fastest) {
  const dfgnn_signature graph = graph_of(7, 5000);
  measured(&graph, 3, "ours");
  expect(choice_of(table(), &graph, NULL), 3, DFGNN_SOURCE_EXACT);
}

/* ---- bans ---------------------------------------------------------------- */

TEST(a_banned_variant_is_chosen_by_no_source_but_a_pin) {
  const dfgnn_signature graph = graph_of(7, 5000), other = graph_of(8, 90000);
  measured(&graph, 1, "ours");
  dfgnn_table *t = table();
  ck_ok(dfgnn__table_ban(t, names[1]));
  dfgnn_choice choice = choice_of(t, &graph, NULL);
  ck_assert_str_ne(choice.variant->name, names[1]);
  ck_assert_int_eq(choice.source, DFGNN_SOURCE_EXACT);
  dfgnn__members_for_tests(ranked);
  expect(choice_of(t, &other, NULL), 2, DFGNN_SOURCE_MODEL);
  dfgnn__members_for_tests(members);
  ck_ok(dfgnn__table_ban(t, names[0]));
  expect(choice_of(t, &other, NULL), 2, DFGNN_SOURCE_RULE);
  const dfgnn_pin pin = {
      .op = "gt", .pass = "forward", .dtype = "f64", .variant = names[1]};
  ck_ok(dfgnn__table_pin(t, &pin));
  expect(choice_of(t, &graph, NULL), 1, DFGNN_SOURCE_PINNED);
  ck_fails(dfgnn__table_ban(t, "cpu.attention.fwd.gone"), DFGNN_ERROR_STORE,
           "gone");
}

TEST(a_ban_is_part_of_the_digest) {
  const dfgnn_signature graph = graph_of(7, 5000);
  char before[DFGNN_DIGEST_SIZE], after[DFGNN_DIGEST_SIZE];
  measured(&graph, 1, "ours");
  dfgnn_table *t = table();
  dfgnn__table_digest(before, t);
  ck_ok(dfgnn__table_ban(t, "cpu.attention.fwd.fake")); /* a whole family */
  dfgnn__table_digest(after, t);
  ck_assert_str_ne(before, after);
  for (int v = 0; v < FAKES; v++)
    ck_assert(dfgnn__table_bans(t, dfgnn__variant_find(names[v])));
}

TEST(what_a_device_refused_is_passed_over) {
  const dfgnn_signature graph = graph_of(7, 5000);
  unsigned char *broken = zeros_of((int64_t)dfgnn__variant_count(), 1);
  measured(&graph, 1, "ours");
  broken[dfgnn__variant_index(dfgnn__variant_find(names[1]))] = 1;
  expect(choice_of(table(), &graph, broken), 0, DFGNN_SOURCE_EXACT);
}

TEST(this_model_answers_before_others_of_its_architecture) {
  const dfgnn_signature graph = graph_of(7, 5000);
  const char *const others[] = {"another", "zoo"}; /* before and after "ours" */
  for (int k = 0; k < 2; k++) {
    count = 0;
    measured(&graph, 2, others[k]);
    measured(&graph, 1, "ours");
    expect(choice_of(table(), &graph, NULL), 1, DFGNN_SOURCE_EXACT);
  }
}

/* What one thread was fastest with says little of four; of two it is near. */
TEST(measurements_with_other_units_are_near_at_best) {
  const dfgnn_signature graph = graph_of(7, 5000);
  static const int units[] = {1, 2, 8, 64, 4};
  static const dfgnn_source source[] = {DFGNN_SOURCE_RULE, DFGNN_SOURCE_NEAR,
                                        DFGNN_SOURCE_NEAR, DFGNN_SOURCE_RULE,
                                        DFGNN_SOURCE_EXACT};
  for (int k = 0; k < 5; k++) {
    count = 0;
    measured(&graph, 1, "ours");
    for (size_t i = 0; i < count; i++)
      rows[i].units = units[k];
    const dfgnn_choice choice =
        expect(choice_of(table(), &graph, NULL), source[k] != DFGNN_SOURCE_RULE,
               source[k]);
    if (source[k] == DFGNN_SOURCE_NEAR) {
      ck_assert_double_eq_tol(choice.distance, .5, 1e-12);
      ck_assert_ptr_nonnull(strstr(choice.because, "units, not 4"));
    }
  }
}

TEST(rows_of_these_units_answer_before_others) {
  const dfgnn_signature graph = graph_of(7, 5000);
  measured(&graph, 2, "ours");
  for (size_t i = 0; i < count; i++)
    rows[i].units = 1;
  measured(&graph, 1, "another");
  expect(choice_of(table(), &graph, NULL), 1, DFGNN_SOURCE_EXACT);
}

/* ---- tuning -------------------------------------------------------------- */

static void same_digest(const dfgnn_table *a, const dfgnn_table *b) {
  char of_a[DFGNN_DIGEST_SIZE], of_b[DFGNN_DIGEST_SIZE];
  dfgnn__table_digest(of_a, a);
  dfgnn__table_digest(of_b, b);
  ck_assert_str_eq(of_a, of_b);
}

/* Rows of a problem come into a table, in any order of the problems, again, and
 * beside rows of another model, as if it were made anew. */
TEST(a_problem_that_is_put_is_as_if_it_had_been_there) {
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
      own = count;
      dfgnn_table *fresh = table();
      same_digest(t, fresh);
      ck_assert(dfgnn__table_has_graph(t, graph.fingerprint));
    }
    ck_assert(!dfgnn__table_has_graph(t, 8));
    for (size_t i = count - FAKES; i < count; i++)
      rows[i].status = "wrong"; /* none is left of the last problem */
    ck_ok(dfgnn__table_put(t, &rows[count - FAKES], FAKES));
    dfgnn_table *fresh = table();
    same_digest(t, fresh);
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

TEST(a_pin_of_this_graph_goes_before_one_of_any) {
  const dfgnn_signature graph = graph_of(7, 5000), other = graph_of(8, 5000);
  const dfgnn_pin pins[] = {pin_of(1, 7, 0), pin_of(2, 0, 0)};
  for (int first = 0; first < 2; first++) {
    dfgnn_table *t = table();
    ck_ok(dfgnn__table_pin(t, &pins[first]));
    ck_ok(dfgnn__table_pin(t, &pins[1 - first]));
    expect(choice_of(t, &graph, NULL), 1, DFGNN_SOURCE_PINNED);
    expect(choice_of(t, &other, NULL), 2, DFGNN_SOURCE_PINNED);
  }
}

TEST(a_pin_for_bias_answers_where_there_is_bias) {
  const dfgnn_signature graph = graph_of(7, 5000);
  const dfgnn_pin pin = pin_of(1, 0, 1);
  dfgnn_table *t = table();
  ck_ok(dfgnn__table_pin(t, &pin));
  expect(choice_of(t, &graph, NULL), 0, DFGNN_SOURCE_RULE);
  problem.bias = 1;
  expect(choice_of(t, &graph, NULL), 1, DFGNN_SOURCE_PINNED);
}

int main(void) {
  dfgnn__registry_add(fakes);
  return run_case(&(test_case){.name = "select", .setup = set_up});
}
