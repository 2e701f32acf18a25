/* compile.h - compiles candidates on all cores while others are timed */
#ifndef DFGNN_TUNER_COMPILE_H
#define DFGNN_TUNER_COMPILE_H

#include "tuner/candidates.h"

/* The problem that dfgnn_tune measures on a graph for a given one, complete. */
dfgnn_status dfgnn__tuned_problem(dfgnn_problem *complete,
                                  const dfgnn_graph *graph,
                                  const dfgnn_problem *problem);

/* Waits for the body of a problem that is an edge program on a CPU. */
void dfgnn__compile_body(const dfgnn_graph *graph,
                         const dfgnn_problem *problem);

typedef struct dfgnn_compile_ahead dfgnn_compile_ahead;

/* How many candidates are worth compiling within a budget: others would not be
 * ready before it is spent, and the search's end waits for those begun. */
size_t dfgnn__compile_ahead_most(double budget_s, int processors);
/* Starts compiling the programs of the trials, the anchor's first, then in
 * their order; *ahead is NULL where nothing is compiled.  beside: steps run
 * meanwhile, and get most of the processors.  Stop it before trials and graph
 * are freed. */
void dfgnn__compile_ahead_start(dfgnn_compile_ahead **ahead,
                                const dfgnn_trials *trials,
                                const dfgnn_graph *graph,
                                const dfgnn_problem *problem, double budget_s,
                                int beside);
/* Waits for the programs that are being compiled; NULL is allowed. */
void dfgnn__compile_ahead_stop(dfgnn_compile_ahead *ahead);

#endif
