/* Boosting in cases whose result is known, and the files of forests. */
#include "tests/unit/fixture.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/common/fingerprint.h"
#include "select/forest.h"
#include "tuner/boost.h"

enum { GROUPS = 40, EACH = 24, ROWS = GROUPS * EACH, FEATURES = 5 };
enum { STEP, SLOPE, CONSTANT, GAPPY, PROBLEM };

static double value[FEATURES * ROWS];
static int32_t target[ROWS], weight[ROWS];
static uint32_t group[ROWS];

static double uniform(uint64_t i) {
  return (double)(dfgnn__mix(i + 1) >> 11) / 9007199254740992.0;
}

/* A row is slower by a half above the step, by half of its slope, and by a
 * quarter where the gap is; a group is slower as a whole by up to `offset`. */
static dfgnn_boost_data make_data(int offset) {
  for (int i = 0; i < ROWS; i++) {
    group[i] = (uint32_t)(i / EACH);
    value[STEP * ROWS + i] = (double)(i % 4);
    value[SLOPE * ROWS + i] = uniform((uint64_t)i);
    value[CONSTANT * ROWS + i] = 7;
    value[GAPPY * ROWS + i] = i % 3 ? (double)(i % 7) : NAN;
    value[PROBLEM * ROWS + i] = uniform(group[i] * 1000u);
    double t = i % 4 > 1 ? 0.5 : 0;
    t += 0.5 * value[SLOPE * ROWS + i] + (i % 3 ? 0 : 0.25);
    t += offset * uniform(group[i]);
    target[i] = (int32_t)(t * DFGNN_FOREST_UNIT);
    weight[i] = 1024;
  }
  return (dfgnn_boost_data){ROWS, GROUPS, value, target, weight, group};
}

static dfgnn_forest fit(const dfgnn_boost_data *data,
                        const dfgnn_boost_options *options,
                        const uint8_t *left_out) {
  static const char *const names[FEATURES] = {"step", "slope", "constant",
                                              "gappy", "problem"};
  dfgnn_forest forest = {.features = FEATURES, .key = "test"};
  forest.feature = calloc(FEATURES, sizeof *forest.feature);
  for (int f = 0; f < FEATURES; f++)
    snprintf(forest.feature[f].name, sizeof forest.feature[f].name, "%s",
             names[f]);
  ck_ok(dfgnn__boost_thresholds(&forest, data));
  uint8_t *bins = malloc((size_t)FEATURES * ROWS);
  dfgnn__boost_bins(bins, &forest, data);
  ck_ok(dfgnn__boost(&forest, data, bins, left_out, options));
  free(bins);
  return forest;
}

static int64_t score(const dfgnn_forest *forest, double step, double slope,
                     double gappy) {
  const double x[FEATURES] = {step, slope, 7, gappy, 0.5};
  uint8_t bins[FEATURES];
  int64_t sum = 0;
  for (int f = 0; f < FEATURES; f++)
    bins[f] = dfgnn__forest_bin(&forest->feature[f], x[f]);
  for (int m = 0; m < forest->members; m++)
    sum += dfgnn__forest_score(forest, m, bins);
  return sum / forest->members;
}

static int same_forest(const dfgnn_forest *a, const dfgnn_forest *b) {
  if (a->nodes != b->nodes)
    return 0;
  for (size_t i = 0; i < a->nodes; i++)
    if (a->node[i].feature != b->node[i].feature ||
        a->node[i].bin != b->node[i].bin ||
        a->node[i].right != b->node[i].right ||
        a->node[i].value != b->node[i].value)
      return 0;
  return 1;
}

START_TEST(what_makes_rows_slow_is_found) {
  const dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  const dfgnn_boost_data data = make_data(0);
  dfgnn_forest forest = fit(&data, &options, NULL);
  const double unit = DFGNN_FOREST_UNIT;
  const int64_t base = score(&forest, 0, 0.5, 1);
  ck_assert_double_eq_tol((double)(score(&forest, 3, 0.5, 1) - base) / unit,
                          0.5, 0.05);
  ck_assert_double_eq_tol((double)(score(&forest, 0, 0.9, 1) - base) / unit,
                          0.2, 0.05);
  ck_assert_double_eq_tol((double)(score(&forest, 0, 0.5, NAN) - base) / unit,
                          0.25, 0.05);
  ck_assert_uint_eq(forest.feature[CONSTANT].gain, 0);
  ck_assert_int_eq(forest.feature[CONSTANT].thresholds, 0);
  ck_assert_uint_gt(forest.feature[STEP].gain, forest.feature[PROBLEM].gain);
  dfgnn__forest_free(&forest);
}
END_TEST

