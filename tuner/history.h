/* history.h - the measurements of one problem on one device
 *
 * It holds the problem's rows of every store of a context, and the rows that a
 * tuning adds; db/decide.c makes one decision of them. */
#ifndef DFGNN_TUNER_HISTORY_H
#define DFGNN_TUNER_HISTORY_H

#include "lib/context.h"

/* The setting of a protocol that marks a row whose candidate was still in the
 * race when the caller stopped the tuning: resuming samples it again. */
#define DFGNN_PARTIAL ",partial"

typedef struct dfgnn_history dfgnn_history;

/* Loads the rows of the stores; problem is a row whose device, problem and
 * protocol are set. */
dfgnn_status dfgnn__history_load(dfgnn_history **history, dfgnn_context *ctx,
                                 const dfgnn_measurement *problem);
void dfgnn__history_free(dfgnn_history *history);

/* Adds a copy of the row, whose strings must outlive the history. */
dfgnn_status dfgnn__history_add(dfgnn_history *history,
                                const dfgnn_measurement *row);

const dfgnn_measurement *dfgnn__history_rows(const dfgnn_history *history,
                                             size_t *count);

/* Ranks the variants anew.  The decision belongs to the history and is valid
 * until the next call; NULL if nothing usable is measured. */
dfgnn_status dfgnn__history_decide(const dfgnn_decision **decision,
                                   dfgnn_history *history, double margin);

int dfgnn__row_is_partial(const dfgnn_measurement *row);

/* The row that counts for a variant: a rejection before a finished row, before
 * the row with most samples; NULL if there is none of its revision. */
const dfgnn_measurement *dfgnn__history_row(const dfgnn_history *history,
                                            const dfgnn_variant *variant);

#endif
