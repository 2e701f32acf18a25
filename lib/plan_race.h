/* plan_race.h - a plan whose first calls compare a few variants
 *
 * Effort RACE: the calls themselves are timed, without waiting for any.  Once
 * all times are known the best variant stays.  The times are stored when a plan
 * is next asked for or the plan is released. */
#ifndef DFGNN_LIB_PLAN_RACE_H
#define DFGNN_LIB_PLAN_RACE_H

#include "lib/plan.h"

enum { DFGNN_RACE_ENTRANTS = 4, DFGNN_RACE_ROUNDS = 3 };

/* Makes `plan` a race between the entrants, plans of which it takes the
 * references; the first is the choice without a race.  On failure the
 * references stay the caller's. */
dfgnn_status dfgnn__race_begin(dfgnn_plan *plan, dfgnn_plan *const *entrant,
                               size_t count);
void dfgnn__race_free(dfgnn_plan *plan);

/* Runs an entrant; takes no lock, allocates nothing, does not synchronise. */
dfgnn_status dfgnn__race_execute(const dfgnn_plan *plan, const dfgnn_args *args,
                                 void *workspace, void *stream);

/* The plan that runs: the winner of a race, or its first entrant as long as
 * there is no winner; the plan itself if it is no race. */
const dfgnn_plan *dfgnn__race_current(const dfgnn_plan *plan);

/* Stores the times of a decided race, once. */
void dfgnn__race_store(dfgnn_plan *plan);

#endif
