#include "lib/plan_race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/describe.h"

/* An entrant this much slower than another in its first call gets no second. */
#define SLOW 1.5

typedef enum call_state {
  CALL_OPEN = 0, /* not yet made, or its time is not known */
  CALL_TIMED,
  CALL_VOID /* left out, or it failed */
} call_state;

struct dfgnn_plan_race {
  size_t count;
  dfgnn_plan *entrant[DFGNN_RACE_ENTRANTS];
  void *watch[DFGNN_RACE_CALLS]; /* of the backend, one for each call */
  atomic_int state[DFGNN_RACE_CALLS];
  atomic_int made[DFGNN_RACE_CALLS];
  _Atomic double ms[DFGNN_RACE_CALLS];
  atomic_uint next;  /* call to be made */
  atomic_int winner; /* -1: there is none yet */
  atomic_int stored; /* its rows were written */
};

dfgnn_status dfgnn__race_begin(dfgnn_plan *plan, dfgnn_plan *const *entrant,
                               size_t count) {
  const dfgnn_backend *backend = plan->ctx->backend;
  struct dfgnn_plan_race *r = calloc(1, sizeof *r);
  dfgnn_status status = DFGNN_OK;
  if (!r)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  r->count = count;
  atomic_init(&r->winner, -1);
  for (size_t i = 0; i < count * DFGNN_RACE_ROUNDS && !status; i++)
    status = backend->watch_create(plan->ctx->device, &r->watch[i]);
  if (status) {
    for (size_t i = 0; i < DFGNN_RACE_CALLS; i++)
      if (r->watch[i])
        backend->watch_destroy(plan->ctx->device, r->watch[i]);
    free(r);
    return status;
  }
  for (size_t k = 0; k < count; k++) {
    r->entrant[k] = entrant[k];
    if (entrant[k]->workspace > plan->workspace)
      plan->workspace = entrant[k]->workspace;
  }
  plan->race = r;
  return DFGNN_OK;
}

void dfgnn__race_free(dfgnn_plan *plan) {
  struct dfgnn_plan_race *r = plan->race;
  if (!r)
    return;
  for (size_t i = 0; i < DFGNN_RACE_CALLS; i++)
    if (r->watch[i])
      plan->ctx->backend->watch_destroy(plan->ctx->device, r->watch[i]);
  free(r);
  plan->race = NULL;
}

/* Takes the times that have come in. */
static void read_times(const dfgnn_plan *plan) {
  struct dfgnn_plan_race *r = plan->race;
  for (size_t i = 0; i < r->count * DFGNN_RACE_ROUNDS; i++) {
    double ms;
    if (atomic_load(&r->state[i]) != CALL_OPEN || !atomic_load(&r->made[i]) ||
        !plan->ctx->backend->watch_read(plan->ctx->device, r->watch[i], &ms))
      continue;
    atomic_store(&r->ms[i], ms);
    atomic_store(&r->state[i], CALL_TIMED);
  }
}

/* The least time of an entrant's calls; infinity: none is known. */
static double time_of(const struct dfgnn_plan_race *r, size_t entrant) {
  double least = INFINITY;
  for (size_t i = entrant; i < r->count * DFGNN_RACE_ROUNDS; i += r->count)
    if (atomic_load(&r->state[i]) == CALL_TIMED)
      least = fmin(least, atomic_load(&r->ms[i]));
  return least;
}

/* Was the entrant much slower than the best in its first call? */
static int is_slow(const struct dfgnn_plan_race *r, size_t entrant,
                   size_t best) {
  const double ms = time_of(r, entrant);
  return isfinite(ms) && ms > SLOW * time_of(r, best);
}

static size_t fastest(const struct dfgnn_plan_race *r) {
  size_t best = 0;
  for (size_t k = 1; k < r->count; k++)
    if (time_of(r, k) < time_of(r, best))
      best = k;
  return best;
}

static void decide(const dfgnn_plan *plan) {
  struct dfgnn_plan_race *r = plan->race;
  read_times(plan);
  for (size_t i = 0; i < r->count * DFGNN_RACE_ROUNDS; i++)
    if (atomic_load(&r->state[i]) == CALL_OPEN)
      return;
  atomic_store(&r->winner, (int)fastest(r));
}

/* The number of the race's next call; -1: all are made. */
static int take_call(struct dfgnn_plan_race *r) {
  unsigned call = atomic_load(&r->next);
  const unsigned calls = (unsigned)r->count * DFGNN_RACE_ROUNDS;
  while (call < calls)
    if (atomic_compare_exchange_weak(&r->next, &call, call + 1))
      return (int)call;
  return -1;
}

