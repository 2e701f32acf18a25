/* Counts of what was measured, lists of what is legal, and draws of the plan.
 */
#include "tests/unit/fixture.h"

#include <stdio.h>
#include <unistd.h>

#include "lib/absent.h"
#include "lib/cell.h"
#include "lib/graph.h"
#include "lib/registry.h"
#include "tests/unit/measured.h"
#include "tuner/coverage.h"

static dfgnn_status no_launch(const dfgnn_launch *launch) {
  (void)launch;
  return DFGNN_OK;
}

#define FAKE(family, ...)                                                      \
  {                                                                            \
    .name = "cpu.attention.fwd." family, .algorithm = family,                  \
    .backend = "cpu", .ops = DFGNN_OPS_ATTENTION,                              \
    .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .dtypes = DFGNN_BIT(DFGNN_F64),   \
    .revision = 3, .deterministic = 1, .launch = no_launch, __VA_ARGS__        \
  }

static const dfgnn_family fakes[] = {
    FAKE("wide", .parameters = {{"a", 4, {1, 2, 3, 4}, {0}},
                                {"b", 4, {1, 2, 3, 4}, {0}}}),
    FAKE("single", .parameters = {{"a", 1, {1}, {0}}}), DFGNN_FAMILIES_END};

static dfgnn_csr csr;
static dfgnn_problem problem;
static dfgnn_context *ctx;
static dfgnn_graph *graph;

static int three(int64_t i) {
  (void)i;
  return 3;
}

static void set_up(void) {
  csr = ring(100, three);
  problem = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  problem.dtype = DFGNN_F64;
  problem.dim = 8;
  ctx = cpu_context("");
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
}

static void tear_down(void) {
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  ring_free(&csr);
}

static size_t draw(const dfgnn_variant **variant, uint64_t seed) {
  const dfgnn_query query = {.setting = dfgnn__setting(graph, &problem),
                             .family = ""};
  return dfgnn__coverage_draw(variant, &query, seed);
}

START_TEST(every_family_that_runs_is_drawn_and_the_rule_first) {
  const dfgnn_variant **drawn =
      calloc(dfgnn__variant_count() + 1, sizeof *drawn);
  const dfgnn_query query = {.setting = dfgnn__setting(graph, &problem),
                             .family = ""};
  const size_t count = draw(drawn, 1);
  dfgnn_choice rule;
  dfgnn__rule_choice(&rule, &query);
  ck_assert_ptr_eq(drawn[0], rule.variant);
  int families = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    size_t times = 0;
    if (v->family->reference || dfgnn__variant_refusal(v, &query.setting))
      continue;
    for (size_t k = 0; k < count; k++)
      times += drawn[k]->family == v->family;
    ck_assert_msg(times >= 1 && times <= DFGNN_COVER_SETTINGS + 1,
                  "%s was drawn %zu times", v->family->name, times);
    families++;
  }
  ck_assert_int_gt(families, 4);
  free(drawn);
}
END_TEST

START_TEST(each_value_of_a_parameter_comes_up_as_often_as_others) {
  const dfgnn_variant **drawn =
      calloc(dfgnn__variant_count() + 1, sizeof *drawn);
  for (uint64_t seed = 0; seed < 20; seed++) {
    const size_t count = draw(drawn, seed);
    int of_a[5] = {0}, of_b[5] = {0}, single = 0;
    for (size_t k = 0; k < count; k++) {
      single += drawn[k]->family == &fakes[1];
      if (drawn[k]->family != &fakes[0])
        continue;
      of_a[drawn[k]->parameter[0]]++;
      of_b[drawn[k]->parameter[1]]++;
    }
    for (int v = 1; v <= 4; v++) {
      ck_assert_int_eq(of_a[v], 1);
      ck_assert_int_eq(of_b[v], 1);
    }
    ck_assert_int_eq(single, 1);
  }
  free(drawn);
}
END_TEST

START_TEST(a_seed_draws_the_same_again_and_another_something_else) {
  const size_t most = dfgnn__variant_count() + 1;
  const dfgnn_variant **one = calloc(most, sizeof *one);
  const dfgnn_variant **two = calloc(most, sizeof *two);
  const size_t count = draw(one, 7);
  ck_assert_uint_eq(draw(two, 7), count);
  ck_assert(!memcmp(one, two, count * sizeof *one));
  int differs = 0;
  for (uint64_t seed = 8; seed < 12; seed++)
    differs |=
        draw(two, seed) != count || memcmp(one, two, count * sizeof *one);
  ck_assert(differs);
  free(one);
  free(two);
}
END_TEST

