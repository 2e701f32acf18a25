/* search.h - which candidates to sample next, and when to stop
 *
 * The search knows neither devices nor kernels: a candidate is a number and
 * everything else is asked through a table of functions, so that the tests run
 * it on scripted fakes.
 *
 * Samples come in rounds: the candidates still in the race in random order, an
 * anchor sample after every few.  A sample is kept as the logarithm of its
 * ratio to the anchor samples around it, so that drift hits both alike.  After
 * each stage candidates that are told apart from the best leave; if the rest
 * cannot be resolved in the time left, the worse half leaves too (successive
 * halving).  The last few are compared pair by pair, round by round.
 *
 * A best that is a surprise, faster by more than DFGNN_SEARCH_SURPRISE than the
 * model or, without one, the rule expects of it, loses its samples and is
 * measured again before any other is judged by it. */
#ifndef DFGNN_TUNER_SEARCH_H
#define DFGNN_TUNER_SEARCH_H

#include <stdint.h>

#include "tuner/statistics.h"

typedef enum dfgnn_sampled {
  DFGNN_SAMPLED_OK = 0,
  DFGNN_SAMPLED_TAINTED, /* disturbed: dropped, unless most are */
  DFGNN_SAMPLED_FAILED,  /* this candidate is out */
  DFGNN_SAMPLED_LOST     /* the device is gone: the search ends */
} dfgnn_sampled;

typedef struct dfgnn_search_ops {
  /* Checks a candidate before its first sample.  It may give a rough time (0:
   * none); a candidate whose rough time is long, and above `slow` times the
   * best's, gets no other sample. */
  dfgnn_sampled (*admit)(void *data, size_t candidate, double *rough_ms);
  dfgnn_sampled (*sample)(void *data, size_t candidate, double *ms);
  /* The candidate gets no further samples. */
  void (*finished)(void *data, size_t candidate);
  double (*now)(void *data); /* seconds */
  int (*stop)(void *data);
  /* done 0..1; eta in seconds. */
  void (*progress)(void *data, double done, double eta);
  /* Waits, for a bounded time, until the device is quiet.  NULL: never. */
  void (*settle)(void *data);
} dfgnn_search_ops;

typedef enum dfgnn_arm_state {
  DFGNN_ARM_UNSEEN = 0, /* the budget ended before it was looked at */
  DFGNN_ARM_REJECTED,
  DFGNN_ARM_ACTIVE,
  DFGNN_ARM_FINISHED,
  DFGNN_ARM_STORED /* its figure is that of a stored row */
} dfgnn_arm_state;

typedef struct dfgnn_arm {
  dfgnn_arm_state state;
  size_t count, capacity;
  double *ms;           /* raw samples */
  double *log_ratio;    /* of each sample to the anchor samples around it */
  int *round;           /* the round of each sample, by which arms are paired */
  double rough;         /* log ratio of the rough time; infinity: none */
  size_t disturbed;     /* of the samples, those that were disturbed */
  int confirmed;        /* its samples are those of a second look */
  int doubted;          /* it is a surprise, and was not looked at again */
  double cost_s;        /* wall time of one sample */
  dfgnn_interval ratio; /* from log_ratio; STORED: set by the caller */
} dfgnn_arm;

typedef struct dfgnn_search {
  /* set by the caller */
  const dfgnn_search_ops *ops;
  void *data;
  size_t arms;
  size_t anchor;       /* an arm that is admitted already */
  const size_t *order; /* in which arms are first looked at; NULL: by number */
  /* NULL, or for each arm the logarithm of the time that a model predicts, up
   * to a constant; infinity where it predicts none. */
  const double *predicted;
  double deadline; /* on the clock of now(); infinity: none */
  /* So many first arms of the order are measured beside the anchor whatever the
   * deadline: they are what would be chosen without this search, and an anchor
   * alone would take their place unseen. */
  size_t owed;
  double margin;  /* a ratio told to this precision is resolved */
  int exhaustive; /* all arms get max_samples */
  int attempts;   /* at an undisturbed sample, at most */
  size_t max_samples;
  size_t final_samples; /* the limit of the last few, while unresolved */
  double slow;          /* the watchdog's factor */
  uint64_t seed;

  /* results */
  dfgnn_arm *arm;
  size_t best;   /* arm with the least ratio; may be STORED */
  int separated; /* best is told apart from every other arm */
  int resolved;  /* 1: not ended by budget, stop or loss */
  int interrupted, lost;
  double noise; /* standard deviation of one log ratio */
} dfgnn_search;

#define DFGNN_SEARCH_ATTEMPTS 4
#define DFGNN_SEARCH_SAMPLES 32
#define DFGNN_SEARCH_FINAL_SAMPLES 96
#define DFGNN_SEARCH_SLOW 20.0
#define DFGNN_SEARCH_SURPRISE 3.0

/* Allocates arm[arms] and sets the defaults, which the caller may change then,
 * as it may mark arms STORED.  0 if there is no memory. */
int dfgnn__search_init(dfgnn_search *search, size_t arms);
/* Runs the race; 0 if there is no memory. */
int dfgnn__search_run(dfgnn_search *search);
void dfgnn__search_free(dfgnn_search *search);

/* How arm a compares with arm b, as the logarithm of their times' ratio: paired
 * by round where they share enough rounds, else from their anchored ratios. */
dfgnn_interval dfgnn__search_compare(const dfgnn_search *search, size_t a,
                                     size_t b);

#endif
