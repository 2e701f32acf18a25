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

/* Frees all but the inner graph; r may be NULL. */
void dfgnn__reordered_free(dfgnn_context *ctx, dfgnn_reordered *r);

/* The graph that is tuned and run: the inner one of a graph reordered inside,
 * else the graph itself. */
dfgnn_graph *dfgnn__graph_inner(dfgnn_graph *graph);

/* ---- reorder_plan.c: plans of an inside graph ---------------------------- */

/* A plan of an inside graph around a plan of its inner graph, of which it takes
 * the reference; on failure that stays the caller's. */
dfgnn_status dfgnn__reordered_plan(dfgnn_plan **plan, dfgnn_graph *graph,
                                   dfgnn_plan *inner);

/* Copies what the inner plan reads into its order, behind the inner plan's
 * workspace; *inner_args names the copies. */
dfgnn_status dfgnn__reordered_gather(dfgnn_args *inner_args,
                                     const dfgnn_plan *plan,
                                     const dfgnn_args *args, void *workspace,
                                     void *stream);
/* Copies what the inner plan wrote back into the caller's order. */
dfgnn_status dfgnn__reordered_scatter(const dfgnn_args *inner_args,
                                      const dfgnn_plan *plan,
                                      const dfgnn_args *args, void *workspace,
                                      void *stream);

#endif
