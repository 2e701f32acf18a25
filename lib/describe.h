/* describe.h - a problem on a graph as the store names it */
#ifndef DFGNN_LIB_DESCRIBE_H
#define DFGNN_LIB_DESCRIBE_H

#include "db/store.h"
#include "lib/plan.h"

/* Fills device, environment and problem fields; the other strings are "", the
 * numbers 0.  Pointers are into ctx, graph and static names. */
void dfgnn__describe(dfgnn_measurement *measurement, const dfgnn_context *ctx,
                     const dfgnn_graph *graph, const dfgnn_problem *problem);

/* Notes in the context's store that the device refused a launch. */
void dfgnn__record_refusal(const dfgnn_plan *plan);

#endif
