/* check_tuner_search.c - the fastest scripted variant wins, in virtual time */
#include <math.h>

#include "lib/signature.h"
#include "tests/unit/fixture.h"
#include "tuner/search.h"

#define ARMS 48

typedef struct fake {
  double ms[ARMS];
  double noise;    /* relative, of one sample */
  double outliers; /* share of samples that take 1.3 to 3 times as long */
  double drift;    /* relative change a second */
  double swing;    /* amplitude of a slow oscillation */
  double check_s;  /* seconds of an admission */
  dfgnn_sampled admit[ARMS], sample[ARMS];
  int rough;         /* admission gives a first time */
  double loud_until; /* others use the device until then: arms of two threads
                      * take `slow` times as long, and their samples are
                      * tainted; arms of one thread are spared */
  double slow;
  int serial[ARMS]; /* 1: has one thread */
  int hidden;       /* 1: no sample says that it was disturbed */
  int settled;      /* calls that waited */
  int taint_every;  /* every n-th sample is tainted; 0: none */

  double clock;
  uint64_t random;
  int samples[ARMS], admitted[ARMS], finished[ARMS];
  int total, stop_after;
  double last_done;
  int progress;
} fake;

static double uniform(fake *f) {
  return ((double)(dfgnn__mix(f->random++) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(fake *f) {
  double radius = sqrt(-2 * log(uniform(f)));
  return radius * cos(6.283185307179586 * uniform(f));
}

static double timed(fake *f, size_t i) {
  double level = (1 + f->drift * f->clock) * (1 + f->swing * sin(f->clock * 2));
  double ms = f->ms[i] * level * exp(f->noise * normal(f));
  if (uniform(f) < f->outliers)
    ms *= 1.3 + 1.7 * uniform(f);
  if (f->clock < f->loud_until && !f->serial[i])
    ms *= f->slow;
  f->clock += ms * 1e-3;
  return ms;
}

static dfgnn_sampled fake_admit(void *data, size_t i, double *rough_ms) {
  fake *f = data;
  f->admitted[i]++;
  f->clock += f->check_s;
  if (f->rough && f->admit[i] == DFGNN_SAMPLED_OK)
    *rough_ms = timed(f, i);
  return f->admit[i];
}

static dfgnn_sampled fake_sample(void *data, size_t i, double *ms) {
  fake *f = data;
  f->total++;
  if (f->sample[i] != DFGNN_SAMPLED_OK)
    return f->sample[i];
  f->samples[i]++;
  const int loud = f->clock < f->loud_until && !f->serial[i] && !f->hidden;
  *ms = timed(f, i);
  if (loud)
    return DFGNN_SAMPLED_TAINTED;
  if (f->taint_every && f->total % f->taint_every == 0) {
    *ms *= 1.5;
    return DFGNN_SAMPLED_TAINTED;
  }
  return DFGNN_SAMPLED_OK;
}

static void fake_finished(void *data, size_t i) {
  ((fake *)data)->finished[i]++;
}

static double fake_now(void *data) { return ((fake *)data)->clock; }

static int fake_stop(void *data) {
  const fake *f = data;
  return f->stop_after > 0 && f->total >= f->stop_after;
}

static void fake_progress(void *data, double done, double eta) {
  fake *f = data;
  ck_assert_double_ge(done, f->last_done);
  ck_assert_double_le(done, 1);
  ck_assert_double_ge(eta, 0);
  f->last_done = done;
  f->progress++;
}

static const dfgnn_search_ops ops = {fake_admit, fake_sample, fake_finished,
                                     fake_now,   fake_stop,   fake_progress,
                                     NULL};

/* The device and the search of a test. */
static fake f;
static dfgnn_search s;

/* Times spread from 1 to 3 times the least, in random order. */
static void plant(uint64_t seed) {
  f = (fake){.random = seed << 32, .check_s = 0.01, .noise = 0.03};
  for (size_t i = 0; i < ARMS; i++)
    f.ms[i] = 2 * (1 + 2 * uniform(&f));
}

static double least(void) {
  double best = INFINITY;
  for (size_t i = 0; i < ARMS; i++)
    if (f.admit[i] == DFGNN_SAMPLED_OK && f.sample[i] == DFGNN_SAMPLED_OK &&
        f.ms[i] < best)
      best = f.ms[i];
  return best;
}

static void end(void) { dfgnn__search_free(&s); }

static void begin_with(size_t arms) {
  end();
  ck_assert(dfgnn__search_init(&s, arms));
  s.ops = &ops;
  s.data = &f;
}

static void begin(uint64_t seed) {
  begin_with(ARMS);
  s.seed = seed;
}

/* The regret of the choice. */
static double regret(void) { return f.ms[s.best] / least() - 1; }

/* Runs many seeds and asserts how often the choice is within 2 % of the best,
 * and how far off it may ever be. */
static void assert_wins(void (*change)(fake *), int seeds, int wanted,
                        double worst_allowed, double deadline) {
  int won = 0;
  double worst = 0;
  for (int seed = 1; seed <= seeds; seed++) {
    plant((uint64_t)seed);
    if (change)
      change(&f);
    begin((uint64_t)seed);
    s.deadline = deadline;
    ck_assert(dfgnn__search_run(&s));
    const double r = regret();
    won += r <= 0.02;
    worst = r > worst ? r : worst;
  }
  ck_assert_msg(won >= wanted && worst <= worst_allowed,
                "seeds 1..%d: %d within 2 %% (expected %d), worst %g "
                "(expected %g)",
                seeds, won, wanted, worst, worst_allowed);
}

TEST(the_fastest_wins_under_noise) {
  assert_wins(NULL, 200, 198, 0.03, INFINITY);
}

static void with_outliers(fake *f) { f->outliers = 0.1; }
TEST(the_fastest_wins_among_outliers) {
  assert_wins(with_outliers, 200, 198, 0.08, INFINITY);
}

/* The device is twice as slow after three seconds, and swings by a fifth. */
static void with_drift(fake *f) {
  f->drift = 0.33;
  f->swing = 0.2;
}
TEST(the_fastest_wins_under_drift) {
  assert_wins(with_drift, 200, 196, 0.05, INFINITY);
}

static void with_all(fake *f) {
  with_drift(f);
  with_outliers(f);
  f->taint_every = 7;
  f->rough = 1;
}
TEST(the_fastest_wins_under_all_at_once) {
  assert_wins(with_all, 200, 194, 0.08, INFINITY);
}

static void with_quiet(fake *f) {
  f->noise = 0.002;
  f->check_s = 0.001;
}
TEST(a_quiet_device_needs_few_samples) {
  assert_wins(with_quiet, 50, 50, 0.015, INFINITY);
  plant(7);
  with_quiet(&f);
  begin(7);
  ck_assert(dfgnn__search_run(&s));
  int once = 0;
  for (size_t i = 1; i < ARMS; i++)
    once += f.samples[i] <= 2;
  ck_assert_int_ge(once, ARMS / 2);
}

TEST(always_tainted_is_normal_and_still_tunes) {
  plant(3);
  f.taint_every = 1;
  begin(3);
  ck_assert(dfgnn__search_run(&s));
  ck_assert(!s.lost);
  ck_assert_double_le(regret(), 0.02);
}

TEST(wrong_and_failing_ones_are_out_and_the_rest_goes_on) {
  for (uint64_t seed = 1; seed <= 30; seed++) {
    plant(seed);
    f.ms[5] = f.ms[6] = 0.5; /* they would win */
    f.admit[5] = f.sample[6] = DFGNN_SAMPLED_FAILED;
    begin(seed);
    ck_assert(dfgnn__search_run(&s));
    ck_assert_int_eq(s.arm[5].state, DFGNN_ARM_REJECTED);
    ck_assert_int_eq(s.arm[6].state, DFGNN_ARM_REJECTED);
    ck_assert_int_eq(f.samples[5], 0);
    ck_assert_int_eq(f.admitted[5], 1);
    ck_assert_int_eq(f.finished[5] + f.finished[6], 0);
    ck_assert_double_le(regret(), 0.03);
  }
}

TEST(an_over_long_one_gets_one_sample_and_keeps_its_figure) {
  plant(4);
  f.rough = 1;
  f.ms[9] = 400;
  begin(4);
  ck_assert(dfgnn__search_run(&s));
  ck_assert_int_eq(f.samples[9], 0);
  ck_assert_uint_eq(s.arm[9].count, 1);
  ck_assert_int_eq(s.arm[9].state, DFGNN_ARM_FINISHED);
  ck_assert_int_eq(f.finished[9], 1);
  ck_assert_double_gt(s.arm[9].ratio.low, log(20));
}

TEST(a_lost_device_ends_the_search_and_keeps_what_is_finished) {
  plant(8);
  f.sample[30] = DFGNN_SAMPLED_LOST;
  begin(8);
  ck_assert(dfgnn__search_run(&s));
  ck_assert(s.lost);
  ck_assert(!s.resolved);
  ck_assert_uint_ge(s.arm[1].count, 1);
  ck_assert_int_eq(s.arm[40].state, DFGNN_ARM_UNSEEN);
}

TEST(the_budget_is_kept_and_spent_on_the_best_half) {
  static const double budgets[] = {0.3, 0.8, 1.2, 2};
  for (size_t k = 0; k < sizeof budgets / sizeof *budgets; k++) {
    int near = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
      plant(seed);
      begin(seed);
      s.deadline = budgets[k];
      ck_assert(dfgnn__search_run(&s));
      /* An admission and the closing samples may run over. */
      ck_assert_double_le(f.clock, budgets[k] + 0.03);
      for (size_t i = 0; i < ARMS; i++)
        ck_assert_int_eq(s.arm[i].count > 0, f.finished[i]);
      near += regret() <= 0.05;
    }
    if (budgets[k] >= 1.2)
      ck_assert_msg(near >= 38, "budget %g, seeds 1..40: %d within 5 %%",
                    budgets[k], near);
  }
}

TEST(stopping_keeps_what_is_finished_and_says_interrupted) {
  plant(6);
  f.stop_after = 90;
  begin(6);
  ck_assert(dfgnn__search_run(&s));
  ck_assert(s.interrupted);
  ck_assert(!s.resolved);
  ck_assert_int_le(f.total, 92);
  int measured = 0;
  for (size_t i = 0; i < ARMS; i++)
    measured += s.arm[i].count > 0;
  ck_assert_int_ge(measured, ARMS - 8);
}

TEST(stored_arms_are_not_sampled_and_may_win) {
  plant(12);
  begin(12);
  double anchor = f.ms[s.anchor];
  for (size_t i = 10; i < 40; i++) {
    double x = log(f.ms[i] / anchor);
    s.arm[i].state = DFGNN_ARM_STORED;
    s.arm[i].ratio = (dfgnn_interval){x, x - 0.005, x + 0.005};
  }
  f.ms[20] = 1.5;
  s.arm[20].ratio = (dfgnn_interval){log(1.5 / anchor), log(1.49 / anchor),
                                     log(1.51 / anchor)};
  ck_assert(dfgnn__search_run(&s));
  for (size_t i = 10; i < 40; i++)
    ck_assert_int_eq(f.samples[i] + f.admitted[i] + f.finished[i], 0);
  ck_assert_uint_eq(s.best, 20);
  ck_assert(s.separated);
}

TEST(a_winner_is_told_apart_and_a_tie_is_not) {
  int apart = 0, tied = 0;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    plant(seed);
    f.ms[17] = 1.8;
    begin(seed);
    ck_assert(dfgnn__search_run(&s));
    apart += s.separated && s.best == 17 && s.resolved;

    plant(seed);
    f.ms[17] = f.ms[18] = f.ms[19] = 1.8;
    begin(seed);
    ck_assert(dfgnn__search_run(&s));
    tied += !s.separated && s.best >= 17 && s.best <= 19;
  }
  ck_assert_msg(apart >= 38, "seeds 1..40: %d told apart", apart);
  ck_assert_msg(tied >= 36, "seeds 1..40: %d tied", tied);
}

TEST(few_samples_narrow_an_interval_by_their_root) {
  const double x[4] = {0.1, 0.1, 0.1, 0.1};
  double scratch[10];
  const dfgnn_interval one = dfgnn__location(x, 1, 0.2, scratch);
  const dfgnn_interval four = dfgnn__location(x, 4, 0.2, scratch);
  ck_assert_double_eq_tol(one.high - one.low, 1.0, 1e-12);
  ck_assert_double_eq_tol(four.high - four.low, 0.5, 1e-12);
  ck_assert_double_eq_tol(four.center, 0.1, 1e-12);
}

TEST(intervals_hold_the_true_ratio) {
  int held = 0, all = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    plant(seed);
    with_drift(&f);
    begin(seed);
    ck_assert(dfgnn__search_run(&s));
    for (size_t i = 0; i < ARMS; i++) {
      double truth = log(f.ms[i] / f.ms[s.anchor]);
      if (i == s.anchor)
        continue;
      held += s.arm[i].ratio.low <= truth && truth <= s.arm[i].ratio.high;
      all++;
    }
  }
  ck_assert_msg(held >= all * 0.92, "seeds 1..60: %d of %d", held, all);
}

