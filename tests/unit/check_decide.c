/* check_decide.c - the winners that stored rows decide on */
#include <math.h>

#include "db/combine.h"
#include "tests/unit/fixture.h"
#include "tests/unit/rows.h"

#define MARGIN .015

OWNED(decisions, dfgnn_decisions, dfgnn__decisions_free)

static dfgnn_decisions *decide(const dfgnn_measurement *rows, size_t count) {
  dfgnn_decisions *decisions = NULL;
  ck_ok(dfgnn__decide(&decisions, NULL, rows, count, MARGIN, NULL, NULL));
  return own_decisions(decisions);
}

static const dfgnn_ranked *find(const dfgnn_decision *d, const char *variant) {
  for (size_t i = 0; i < d->count; i++)
    if (strcmp(d->ranked[i].variant, variant) == 0)
      return &d->ranked[i];
  return NULL;
}

#define ck_near(x, y) ck_assert_double_eq_tol(x, y, 1e-9)

TEST(no_rows_give_no_decisions) {
  dfgnn_decisions *d = decide(NULL, 0);
  ck_assert_uint_eq(d->count, 0);
  dfgnn__decisions_free(NULL);
}

TEST(the_fastest_variant_wins_and_the_rest_follow_by_time) {
  dfgnn_measurement rows[] = {
      row_of(RUN_A, "base", 1), row_of(RUN_A, "slow", 3),
      row_of(RUN_A, "fast", .5), row_of(RUN_A, "middle", .8)};
  dfgnn_decisions *d = decide(rows, 4);
  ck_assert_uint_eq(d->count, 1);
  ck_assert_uint_eq(d->decision[0].count, 4);
  const char *const order[] = {"fast", "middle", "base", "slow"};
  const double ratio[] = {.5, .8, 1, 3};
  for (int i = 0; i < 4; i++) {
    const dfgnn_ranked *r = &d->decision[0].ranked[i];
    ck_assert_str_eq(r->variant, order[i]);
    ck_near(r->log_ratio, log(ratio[i] / .5));
    ck_near(r->median_ms, .01 * ratio[i]);
    ck_assert_int_eq(r->tied, i == 0);
    ck_assert_int_eq(r->samples, 50);
    ck_assert_int_eq(r->revision, 1);
  }
  const dfgnn_measurement *p = &d->decision[0].problem;
  ck_assert_str_eq(p->model, "NVIDIA H200");
  ck_assert_str_eq(p->graph, "cora");
  ck_assert_uint_eq(p->signature.fingerprint, 0xfedcba9876543210u);
  ck_assert_int_eq(p->signature.edges, 10556);
  ck_assert_str_eq(p->variant, "");
  ck_assert_double_eq(p->median_ms, 0);
}

TEST(decisions_outlive_the_rows_they_came_from) {
  char variant[] = "fast", arch[] = "sm_90";
  dfgnn_measurement row = row_of(RUN_A, variant, .5);
  row.arch = arch;
  dfgnn_decisions *d = decide(&row, 1);
  memset(variant, 'x', sizeof variant - 1);
  memset(arch, 'x', sizeof arch - 1);
  ck_assert_ptr_nonnull(find(&d->decision[0], "fast"));
  ck_assert_str_eq(d->decision[0].problem.arch, "sm_90");
}

TEST(an_anchor_without_a_row_of_its_own_takes_part) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "slow", 2)};
  rows[0].anchor_revision = 4;
  dfgnn_decisions *d = decide(rows, 1);
  ck_assert_uint_eq(d->decision[0].count, 2);
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "base");
  ck_assert_int_eq(d->decision[0].ranked[0].revision, 4);
  ck_near(d->decision[0].ranked[0].median_ms, .01);
  ck_near(d->decision[0].ranked[1].log_ratio, log(2));
}

static void shuffle(dfgnn_measurement *rows, size_t count, uint64_t *seed) {
  for (size_t i = count; i-- > 1;) {
    size_t j = random_next(seed) % (i + 1);
    dfgnn_measurement row = rows[i];
    rows[i] = rows[j];
    rows[j] = row;
  }
}

