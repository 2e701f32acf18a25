/* program.h - the harness of an edge program: tensors for its inputs and
 * outputs, and what they should be
 *
 * A program is checked on its graph, or on a part of it where the evaluation in
 * double, which keeps every value of every edge, would take too long: rows that
 * are spread over the graph, with the longest among them. */
#ifndef DFGNN_TUNER_PROGRAM_H
#define DFGNN_TUNER_PROGRAM_H

#include "tuner/harness.h"

typedef struct dfgnn_program_harness dfgnn_program_harness;

/* Fills in what args say of a program; the tensors live as long as the harness.
 */
dfgnn_status dfgnn__program_harness_create(dfgnn_program_harness **harness,
                                           dfgnn_args *args, dfgnn_graph *graph,
                                           const dfgnn_problem *problem,
                                           uint64_t seed);
void dfgnn__program_harness_free(dfgnn_program_harness *harness);
/* dfgnn__harness_check, with a workspace for the plan. */
dfgnn_status dfgnn__program_harness_check(dfgnn_accuracy *accuracy,
                                          dfgnn_program_harness *harness,
                                          const dfgnn_plan *plan,
                                          void *workspace);

#endif