TEST(exhaustive_gives_every_arm_all_its_samples) {
  plant(2);
  begin(2);
  s.exhaustive = 1;
  ck_assert(dfgnn__search_run(&s));
  for (size_t i = 1; i < ARMS; i++)
    ck_assert_uint_eq(s.arm[i].count, s.max_samples);
  ck_assert(s.resolved);
  ck_assert_double_le(regret(), 0.01);
}

TEST(a_quarter_of_the_exhaustive_time_is_within_2_percent) {
  int near = 0;
  double total = 0, exhaustive = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    plant(seed);
    with_outliers(&f);
    begin(seed);
    s.exhaustive = 1;
    ck_assert(dfgnn__search_run(&s));
    double whole = f.clock;
    exhaustive += whole;
    plant(seed);
    with_outliers(&f);
    begin(seed + 1000);
    s.deadline = whole / 4;
    ck_assert(dfgnn__search_run(&s));
    near += regret() <= 0.02;
    total += f.clock;
  }
  ck_assert_msg(near >= 57, "seeds 1..60: %d within 2 %%", near);
  ck_assert_double_le(total, exhaustive / 4);
}

TEST(an_anchor_alone_wins) {
  plant(1);
  begin_with(1);
  ck_assert(dfgnn__search_run(&s));
  ck_assert_uint_eq(s.best, 0);
  ck_assert(s.separated && s.resolved);
  ck_assert_uint_ge(s.arm[0].count, 2);
}

