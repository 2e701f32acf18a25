/* survey.c - measures all variants of a problem on a graph */
#include "tuner/survey.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/signature.h"
#include "tuner/race.h"

/* ---- rounds -------------------------------------------------------------- */

enum { MOST_FINALS = 3 }; /* where noise had arms leave that may be the best */

typedef struct survey {
  const dfgnn_survey_ops *ops;
  void *data;
  dfgnn_surveyed *result;
  dfgnn_search search; /* its arms keep the samples */
  dfgnn_race race;
  int brief;
  size_t *set, count; /* the arms that are still sampled */
  double best_ms;
  double kept; /* times the best: up to that an arm is sampled again */
} survey;

static dfgnn_sampled sample(void *data, size_t arm, double *ms) {
  survey *s = data;
  return s->ops->sample(s->data, arm, s->brief, ms);
}

static double no_time(void *data) {
  (void)data;
  return 0;
}

static int stop(void *data) {
  const survey *s = data;
  return s->ops->stop && s->ops->stop(s->data);
}

static const dfgnn_search_ops race_ops = {
    .sample = sample, .now = no_time, .stop = stop};

static int over(survey *s) { return dfgnn__race_over(&s->race); }

static void leave(survey *s, size_t arm) { s->ops->finished(s->data, arm); }

/* Takes the first sample of an arm, and keeps the arm for more unless it is
 * slow. */
static void look(survey *s, size_t arm) {
  double ms = NAN;
  dfgnn_sampled status = s->ops->admit(s->data, arm);
  if (status == DFGNN_SAMPLED_OK) {
    status = sample(s, arm, &ms);
    if (status == DFGNN_SAMPLED_TAINTED)
      status = sample(s, arm, &ms);
    if (status == DFGNN_SAMPLED_TAINTED)
      status = DFGNN_SAMPLED_OK;
    if (status == DFGNN_SAMPLED_OK && !(ms > 0 && isfinite(ms)))
      status = DFGNN_SAMPLED_FAILED;
  }
  s->search.lost |= status == DFGNN_SAMPLED_LOST;
  if (status != DFGNN_SAMPLED_OK) {
    leave(s, arm);
    return;
  }
  s->result[arm] = (dfgnn_surveyed){ms, 1};
  s->best_ms = fmin(s->best_ms, ms);
  if (ms > s->kept * s->best_ms)
    leave(s, arm);
  else
    s->set[s->count++] = arm;
}

