/* record.h - rows of trials, for the store or for the life of the context */
#ifndef DFGNN_TUNER_RECORD_H
#define DFGNN_TUNER_RECORD_H

#include "tuner/history.h"
#include "tuner/measure.h"

typedef struct dfgnn_recorder {
  dfgnn_context *ctx;
  dfgnn_measurement row; /* the fields that all rows of this run share */
  char run[33], protocol[32];
  double budget_s;        /* 0: the usual one */
  const dfgnn_gate *gate; /* knows what disturbed samples; may be NULL */
  dfgnn_history *history; /* gets each row, too */
  dfgnn_store *store;     /* NULL: the context keeps the rows */
  int64_t version;        /* of the store, as the context knows it */
  int unasked;            /* nobody asked for the run: the log is told little */
  int lost;               /* a row is nowhere, for want of memory */
} dfgnn_recorder;

/* Fills row, run and protocol. */
void dfgnn__record_describe(dfgnn_recorder *recorder,
                            const dfgnn_subject *subject,
                            const dfgnn_tune_options *options);

/* Opens the store that the context writes.  Without one the context keeps the
 * rows as long as it lives, which is logged once. */
void dfgnn__record_begin(dfgnn_recorder *recorder);
/* 0: the store has rows of others that the context does not know. */
int dfgnn__record_end(dfgnn_recorder *recorder);

/* Adds a trial's row to history and store: the figures of its arm, or its
 * rejection.  partial: the search was stopped before it was done with it. */
void dfgnn__record_trial(dfgnn_recorder *recorder, dfgnn_trial *trial,
                         const dfgnn_arm *arm, const dfgnn_variant *anchor,
                         int partial);

#endif
