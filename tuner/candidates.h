/* candidates.h - what a tuning compares, and in which order it looks */
#ifndef DFGNN_TUNER_CANDIDATES_H
#define DFGNN_TUNER_CANDIDATES_H

#include "lib/plan.h"
#include "tuner/history.h"

typedef struct dfgnn_trial {
  const dfgnn_variant *variant;
  dfgnn_plan *plan;   /* made when it is first looked at */
  const char *status; /* as stored; NULL while it is open */
  char reason[256];   /* of a rejection */
  double rel_error;
  size_t workspace;
  int stored; /* known from before */
  int recorded;
} dfgnn_trial;

typedef struct dfgnn_trials {
  dfgnn_trial *trial;
  size_t *order;     /* of first looks: by what a model predicts; without one
                      * families take turns, so that a short budget sees something
                      * of each */
  double *predicted; /* of each, as dfgnn_search has it; NULL: no model */
  size_t count, anchor;
} dfgnn_trials;

/* All variants that apply, references excepted; of `names` (NULL-terminated;
 * NULL: all) those and the anchor.  An unknown name is DFGNN_ERROR_INVALID. */
dfgnn_status dfgnn__trials_create(dfgnn_trials *trials, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const char *const *names, uint64_t seed);
void dfgnn__trials_free(dfgnn_trials *trials);

/* The trial of a variant's name; count if there is none. */
size_t dfgnn__trials_find(const dfgnn_trials *trials, const char *name);

#endif
