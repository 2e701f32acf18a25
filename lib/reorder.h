/* reorder.h - graphs made by dfgnn_graph_reorder */
#ifndef DFGNN_LIB_REORDER_H
#define DFGNN_LIB_REORDER_H

#include "lib/plan.h"

/* How a graph was reordered: position p holds the old number order[p]. */
typedef struct dfgnn_reordered {
  int64_t *rows, *columns;            /* host; NULL: as they were */
  void *device_rows, *device_columns; /* int32; of an inside graph */
  size_t bytes;                       /* of device memory */
  dfgnn_graph *inner; /* inside: the reordered graph that runs, else NULL */
} dfgnn_reordered;

void dfgnn__reordered_free(dfgnn_graph *graph);

/* The graph that is tuned and run: itself, or what an inside graph holds. */
dfgnn_graph *dfgnn__graph_inner(dfgnn_graph *graph);

/* A plan for an inside graph around one for its inner graph, of a variant
 * (NULL: the best). */
dfgnn_status dfgnn__reordered_plan(dfgnn_plan **plan, dfgnn_graph *graph,
                                   const dfgnn_problem *problem,
                                   const char *variant);

/* Moves inputs into the order, runs, moves outputs back. */
dfgnn_status dfgnn__reordered_execute(const dfgnn_plan *plan,
                                      const dfgnn_args *args, void *workspace,
                                      void *stream);

#endif