static void ck_same(const dfgnn_decisions *a, const dfgnn_decisions *b) {
  ck_assert_uint_eq(a->count, b->count);
  for (size_t i = 0; i < a->count; i++) {
    const dfgnn_decision *x = &a->decision[i], *y = &b->decision[i];
    ck_assert_uint_eq(x->count, y->count);
    ck_assert_uint_eq(x->rejections, y->rejections);
    ck_assert_str_eq(x->problem.run, y->problem.run);
    ck_assert_str_eq(x->problem.arch, y->problem.arch);
    ck_assert_uint_eq(x->problem.signature.fingerprint,
                      y->problem.signature.fingerprint);
    for (size_t k = 0; k < x->count; k++) {
      const dfgnn_ranked *r = &x->ranked[k], *s = &y->ranked[k];
      ck_assert_str_eq(r->variant, s->variant);
      ck_assert_int_eq(r->revision, s->revision);
      ck_assert_int_eq(r->tied, s->tied);
      ck_assert_int_eq(r->samples, s->samples);
      ck_assert(memcmp(&r->log_ratio, &s->log_ratio, 8) == 0);
      ck_assert(memcmp(&r->median_ms, &s->median_ms, 8) == 0);
    }
  }
}

#define RANDOM_ROWS 400

TEST(any_order_and_any_repetition_give_the_same_to_the_bit) {
  static const char *const variants[] = {"a", "b", "c", "d", "e", "f"};
  static const char *const runs[] = {RUN_A, RUN_B, RUN_C};
  static const char *const anchors[] = {"a", "c", "f"};
  static const char *const statuses[] = {"ok", "ok", "ok",     "ok",   "ok",
                                         "ok", "ok", "failed", "wrong"};
  static dfgnn_measurement rows[2 * RANDOM_ROWS];
  uint64_t seed = (uint64_t)time(NULL);
  printf("seed %llu\n", (unsigned long long)seed);
  for (int i = 0; i < RANDOM_ROWS; i++) {
    uint64_t x = random_next(&seed);
    const char *status = statuses[x % 9], *run = runs[(x >> 12) % 3];
    double ratio = .9 + (double)(x >> 40) / (1 << 24) * .3;
    rows[i] = x % 9 < 7 ? row_of(run, variants[(x >> 8) % 6], ratio)
                        : rejected_of(run, variants[(x >> 8) % 6], status);
    if (x % 9 < 7)
      rows[i].anchor = anchors[(x >> 12) % 3];
    rows[i].signature.fingerprint = (x >> 16) % 40;
    rows[i].revision = 1 + (int)((x >> 24) % 2);
    rows[i].time += (int64_t)((x >> 28) % 4);
  }
  dfgnn_decisions *first = decide(rows, RANDOM_ROWS);
  ck_assert_uint_gt(first->count, 10);
  for (int i = 0; i < 20; i++) {
    size_t count = RANDOM_ROWS;
    shuffle(rows, count, &seed);
    if (i % 2) { /* a third of the rows twice */
      count += RANDOM_ROWS / 3;
      memcpy(rows + RANDOM_ROWS, rows, RANDOM_ROWS / 3 * sizeof *rows);
    }
    dfgnn_decisions *again = decide(rows, count);
    ck_same(first, again);
  }
}

TEST(within_the_margin_the_first_by_name_wins) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "zebra", .5),
                              row_of(RUN_A, "antelope", .507),
                              row_of(RUN_A, "lion", .53)};
  for (int i = 0; i < 3; i++)
    rows[i].ratio_low = rows[i].ratio_high = rows[i].ratio;
  dfgnn_decisions *d = decide(rows, 3);
  const dfgnn_decision *x = &d->decision[0];
  ck_assert_str_eq(x->ranked[0].variant, "antelope");
  ck_near(x->ranked[0].log_ratio, log(.507 / .5));
  ck_assert_int_eq(x->ranked[0].tied, 1);
  ck_assert_str_eq(x->ranked[1].variant, "zebra");
  ck_assert_int_eq(x->ranked[1].tied, 1);
  ck_assert_str_eq(x->ranked[2].variant, "lion");
  ck_assert_int_eq(x->ranked[2].tied, 0);
}

TEST(of_a_tie_the_least_workspace_wins) {
  dfgnn_measurement rows[] = {
      row_of(RUN_A, "anchor", 1), row_of(RUN_A, "big", .5),
      row_of(RUN_A, "small", .505), row_of(RUN_A, "tiny", .6)};
  rows[0].workspace_bytes = rows[1].workspace_bytes = 4096;
  rows[2].workspace_bytes = 1024;
  dfgnn_decisions *d = decide(rows, 4);
  const dfgnn_decision *x = &d->decision[0];
  ck_assert_str_eq(x->ranked[0].variant, "small");
  ck_assert_str_eq(x->ranked[1].variant, "big");
  ck_assert_str_eq(x->ranked[2].variant, "tiny"); /* not tied */
}