TEST(the_same_seed_takes_the_same_samples) {
  int samples[ARMS];
  double center = 0;
  for (int again = 0; again < 2; again++) {
    plant(5);
    begin(9);
    ck_assert(dfgnn__search_run(&s));
    if (again) {
      ck_assert_mem_eq(samples, f.samples, sizeof samples);
      ck_assert_double_eq(center, s.arm[s.best].ratio.center);
    }
    memcpy(samples, f.samples, sizeof samples);
    center = s.arm[s.best].ratio.center;
  }
}

/* Arms that share no rounds are compared by their intervals: the low end of
 * their difference comes of the low side of the one and the high side of the
 * other. */
TEST(arms_without_shared_rounds_are_compared_by_their_intervals) {
  begin_with(3);
  s.arm[1].ratio = (dfgnn_interval){.center = 1, .low = 0.7, .high = 1.1};
  s.arm[2].ratio = (dfgnn_interval){.center = 0.5, .low = 0.3, .high = 0.9};
  dfgnn_interval i = dfgnn__search_compare(&s, 1, 2);
  ck_assert_double_eq_tol(i.center, 0.5, 1e-12);
  ck_assert_double_eq_tol(i.low, 0.5 - hypot(0.3, 0.4), 1e-12);
  ck_assert_double_eq_tol(i.high, 0.5 + hypot(0.1, 0.2), 1e-12);
  dfgnn_interval back = dfgnn__search_compare(&s, 2, 1);
  ck_assert_double_eq_tol(back.low, -i.high, 1e-12);
  ck_assert_double_eq_tol(back.high, -i.low, 1e-12);
}

