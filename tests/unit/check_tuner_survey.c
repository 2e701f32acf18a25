/* check_tuner_survey.c - a survey times every scripted variant and confirms the
 * best */
#include <math.h>

#include "lib/signature.h"
#include "tests/unit/fixture.h"
#include "tuner/survey.h"

enum { ARMS = 60 };

typedef struct fake {
  double ms[ARMS];
  double noise, drift; /* relative, of a sample and over a thousand samples */
  dfgnn_sampled admit[ARMS], sample[ARMS];
  int taints; /* each first sample of an arm is disturbed and twice as long */
  int lucky;  /* this arm's first sample takes a quarter; 0: no arm's does */
  uint64_t random;
  int total, stop_after;
  int admitted[ARMS], finished[ARMS], brief[ARMS], full[ARMS];
} fake;

static dfgnn_sampled fake_admit(void *data, size_t i) {
  fake *f = data;
  f->admitted[i]++;
  return f->admit[i];
}

static dfgnn_sampled fake_sample(void *data, size_t i, int brief, double *ms) {
  fake *f = data;
  const double uniform =
      (double)(dfgnn__mix(f->random++) >> 11) / 9007199254740992.0;
  const int first = f->brief[i] + f->full[i] == 0;
  ck_assert_int_eq(f->finished[i], f->admitted[i] - 1);
  f->total++;
  *(brief ? &f->brief[i] : &f->full[i]) += 1;
  *ms = f->ms[i] * (1 + f->noise * (2 * uniform - 1)) *
        (1 + f->drift * f->total / 1000) * (f->taints && first ? 2 : 1) *
        (first && f->lucky && f->lucky == (int)i ? 0.25 : 1);
  if (f->sample[i] != DFGNN_SAMPLED_OK)
    return f->sample[i];
  return f->taints && first ? DFGNN_SAMPLED_TAINTED : DFGNN_SAMPLED_OK;
}

static void fake_finished(void *data, size_t i) {
  ((fake *)data)->finished[i]++;
}

static int fake_stop(void *data) {
  const fake *f = data;
  return f->stop_after > 0 && f->total >= f->stop_after;
}

static const dfgnn_survey_ops ops = {fake_admit, fake_sample, fake_finished,
                                     fake_stop};

/* Arm i takes 1 + i / 10, so that 8 are within 1.75 times the best. */
static void plant(fake *f) {
  memset(f, 0, sizeof *f);
  for (int i = 0; i < ARMS; i++)
    f->ms[i] = 1 + 0.1 * i;
  f->noise = 0.01;
  f->random = 7;
}

static void each_is_left_once(const fake *f) {
  for (int i = 0; i < ARMS; i++)
    ck_assert_int_eq(f->finished[i], f->admitted[i]);
}

TEST(every_variant_has_a_time_and_slow_ones_one_sample) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  ck_ok(dfgnn__survey_run(result, ARMS, &ops, &f, 3));
  for (int i = 0; i < ARMS; i++) {
    ck_assert_int_eq(f.admitted[i], 1);
    ck_assert_double_eq_tol(result[i].ms, f.ms[i], 0.02 * f.ms[i]);
    if (f.ms[i] > 1.8) {
      ck_assert_int_eq(result[i].rounds, 1);
      ck_assert_int_eq(f.brief[i], 1);
      ck_assert_int_eq(f.full[i], 0);
    }
  }
  ck_assert_int_eq(result[0].rounds,
                   1 + DFGNN_SURVEY_ROUNDS + DFGNN_SURVEY_FINAL_ROUNDS);
  each_is_left_once(&f);
}

TEST(ten_of_many_good_ones_are_confirmed) {
  fake f;
  dfgnn_surveyed result[ARMS];
  int confirmed = 0;
  plant(&f);
  f.noise = 0.001;
  for (int i = 0; i < ARMS; i++)
    f.ms[i] = 1 + 0.01 * i;
  ck_ok(dfgnn__survey_run(result, ARMS, &ops, &f, 3));
  for (int i = 0; i < ARMS; i++) {
    ck_assert_int_ge(result[i].rounds, 1 + DFGNN_SURVEY_ROUNDS);
    confirmed += result[i].rounds > 1 + DFGNN_SURVEY_ROUNDS;
    ck_assert_int_eq(result[i].rounds > 1 + DFGNN_SURVEY_ROUNDS,
                     i < DFGNN_SURVEY_FINALISTS);
  }
  ck_assert_int_eq(confirmed, DFGNN_SURVEY_FINALISTS);
  each_is_left_once(&f);
}