TEST(what_noise_cannot_tell_apart_is_tied_up_to_three_margins) {
  dfgnn_measurement rows[] = {
      row_of(RUN_A, "fast", .5), row_of(RUN_A, "close", .515),
      row_of(RUN_A, "apart", .516), row_of(RUN_A, "noisy", .54)};
  for (int i = 0; i < 4; i++) {
    double width = i == 2 ? .001 : i == 3 ? .3 : .03;
    rows[i].ratio_low = rows[i].ratio * (1 - width);
    rows[i].ratio_high = rows[i].ratio * (1 + width);
  }
  rows[0].ratio_low = rows[0].ratio * .999;
  rows[0].ratio_high = rows[0].ratio * 1.001;
  dfgnn_decisions *d = decide(rows, 4);
  const dfgnn_decision *x = &d->decision[0];
  ck_assert_int_eq(find(x, "fast")->tied, 1);
  ck_assert_int_eq(find(x, "close")->tied, 1);
  ck_assert_int_eq(find(x, "apart")->tied, 0); /* its interval is narrow */
  ck_assert_int_eq(find(x, "noisy")->tied, 0); /* 8 % slower, however wide */
  ck_assert_str_eq(x->ranked[0].variant, "close");
}

TEST(rows_of_a_variant_are_weighted_by_their_precision) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1), row_of(RUN_A, "x", .5),
                              row_of(RUN_B, "x", .52),
                              row_of(RUN_B, "base", 1)};
  rows[1].ratio_low = .5 * exp(-.0196), rows[1].ratio_high = .5 * exp(.0196);
  rows[2].ratio_low = .52 * exp(-.0392), rows[2].ratio_high = .52 * exp(.0392);
  dfgnn_decisions *d = decide(rows, 4);
  double x = (4 * log(.5) + log(.52)) / 5; /* errors of 1 % and 2 % */
  ck_near(find(&d->decision[0], "base")->log_ratio, -x);
  ck_assert_int_eq(find(&d->decision[0], "x")->samples, 100);
}

static int is_revision_one(void *data, const char *variant, int revision) {
  (void)data;
  return strcmp(variant, "gone") != 0 && revision <= 1;
}

TEST(only_the_newest_revision_of_a_variant_counts) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1), row_of(RUN_A, "x", .5),
                              row_of(RUN_A, "x", 2)};
  rows[2].revision = 2;
  dfgnn_decisions *d = decide(rows, 3);
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "base");
  ck_assert_uint_eq(d->decision[0].count, 2);
  ck_assert_int_eq(find(&d->decision[0], "x")->revision, 2);
  ck_near(find(&d->decision[0], "x")->log_ratio, log(2));
}

TEST(revisions_and_variants_that_cannot_be_used_are_left_out) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1), row_of(RUN_A, "x", .5),
                              row_of(RUN_A, "x", .1),
                              row_of(RUN_A, "gone", .2)};
  dfgnn_decisions *d = NULL;
  uint64_t unusable = 5;
  rows[2].revision = 2;
  ck_ok(dfgnn__decide(&d, &unusable, rows, 4, MARGIN, is_revision_one, NULL));
  own_decisions(d);
  ck_assert_uint_eq(unusable, 7);
  ck_assert_uint_eq(d->decision[0].count, 2);
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "x");
  ck_assert_int_eq(d->decision[0].ranked[0].revision, 1);
}

TEST(an_anchor_that_cannot_be_used_still_joins_what_it_measured) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "x", .5), row_of(RUN_A, "y", .25)};
  dfgnn_decisions *d = NULL;
  rows[0].anchor = rows[1].anchor = "gone";
  rows[0].anchor_revision = rows[1].anchor_revision = 1;
  ck_ok(dfgnn__decide(&d, NULL, rows, 2, MARGIN, is_revision_one, NULL));
  own_decisions(d);
  ck_assert_uint_eq(d->decision[0].count, 2);
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "y");
  ck_near(d->decision[0].ranked[1].log_ratio, log(2));
}

