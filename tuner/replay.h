/* replay.h - runs the search over stored figures, without any device
 *
 * Each stored variant of a decision takes its stored time with noise, in
 * virtual time.  So search rules are judged on real spreads of times, and the
 * cost of a tuning is foretold (--dry-run). */
#ifndef DFGNN_TUNER_REPLAY_H
#define DFGNN_TUNER_REPLAY_H

#include "db/store.h"

typedef struct dfgnn_replay_options {
  double budget_s;  /* virtual; 0: none */
  double margin;    /* 0: 0.015 */
  double noise;     /* relative, of one sample */
  double sample_ms; /* least wall time of one sample */
  double check_ms;  /* time of a check, beyond one run */
  int exhaustive;
  uint64_t seed;
} dfgnn_replay_options;

typedef struct dfgnn_replayed {
  const char *variant; /* the choice, a string of the decision */
  double regret;       /* its stored time over the least, 1 is perfect */
  double seconds;      /* virtual */
  size_t samples;
} dfgnn_replayed;

dfgnn_status dfgnn__replay(dfgnn_replayed *replayed,
                           const dfgnn_decision *decision,
                           const dfgnn_replay_options *options);

#endif