START_TEST(scores_rise_with_what_slows_monotonously) {
  const dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  const dfgnn_boost_data data = make_data(0);
  dfgnn_forest forest = fit(&data, &options, NULL);
  for (double x = 0.05; x < 0.9; x += 0.1)
    ck_assert_int_lt(score(&forest, 1, x, 2), score(&forest, 1, x + 0.1, 2));
  dfgnn__forest_free(&forest);
}
END_TEST

START_TEST(how_long_a_problem_takes_is_not_learned) {
  const dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  dfgnn_boost_data data = make_data(0);
  dfgnn_forest plain = fit(&data, &options, NULL);
  data = make_data(6);
  dfgnn_forest shifted = fit(&data, &options, NULL);
  const int64_t off = score(&plain, 3, 0.5, 1) - score(&plain, 0, 0.5, 1);
  const int64_t other = score(&shifted, 3, 0.5, 1) - score(&shifted, 0, 0.5, 1);
  ck_assert_int_lt(llabs(off - other), DFGNN_FOREST_UNIT / 100);
  dfgnn__forest_free(&plain);
  dfgnn__forest_free(&shifted);
}
END_TEST

START_TEST(threads_do_not_change_a_bit) {
  dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  const dfgnn_boost_data data = make_data(1);
  options.threads = 1;
  dfgnn_forest one = fit(&data, &options, NULL);
  options.threads = 4;
  dfgnn_forest four = fit(&data, &options, NULL);
  ck_assert(same_forest(&one, &four));
  options.seed = 2;
  dfgnn_forest seeded = fit(&data, &options, NULL);
  ck_assert(!same_forest(&one, &seeded));
  dfgnn__forest_free(&one);
  dfgnn__forest_free(&four);
  dfgnn__forest_free(&seeded);
}
END_TEST

/* The forest that this test expects was printed by it on x86_64: another
 * machine or compiler has to grow the same. */
START_TEST(a_known_case_gives_the_known_forest) {
  dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  const dfgnn_boost_data data = make_data(1);
  uint64_t hash = 0;
  options.trees = 20;
  options.rate = 123;
  dfgnn_forest forest = fit(&data, &options, NULL);
  for (size_t i = 0; i < forest.nodes; i++)
    hash = dfgnn__mix(hash * 31 + forest.node[i].feature +
                      256u * forest.node[i].bin +
                      65536u * (uint16_t)forest.node[i].value);
  ck_assert_uint_eq(hash, UINT64_C(11091756491753239207));
  dfgnn__forest_free(&forest);
}
END_TEST

START_TEST(groups_left_out_do_not_count) {
  const dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  dfgnn_boost_data data = make_data(0);
  uint8_t left_out[GROUPS] = {0};
  for (int g = 30; g < GROUPS; g++)
    left_out[g] = 1;
  dfgnn_forest before = fit(&data, &options, left_out);
  for (int i = 30 * EACH; i < ROWS; i++)
    target[i] = -target[i];
  dfgnn_forest after = fit(&data, &options, left_out);
  ck_assert(same_forest(&before, &after));
  dfgnn__forest_free(&before);
  dfgnn__forest_free(&after);
}
END_TEST

/* Step and gap differ between classes of candidates; all else is common. */
START_TEST(ranking_all_at_once_gives_the_scores_one_by_one) {
  enum { COUNT = 150, WORDS = 3, CLASSES = 4 };
  const dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  const dfgnn_boost_data data = make_data(0);
  dfgnn_forest forest = fit(&data, &options, NULL);
  uint64_t set[2][CLASSES][WORDS] = {{{0}}}, active[WORDS] = {0};
  uint8_t bin[FEATURES][CLASSES];
  int32_t *found = calloc((size_t)forest.members * COUNT, sizeof *found);
  const double gaps[CLASSES] = {NAN, 1, 4, 6};
  dfgnn_ranking_feature feature[FEATURES];
  for (int f = 0; f < FEATURES; f++) {
    feature[f] = (dfgnn_ranking_feature){0, NULL, bin[f]};
    bin[f][0] = dfgnn__forest_bin(&forest.feature[f], 0.6);
  }
  for (int k = 0; k < CLASSES; k++) {
    bin[STEP][k] = dfgnn__forest_bin(&forest.feature[STEP], k);
    bin[GAPPY][k] = dfgnn__forest_bin(&forest.feature[GAPPY], gaps[k]);
  }
  feature[STEP] = (dfgnn_ranking_feature){CLASSES, set[0][0], bin[STEP]};
  feature[GAPPY] = (dfgnn_ranking_feature){CLASSES, set[1][0], bin[GAPPY]};
  for (int i = 0; i < COUNT; i++) {
    set[0][i % 4][i / 64] |= UINT64_C(1) << i % 64;
    set[1][i / 4 % 4][i / 64] |= UINT64_C(1) << i % 64;
    if (i % 5)
      active[i / 64] |= UINT64_C(1) << i % 64;
  }
  dfgnn_ranking ranking = {.count = COUNT,
                           .words = WORDS,
                           .feature = feature,
                           .active = active,
                           .score = found};
  for (int again = 0; again < 2; again++)
    ck_ok(dfgnn__forest_rank(&forest, &ranking));
  int compared = 0;
  for (int m = 0; m < forest.members; m++)
    for (int i = 0; i < COUNT; i++) {
      uint8_t bins[FEATURES];
      for (int f = 0; f < FEATURES; f++)
        bins[f] = bin[f][0];
      bins[STEP] = bin[STEP][i % 4];
      bins[GAPPY] = bin[GAPPY][i / 4 % 4];
      ck_assert_int_eq(found[m * COUNT + i],
                       i % 5 ? dfgnn__forest_score(&forest, m, bins) : 0);
      compared++;
    }
  ck_assert_int_eq(compared, 3 * COUNT);
  dfgnn__ranking_free(&ranking);
  free(found);
  dfgnn__forest_free(&forest);
}
END_TEST

