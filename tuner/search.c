/* search.c - which arm is sampled next, and when the race is over */
#include "tuner/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/signature.h"
#include "tuner/race.h"

#define RANK_SAMPLES 6   /* from this count on intervals are rank tests */
#define NOISE_PRIOR 0.03 /* deviation of one sample, before any is known */
#define FIRST_LOOK 0.9   /* share of the time that first looks may take */
#define QUIET 0.12       /* anchor steps below it are no disturbance */
#define OWED_SAMPLES 3   /* of the first arm, however late it is */
#define LONG_MS 100      /* longer than any disturbance */
#define FINALISTS 9      /* the anchor among them */
#define DISTURBED_SAMPLES                                                      \
  4                      /* of which one may be calm, before an arm leaves     \
                          */
#define KEEP 3           /* halving leaves at least these */
#define ALONE_FACTOR 2.0 /* that a best of one sample may be off by */

static void report(dfgnn_race *r, double done) {
  dfgnn_search *s = r->s;
  if (!s->ops->progress)
    return;
  if (done > r->done)
    r->done = done < 1 ? done : 1;
  double now = s->ops->now(s->data), spent = now - r->start;
  double eta = r->done > 0 ? spent * (1 - r->done) / r->done : 0;
  if (eta > s->deadline - now)
    eta = s->deadline - now;
  s->ops->progress(s->data, r->done, eta < 0 ? 0 : eta);
}

static void finish(dfgnn_race *r, size_t i) {
  dfgnn_search *s = r->s;
  s->arm[i].state = DFGNN_ARM_FINISHED;
  if (s->ops->finished)
    s->ops->finished(s->data, i);
}

/* ---- estimates ---------------------------------------------------------- */

static double own_median(const dfgnn_race *r, const dfgnn_arm *arm) {
  memcpy(r->scratch, arm->log_ratio, arm->count * sizeof *r->scratch);
  return dfgnn__median(r->scratch, arm->count);
}

static void estimate_noise(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  size_t total = 0, count = 0;
  for (size_t i = 0; i < s->arms; i++)
    total += s->arm[i].count;
  double *residual = malloc((total ? total : 1) * sizeof *residual);
  if (!residual)
    return;
  for (size_t i = 0; i < s->arms; i++) {
    const dfgnn_arm *arm = &s->arm[i];
    if (i == s->anchor || arm->count < 2)
      continue;
    double n = (double)arm->count, middle = own_median(r, arm);
    for (size_t k = 0; k < arm->count; k++)
      residual[count++] = (arm->log_ratio[k] - middle) * sqrt(n / (n - 1));
  }
  s->noise = dfgnn__pooled_noise(residual, count, NOISE_PRIOR, 8);
  free(residual);
}

static void estimate(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  estimate_noise(r);
  s->best = s->anchor;
  for (size_t i = 0; i < s->arms; i++) {
    dfgnn_arm *arm = &s->arm[i];
    if (arm->state == DFGNN_ARM_UNSEEN || arm->state == DFGNN_ARM_REJECTED)
      continue;
    if (arm->state != DFGNN_ARM_STORED && i != s->anchor) {
      if (arm->count == 0)
        continue;
      arm->ratio =
          dfgnn__location(arm->log_ratio, arm->count, s->noise, r->scratch);
    }
    if (arm->ratio.center < s->arm[s->best].ratio.center)
      s->best = i;
  }
}

static int known(const dfgnn_arm *arm) {
  return arm->state == DFGNN_ARM_STORED || arm->count > 0;
}

dfgnn_interval dfgnn__search_compare(const dfgnn_search *s, size_t a,
                                     size_t b) {
  const dfgnn_arm *x = &s->arm[a], *y = &s->arm[b];
  if (a == s->anchor) {
    dfgnn_interval i = y->ratio;
    return (dfgnn_interval){-i.center, -i.high, -i.low};
  }
  if (b == s->anchor)
    return x->ratio;
  size_t limit = x->count < y->count ? x->count : y->count, shared = 0;
  if (limit >= RANK_SAMPLES) {
    double *difference =
        malloc((limit + limit * (limit + 1) / 2) * sizeof *difference);
    for (size_t i = 0, j = 0; difference && i < x->count && j < y->count;) {
      if (x->round[i] == y->round[j])
        difference[shared++] = x->log_ratio[i++] - y->log_ratio[j++];
      else if (x->round[i] < y->round[j])
        i++;
      else
        j++;
    }
    dfgnn_interval paired = {0, 0, 0};
    if (shared >= RANK_SAMPLES)
      paired =
          dfgnn__location(difference, shared, s->noise, difference + limit);
    free(difference);
    if (shared >= RANK_SAMPLES)
      return paired;
  }
  double center = x->ratio.center - y->ratio.center;
  double below =
      hypot(x->ratio.center - x->ratio.low, y->ratio.high - y->ratio.center);
  double above =
      hypot(x->ratio.high - x->ratio.center, y->ratio.center - y->ratio.low);
  return (dfgnn_interval){center, center - below, center + above};
}