dfgnn_race_call dfgnn__race_take(const dfgnn_plan *plan, void *stream) {
  struct dfgnn_plan_race *r = plan->race;
  const int winner = atomic_load(&r->winner);
  if (winner >= 0 || plan->ctx->backend->capturing(plan->ctx->device, stream)) {
    const dfgnn_plan *entrant = r->entrant[winner >= 0 ? winner : 0];
    return (dfgnn_race_call){.entrant = entrant, .best = entrant, .call = -1};
  }
  read_times(plan);
  const size_t best = fastest(r);
  const int call = take_call(r);
  dfgnn_race_call taken = {
      .entrant = r->entrant[best], .best = r->entrant[best], .call = -1};
  if (call < 0) {
    decide(plan);
  } else if (is_slow(r, (size_t)call % r->count, best)) {
    atomic_store(&r->state[call], CALL_VOID);
  } else {
    taken.entrant = r->entrant[(size_t)call % r->count];
    taken.call = call;
  }
  return taken;
}

dfgnn_status dfgnn__race_mark(const dfgnn_plan *plan, dfgnn_race_call taken,
                              int end, void *stream) {
  return plan->ctx->backend->watch_mark(
      plan->ctx->device, plan->race->watch[taken.call], end, stream);
}

void dfgnn__race_made(const dfgnn_plan *plan, dfgnn_race_call taken,
                      dfgnn_status status) {
  struct dfgnn_plan_race *r = plan->race;
  if (status)
    atomic_store(&r->state[taken.call], CALL_VOID);
  else
    atomic_store(&r->made[taken.call], 1);
}

dfgnn_plan *dfgnn__race_entrant(const dfgnn_plan *plan, size_t k) {
  return k < plan->race->count ? plan->race->entrant[k] : NULL;
}

const dfgnn_plan *dfgnn__race_current(const dfgnn_plan *plan) {
  const struct dfgnn_plan_race *r = plan->race;
  const int winner = r ? atomic_load(&r->winner) : -1;
  return !r ? plan : r->entrant[winner > 0 ? winner : 0];
}

/* ---- storing ------------------------------------------------------------- */

/* The longest of an entrant's times over the shortest. */
static double spread_of(const struct dfgnn_plan_race *r, size_t entrant) {
  double most = 0;
  for (size_t i = entrant; i < r->count * DFGNN_RACE_ROUNDS; i += r->count)
    if (atomic_load(&r->state[i]) == CALL_TIMED)
      most = fmax(most, atomic_load(&r->ms[i]));
  return most / time_of(r, entrant);
}

static int64_t samples_of(const struct dfgnn_plan_race *r, size_t entrant) {
  int64_t count = 0;
  for (size_t i = entrant; i < r->count * DFGNN_RACE_ROUNDS; i += r->count)
    count += atomic_load(&r->state[i]) == CALL_TIMED;
  return count;
}

void dfgnn__race_store(dfgnn_plan *plan) {
  struct dfgnn_plan_race *r = plan->race;
  dfgnn_measurement row;
  char run[33], protocol[32];
  if (!r || !plan->graph || atomic_load(&r->winner) < 0 ||
      !isfinite(time_of(r, 0)) || atomic_exchange(&r->stored, 1))
    return;
  dfgnn__describe(&row, plan->ctx, plan->graph, &plan->problem);
  dfgnn__name_run(run);
  snprintf(protocol, sizeof protocol, "%s,race", row.protocol);
  row.protocol = protocol;
  row.run = run;
  row.tool = "libdfgnn race";
  row.status = "ok";
  row.time = dfgnn__time_stamp();
  row.anchor = r->entrant[0]->variant->name;
  row.anchor_revision = r->entrant[0]->variant->family->revision;
  row.rel_error = INFINITY; /* nobody compared the results */
  for (size_t k = 0; k < r->count; k++) {
    const dfgnn_variant *variant = r->entrant[k]->variant;
    const double ms = time_of(r, k), unsure = spread_of(r, k);
    if (!isfinite(ms))
      continue;
    row.variant = variant->name;
    row.revision = variant->family->revision;
    row.median_ms = row.ci_low_ms = ms;
    row.ci_high_ms = ms * unsure;
    row.ratio = ms / time_of(r, 0);
    row.ratio_low = k ? row.ratio / spread_of(r, 0) : 1;
    row.ratio_high = k ? row.ratio * unsure : 1;
    row.samples = samples_of(r, k);
    row.workspace_bytes = (int64_t)r->entrant[k]->workspace;
    dfgnn__context_write(plan->ctx, &row);
  }
}