/* ---- files --------------------------------------------------------------- */

static unsigned char *read_all(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  unsigned char *bytes = malloc(1 << 20);
  ck_assert_ptr_nonnull(file);
  *size = fread(bytes, 1, 1 << 20, file);
  fclose(file);
  return bytes;
}

START_TEST(a_file_gives_back_what_was_saved) {
  dfgnn_boost_options options = DFGNN_BOOST_OPTIONS_INIT;
  const dfgnn_boost_data data = make_data(0);
  char path[] = "/tmp/dfgnn-forest-XXXXXX", again[64];
  close(mkstemp(path));
  snprintf(again, sizeof again, "%s.2", path);
  options.trees = 10;
  dfgnn_forest forest = fit(&data, &options, NULL);
  dfgnn_forests one = {.count = 1, .forest = &forest}, loaded;
  size_t size, other_size;
  ck_ok(dfgnn__forests_save(&one, path));
  ck_ok(dfgnn__forests_load(&loaded, path));
  ck_assert_uint_eq(loaded.count, 1);
  ck_assert(same_forest(&forest, &loaded.forest[0]));
  ck_assert_ptr_eq(dfgnn__forests_find(&loaded, "test"), loaded.forest);
  ck_assert_ptr_null(dfgnn__forests_find(&loaded, "other"));
  ck_ok(dfgnn__forests_save(&loaded, again));
  unsigned char *bytes = read_all(path, &size);
  unsigned char *others = read_all(again, &other_size);
  ck_assert_uint_eq(size, other_size);
  ck_assert(!memcmp(bytes, others, size));
  dfgnn__forests_free(&loaded);
  for (size_t cut = 0; cut < size; cut += 7)
    ck_assert_int_eq(dfgnn__forests_read(&loaded, "cut", bytes, cut),
                     DFGNN_ERROR_FORMAT);
  ck_fails(dfgnn__forests_read(&loaded, "x.db", "SQLite format 3", 15),
           DFGNN_ERROR_FORMAT, "x.db: expected a model");
  for (uint64_t i = 0; i < 500; i++) {
    const size_t at = dfgnn__mix(i) % size;
    bytes[at] ^= (unsigned char)(1 << i % 8);
    if (!dfgnn__forests_read(&loaded, "bent", bytes, size))
      dfgnn__forests_free(&loaded);
    bytes[at] ^= (unsigned char)(1 << i % 8);
  }
  free(bytes);
  free(others);
  unlink(path);
  unlink(again);
  dfgnn__forest_free(&forest);
}
END_TEST

START_TEST(the_packages_models_are_whole_and_small) {
  const char *name;
  size_t size, models = 0;
  const void *bytes;
  for (; (bytes = dfgnn__forests_embedded(models, &name, &size)); models++) {
    dfgnn_forests forests;
    ck_ok(dfgnn__forests_read(&forests, name, bytes, size));
    ck_assert_uint_gt(forests.count, 0);
    ck_assert_uint_le(size, 720 << 10);
    dfgnn__forests_free(&forests);
  }
  ck_assert_uint_eq(models, 3);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("forest");
  TCase *tests = tcase_create("forest");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, what_makes_rows_slow_is_found);
  tcase_add_test(tests, scores_rise_with_what_slows_monotonously);
  tcase_add_test(tests, how_long_a_problem_takes_is_not_learned);
  tcase_add_test(tests, threads_do_not_change_a_bit);
  tcase_add_test(tests, a_known_case_gives_the_known_forest);
  tcase_add_test(tests, groups_left_out_do_not_count);
  tcase_add_test(tests, ranking_all_at_once_gives_the_scores_one_by_one);
  tcase_add_test(tests, a_file_gives_back_what_was_saved);
  tcase_add_test(tests, the_packages_models_are_whole_and_small);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