/* ---- the race ----------------------------------------------------------- */

/* Disturbances make samples slower, hardly ever faster: with few of them the
 * least one speaks for its arm.  A single one is believed as far as the anchor
 * was seen undisturbed. */
static int beaten(const dfgnn_race *r, size_t i) {
  const dfgnn_search *s = r->s;
  const dfgnn_arm *arm = &s->arm[i], *best = &s->arm[s->best];
  /* A disturbed sample may be any slower than a calm one. */
  if (arm->disturbed == arm->count && arm->count < DISTURBED_SAMPLES)
    return 0;
  if (arm->count >= RANK_SAMPLES)
    return dfgnn__search_compare(s, i, s->best).low > 0;
  double least = arm->rough;
  for (size_t k = 0; k < arm->count; k++)
    least = arm->log_ratio[k] < least ? arm->log_ratio[k] : least;
  int quiet = r->anchors >= 20 && r->disturbance < QUIET;
  double least_allowed = arm->count > 2    ? 0
                         : arm->count == 2 ? 0.08
                         : quiet           ? 0.1
                                           : 1;
  double allowed =
      fmax(2.5 * s->noise / sqrt((double)arm->count), least_allowed);
  double high = best->ratio.high;
  if (best->count == 1) /* one sample is no interval */
    high = fmax(high, best->ratio.center + log(ALONE_FACTOR));
  return least - allowed > high;
}

static double half_width(const dfgnn_arm *arm) {
  return 0.5 * (arm->ratio.high - arm->ratio.low);
}

/* The samples that an arm may get, by how many arms are still in the race. */
static size_t allowance(const dfgnn_search *s) {
  size_t count = 0;
  for (size_t i = 0; i < s->arms; i++)
    count += s->arm[i].state == DFGNN_ARM_ACTIVE;
  return s->exhaustive || count > FINALISTS ? s->max_samples : s->final_samples;
}

static int resolved(const dfgnn_race *r, size_t i) {
  const dfgnn_search *s = r->s;
  const dfgnn_arm *arm = &s->arm[i];
  if (arm->state != DFGNN_ARM_ACTIVE || arm->count >= allowance(s))
    return 1;
  return !s->exhaustive && arm->count >= RANK_SAMPLES &&
         half_width(arm) <= 0.5 * s->margin;
}

static size_t racing(dfgnn_race *r, size_t *set) {
  dfgnn_search *s = r->s;
  size_t count = 0;
  for (size_t i = 0; i < s->arms; i++)
    if (i != s->anchor && s->arm[i].state == DFGNN_ARM_ACTIVE)
      set[count++] = i;
  return count;
}

static void drop_beaten(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  for (size_t i = 0; i < s->arms; i++)
    if (i != s->anchor && i != s->best && s->arm[i].state == DFGNN_ARM_ACTIVE &&
        s->arm[i].count > 0 && beaten(r, i))
      finish(r, i);
}

/* The seconds that it takes to resolve the set, by the noise seen so far. */
static double cost_to_resolve(const dfgnn_race *r, const size_t *set,
                              size_t count) {
  const dfgnn_search *s = r->s;
  double wanted = 5 * s->noise / s->margin, seconds = 0;
  wanted = fmax(RANK_SAMPLES, wanted * wanted);
  if (wanted > (double)s->max_samples)
    wanted = (double)s->max_samples;
  double anchor = s->arm[s->anchor].cost_s;
  for (size_t k = 0; k < count; k++) {
    const dfgnn_arm *arm = &s->arm[set[k]];
    double more = wanted - (double)arm->count;
    if (more > 0)
      seconds += more * (arm->cost_s + anchor / DFGNN_RACE_BLOCK);
  }
  return seconds;
}

static void halve(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  size_t count = racing(r, r->set);
  double left = s->deadline - s->ops->now(s->data);
  if (count <= KEEP || cost_to_resolve(r, r->set, count) <= left)
    return;
  for (size_t k = 1; k < count; k++) /* sort by estimate */
    for (size_t j = k; j > 0 && s->arm[r->set[j]].ratio.center <
                                    s->arm[r->set[j - 1]].ratio.center;
         j--) {
      size_t swap = r->set[j];
      r->set[j] = r->set[j - 1];
      r->set[j - 1] = swap;
    }
  size_t least = count / 2 > KEEP ? count / 2 : KEEP;
  while (count > least && cost_to_resolve(r, r->set, count) > left)
    finish(r, r->set[--count]);
}