static int first_round(survey *s, size_t arms, uint64_t seed) {
  size_t *order = malloc((arms + 1) * sizeof *order);
  for (size_t i = 0; order && i < arms; i++) {
    const size_t j = dfgnn__mix(seed + i) % (i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  for (size_t k = 0; order && k < arms && !over(s); k++)
    look(s, order[k]);
  free(order);
  return order != NULL;
}

/* Lets the arms go that are above a limit. */
static void drop_slower(survey *s, double limit_ms) {
  size_t kept = 0;
  for (size_t k = 0; k < s->count; k++)
    if (s->result[s->set[k]].ms > limit_ms)
      leave(s, s->set[k]);
    else
      s->set[kept++] = s->set[k];
  s->count = kept;
}

static size_t fastest(const survey *s) {
  size_t best = s->set[0];
  for (size_t k = 1; k < s->count; k++)
    if (s->result[s->set[k]].ms < s->result[best].ms)
      best = s->set[k];
  return best;
}

/* The median time of an arm's samples; drift is taken out by the anchor's. */
static double settled_ms(const dfgnn_search *s, size_t arm, double anchor_ms) {
  const dfgnn_arm *a = &s->arm[arm];
  double copy[64];
  const size_t count = a->count < 64 ? a->count : 64;
  memcpy(copy, a->log_ratio, count * sizeof *copy);
  return anchor_ms * exp(dfgnn__median(copy, count));
}

static double anchor_median(const dfgnn_search *s) {
  const dfgnn_arm *a = &s->arm[s->anchor];
  double *copy = malloc((a->count + 1) * sizeof *copy);
  if (!copy)
    return a->ms[0];
  memcpy(copy, a->ms, a->count * sizeof *copy);
  const double ms = dfgnn__median(copy, a->count);
  free(copy);
  return ms;
}

/* Samples the arms of the set in rounds beside the fastest of them, the anchor;
 * their times are then those of these rounds. */
static int more_rounds(survey *s, int rounds, int brief) {
  size_t others = 0;
  size_t *set = malloc((s->count + 1) * sizeof *set);
  if (!set || s->count == 0) {
    free(set);
    return set != NULL;
  }
  s->brief = brief;
  s->search.anchor = fastest(s);
  for (size_t k = 0; k < s->count; k++) {
    s->search.arm[s->set[k]].count = 0;
    s->search.arm[s->set[k]].state = DFGNN_ARM_ACTIVE;
    if (s->set[k] != s->search.anchor)
      set[others++] = s->set[k];
  }
  s->race.anchors = 0;
  for (int r = 0; r < rounds && !over(s); r++)
    if (dfgnn__race_anchor(&s->race))
      dfgnn__race_round(&s->race, set, others);
  free(set);
  if (over(s))
    return 1;
  const double anchor_ms = anchor_median(&s->search);
  size_t kept = 0;
  for (size_t k = 0; k < s->count; k++) {
    const size_t arm = s->set[k];
    dfgnn_surveyed *result = &s->result[arm];
    if (s->search.arm[arm].state == DFGNN_ARM_REJECTED ||
        s->search.arm[arm].count == 0) {
      *result = (dfgnn_surveyed){NAN, 0};
      leave(s, arm);
      continue;
    }
    result->ms = arm == s->search.anchor
                     ? anchor_ms
                     : settled_ms(&s->search, arm, anchor_ms);
    result->rounds += rounds;
    s->set[kept++] = arm;
  }
  s->count = kept;
  return 1;
}

/* The time of the last one that is confirmed. */
static double final_limit(const survey *s) {
  double *ms = malloc((s->count + 1) * sizeof *ms);
  if (!ms || s->count <= DFGNN_SURVEY_FINALISTS) {
    free(ms);
    return INFINITY;
  }
  for (size_t k = 0; k < s->count; k++)
    ms[k] = s->result[s->set[k]].ms;
  dfgnn__sort_doubles(ms, s->count);
  const double limit = ms[DFGNN_SURVEY_FINALISTS - 1];
  free(ms);
  return limit;
}

/* Takes back the arms that left although their few samples were faster than the
 * best of many: a noisy moment of the others had them look slow.  Returns how
 * many. */
static size_t recall(survey *s, size_t arms) {
  const size_t before = s->count;
  if (!before)
    return 0;
  const double best_ms = s->result[fastest(s)].ms;
  for (size_t i = 0; i < arms && !over(s); i++) {
    int sampled = 0;
    for (size_t k = 0; k < before && !sampled; k++)
      sampled = s->set[k] == i;
    if (sampled || !(s->result[i].ms < best_ms))
      continue;
    const dfgnn_sampled status = s->ops->admit(s->data, i);
    s->search.lost |= status == DFGNN_SAMPLED_LOST;
    if (status == DFGNN_SAMPLED_OK)
      s->set[s->count++] = i;
    else
      leave(s, i);
  }
  return s->count - before;
}

static int begin(survey *s, size_t arms, uint64_t seed) {
  s->set = malloc((arms + 1) * sizeof *s->set);
  s->best_ms = INFINITY;
  s->brief = 1;
  for (size_t i = 0; i < arms; i++)
    s->result[i] = (dfgnn_surveyed){NAN, 0};
  if (!dfgnn__search_init(&s->search, arms) || !s->set)
    return 0;
  s->search.ops = &race_ops;
  s->search.data = s;
  s->race = (dfgnn_race){
      .s = &s->search, .random = dfgnn__mix(seed), .best_ms = INFINITY};
  return first_round(s, arms, seed);
}

static dfgnn_status end(survey *s, int ready) {
  if (s->set)
    drop_slower(s, -1);
  const int lost = s->search.lost, stopped = s->search.interrupted;
  dfgnn__search_free(&s->search);
  free(s->set);
  if (!ready)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (lost)
    return dfgnn__fail(DFGNN_ERROR_DEVICE, "the device stopped working");
  return stopped ? dfgnn__fail(DFGNN_ERROR_INTERRUPTED, "stopped") : DFGNN_OK;
}

dfgnn_status dfgnn__survey_run(dfgnn_surveyed *result, size_t arms,
                               const dfgnn_survey_ops *ops, void *data,
                               uint64_t seed) {
  survey s = {
      .ops = ops, .data = data, .result = result, .kept = DFGNN_SURVEY_KEPT};
  int ready = begin(&s, arms, seed);
  if (ready && !over(&s)) {
    drop_slower(&s, s.kept * s.best_ms);
    ready = more_rounds(&s, DFGNN_SURVEY_ROUNDS, 1);
  }
  for (int k = 0; k < MOST_FINALS && ready && !over(&s); k++) {
    if (recall(&s, arms) == 0 && k > 0)
      break;
    drop_slower(&s, final_limit(&s));
    ready = more_rounds(&s, DFGNN_SURVEY_FINAL_ROUNDS, 0);
  }
  return end(&s, ready);
}

dfgnn_status dfgnn__survey_rounds(dfgnn_surveyed *result, size_t arms,
                                  int rounds, const dfgnn_survey_ops *ops,
                                  void *data, uint64_t seed) {
  survey s = {.ops = ops, .data = data, .result = result, .kept = INFINITY};
  int ready = begin(&s, arms, seed);
  if (ready && !over(&s))
    ready = more_rounds(&s, rounds, 0);
  return end(&s, ready);
}

/* ---- the device ---------------------------------------------------------- */

typedef struct on_device {
  dfgnn_subject subject;
  dfgnn_trial *trial;
  dfgnn_survey *survey;
  int (*stop)(void *data);
  void *data;
} on_device;

static dfgnn_sampled note(on_device *d, size_t arm, dfgnn_sampled status) {
  if (status == DFGNN_SAMPLED_LOST)
    snprintf(d->survey->lost, sizeof d->survey->lost, "%s",
             d->trial[arm].variant->name);
  return status;
}

static dfgnn_sampled device_admit(void *data, size_t arm) {
  on_device *d = data;
  double rough_ms;
  return note(d, arm,
              dfgnn__trial_admit(&d->subject, &d->trial[arm], &rough_ms));
}

static dfgnn_sampled device_sample(void *data, size_t arm, int brief,
                                   double *ms) {
  on_device *d = data;
  d->subject.repeats = brief ? DFGNN_BRIEFLY : 0;
  return note(d, arm, dfgnn__trial_sample(&d->subject, &d->trial[arm], ms));
}

static void device_finished(void *data, size_t arm) {
  on_device *d = data;
  dfgnn_plan_destroy(d->trial[arm].plan);
  d->trial[arm].plan = NULL;
}

static int device_stop(void *data) {
  const on_device *d = data;
  return d->stop && d->stop(d->data);
}

static const dfgnn_survey_ops device_ops = {device_admit, device_sample,
                                            device_finished, device_stop};

size_t dfgnn__survey_variants(const dfgnn_variant **variant,
                              const dfgnn_setting *setting,
                              const unsigned char *broken) {
  size_t count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!(broken && broken[i]) && !dfgnn__variant_refusal(v, setting))
      variant[count++] = v;
  }
  return count;
}