TEST(runs_with_other_anchors_are_joined_by_what_both_measured) {
  /* Each run has another anchor and shares a variant with the run before.  The
   * machine was twice as slow in the second run, which no ratio shows. */
  dfgnn_measurement rows[] = {row_of(RUN_A, "a", 1),  row_of(RUN_A, "b", .8),
                              row_of(RUN_A, "c", .6), row_of(RUN_B, "c", 2),
                              row_of(RUN_B, "d", 1),  row_of(RUN_B, "e", 1.5),
                              row_of(RUN_C, "f", .5)};
  rows[0].anchor = rows[1].anchor = rows[2].anchor = "a";
  rows[3].anchor = rows[4].anchor = rows[5].anchor = "d";
  rows[6].anchor = "e";
  rows[3].median_ms *= 2, rows[4].median_ms *= 2, rows[5].median_ms *= 2;
  dfgnn_decisions *d = decide(rows, 7);
  const dfgnn_decision *x = &d->decision[0];
  ck_assert_uint_eq(x->count, 6);
  /* d = .6 / 2 = .3, e = .45, f = .225 of a */
  ck_assert_str_eq(x->ranked[0].variant, "f");
  ck_near(find(x, "d")->log_ratio, log(.3 / .225));
  ck_near(find(x, "e")->log_ratio, log(.45 / .225));
  ck_near(find(x, "a")->log_ratio, log(1 / .225));
  ck_near(find(x, "c")->log_ratio, log(.6 / .225));
}

TEST(what_no_run_joins_is_left_out) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "a", 1), row_of(RUN_A, "b", .8),
                              row_of(RUN_B, "z", .1)};
  rows[0].anchor = rows[1].anchor = "a";
  rows[2].anchor = "y";
  dfgnn_decisions *d = decide(rows, 3);
  ck_assert_uint_eq(d->decision[0].count, 2);
  ck_assert_ptr_null(find(&d->decision[0], "z"));
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "b");
}

TEST(an_older_revision_of_an_anchor_is_another_anchor) {
  /* base was made twice as fast, and x was not measured again. */
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1), row_of(RUN_A, "x", .8),
                              row_of(RUN_A, "y", .9), row_of(RUN_B, "base", 1),
                              row_of(RUN_B, "y", 1.8)};
  rows[3].revision = 2;
  dfgnn_decisions *d = decide(rows, 5);
  const dfgnn_decision *x = &d->decision[0];
  ck_assert_str_eq(x->ranked[0].variant, "base");
  ck_assert_int_eq(x->ranked[0].revision, 2);
  ck_near(find(x, "y")->log_ratio, log(1.8));
  ck_near(find(x, "x")->log_ratio, log(1.6));
}

TEST(a_wrong_variant_never_wins_again_in_its_revision) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1), row_of(RUN_A, "x", .5),
                              rejected_of(RUN_B, "x", "wrong")};
  rows[2].time -= 1000;
  dfgnn_decisions *d = decide(rows, 3);
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "base");
  ck_assert_uint_eq(d->decision[0].count, 1);
  ck_assert_uint_eq(d->decision[0].rejections, 1);
  rows[1].revision = 2; /* repaired */
  d = decide(rows, 3);
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "x");
  ck_assert_uint_eq(d->decision[0].rejections, 0);
}

TEST(a_failure_counts_until_a_newer_success) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1), row_of(RUN_A, "x", .5),
                              rejected_of(RUN_B, "x", "failed")};
  static const struct {
    const char *status;
    int age, wins;
  } cases[] = {{.status = "failed", .age = 0, .wins = 0},
               {.status = "failed", .age = -1, .wins = 0},
               {.status = "failed", .age = 1, .wins = 1},
               {.status = "refused", .age = -1, .wins = 0},
               {.status = "refused", .age = 1, .wins = 1}};
  for (int i = 0; i < 5; i++) {
    rows[2].status = cases[i].status;
    rows[2].time = rows[1].time - cases[i].age;
    dfgnn_decisions *d = decide(rows, 3);
    ck_assert_str_eq(d->decision[0].ranked[0].variant,
                     cases[i].wins ? "x" : "base");
    ck_assert_uint_eq(d->decision[0].rejections, !cases[i].wins);
  }
}

