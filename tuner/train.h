/* train.h - fits models to measurements, and judges them by leaving graphs out
 */
#ifndef DFGNN_TUNER_TRAIN_H
#define DFGNN_TUNER_TRAIN_H

#include "db/store.h"
#include "lib/evidence.h"
#include "lib/predict.h"
#include "tuner/boost.h"

/* Ways to choose, each judged on graphs that it knows nothing of. */
typedef enum dfgnn_judged {
  DFGNN_JUDGED_CHOICE = 0, /* as a context chooses: near, model, rule */
  DFGNN_JUDGED_MODEL,
  DFGNN_JUDGED_RACE,       /* the best of those that race */
  DFGNN_JUDGED_SHAPE,      /* a model that knows neither graph nor width nor, if
                            * it is above one, number of heads */
  DFGNN_JUDGED_SHAPE_RACE, /* the best of those that race by that model */
  DFGNN_JUDGED_CELL,       /* the choice by a model that knows nothing of the
                            * problem's cell (lib/cell.h) */
  DFGNN_JUDGED_FAMILY,     /* the choice by a model that never saw the family of
                            * the best variant */
  DFGNN_JUDGED_NEAREST,
  DFGNN_JUDGED_RULE,
  DFGNN_JUDGED_PAPER, /* the rule of the DF-GNN paper */
  DFGNN_JUDGED_WAYS
} dfgnn_judged;
/* "choice", "model", "race", "shape", "shape_race", "cell", "family",
 * "nearest", "rule", "paper" */
const char *dfgnn__judged_name(dfgnn_judged way);

/* A problem whose graph was left out. */
typedef struct dfgnn_judgement {
  const dfgnn_decision *decision;
  double regret[DFGNN_JUDGED_WAYS]; /* time over the best measured; NaN: what
                                     * was chosen was not measured, or the way
                                     * is not judged */
  double distance;         /* to the nearest graph that was left in; -1: none */
  double disagreement;     /* of the forest's members, as in lib/predict.h */
  dfgnn_evidence evidence; /* for what the model would choose */
  const char *chosen[DFGNN_JUDGED_WAYS]; /* variants; NULL: none */
  int covered;  /* 1: of every family that was measured in the cell there are
                 * two variants at least, so that the best may be any of them */
  size_t group; /* of the rows, for judge.c */
} dfgnn_judgement;

typedef struct dfgnn_train_options {
  dfgnn_boost_options boost;
  int folds;    /* parts into which graphs are left out; 0: nothing is judged */
  int least;    /* fewest measured variants of a judged problem */
  int shapes;   /* 1: shapes, cells and families are left out, too, which takes
                 * a forest each */
  double share; /* the part of the graphs that is learned from, 0 .. 1 */
  void (*progress)(void *data, double done, const char *what);
  void *data;
} dfgnn_train_options;

#define DFGNN_TRAIN_OPTIONS_INIT                                               \
  { .boost = DFGNN_BOOST_OPTIONS_INIT, .folds = 8, .least = 12, .share = 1 }

typedef struct dfgnn_trained {
  dfgnn_forests forests; /* one for each architecture and kind of operator
                          * with enough problems */
  size_t count;
  dfgnn_judgement *judgement;
  dfgnn_decisions *decisions; /* made of all rows; judgements point into them */
} dfgnn_trained;

/* rows, of one or several devices, must outlive trained.  graphs (may be NULL)
 * are signatures of graphs at hand: they complete rows that were stored before
 * signatures looked at sources.  DFGNN_ERROR_NOT_TUNED if the rows are too few.
 */
dfgnn_status dfgnn__train(dfgnn_trained *trained, const dfgnn_measurement *rows,
                          size_t count, const dfgnn_signature *graphs,
                          size_t graph_count,
                          const dfgnn_train_options *options);
void dfgnn__trained_free(dfgnn_trained *trained);

#endif
