/* graph.h - a validated CSR matrix on a device, its views and its plans */
#ifndef DFGNN_LIB_GRAPH_H
#define DFGNN_LIB_GRAPH_H

#include <pthread.h>

#include "lib/context.h"

struct dfgnn_graph {
  uint32_t kind; /* lib/handle.h */
  dfgnn_context *ctx;
  /* As long as the signature is not known, max_degree of the matrix is a bound,
   * its edges may be one, and a guess by its shape stands for the signature:
   * see lib/graph_signature.c. */
  dfgnn_matrix matrix, exact;
  dfgnn_signature guess, signature;
  atomic_int known;
  int checked; /* the matrix is checked or trusted: its use need not wait */
  /* matrix.edges is a bound, since self loops were left out: only the device
   * knows how many edges there are, and what follows them are none */
  int edges_bound;
  int fresh; /* a batch's, whose host has waited for nothing so far */
  struct dfgnn_deferred *pending; /* the analysis that is under way, or NULL */
  int64_t graphs;
  int64_t *graph_ptr;   /* kept until the signature is known, or NULL */
  dfgnn_status refusal; /* the error found in a matrix that is checked late */
  char *complaint;
  char *family, *name;                 /* "" if not given */
  void *owned_offsets, *owned_indices; /* device copies, or NULL */
  const void *edge_order; /* the position of each edge in its list, or NULL */
  const uint64_t *was_unsorted; /* on the device: 0 if edge_order is the list's
                                 * own; NULL once that is known */
  void *owned_order;            /* the same, or NULL */
  void *owned_memory; /* one allocation with several of these arrays */
  size_t owned_bytes;
  atomic_uintptr_t used_on; /* see lib/graph_order.c */

  /* lib/graph_order.c; the lock guards changes, atomics are read without it */
  pthread_mutex_t order_lock;
  void *mark;              /* when the graph's arrays are made */
  atomic_uintptr_t behind; /* a stream whose work comes after the mark */
  atomic_int unsettled;    /* other streams have to wait for the mark */

  pthread_mutex_t lock; /* guards views */
  struct dfgnn_view_node *views;
  size_t view_bytes;

  pthread_rwlock_t plans_lock;
  dfgnn_plan **plans; /* open addressing, capacity a power of two */
  size_t plan_count, plan_capacity;
  dfgnn_plan *alive; /* all plans of the graph, cached or not */
};

/* dfgnn_graph_create_csr with a csr that was checked.  sorted, if not NULL: csr
 * was made of an edge list, and the graph takes its arrays on success. */
dfgnn_status dfgnn__graph_make(dfgnn_graph **graph, dfgnn_context *ctx,
                               const dfgnn_csr *csr, void *stream,
                               const dfgnn_sorted_edges *sorted);

/* Checks how many nodes, edges and graphs of a batch a graph is to have; what:
 * "csr", for messages. */
dfgnn_status dfgnn__check_sizes(const char *what, int64_t destinations,
                                int64_t sources, int64_t edges, int64_t graphs,
                                const int64_t *graph_ptr);

/* lib/graph_place.c: puts an array where the device can read it; *owned is a
 * copy, or NULL. */
dfgnn_status dfgnn__graph_place(const void **placed, void **owned,
                                dfgnn_graph *graph, const void *array,
                                size_t bytes, int on_device);
/* Puts csr->edges indices of csr->index_type there, as int32. */
dfgnn_status dfgnn__graph_place_indices(const void **placed, void **owned,
                                        dfgnn_graph *graph, const void *array,
                                        const dfgnn_csr *csr);
/* lib/graph_columns.c: adds the TRANSPOSE view, if csr has columns. */
dfgnn_status dfgnn__graph_take_columns(dfgnn_graph *graph,
                                       const dfgnn_csr *csr);

/* lib/graph_relations.c: the matrix whose columns are relations; its TRANSPOSE
 * view is a RELATIONS view. */
dfgnn_matrix dfgnn__graph_by_relation(const dfgnn_matrix *matrix,
                                      const int32_t *relation, int64_t count);

/* Notes that work with the graph is put on a stream. */
void dfgnn__graph_used(dfgnn_graph *graph, void *stream);
/* Of which stream the work with the graph was: *stream, NULL if there was none.
 * 0 if there were several. */
int dfgnn__graph_stream(const dfgnn_graph *graph, void **stream);
/* Notes that the work which is on the stream now makes the graph's arrays. */
void dfgnn__graph_mark(dfgnn_graph *graph, void *stream);
/* Makes work that is put on the stream from now on wait for the arrays. */
dfgnn_status dfgnn__graph_follow(dfgnn_graph *graph, void *stream);
/* Waits until the arrays are made. */
dfgnn_status dfgnn__graph_settle(dfgnn_graph *graph);

/* Fills the guess at the signature. */
void dfgnn__graph_guess(dfgnn_graph *graph, int64_t graphs,
                        const int64_t *graph_ptr);
void dfgnn__graph_set_known(dfgnn_graph *graph,
                            const dfgnn_signature *signature);
/* Is the signature known? */
static inline int dfgnn__graph_known(const dfgnn_graph *graph) {
  return atomic_load_explicit(&((dfgnn_graph *)graph)->known,
                              memory_order_acquire);
}
/* The matrix, as far as it is known. */
static inline const dfgnn_matrix *
dfgnn__graph_matrix(const dfgnn_graph *graph) {
  return dfgnn__graph_known(graph) ? &graph->exact : &graph->matrix;
}
/* Makes the signature known, which may wait for the device.  Fails if the
 * matrix, which is checked only now, is wrong. */
dfgnn_status dfgnn__graph_know(dfgnn_graph *graph);

/* Makes the number of edges known, which may wait for the device. */
dfgnn_status dfgnn__graph_count(dfgnn_graph *graph);

/* lib/graph_views.c: the view, built now if this is the first request. */
dfgnn_status dfgnn__graph_view(const dfgnn_view **view, dfgnn_graph *graph,
                               const dfgnn_view_request *request);
/* Adds a view that is built already; borrowed: bits of the arrays that do not
 * belong to the graph. */
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