/* Makes room for all variants, and inputs for the problem. */
static dfgnn_status prepare(on_device *d, const dfgnn_problem *problem,
                            dfgnn_harness_pool *pool, uint64_t seed) {
  const size_t all = dfgnn__variant_count();
  *d->survey = (dfgnn_survey){0};
  DFGNN_TRY(dfgnn__problem_complete(&d->subject.problem, problem));
  d->survey->variant = calloc(all + 1, sizeof *d->survey->variant);
  d->survey->result = calloc(all + 1, sizeof *d->survey->result);
  d->trial = calloc(all + 1, sizeof *d->trial);
  if (!d->survey->variant || !d->survey->result || !d->trial)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  return dfgnn__harness_create_unchecked(&d->subject.harness, d->subject.ctx,
                                         d->subject.graph, &d->subject.problem,
                                         seed, pool);
}

static dfgnn_status release(on_device *d, dfgnn_status status) {
  free(d->trial);
  dfgnn__harness_destroy(d->subject.harness);
  if (status)
    dfgnn__survey_free(d->survey);
  return status;
}

dfgnn_status dfgnn__survey(dfgnn_survey *survey, dfgnn_context *ctx,
                           dfgnn_graph *graph, const dfgnn_problem *problem,
                           dfgnn_harness_pool *pool, uint64_t seed,
                           int (*stopped)(void *), void *data) {
  on_device d = {
      .subject = {.ctx = ctx, .graph = graph, .unchecked = pool != NULL},
      .survey = survey,
      .stop = stopped,
      .data = data};
  dfgnn_status status = prepare(&d, problem, pool, seed);
  if (status)
    return release(&d, status);
  const dfgnn_setting setting = dfgnn__setting(graph, &d.subject.problem);
  survey->count =
      dfgnn__survey_variants(survey->variant, &setting, ctx->broken);
  for (size_t i = 0; i < survey->count; i++)
    d.trial[i].variant = survey->variant[i];
  status =
      dfgnn__survey_run(survey->result, survey->count, &device_ops, &d, seed);
  return release(&d, status);
}

dfgnn_status dfgnn__survey_compare(dfgnn_survey *survey, dfgnn_context *ctx,
                                   dfgnn_graph *graph,
                                   const dfgnn_problem *problem,
                                   const dfgnn_variant *const *variant,
                                   size_t count, int rounds,
                                   dfgnn_harness_pool *pool, uint64_t seed) {
  on_device d = {.subject = {.ctx = ctx, .graph = graph, .unchecked = 1},
                 .survey = survey};
  dfgnn_status status = prepare(&d, problem, pool, seed);
  if (status)
    return release(&d, status);
  survey->count = count;
  for (size_t i = 0; i < count; i++)
    d.trial[i].variant = survey->variant[i] = variant[i];
  status = dfgnn__survey_rounds(survey->result, count, rounds, &device_ops, &d,
                                seed);
  return release(&d, status);
}

void dfgnn__survey_free(dfgnn_survey *survey) {
  free(survey->variant);
  free(survey->result);
  survey->variant = NULL;
  survey->result = NULL;
  survey->count = 0;
}
