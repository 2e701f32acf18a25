/* boost.h - fits a forest: gradient boosting over histograms
 *
 * Trees grow leaf by leaf on binned features, as LightGBM grows them (Ke et al.
 * 2017), to rank: the targets of a group, which is one problem, count up to a
 * constant common to the group.  So no tree is spent on how long problems take,
 * and groups of which few candidates were measured serve as well as others.
 *
 * Sums are sums of whole numbers, and quotients are doubles with one rounding
 * an operation: the same rows give the same forest, with any number of threads,
 * on every machine with IEEE arithmetic. */
#ifndef DFGNN_TUNER_BOOST_H
#define DFGNN_TUNER_BOOST_H

#include "select/forest.h"

typedef struct dfgnn_boost_data {
  size_t rows, groups;
  const double *value;   /* [features][rows]; NaN: missing */
  const int32_t *target; /* in DFGNN_FOREST_UNITs, log2 of a time */
  const int32_t *weight; /* 1 .. 1024; 0: the row is not used */
  const uint32_t *group; /* the group of each row, below groups */
} dfgnn_boost_data;

typedef struct dfgnn_boost_options {
  int members, trees, leaves;
  int rate;     /* the learning rate, in 1024ths */
  int rows;     /* share of the rows that a tree sees, in 1024ths */
  int groups;   /* share of the groups that a member sees, in 1024ths */
  int features; /* share of the features that a tree sees, in 1024ths */
  int least;    /* fewest rows of a leaf */
  int threads;  /* 0: as many as OpenMP uses */
  uint64_t seed;
} dfgnn_boost_options;

/* What did best of twelve settings over 1540 problems of an H200, with graphs
 * left out: 200 trees have a regret of 1.070, 300 of 1.065 and half as much
 * again of bytes. */
#define DFGNN_BOOST_OPTIONS_INIT                                               \
  {                                                                            \
    .members = 3, .trees = 300, .leaves = 31, .rate = 200, .rows = 717,        \
    .groups = 922, .features = 614, .least = 20, .seed = 1                     \
  }

/* Sets the thresholds of forest->feature, which has names, from the values. */
dfgnn_status dfgnn__boost_thresholds(dfgnn_forest *forest,
                                     const dfgnn_boost_data *data);

/* Fills bins, [features][rows], by the forest's thresholds. */
void dfgnn__boost_bins(uint8_t *bins, const dfgnn_forest *forest,
                       const dfgnn_boost_data *data);

/* Grows members and trees of a forest that has features with thresholds, out of
 * the rows whose group is not left out (NULL: none is). */
dfgnn_status dfgnn__boost(dfgnn_forest *forest, const dfgnn_boost_data *data,
                          const uint8_t *bins, const uint8_t *left_out,
                          const dfgnn_boost_options *options);

#endif
