/* graph.h - a validated CSR matrix on a device, its views and its plans */
#ifndef DFGNN_LIB_GRAPH_H
#define DFGNN_LIB_GRAPH_H

#include <pthread.h>

#include "lib/context.h"

struct dfgnn_graph {
  uint32_t kind; /* lib/handle.h */
  dfgnn_context *ctx;
  dfgnn_matrix matrix;
  dfgnn_signature signature;
  char *family, *name;                 /* "" if not given */
  void *owned_offsets, *owned_indices; /* device copies, or NULL */
  void *edge_order; /* of an edge list that was sorted, or NULL */
  size_t owned_bytes;
  atomic_int elsewhere; /* work on it was put on other streams than NULL */

  pthread_mutex_t lock; /* guards views */
  struct dfgnn_view_node *views;
  size_t view_bytes;

  pthread_rwlock_t plans_lock;
  dfgnn_plan **plans; /* open addressing, capacity a power of two */
  size_t plan_count, plan_capacity;
  dfgnn_plan *alive; /* all plans of the graph, cached or not */

  struct dfgnn_reordered *reordered; /* lib/reorder.h; NULL: it was not */
};

/* dfgnn_graph_create of a csr that was checked: on the device, and analyzed if
 * signature is not NULL. */
dfgnn_status dfgnn__graph_make(dfgnn_graph **graph, dfgnn_context *ctx,
                               const dfgnn_csr *csr,
                               const dfgnn_signature *signature);

/* The view, built now if it is the first request. */
dfgnn_status dfgnn__graph_view(const dfgnn_view **view, dfgnn_graph *graph,
                               const dfgnn_view_request *request);

/* lib/plan.c: drops the cached plans of a graph. */
void dfgnn__graph_forget_plans(dfgnn_graph *graph);
/* Tells the plans that are left that their graph is gone; returns how many. */
int dfgnn__graph_orphan_plans(dfgnn_graph *graph);

#endif