TEST(a_problem_where_nothing_worked_has_no_decision) {
  dfgnn_measurement rows[] = {rejected_of(RUN_A, "x", "wrong"),
                              rejected_of(RUN_A, "y", "refused")};
  dfgnn_decisions *d = decide(rows, 2);
  ck_assert_uint_eq(d->count, 0);
}

/* clang-format off */
#define EACH_KEY(X)                                                            \
  X(backend = "cpu") X(arch = "sm_80") X(model = "NVIDIA H100") X(units = 114) \
  X(cache_bytes = 1) X(shared_bytes = 1) X(op = "gat") X(pass = "backward")    \
  X(dtype = "bf16") X(math = "tf32") X(layout = "ndh") X(index = "i64")        \
  X(heads = 8) X(dim = 64) X(deterministic = 0) X(weights = 1)                 \
  X(bias = 1) X(dropout = 1) X(edge_dim = 16) X(edge_use = 1) X(message = 1)   \
  X(protocol = "cold,graph") X(signature.fingerprint = 1)

#define EACH_PROVENANCE(X)                                                     \
  X(memory_bytes = 1) X(driver = "12") X(runtime = "12") X(library = "0.0.1")  \
  X(graph = "c") X(family = "f") X(tool = "t") X(host = "h") X(job = "j")      \
  X(seed = 9) X(protocol = "warm,launch") X(workspace_bytes = 8) X(time = 9)
/* clang-format on */

TEST(every_part_of_the_key_keeps_decisions_apart) {
  dfgnn_measurement rows[2];
  dfgnn_decisions *d;
#define APART(assignment)                                                      \
  rows[0] = row_of(RUN_A, "x", .5);                                            \
  rows[1] = row_of(RUN_A, "y", .25);                                           \
  rows[1].assignment;                                                          \
  d = decide(rows, 2);                                                         \
  ck_assert_msg(d->count == 2, #assignment);
  EACH_KEY(APART)
}

TEST(a_decision_is_found_by_its_problem) {
  dfgnn_measurement rows[40];
  for (int i = 0; i < 40; i++) {
    rows[i] = row_of(RUN_A, "x", .5);
    rows[i].signature.fingerprint = 1 + (uint64_t)(i * 7 % 40);
  }
  dfgnn_decisions *d = decide(rows, 30);
  for (int i = 0; i < 40; i++) {
    const dfgnn_decision *found = dfgnn__decision_find(d, &rows[i]);
    ck_assert_int_eq(found != NULL, i < 30);
    ck_assert(!found || dfgnn__same_problem(&found->problem, &rows[i]));
  }
  ck_assert_ptr_null(dfgnn__decision_find(decide(rows, 0), &rows[0]));
}

TEST(provenance_does_not_keep_decisions_apart) {
  dfgnn_measurement rows[2];
  dfgnn_decisions *d;
#define TOGETHER(assignment)                                                   \
  rows[0] = row_of(RUN_A, "x", .5);                                            \
  rows[1] = row_of(RUN_A, "y", .25);                                           \
  rows[1].assignment;                                                          \
  d = decide(rows, 2);                                                         \
  ck_assert_msg(d->count == 1 && d->decision[0].count == 2, #assignment);      \
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "y");
  EACH_PROVENANCE(TOGETHER)
}

TEST(rows_that_say_nothing_are_passed_over) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1), row_of(RUN_A, "x", .5),
                              row_of(RUN_A, "y", .5), row_of(RUN_A, "z", .5)};
  rows[1].ratio = rows[1].ratio_low = rows[1].ratio_high = 0;
  rows[2].ratio_high = INFINITY;
  rows[3].ratio = NAN;
  dfgnn_decisions *d = decide(rows, 4);
  ck_assert_uint_eq(d->decision[0].count, 1);
  ck_assert_str_eq(d->decision[0].ranked[0].variant, "base");
}

/* Whether one tune, another one, and both merged choose alpha and do not tie
 * beta.  Three variants are within 0.5 % of each other, and beta is 10 %
 * slower; the noise is added to the logarithms of their ratios. */
