/* race.h - the state of a running search, shared by rounds.c and search.c */
#ifndef DFGNN_TUNER_RACE_H
#define DFGNN_TUNER_RACE_H

#include "tuner/search.h"

#define DFGNN_RACE_BLOCK 8 /* samples between two anchor samples */

typedef struct dfgnn_race_pending {
  size_t arm;
  double ms;
  int round, disturbed;
} dfgnn_race_pending;

typedef struct dfgnn_race {
  dfgnn_search *s;
  uint64_t random;
  double start;
  double anchor[2]; /* the last two anchor samples, logarithms, newest last */
  int anchor_disturbed[2]; /* and were they disturbed? */
  int anchors;
  double disturbance; /* largest step from one anchor sample to the next */
  dfgnn_race_pending pending[DFGNN_RACE_BLOCK];
  size_t pendings;
  int round;
  size_t taken, tainted;
  double best_ms;
  double done;
  int owed; /* samples are taken whatever the time */
  double *scratch;
  size_t *set; /* the arms of the current round */
} dfgnn_race;

/* Is the race stopped, lost or out of time? */
int dfgnn__race_over(const dfgnn_race *race);

/* Adds a sample to an arm; without memory for it the sample is lost. */
void dfgnn__race_keep(dfgnn_arm *arm, double ms, double log_ratio, int round,
                      int disturbed);

/* Samples the anchor, and gives pending samples their ratios to it.  0 if the
 * device is lost. */
int dfgnn__race_anchor(dfgnn_race *race);

/* Samples each arm of a set once, in random order, and the anchor at the end.
 */
void dfgnn__race_round(dfgnn_race *race, size_t *set, size_t count);

#endif