/* ---- loads --------------------------------------------------------------- */

/* Half of the arms have one thread, and are 1.5 times as slow for it. */
static void plant_loud(uint64_t seed, double loud_until) {
  plant(seed);
  f.ms[0] = 2; /* the rule's choice, of two threads, is the best */
  for (size_t i = 1; i < ARMS; i++)
    if ((f.serial[i] = i % 2))
      f.ms[i] = 3 * (1 + uniform(&f));
  f.slow = 30;
  f.loud_until = loud_until;
}

static void fake_settle(void *data) {
  fake *f = data;
  f->settled++;
  if (f->clock < f->loud_until)
    f->clock = f->loud_until;
}

static const dfgnn_search_ops patient = {fake_admit, fake_sample, fake_finished,
                                         fake_now,   fake_stop,   fake_progress,
                                         fake_settle};

TEST(a_search_waits_for_a_quiet_device) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    size_t disturbed = 0;
    plant_loud(seed, 3);
    begin(seed);
    s.ops = &patient;
    ck_assert(dfgnn__search_run(&s));
    ck_assert_int_ge(f.settled, 1);
    for (size_t i = 0; i < ARMS; i++)
      disturbed += s.arm[i].disturbed;
    ck_assert_uint_eq(disturbed, 0);
    ck_assert_double_le(regret(), 0.05);
  }
}