START_TEST(graphs_and_settings_are_counted_by_cell_and_family) {
  static const char *const names[] = {"cpu.attention.fwd.wide/a=1,b=1",
                                      "cpu.attention.fwd.wide/a=1,b=2",
                                      "cpu.attention.fwd.single/a=1"};
  dfgnn_measurement rows[3 * 3 + 1];
  size_t count = 0;
  for (int g = 0; g < 3; g++)
    for (int k = 0; k < 3; k++) {
      if (k == 2 && g)
        continue; /* single: on one graph */
      rows[count] = measurement_of(ctx, graph, &problem, names[k], names[0], 1);
      rows[count].signature.fingerprint += (uint64_t)g;
      rows[count++].revision = 3;
    }
  dfgnn_problem heads = problem;
  heads.heads = 4;
  rows[count] = measurement_of(ctx, graph, &heads, names[0], names[0], 1);
  rows[count++].revision = 3;
  dfgnn_decisions *decisions;
  dfgnn_forest_cover *cover;
  size_t covers;
  ck_ok(dfgnn__decide(&decisions, NULL, rows, count, 0.015, NULL, NULL));
  ck_ok(dfgnn__coverage(&cover, &covers, decisions, NULL));
  ck_assert_uint_eq(covers, 3);
  const dfgnn_forest forest = {.cover = cover, .covers = covers};
  const char *cell = "gt forward, one head, 64 bits";
  const dfgnn_forest_cover *c =
      dfgnn__forest_cover_of(&forest, cell, "cpu.attention.fwd.wide");
  ck_assert_int_eq(c->graphs, 3);
  ck_assert_int_eq(c->settings, 2);
  c = dfgnn__forest_cover_of(&forest, cell, "cpu.attention.fwd.single");
  ck_assert_int_eq(c->graphs, 1);
  ck_assert_int_eq(c->settings, 1);
  c = dfgnn__forest_cover_of(&forest, "gt forward, few heads, 64 bits",
                             "cpu.attention.fwd.wide");
  ck_assert_int_eq(c->graphs, 1);
  ck_assert_ptr_null(dfgnn__forest_cover_of(&forest, cell, "no.family"));
  free(cover);
  dfgnn__decisions_free(decisions);
}
END_TEST

START_TEST(what_is_legal_on_a_gpu_is_listed_without_one) {
  dfgnn_device_info device;
  dfgnn_forest_cover *cover;
  size_t count, direct = 0, cpu = 0;
  dfgnn__absent_device(&device, "sm_90");
  ck_ok(dfgnn__coverage_legal(&cover, &count, &device, NULL));
  ck_assert_uint_gt(count, 100);
  for (size_t i = 0; i < count; i++) {
    ck_assert(!i || dfgnn__forest_cover_order(&cover[i - 1], &cover[i]) < 0);
    ck_assert_int_eq(cover[i].graphs, 0);
    cpu += !strncmp(cover[i].family, "cpu.", 4);
    direct += !strcmp(cover[i].family, "cuda.attention.fwd.direct") &&
              !strcmp(cover[i].cell, "gt forward, many heads, 16 bits");
  }
  ck_assert_uint_eq(cpu, 0);
  ck_assert_uint_eq(direct, 1);
  free(cover);
}
END_TEST

START_TEST(a_device_that_is_not_here_is_known_by_name_or_by_rows) {
  dfgnn_device_info device;
  const dfgnn_measurement row = {.backend = "cuda",
                                 .arch = "sm_90",
                                 .model = "NVIDIA H200",
                                 .units = 132,
                                 .cache_bytes = 62914560};
  ck_ok(dfgnn__absent_named(&device, "sm_90,H200", &row, 1));
  ck_assert_str_eq(device.model, "NVIDIA H200");
  ck_assert_int_eq(device.cache_bytes, 62914560);
  ck_ok(dfgnn__absent_named(&device, "sm_80", &row, 1));
  ck_assert_int_eq(device.units, 108);
  ck_fails(dfgnn__absent_named(&device, "sm_90,B200", &row, 1),
           DFGNN_ERROR_INVALID, "no row of the stores is of sm_90");
  ck_fails(dfgnn__absent_named(&device, "H200", &row, 1), DFGNN_ERROR_INVALID,
           "found 'H200', expected an architecture");
  ck_fails(dfgnn__absent_named(&device, "sm_", NULL, 0), DFGNN_ERROR_INVALID,
           "found 'sm_'");
}
END_TEST

START_TEST(a_cell_is_made_of_what_changes_the_kernels) {
  char a[DFGNN_CELL_SIZE], b[DFGNN_CELL_SIZE];
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  p.op = DFGNN_OP_GATV2;
  p.pass = DFGNN_PASS_BACKWARD;
  p.heads = 4;
  p.edge_dim = 11;
  dfgnn__cell(a, &p);
  ck_assert_str_eq(a, "gatv2 backward, edges<=16, few heads, 32 bits");
  p.dim = 128;
  dfgnn__cell(b, &p);
  ck_assert_str_eq(a, b);
  p = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  p.op = DFGNN_OP_SPMM_MEAN;
  p.dtype = DFGNN_F16;
  p.message = DFGNN_MESSAGE_RELU;
  p.edge_dim = DFGNN_EDGE_PROJECTED;
  dfgnn__cell(a, &p);
  ck_assert_str_eq(a, "spmm-sum forward, relu, edges given, 16 bits");
}
END_TEST

int main(void) {
  setenv("DFGNN_MODEL", "none", 1);
  dfgnn__registry_add(fakes);
  Suite *suite = suite_create("coverage");
  TCase *tests = tcase_create("coverage");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, every_family_that_runs_is_drawn_and_the_rule_first);
  tcase_add_test(tests, each_value_of_a_parameter_comes_up_as_often_as_others);
  tcase_add_test(tests, a_seed_draws_the_same_again_and_another_something_else);
  tcase_add_test(tests, graphs_and_settings_are_counted_by_cell_and_family);
  tcase_add_test(tests, what_is_legal_on_a_gpu_is_listed_without_one);
  tcase_add_test(tests, a_device_that_is_not_here_is_known_by_name_or_by_rows);
  tcase_add_test(tests, a_cell_is_made_of_what_changes_the_kernels);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