static int noisy_tunes_agree(const double noise[8]) {
  static const char *const variants[] = {"delta", "alpha", "omega", "beta"};
  static const double truth[] = {.5, .5025, .501, .55};
  static const size_t from[] = {0, 4, 0}, count[] = {4, 4, 8};
  dfgnn_measurement rows[8];
  int agree = 1;
  for (int i = 0; i < 8; i++) {
    double ratio = truth[i % 4] * exp(noise[i]);
    rows[i] = row_of(i < 4 ? RUN_A : RUN_B, variants[i % 4], ratio);
    rows[i].ratio_low = ratio * exp(-.00392);
    rows[i].ratio_high = ratio * exp(.00392);
  }
  for (int i = 0; i < 3; i++) {
    dfgnn_decisions *d = decide(rows + from[i], count[i]);
    agree &= strcmp(d->decision[0].ranked[0].variant, "alpha") == 0 &&
             !find(&d->decision[0], "beta")->tied;
    done(d);
  }
  return agree;
}

static double random_unit(uint64_t *seed) {
  return (double)(random_next(seed) >> 11) / 9007199254740992.;
}

TEST(tunes_whose_noise_is_within_the_margin_end_in_the_same_choice) {
  /* The promise holds for certain while the 0.5 % of alpha and the noise of
   * alpha and of the fastest are within the margin of 1.5 %. */
  const double most = (log1p(MARGIN) - log(.5025 / .5)) / 2 * .999;
  uint64_t seed = (uint64_t)time(NULL);
  printf("seed %llu\n", (unsigned long long)seed);
  for (int round = 0; round < 1000; round++) {
    double noise[8];
    for (int i = 0; i < 8; i++) {
      double u = random_unit(&seed);
      /* the ends of the range more often than not */
      noise[i] = most * fmin(1, fmax(-1, 4 * u - 2));
    }
    ck_assert_msg(noisy_tunes_agree(noise), "round %d", round);
  }
}

TEST(tunes_of_usual_noise_disagree_once_in_a_thousand_at_most) {
  /* Errors of 0.2 % reach the margin beyond 3.5 standard deviations of a
   * difference.  The seed is fixed, since a count of rare events is compared.
   */
  uint64_t seed = 1795241350;
  int disagree = 0;
  for (int round = 0; round < 20000; round++) {
    double noise[8] = {0};
    for (int i = 0; i < 8; i++) {
      for (int k = 0; k < 12; k++)
        noise[i] += random_unit(&seed);
      noise[i] = .002 * (noise[i] - 6);
    }
    disagree += !noisy_tunes_agree(noise);
  }
  ck_assert_int_le(disagree, 20);
}

TEST(disagreement_widens_a_combined_interval) {
  dfgnn_estimate parts[] = {{0, 1e-4, 1}, {.02, 1e-4, 1}, {9, 9, 0}};
  dfgnn_estimate sum = dfgnn__combine(parts, 3);
  ck_near(sum.mean, .01);
  ck_near(sum.variance, .5e-4 * 2); /* chi^2 = 2 for one degree of freedom */
  parts[1].mean = .001;
  ck_near(dfgnn__combine(parts, 3).variance, .5e-4);
  ck_assert_uint_eq(dfgnn__combine(parts + 2, 1).count, 0);
}

/* ---- what changes nothing ------------------------------------------------ */

/* A row whose interval reaches a factor either way. */
static dfgnn_measurement wide(const char *run, const char *variant,
                              double ratio, double factor) {
  dfgnn_measurement row = row_of(run, variant, ratio);
  row.ratio_low = ratio / factor;
  row.ratio_high = ratio * factor;
  return row;
}

static dfgnn_measurement disturbed(const char *run, const char *variant,
                                   double ratio) {
  dfgnn_measurement row = row_of(run, variant, ratio);
  row.disturbed = row.samples;
  row.noise = "others keep 1.9 of 2 cores busy";
  return row;
}

static const char *winner_of(const dfgnn_measurement *rows, size_t count) {
  static char name[64];
  dfgnn_decisions *d = decide(rows, count);
  snprintf(name, sizeof name, "%s", d->decision[0].ranked[0].variant);
  return name;
}

TEST(one_sample_never_wins_beside_more) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1),
                              row_of(RUN_A, "lucky", .021)};
  rows[1].samples = 1;
  rows[1].ratio_low = rows[1].ratio_high = rows[1].ratio;
  ck_assert_str_eq(winner_of(rows, 2), "base");
  dfgnn_decisions *d = decide(rows, 2);
  const dfgnn_decision *x = &d->decision[0];
  ck_assert_int_eq(find(x, "lucky")->tied, 1); /* it cannot be told apart */
  ck_assert_int_eq(find(x, "lucky")->sure, 0);
  ck_assert_int_eq(find(x, "lucky")->noise, DFGNN_NOISE_ALONE);
  ck_assert_double_eq(find(x, "lucky")->log_ratio, 0);
  ck_assert_int_eq(find(x, "base")->sure, 1);
  ck_assert(dfgnn__ranked_doubtful(x, 1));
  ck_assert(!dfgnn__ranked_doubtful(x, 0));
}

