/* mlp.h - the harness of an MLP on edges: its tensors, and the check of a plan
 *
 * An MLP is checked on its graph, or on a part of it where the evaluation in
 * double would take seconds; then it runs on the whole graph for its guards. */
#ifndef DFGNN_TUNER_MLP_H
#define DFGNN_TUNER_MLP_H

#include "tuner/harness.h"

typedef struct dfgnn_mlp_harness dfgnn_mlp_harness;

/* Fills in what args say of an MLP; the tensors live as long as the harness. */
dfgnn_status dfgnn__mlp_harness_create(dfgnn_mlp_harness **harness,
                                       dfgnn_args *args, dfgnn_graph *graph,
                                       const dfgnn_problem *problem,
                                       uint64_t seed);
void dfgnn__mlp_harness_free(dfgnn_mlp_harness *harness);
/* DFGNN_ERROR_WRONG if a number is further off than its bound, or a guard is
 * overwritten. */
dfgnn_status dfgnn__mlp_harness_check(dfgnn_accuracy *accuracy,
                                      dfgnn_mlp_harness *harness,
                                      const dfgnn_plan *plan, void *workspace);

#endif