TEST(what_is_measured_under_a_load_says_so) {
  plant_loud(3, INFINITY);
  begin(3);
  s.deadline = 4;
  ck_assert(dfgnn__search_run(&s));
  size_t marked = 0;
  for (size_t i = 0; i < ARMS; i++) {
    ck_assert_uint_le(s.arm[i].disturbed, s.arm[i].count);
    /* A spared arm is measured beside an anchor that is not. */
    marked += s.arm[i].count > 0 && s.arm[i].disturbed == s.arm[i].count;
  }
  ck_assert_uint_ge(marked, 4);
  ck_assert_uint_gt(s.arm[s.best].disturbed, s.arm[s.best].count / 2);
}

/* Nobody notices a load that makes the anchor slow at first: the arms that look
 * fast beside it are a surprise, and are measured again. */
TEST(a_surprise_is_measured_again) {
  int looked_again = 0;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    plant_loud(seed, 0.8);
    f.hidden = 1;
    begin(seed);
    ck_assert(dfgnn__search_run(&s));
    for (size_t i = 0; i < ARMS; i++)
      looked_again += s.arm[i].confirmed;
    ck_assert_msg(f.ms[s.best] <= 1.1 * f.ms[0],
                  "seed %d: arm %zu takes %g ms, the rule's choice 2",
                  (int)seed, s.best, f.ms[s.best]);
  }
  ck_assert_int_ge(looked_again, 20);
}

TEST(a_surprise_without_time_to_look_again_is_doubted) {
  int doubted = 0;
  plant_loud(2, INFINITY);
  f.hidden = 1;
  begin(2);
  s.deadline = 0.7;
  ck_assert(dfgnn__search_run(&s));
  for (size_t i = 0; i < ARMS; i++) {
    doubted += s.arm[i].doubted;
    if (s.arm[i].doubted)
      ck_assert_double_lt(s.arm[i].ratio.center, -log(DFGNN_SEARCH_SURPRISE));
  }
  ck_assert_int_ge(doubted, 1);
}

TEST(what_a_model_expects_is_no_surprise) {
  double predicted[ARMS];
  plant(5);
  f.ms[0] = 20;
  for (size_t i = 0; i < ARMS; i++)
    predicted[i] = log(f.ms[i]);
  begin(5);
  s.predicted = predicted;
  s.exhaustive = 1;
  ck_assert(dfgnn__search_run(&s));
  for (size_t i = 0; i < ARMS; i++)
    ck_assert(!s.arm[i].confirmed && !s.arm[i].doubted);
  ck_assert_double_le(regret(), 0.02);
  predicted[0] = log(2.); /* now all are */
  f.last_done = 0;
  begin(5);
  s.predicted = predicted;
  s.exhaustive = 1;
  s.max_samples = s.final_samples = 3; /* as for coverage */
  ck_assert(dfgnn__search_run(&s));
  ck_assert(s.arm[s.best].confirmed);
  ck_assert_uint_ge(s.arm[s.best].count, 6);
  ck_assert_double_le(regret(), 0.1);
}

TEST_MAIN("all", .teardown = end, .timeout = 30)