static void watchdog(dfgnn_race *r, size_t i, double rough_ms) {
  dfgnn_search *s = r->s;
  s->arm[i].cost_s = rough_ms * 1e-3;
  dfgnn__race_keep(&s->arm[i], rough_ms, log(rough_ms) - r->anchor[1],
                   ++r->round, 0);
  s->arm[i].ratio =
      dfgnn__location(s->arm[i].log_ratio, 1, s->noise, r->scratch);
  finish(r, i);
}

static int admit(dfgnn_race *r, size_t i) {
  dfgnn_search *s = r->s;
  double rough_ms = 0;
  dfgnn_sampled status = s->ops->admit(s->data, i, &rough_ms);
  if (status == DFGNN_SAMPLED_LOST)
    s->lost = 1;
  if (status != DFGNN_SAMPLED_OK && status != DFGNN_SAMPLED_TAINTED) {
    s->arm[i].state = DFGNN_ARM_REJECTED;
    return 0;
  }
  s->arm[i].state = DFGNN_ARM_ACTIVE;
  s->arm[i].rough = rough_ms > 0 ? log(rough_ms) - r->anchor[1] : INFINITY;
  if (rough_ms > LONG_MS && rough_ms > s->slow * r->best_ms) {
    watchdog(r, i, rough_ms);
    return 0;
  }
  return 1;
}

/* Measures the first arms of the order, so that a decision can rest on them. */
static void owed_looks(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  r->owed = 1;
  for (size_t first = 0; first < s->owed && first < s->arms; first++) {
    size_t i = s->order ? s->order[first] : first;
    if (i == s->anchor || s->arm[i].state != DFGNN_ARM_UNSEEN ||
        dfgnn__race_over(r) || !admit(r, i))
      continue;
    for (int k = 0; k < OWED_SAMPLES; k++)
      if (s->arm[i].state == DFGNN_ARM_ACTIVE)
        dfgnn__race_round(r, &i, 1);
  }
  r->owed = 0;
}

/* Checks each arm and samples it once, while there is time. */
static void first_looks(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  double limit = s->exhaustive || isinf(s->deadline)
                     ? s->deadline
                     : r->start + FIRST_LOOK * (s->deadline - r->start);
  size_t block[DFGNN_RACE_BLOCK], count = 0;
  for (size_t k = 0; k < s->arms && !dfgnn__race_over(r); k++) {
    size_t i = s->order ? s->order[k] : k;
    int last = k == s->arms - 1;
    if (i != s->anchor && s->arm[i].state == DFGNN_ARM_UNSEEN && admit(r, i))
      block[count++] = i;
    int late = s->ops->now(s->data) >= limit;
    if (count > 0 && (count == DFGNN_RACE_BLOCK || last || late)) {
      if (dfgnn__race_anchor(r))
        dfgnn__race_round(r, block, count);
      count = 0;
    }
    report(r, (s->exhaustive ? 0.2 : 0.6) * (double)(k + 1) / (double)s->arms);
    if (late || last)
      break;
  }
}

/* ---- second looks -------------------------------------------------------- */

/* The logarithm of the arm's time over the anchor's that a model predicts; the
 * rule expects no arm to be faster than its own choice, the anchor. */
static double expected(const dfgnn_search *s, size_t i) {
  const double *p = s->predicted;
  return p && isfinite(p[i]) && isfinite(p[s->anchor]) ? p[i] - p[s->anchor]
                                                       : 0;
}

static int is_surprise(const dfgnn_search *s, size_t i) {
  const dfgnn_arm *arm = &s->arm[i];
  return i != s->anchor && arm->state == DFGNN_ARM_ACTIVE && !arm->confirmed &&
         arm->ratio.center < expected(s, i) - log(DFGNN_SEARCH_SURPRISE);
}

/* Measures an arm again, beside fresh samples of the anchor. */
static void look_again(dfgnn_race *r, size_t i) {
  dfgnn_search *s = r->s;
  dfgnn_arm *arm = &s->arm[i];
  if (s->ops->settle)
    s->ops->settle(s->data);
  arm->count = arm->disturbed = 0;
  arm->confirmed = 1;
  if (!dfgnn__race_anchor(r) || !dfgnn__race_anchor(r))
    return;
  while (arm->count < RANK_SAMPLES && arm->state == DFGNN_ARM_ACTIVE &&
         !dfgnn__race_over(r)) {
    const size_t before = arm->count;
    dfgnn__race_round(r, &i, 1);
    if (arm->count == before)
      return;
  }
}

static int unresolved(const dfgnn_race *r) {
  const dfgnn_search *s = r->s;
  size_t others = 0, open = 0;
  for (size_t i = 0; i < s->arms; i++)
    if (s->arm[i].state == DFGNN_ARM_ACTIVE && i != s->anchor) {
      others += i != s->best;
      open += !resolved(r, i);
    }
  /* A winner without rivals needs samples for a rank test, and no more. */
  if (others == 0 && !s->exhaustive)
    return s->best != s->anchor && s->arm[s->best].state == DFGNN_ARM_ACTIVE &&
           s->arm[s->best].count < RANK_SAMPLES &&
           s->arm[s->best].count < allowance(s);
  return open > 0;
}

