/* history.h - what is measured already of one problem on one device
 *
 * Rows of every store of a context that describe the problem, and those that a
 * tuning adds; what they say together is db's decision. */
#ifndef DFGNN_TUNER_HISTORY_H
#define DFGNN_TUNER_HISTORY_H

#include "lib/context.h"

/* The setting of a protocol that marks a row whose candidate was still in the
 * race when the caller stopped the tuning: resuming samples it again. */
#define DFGNN_PARTIAL ",partial"

typedef struct dfgnn_history dfgnn_history;

/* problem: device and problem fields, and the protocol. */
dfgnn_status dfgnn__history_load(dfgnn_history **history, dfgnn_context *ctx,
                                 const dfgnn_measurement *problem);
void dfgnn__history_free(dfgnn_history *history);

/* The row's strings must outlive the history. */
dfgnn_status dfgnn__history_add(dfgnn_history *history,
                                const dfgnn_measurement *row);

/* Decides anew.  The decision is the history's and valid until the next call;
 * NULL if nothing usable is measured. */
dfgnn_status dfgnn__history_decide(const dfgnn_decision **decision,
                                   dfgnn_history *history, double margin);

int dfgnn__row_is_partial(const dfgnn_measurement *row);

/* The telling row of a variant: rejections first, then a finished one, then
 * that of most samples; NULL if there is none of its revision. */
const dfgnn_measurement *dfgnn__history_row(const dfgnn_history *history,
                                            const dfgnn_variant *variant);

#endif
