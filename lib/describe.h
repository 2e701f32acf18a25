/* describe.h - a problem on a graph as the store names it */
#ifndef DFGNN_LIB_DESCRIBE_H
#define DFGNN_LIB_DESCRIBE_H

#include "db/store.h"
#include "lib/plan.h"

/* Fills device, environment and problem fields; the other strings are "", the
 * numbers 0.  Pointers are into ctx, graph and static names. */
void dfgnn__describe(dfgnn_measurement *measurement, const dfgnn_context *ctx,
                     const dfgnn_graph *graph, const dfgnn_problem *problem);

/* Adds a row to the store that the context writes; without one, or if it cannot
 * be written, the row is kept for the life of the context. */
void dfgnn__context_write(dfgnn_context *ctx, const dfgnn_measurement *row);

/* Notes in the context's store that the device refused a launch. */
void dfgnn__record_refusal(const dfgnn_plan *plan);

/* The present time in seconds since 1970, for a measurement.  A clock that is
 * set wrong gives the nearest time of the years 1970 to 9999: a measurement is
 * worth more than its date. */
int64_t dfgnn__time_stamp(void);

/* Fills run with 32 random hexadecimal digits. */
void dfgnn__name_run(char run[33]);

#endif
