/* search.h - which candidates to sample next, and when to stop
 *
 * Knows neither devices nor kernels: a candidate is a number and everything
 * else is asked through a table of functions, so that the tests run it on
 * scripted fakes and replay on stored figures.
 *
 * Samples come in rounds: the candidates still in the race in random order, an
 * anchor sample after every few.  A sample is kept as the logarithm of its
 * ratio to the anchor samples around it, so that drift hits both alike.  After
 * each stage candidates that are told apart from the best leave; if the rest
 * cannot be resolved in the time left, the worse half leaves too (successive
 * halving).  The last few are compared pair by pair, round by round. */
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
  /* Checks a candidate before its first sample.  May give a first, rough time
   * (0: none): a long one above `slow` times the best's is all it gets. */
  dfgnn_sampled (*admit)(void *data, size_t candidate, double *rough_ms);
  dfgnn_sampled (*sample)(void *data, size_t candidate, double *ms);
  /* The candidate gets no further samples. */
  void (*finished)(void *data, size_t candidate);
  double (*now)(void *data); /* seconds */
  int (*stop)(void *data);
  /* done 0..1; eta in seconds. */
  void (*progress)(void *data, double done, double eta);
} dfgnn_search_ops;

typedef enum dfgnn_arm_state {
  DFGNN_ARM_UNSEEN = 0, /* the budget ended before it was looked at */
  DFGNN_ARM_REJECTED,
  DFGNN_ARM_ACTIVE,
  DFGNN_ARM_FINISHED,
  DFGNN_ARM_STORED /* its figure is known from before */
} dfgnn_arm_state;

typedef struct dfgnn_arm {
  dfgnn_arm_state state;
  size_t count, capacity;
  double *ms;           /* raw samples */
  double *log_ratio;    /* to the anchor around each */
  int *round;           /* of each: pairs arms sampled in the same one */
  double rough;         /* log ratio by the admission's time; infinity: none */
  double cost_s;        /* of one sample, wall time */
  dfgnn_interval ratio; /* of log_ratio; of STORED arms set by the caller */
} dfgnn_arm;

typedef struct dfgnn_search {
  /* set by the caller */
  const dfgnn_search_ops *ops;
  void *data;
  size_t arms;
  size_t anchor;       /* one of them, already admitted */
  const size_t *order; /* of first looks, all arms; NULL: by number */
  /* NULL, or for each arm the logarithm of the time that a model predicts, up
   * to a constant; infinity where it predicts none.  Arms that are not expected
   * to win are not looked at (tuner/foretell.c); order has to be by it. */
  const double *predicted;
  double deadline; /* by now(); infinity: none */
  double margin;   /* a ratio told to this precision is resolved */
  int exhaustive;  /* all arms get max_samples */
  size_t max_samples;
  size_t final_samples; /* more for the last few, while they are unresolved */
  double slow;          /* the watchdog's factor */
  uint64_t seed;

  /* results */
  dfgnn_arm *arm;
  size_t best;   /* arm with the least ratio; may be STORED */
  int separated; /* told apart from each other arm */
  int resolved;  /* 1: not ended by budget, stop or loss */
  int interrupted, lost;
  double noise; /* standard deviation of one log ratio */
} dfgnn_search;

#define DFGNN_SEARCH_SAMPLES 32
#define DFGNN_SEARCH_FINAL_SAMPLES 96
#define DFGNN_SEARCH_SLOW 20.0

/* May an arm that nobody looked at win, by what was predicted of it and how far
 * predictions were off on those that were looked at?  1 without predictions. */
int dfgnn__search_may_win(const dfgnn_search *search, size_t arm);

/* Allocates arm[arms], 0 if there is no memory; the caller may then set STORED
 * ones and what else differs from the defaults. */
int dfgnn__search_init(dfgnn_search *search, size_t arms);
/* 0 if there is no memory. */
int dfgnn__search_run(dfgnn_search *search);
void dfgnn__search_free(dfgnn_search *search);

/* How arm a compares with arm b, as the logarithm of their times' ratio: paired
 * by round where they share enough rounds, else from their anchored ratios. */
dfgnn_interval dfgnn__search_compare(const dfgnn_search *search, size_t a,
                                     size_t b);

#endif
