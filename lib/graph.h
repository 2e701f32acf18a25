/* graph.h - a validated CSR matrix on a device, its views and its plans */
#ifndef DFGNN_LIB_GRAPH_H
#define DFGNN_LIB_GRAPH_H

#include <pthread.h>

#include "lib/context.h"

struct dfgnn_graph {
  uint32_t kind; /* lib/handle.h */
  dfgnn_context *ctx;
  /* As long as the signature is not known, max_degree of the matrix is a bound
   * and a guess by its shape stands for the signature.  lib/graph_signature.c
   */
  dfgnn_matrix matrix, exact;
  dfgnn_signature guess, signature;
  atomic_int known;
  int checked; /* or trusted: the matrix may be used before it is known */
  struct dfgnn_deferred *pending; /* its analysis is under way, or NULL */
  int64_t graphs;
  int64_t *graph_ptr;   /* kept until it is known, or NULL */
  dfgnn_status refusal; /* of a matrix that is checked late */
  char *complaint;
  char *family, *name;                 /* "" if not given */
  void *owned_offsets, *owned_indices; /* device copies, or NULL */
  void *edge_order; /* of an edge list that was sorted, or NULL */
  size_t owned_bytes;
  atomic_int elsewhere; /* work on it was put on other streams than NULL */

  pthread_mutex_t order_lock; /* guards what follows, which is read without */
  void *mark;                 /* lib/graph_order.c */
  atomic_uintptr_t behind;    /* a stream that comes behind the mark */
  atomic_int unsettled;       /* others may not */

  pthread_mutex_t lock; /* guards views */
  struct dfgnn_view_node *views;
  size_t view_bytes;

  pthread_rwlock_t plans_lock;
  dfgnn_plan **plans; /* open addressing, capacity a power of two */
  size_t plan_count, plan_capacity;
  dfgnn_plan *alive; /* all plans of the graph, cached or not */

  struct dfgnn_reordered *reordered; /* lib/reorder.h; NULL: it was not */
};

/* dfgnn_graph_create of a csr that was checked; of what an edge list became, if
 * sorted is not NULL, whose arrays it takes on success. */
dfgnn_status dfgnn__graph_make(dfgnn_graph **graph, dfgnn_context *ctx,
                               const dfgnn_csr *csr,
                               const dfgnn_sorted_edges *sorted);

/* A graph with its locks and names, and nothing else yet.  If it fails *graph
 * is NULL or is to be destroyed. */
dfgnn_status dfgnn__graph_start(dfgnn_graph **graph, dfgnn_context *ctx,
                                const char *family, const char *name);

/* lib/graph_place.c: an array where the device can read it; *owned is a copy of
 * it, or NULL. */
dfgnn_status dfgnn__graph_place(const void **placed, void **owned,
                                dfgnn_graph *graph, const void *array,
                                size_t bytes, int on_device);
/* The same for an array of csr->edges indices of csr->index_type, which becomes
 * 32-bit. */
dfgnn_status dfgnn__graph_place_indices(const void **placed, void **owned,
                                        dfgnn_graph *graph, const void *array,
                                        const dfgnn_csr *csr);
/* lib/graph_columns.c: the transposed view, if csr has columns. */
dfgnn_status dfgnn__graph_take_columns(dfgnn_graph *graph,
                                       const dfgnn_csr *csr);

/* What is on the stream now makes the graph's arrays. */
void dfgnn__graph_mark(dfgnn_graph *graph, void *stream);
/* What is put on the stream next may use them. */
dfgnn_status dfgnn__graph_follow(dfgnn_graph *graph, void *stream);
/* They are there. */
dfgnn_status dfgnn__graph_settle(dfgnn_graph *graph);

/* Fills the guess. */
void dfgnn__graph_guess(dfgnn_graph *graph, int64_t graphs,
                        const int64_t *graph_ptr);
void dfgnn__graph_set_known(dfgnn_graph *graph,
                            const dfgnn_signature *signature);
/* Is the signature there? */
static inline int dfgnn__graph_known(const dfgnn_graph *graph) {
  return atomic_load_explicit(&((dfgnn_graph *)graph)->known,
                              memory_order_acquire);
}
/* Makes it so, which may wait for the device.  Fails with what is wrong with a
 * matrix that is checked only now. */
dfgnn_status dfgnn__graph_know(dfgnn_graph *graph);

/* lib/graph_views.c: the view, built now if this is the first request. */
dfgnn_status dfgnn__graph_view(const dfgnn_view **view, dfgnn_graph *graph,
                               const dfgnn_view_request *request);
/* Adds a view that is there already; borrowed: bits of arrays that are not the
 * graph's. */
dfgnn_status dfgnn__graph_add_view(dfgnn_graph *graph, const dfgnn_view *view,
                                   unsigned borrowed);
/* Frees the views; release() gets each array that is the graph's own, or NULL.
 */
void dfgnn__graph_free_views(dfgnn_graph *graph,
                             void (*release)(const void *data,
                                             const void *memory),
                             const void *data);

/* lib/plan_cache.c: drops the plans that the graph keeps. */
void dfgnn__graph_forget_plans(dfgnn_graph *graph);
/* lib/plan.c: tells the plans that are left that their graph is gone; returns
 * how many. */
int dfgnn__graph_orphan_plans(dfgnn_graph *graph);

#endif