static void race_on(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  double first = s->exhaustive ? 0.2 : 0.6;
  for (;;) {
    estimate(r);
    if (is_surprise(s, s->best) && !dfgnn__race_over(r)) {
      look_again(r, s->best);
      continue;
    }
    if (!s->exhaustive) {
      drop_beaten(r);
      halve(r);
    }
    if (!unresolved(r)) {
      s->resolved = 1;
      return;
    }
    size_t most = 0, least = 4, rounds;
    size_t count = racing(r, r->set);
    for (size_t k = 0; k < count; k++) {
      const size_t samples = s->arm[r->set[k]].count;
      most = samples > most ? samples : most;
      least = samples < least ? samples : least;
    }
    rounds = least < 1 ? 1 : least;
    while (rounds-- > 0) {
      count = 0;
      for (size_t i = 0; i < s->arms; i++)
        if (i != s->anchor && s->arm[i].state == DFGNN_ARM_ACTIVE &&
            (!resolved(r, i) ||
             (i == s->best && s->arm[i].count < allowance(s))))
          r->set[count++] = i;
      if (count == 0)
        break;
      dfgnn__race_round(r, r->set, count);
      report(r, first + (1 - first) * (double)most / (double)allowance(s));
      if (dfgnn__race_over(r))
        return;
    }
  }
}

static void conclude(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  estimate(r);
  s->separated = s->best == s->anchor || s->arm[s->best].count >= 2 ||
                 s->arm[s->best].state == DFGNN_ARM_STORED;
  for (size_t i = 0; i < s->arms; i++)
    s->arm[i].doubted = is_surprise(s, i);
  for (size_t i = 0; i < s->arms; i++) {
    dfgnn_arm *arm = &s->arm[i];
    if (i == s->best || arm->state == DFGNN_ARM_REJECTED || !known(arm))
      continue;
    if (dfgnn__search_compare(s, i, s->best).low <= 0)
      s->separated = 0;
  }
  if (s->interrupted || s->lost)
    return;
  for (size_t i = 0; i < s->arms; i++) {
    if (s->arm[i].state != DFGNN_ARM_ACTIVE)
      continue;
    if (s->arm[i].count > 0)
      finish(r, i);
    else
      s->arm[i].state = DFGNN_ARM_UNSEEN;
  }
}

int dfgnn__search_init(dfgnn_search *search, size_t arms) {
  *search = (dfgnn_search){.arms = arms,
                           .deadline = INFINITY,
                           .margin = 0.015,
                           .attempts = DFGNN_SEARCH_ATTEMPTS,
                           .max_samples = DFGNN_SEARCH_SAMPLES,
                           .final_samples = DFGNN_SEARCH_FINAL_SAMPLES,
                           .slow = DFGNN_SEARCH_SLOW,
                           .noise = NOISE_PRIOR};
  search->arm = calloc(arms ? arms : 1, sizeof *search->arm);
  return search->arm != NULL;
}

void dfgnn__search_free(dfgnn_search *search) {
  for (size_t i = 0; search->arm && i < search->arms; i++) {
    free(search->arm[i].ms);
    free(search->arm[i].log_ratio);
    free(search->arm[i].round);
  }
  free(search->arm);
  search->arm = NULL;
}

int dfgnn__search_run(dfgnn_search *search) {
  dfgnn_search *s = search;
  size_t n =
      s->max_samples > s->final_samples ? s->max_samples : s->final_samples;
  n = n > RANK_SAMPLES ? n : RANK_SAMPLES; /* those of a second look */
  dfgnn_race r = {.s = s,
                  .random = dfgnn__mix(s->seed),
                  .start = s->ops->now(s->data),
                  .best_ms = INFINITY};
  r.scratch = malloc(n * (n + 1) / 2 * sizeof *r.scratch);
  r.set = malloc((s->arms ? s->arms : 1) * sizeof *r.set);
  int ready = r.scratch && r.set;
  if (ready) {
    s->arm[s->anchor].state = DFGNN_ARM_ACTIVE;
    s->arm[s->anchor].ratio = (dfgnn_interval){0, 0, 0};
    if (dfgnn__race_anchor(&r) && dfgnn__race_anchor(&r)) {
      owed_looks(&r);
      first_looks(&r);
    }
    if (!dfgnn__race_over(&r))
      race_on(&r);
    conclude(&r);
    report(&r, 1);
  }
  free(r.set);
  free(r.scratch);
  return ready;
}