TEST(an_interval_wider_than_the_difference_changes_nothing) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1),
                              wide(RUN_A, "maybe", .8, 1.3)};
  ck_assert_str_eq(winner_of(rows, 2), "base");
  rows[1] = wide(RUN_A, "maybe", .8, 1.2);
  ck_assert_str_eq(winner_of(rows, 2), "maybe");
  /* A sure one that is slower than what seems fastest wins. */
  dfgnn_measurement three[] = {row_of(RUN_A, "base", 1),
                               wide(RUN_A, "maybe", .8, 1.3),
                               row_of(RUN_A, "surely", .95)};
  ck_assert_str_eq(winner_of(three, 3), "surely");
}

TEST(a_disturbed_row_never_wins_beside_a_sure_one) {
  dfgnn_measurement rows[] = {disturbed(RUN_A, "base", 1),
                              disturbed(RUN_A, "x", .05)};
  ck_assert_str_eq(winner_of(rows, 2), "base"); /* what all compare with */
  rows[1].disturbed = rows[1].samples / 2;      /* half of them are calm */
  ck_assert_str_eq(winner_of(rows, 2), "x");
  rows[0].anchor = rows[1].anchor = "gone";
  rows[0].anchor_revision = rows[1].anchor_revision = 0;
  rows[1].disturbed = rows[1].samples;
  ck_assert_str_eq(winner_of(rows, 2), "x"); /* nothing is sure */
}

TEST(a_measurement_that_is_repeated_outweighs_the_noisy_one) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "base", 1),
                              disturbed(RUN_A, "x", .02),
                              row_of(RUN_B, "base", 1), row_of(RUN_B, "x", 1.2),
                              row_of(RUN_B, "x", .021)};
  rows[4].samples = 1;
  dfgnn_decisions *d = decide(rows, 5);
  const dfgnn_decision *x = &d->decision[0];
  ck_assert_str_eq(x->ranked[0].variant, "base");
  ck_near(find(x, "x")->log_ratio, log(1.2));
  ck_assert_int_eq(find(x, "x")->noise, DFGNN_NOISE_NONE);
  ck_assert_int_eq(find(x, "x")->tied, 0);
}

TEST(where_nothing_is_sure_the_fastest_of_two_samples_wins) {
  dfgnn_measurement rows[] = {wide(RUN_A, "a", .9, 1.5),
                              wide(RUN_A, "b", .5, 1.5),
                              wide(RUN_A, "c", .1, 1.5)};
  for (int i = 0; i < 3; i++)
    rows[i].anchor = "gone"; /* of a revision that is not a candidate */
  rows[2].samples = 1;
  for (int i = 0; i < 3; i++)
    rows[i].anchor_revision = 0;
  ck_assert_str_eq(winner_of(rows, 3), "b");
  rows[0].samples = rows[1].samples = 1;
  ck_assert_str_eq(winner_of(rows, 3), "c");
}

TEST(the_noise_of_a_row_is_named) {
  dfgnn_measurement row = row_of(RUN_A, "x", .5);
  ck_assert_int_eq(dfgnn__row_noise(&row), DFGNN_NOISE_NONE);
  row = wide(RUN_A, "x", .5, 1.2);
  ck_assert_str_eq(dfgnn__noise_name(dfgnn__row_noise(&row)), "wide");
  row.disturbed = 26;
  ck_assert_str_eq(dfgnn__noise_name(dfgnn__row_noise(&row)), "disturbed");
  row.samples = row.disturbed = 1;
  ck_assert_str_eq(dfgnn__noise_name(dfgnn__row_noise(&row)), "disturbed");
  row.disturbed = 0;
  ck_assert_str_eq(dfgnn__noise_name(dfgnn__row_noise(&row)), "one sample");
  row.status = "failed";
  ck_assert_str_eq(dfgnn__noise_name(dfgnn__row_noise(&row)), "calm");
}

TEST_MAIN("decide", .timeout = 60)
