/* rounds.c - takes samples in rounds, with their ratios to the anchor's samples
 */
#include <math.h>
#include <stdlib.h>

#include "lib/signature.h"
#include "tuner/race.h"

static uint64_t draw(dfgnn_race *r) { return dfgnn__mix(r->random++); }

static void shuffle(dfgnn_race *r, size_t *set, size_t count) {
  for (size_t i = count; i > 1; i--) {
    size_t j = draw(r) % i, swap = set[i - 1];
    set[i - 1] = set[j];
    set[j] = swap;
  }
}

int dfgnn__race_over(const dfgnn_race *r) {
  dfgnn_search *s = r->s;
  if (!s->interrupted && s->ops->stop && s->ops->stop(s->data))
    s->interrupted = 1;
  return s->interrupted || s->lost ||
         (!r->owed && s->ops->now(s->data) >= s->deadline);
}

static int reserve(dfgnn_arm *arm) {
  if (arm->count < arm->capacity)
    return 1;
  size_t capacity = arm->capacity ? 2 * arm->capacity : 8;
  double *ms = realloc(arm->ms, capacity * sizeof *ms);
  if (ms)
    arm->ms = ms;
  double *ratio = realloc(arm->log_ratio, capacity * sizeof *ratio);
  if (ratio)
    arm->log_ratio = ratio;
  int *round = realloc(arm->round, capacity * sizeof *round);
  if (round)
    arm->round = round;
  if (!ms || !ratio || !round)
    return 0;
  arm->capacity = capacity;
  return 1;
}

void dfgnn__race_keep(dfgnn_arm *arm, double ms, double log_ratio, int round,
                      int disturbed) {
  if (!reserve(arm))
    return;
  arm->disturbed += disturbed != 0;
  arm->ms[arm->count] = ms;
  arm->log_ratio[arm->count] = log_ratio;
  arm->round[arm->count] = round;
  arm->count++;
}

/* A disturbed sample is taken again once the device is quiet, and the least of
 * the attempts counts, unless disturbance is this machine's normal state: a GPU
 * at its power limit must still be tuned, at no more cost.  *disturbed: all
 * attempts were. */
static dfgnn_sampled take(dfgnn_race *r, size_t i, double *ms, int *disturbed) {
  dfgnn_search *s = r->s;
  dfgnn_sampled status = DFGNN_SAMPLED_FAILED;
  double before = s->ops->now(s->data), attempt_ms;
  *ms = INFINITY;
  for (int attempt = 0; attempt < s->attempts; attempt++) {
    status = s->ops->sample(s->data, i, &attempt_ms);
    if (status == DFGNN_SAMPLED_FAILED || status == DFGNN_SAMPLED_LOST)
      break;
    if (attempt_ms < *ms)
      *ms = attempt_ms;
    r->taken++;
    r->tainted += status == DFGNN_SAMPLED_TAINTED;
    if (status == DFGNN_SAMPLED_OK ||
        (r->taken >= 16 && 10 * r->tainted > 9 * r->taken))
      break;
    if (s->ops->settle && attempt + 1 < s->attempts)
      s->ops->settle(s->data);
  }
  *disturbed = status == DFGNN_SAMPLED_TAINTED;
  s->arm[i].cost_s = s->ops->now(s->data) - before;
  if (status == DFGNN_SAMPLED_TAINTED)
    status = DFGNN_SAMPLED_OK;
  if (status == DFGNN_SAMPLED_OK && !(*ms > 0 && isfinite(*ms)))
    status = DFGNN_SAMPLED_FAILED;
  if (status == DFGNN_SAMPLED_LOST)
    s->lost = 1;
  return status;
}

/* Takes one anchor sample; 0 if the search is lost. */
static int draw_anchor(dfgnn_race *r, double *log_ms, int *disturbed) {
  dfgnn_search *s = r->s;
  double ms;
  for (int attempt = 0; attempt < 3 && !s->lost; attempt++)
    if (take(r, s->anchor, &ms, disturbed) == DFGNN_SAMPLED_OK) {
      dfgnn__race_keep(&s->arm[s->anchor], ms, 0, r->round, *disturbed);
      if (ms < r->best_ms)
        r->best_ms = ms;
      *log_ms = log(ms);
      return 1;
    }
  s->lost = 1;
  return 0;
}

/* The anchor spoils all ratios around it if it is disturbed: a value far from
 * the last is taken thrice, and the level is the median of three values. */
int dfgnn__race_anchor(dfgnn_race *r) {
  dfgnn_search *s = r->s;
  double x[3];
  int bad[3];
  if (!draw_anchor(r, &x[0], &bad[0]))
    return 0;
  double step = r->anchors ? fabs(x[0] - r->anchor[1]) : INFINITY;
  if (step > fmax(0.1, 5 * s->noise)) {
    if (!draw_anchor(r, &x[1], &bad[1]) || !draw_anchor(r, &x[2], &bad[2]))
      return 0;
    x[0] = dfgnn__median(x, 3);
    bad[0] = bad[0] + bad[1] + bad[2] > 1;
  }
  if (r->anchors && step > r->disturbance)
    r->disturbance = step;
  double near[3] = {x[0], r->anchor[1], r->anchor[0]};
  size_t known = r->anchors < 2 ? 1 + (size_t)r->anchors : 3;
  double level = dfgnn__median(near, known);
  const int level_bad =
      bad[0] + r->anchor_disturbed[1] + r->anchor_disturbed[0] >
      (known == 3 ? 1 : 0);
  for (size_t k = 0; k < r->pendings; k++) {
    const dfgnn_race_pending *p = &r->pending[k];
    dfgnn__race_keep(&s->arm[p->arm], p->ms, log(p->ms) - level, p->round,
                     p->disturbed || level_bad);
  }
  r->pendings = 0;
  r->anchor[0] = r->anchor[1];
  r->anchor[1] = x[0];
  r->anchor_disturbed[0] = r->anchor_disturbed[1];
  r->anchor_disturbed[1] = bad[0];
  r->anchors++;
  return 1;
}

static void sample_arm(dfgnn_race *r, size_t i) {
  dfgnn_search *s = r->s;
  double ms;
  int disturbed;
  dfgnn_sampled status = take(r, i, &ms, &disturbed);
  if (status == DFGNN_SAMPLED_FAILED)
    s->arm[i].state = DFGNN_ARM_REJECTED;
  if (status != DFGNN_SAMPLED_OK)
    return;
  if (ms < r->best_ms)
    r->best_ms = ms;
  r->pending[r->pendings++] = (dfgnn_race_pending){i, ms, r->round, disturbed};
}

/* Samples that are pending at the end get a closing anchor sample. */
void dfgnn__race_round(dfgnn_race *r, size_t *set, size_t count) {
  r->round++;
  shuffle(r, set, count);
  for (size_t k = 0; k < count && !dfgnn__race_over(r); k++) {
    if (r->pendings == DFGNN_RACE_BLOCK && !dfgnn__race_anchor(r))
      return;
    sample_arm(r, set[k]);
  }
  if (r->pendings > 0 && !r->s->lost)
    dfgnn__race_anchor(r);
}
