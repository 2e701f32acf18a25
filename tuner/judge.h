/* judge.h - forests judged on graphs, and shapes, that they were not fitted to
 */
#ifndef DFGNN_TUNER_JUDGE_H
#define DFGNN_TUNER_JUDGE_H

#include "tuner/train.h"
#include "tuner/train_rows.h"

enum { DFGNN_LEAST_GROUPS = 8 }; /* problems that a forest is fitted to */

typedef struct dfgnn_judge {
  const dfgnn_train_rows *rows;
  const dfgnn_forest *forest; /* with its features */
  const uint8_t *bins;        /* [features][rows] */
  const dfgnn_table *table;   /* all measurements, for near graphs */
  const dfgnn_train_options *options;
} dfgnn_judge;

/* Judges the problems whose graphs are in this fold by a forest that is fitted
 * to the other folds, and adds the judgements. */
dfgnn_status dfgnn__judge_fold(dfgnn_trained *trained, const dfgnn_judge *by,
                               int fold);

/* Judges the choice, for the judgements of these rows, by forests to which the
 * problem's cell, or the family of its best variant, is unknown. */
dfgnn_status dfgnn__judge_unmeasured(dfgnn_trained *trained,
                                     const dfgnn_judge *by);

#endif
