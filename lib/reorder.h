/* reorder.h - graphs made by dfgnn_graph_reorder */
#ifndef DFGNN_LIB_REORDER_H
#define DFGNN_LIB_REORDER_H

#include "lib/plan.h"

/* How a graph was reordered: position p holds the old number order[p]. */
typedef struct dfgnn_reordered {
  int64_t *rows, *columns;            /* host; NULL: in the old order */
  void *device_rows, *device_columns; /* int32; of a graph reordered inside */
  size_t bytes;                       /* of device memory */
  dfgnn_graph *inner; /* the graph that runs if reordered inside, else NULL */
} dfgnn_reordered;

void dfgnn__reordered_free(dfgnn_graph *graph);

/* The graph that is tuned and run: the inner one of a graph reordered inside,
 * else the graph itself. */
dfgnn_graph *dfgnn__graph_inner(dfgnn_graph *graph);

/* Makes a plan of a graph reordered inside, around a plan of its inner graph
 * with this variant (NULL: the best). */
dfgnn_status dfgnn__reordered_plan(dfgnn_plan **plan, dfgnn_graph *graph,
                                   const dfgnn_problem *problem,
                                   const char *variant);

/* Moves inputs into the order, runs, moves outputs back. */
dfgnn_status dfgnn__reordered_execute(const dfgnn_plan *plan,
                                      const dfgnn_args *args, void *workspace,
                                      void *stream);

#endif
