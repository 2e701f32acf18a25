/* candidates.h - the variants that a tuning compares, in the order it looks at
 * them */
#ifndef DFGNN_TUNER_CANDIDATES_H
#define DFGNN_TUNER_CANDIDATES_H

#include "lib/plan.h"
#include "tuner/history.h"

typedef struct dfgnn_trial {
  const dfgnn_variant *variant;
  dfgnn_plan *plan;   /* made at the first look */
  const char *status; /* the text that is stored; NULL while undecided */
  char reason[256];   /* why it was rejected */
  char noise[160];    /* what was seen while its samples were disturbed */
  double rel_error;
  int no_memory; /* it was rejected for want of memory */
  size_t workspace;
  int stored; /* its figures are those of a stored row */
  int recorded;
} dfgnn_trial;

typedef struct dfgnn_trials {
  dfgnn_trial *trial;
  size_t *order;     /* of their first looks: as the model ranks them */
  double *predicted; /* [count], as in dfgnn_search */
  size_t count;
  size_t anchor; /* the rule's choice */
  size_t chosen; /* what would be chosen without this tuning */
} dfgnn_trials;

/* Lists the members of the problem's portfolio, what was measured of it before
 * and what would be chosen without tuning; exhaustive: all variants that apply,
 * except references and papers'. names (NULL-terminated; NULL: all) restricts
 * them to the named ones, whether they are members or not, the anchor and the
 * choice; an unknown name is DFGNN_ERROR_INVALID. */
dfgnn_status dfgnn__trials_create(dfgnn_trials *trials, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const char *const *names, int exhaustive);
void dfgnn__trials_free(dfgnn_trials *trials);

/* The trial of a variant's name; count if there is none. */
size_t dfgnn__trials_find(const dfgnn_trials *trials, const char *name);

#endif
