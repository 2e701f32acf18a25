/* plan_race.h - a plan whose first calls compare a few variants
 *
 * Effort RACE: the calls themselves are timed, without waiting for any.  Once
 * all times are known the best variant stays.  The times are stored when a plan
 * is next asked for or the plan is released. */
#ifndef DFGNN_LIB_PLAN_RACE_H
#define DFGNN_LIB_PLAN_RACE_H

#include "lib/plan.h"

enum {
  DFGNN_RACE_ENTRANTS = 6,
  DFGNN_RACE_ROUNDS = 3,
  DFGNN_RACE_CALLS = DFGNN_RACE_ENTRANTS * DFGNN_RACE_ROUNDS
};

/* Makes `plan` a race between the entrants, plans of which it takes the
 * references; the first is the choice without a race.  On failure the
 * references stay the caller's. */
dfgnn_status dfgnn__race_begin(dfgnn_plan *plan, dfgnn_plan *const *entrant,
                               size_t count);
/* Frees the race, not the entrants. */
void dfgnn__race_free(dfgnn_plan *plan);

/* The k-th entrant; NULL past the last. */
dfgnn_plan *dfgnn__race_entrant(const dfgnn_plan *plan, size_t k);

/* One call of a racing plan. */
typedef struct dfgnn_race_call {
  const dfgnn_plan *entrant; /* runs the call */
  const dfgnn_plan *best;    /* runs it if the device refuses the entrant */
  int call;                  /* its number in the race; -1: it is not timed */
} dfgnn_race_call;

/* Says which entrant runs the next call.  None of these takes a lock, allocates
 * or synchronises. */
dfgnn_race_call dfgnn__race_take(const dfgnn_plan *plan, void *stream);
/* Marks the begin or the end of a timed call on the stream. */
dfgnn_status dfgnn__race_mark(const dfgnn_plan *plan, dfgnn_race_call taken,
                              int end, void *stream);
/* Says how a timed call ended. */
void dfgnn__race_made(const dfgnn_plan *plan, dfgnn_race_call taken,
                      dfgnn_status status);

/* The plan that runs: the winner of a race, or its first entrant as long as
 * there is no winner; the plan itself if it is no race. */
const dfgnn_plan *dfgnn__race_current(const dfgnn_plan *plan);

/* Stores the times of a decided race, once. */
void dfgnn__race_store(dfgnn_plan *plan);

#endif
