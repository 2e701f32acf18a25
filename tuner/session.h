/* session.h - the tuning of one problem, shared by tuner/'s files */
#ifndef DFGNN_TUNER_SESSION_H
#define DFGNN_TUNER_SESSION_H

#include "tuner/candidates.h"
#include "tuner/harness.h"
#include "tuner/history.h"
#include "tuner/search.h"

typedef struct dfgnn_session {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_problem problem;      /* complete */
  dfgnn_tune_options options; /* with defaults filled in */
  double start;               /* by dfgnn__seconds() */

  dfgnn_measurement row; /* the fields that all rows of this run share */
  char run[33], protocol[32];
  dfgnn_history *history;
  dfgnn_trials trials;
  dfgnn_harness *harness;
  dfgnn_search search;
  dfgnn_store *store; /* NULL: the context keeps the rows */
  int kept, resumed;
  char message[512];
} dfgnn_session;

/* ---- measure.c: a trial on the device ----------------------------------- */

double dfgnn__seconds(void);

/* Makes the trial's plan, checks it against the reference and, if it is slow,
 * times it once.  A trial that fails is recorded with its reason. */
dfgnn_sampled dfgnn__trial_admit(dfgnn_session *session, size_t i,
                                 double *rough_ms);
dfgnn_sampled dfgnn__trial_sample(dfgnn_session *session, size_t i, double *ms);

/* ---- record.c: rows ------------------------------------------------------ */

/* Opens the store that the context writes.  Without one rows are kept for the
 * life of the context, which is logged once. */
void dfgnn__record_begin(dfgnn_session *session);
void dfgnn__record_end(dfgnn_session *session);

/* Adds a trial's row to history and store: its figures, or its rejection.
 * partial: the search was stopped before it had finished the trial. */
void dfgnn__record_trial(dfgnn_session *session, size_t i, int partial);

#endif