TEST(drift_changes_no_ratio) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  f.noise = 0;
  f.drift = 0.2;
  ck_ok(dfgnn__survey_run(result, ARMS, &ops, &f, 3));
  for (int i = 0; i < 7; i++)
    ck_assert_double_eq_tol(result[i].ms / result[0].ms, f.ms[i], 0.003);
}

TEST(a_disturbed_first_sample_is_taken_again) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  f.taints = 1;
  ck_ok(dfgnn__survey_run(result, ARMS, &ops, &f, 3));
  for (int i = 0; i < ARMS; i++)
    ck_assert_double_eq_tol(result[i].ms, f.ms[i], 0.02 * f.ms[i]);
}

TEST(what_left_because_of_a_lucky_sample_is_taken_back) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  f.lucky = 9;
  ck_ok(dfgnn__survey_run(result, ARMS, &ops, &f, 3));
  ck_assert_int_gt(result[0].rounds, 1);
  for (int i = 0; i < ARMS; i++) {
    ck_assert_double_eq_tol(result[i].ms, f.ms[i], 0.02 * f.ms[i]);
    ck_assert(result[i].rounds > 1 || result[i].ms > result[0].ms);
  }
  each_is_left_once(&f);
}

TEST(what_fails_has_no_time_and_the_rest_goes_on) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  f.admit[0] = DFGNN_SAMPLED_FAILED;
  f.sample[1] = DFGNN_SAMPLED_FAILED;
  ck_ok(dfgnn__survey_run(result, ARMS, &ops, &f, 3));
  ck_assert(isnan(result[0].ms) && isnan(result[1].ms));
  ck_assert_int_eq(result[0].rounds + result[1].rounds, 0);
  for (int i = 2; i < ARMS; i++)
    ck_assert_double_eq_tol(result[i].ms, f.ms[i], 0.02 * f.ms[i]);
  each_is_left_once(&f);
}

TEST(a_stopped_survey_is_not_complete) {
  fake f;
  dfgnn_surveyed result[ARMS];
  for (int after = 1; after < ARMS + 60; after += 9) {
    plant(&f);
    f.stop_after = after;
    ck_assert_int_eq(dfgnn__survey_run(result, ARMS, &ops, &f, 3),
                     DFGNN_ERROR_INTERRUPTED);
    ck_assert_int_le(f.total, after + 9);
    each_is_left_once(&f);
  }
}

TEST(a_lost_device_ends_a_survey) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  f.sample[30] = DFGNN_SAMPLED_LOST;
  ck_assert_int_eq(dfgnn__survey_run(result, ARMS, &ops, &f, 3),
                   DFGNN_ERROR_DEVICE);
  each_is_left_once(&f);
}

TEST(all_that_fail_are_a_complete_survey_without_times) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  for (int i = 0; i < ARMS; i++)
    f.admit[i] = DFGNN_SAMPLED_FAILED;
  ck_ok(dfgnn__survey_run(result, ARMS, &ops, &f, 3));
  for (int i = 0; i < ARMS; i++)
    ck_assert(isnan(result[i].ms));
}

TEST(a_comparison_gives_each_variant_all_rounds) {
  fake f;
  dfgnn_surveyed result[ARMS];
  plant(&f);
  ck_ok(dfgnn__survey_rounds(result, ARMS, 7, &ops, &f, 3));
  for (int i = 0; i < ARMS; i++) {
    ck_assert_int_ge(f.full[i], 7);
    ck_assert_int_eq(result[i].rounds, 8);
    ck_assert_double_eq_tol(result[i].ms, f.ms[i], 0.02 * f.ms[i]);
  }
  each_is_left_once(&f);
}

TEST_MAIN("all")
