/* regret.h - how much slower the chosen variant is than the best
 *
 * Regret is a choice's time over the least; 1 is perfect.  The choices are:
 */
/* clang-format off
 *
 *   exact      by the graph's own measurements
 *   left-out   with the graph's own rows hidden: by a similar or near graph,
 *              the model, else the rule
 *   model      the model's first variant; the model may have been fitted to
 *              this graph: `dfgnn-tune model train` judges by graphs left out
 *   race       the best of the variants that race in first calls
 *              (dfgnn__predicted_entrants)
 *   rule       the rule
 *   paper      the rule of the DF-GNN paper
 */
/* clang-format on */
#ifndef DFGNN_TUNER_REGRET_H
#define DFGNN_TUNER_REGRET_H

#include "lib/context.h"

typedef enum dfgnn_regret_choice {
  DFGNN_REGRET_EXACT = 0,
  DFGNN_REGRET_LEFT_OUT,
  DFGNN_REGRET_MODEL, /* the context's model alone */
  DFGNN_REGRET_RACE,  /* the best of DFGNN_REGRET_FIRST that race */
  DFGNN_REGRET_RULE,
  DFGNN_REGRET_PAPER,
  DFGNN_REGRET_CHOICES
} dfgnn_regret_choice;

enum { DFGNN_REGRET_FIRST = 6 };

/* "exact", "left-out", "model", "race", "rule", "paper" */
const char *dfgnn__regret_choice_name(dfgnn_regret_choice choice);

typedef struct dfgnn_regret {
  const dfgnn_variant *choice[DFGNN_REGRET_CHOICES]; /* NULL: none */
  double regret[DFGNN_REGRET_CHOICES];               /* NaN without a choice */
  dfgnn_source left_out_source;
  double left_out_distance; /* to the nearest measured problem; -1 none */
  const dfgnn_variant *best;
  double best_ms;
  double spread;     /* worst over best time among all measured variants */
  size_t candidates; /* measured variants */
} dfgnn_regret;

/* Judges one of the table's decisions by stored figures alone, without a device
 * and a model.  DFGNN_ERROR_NOT_TUNED if none of its variants runs here. */
dfgnn_status dfgnn__regret_stored(dfgnn_regret *regret,
                                  const dfgnn_table *table,
                                  const dfgnn_decision *decision,
                                  const dfgnn_device_info *device,
                                  int64_t paper_capacity);

/* The protocol of the reports: after selection, the choices and the stored best
 * five are timed again, interleaved, on fresh samples; `samples` of each (0:
 * 15).  DFGNN_ERROR_NOT_TUNED if the problem is not measured. */
dfgnn_status dfgnn__regret_live(dfgnn_regret *regret, dfgnn_context *ctx,
                                dfgnn_graph *graph,
                                const dfgnn_problem *problem, size_t samples,
                                uint64_t seed);

/* The geometric mean and the worst regret of each choice, over the problems
 * that have one. */
typedef struct dfgnn_regret_summary {
  size_t count[DFGNN_REGRET_CHOICES];
  double mean[DFGNN_REGRET_CHOICES], worst[DFGNN_REGRET_CHOICES];
  double spread;     /* geometric mean */
  size_t candidates; /* the most of one problem */
} dfgnn_regret_summary;

void dfgnn__regret_summarize(dfgnn_regret_summary *summary,
                             const dfgnn_regret *regrets, size_t count);

#endif
