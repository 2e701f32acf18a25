/* backend_cuda_coo.h - an edge list that becomes a graph on the device */
#ifndef DFGNN_LIB_BACKEND_CUDA_COO_H
#define DFGNN_LIB_BACKEND_CUDA_COO_H

#include "lib/backend_cuda.h"

typedef struct dfgnn_edge_list {
  dfgnn_device *device;
  const dfgnn_coo *coo;
  dfgnn_queue queue;     /* of the caller's stream */
  const void *dst, *src; /* in device memory */
  int wide;
  int deferred; /* may the host go on before the checks are done? */
  int analyzed; /* at once; else only the edges' ends are checked, if at all */
  int64_t loops, graphs;
  void *found; /* workspace of the analysis, or an edge_counts, or NULL */
  dfgnn_graph_counts counts; /* the counts of `found`, on the host */
} dfgnn_edge_list;

/* lib/backend_cuda_list.c: waits for the counts of `found`, if there are any,
 * and fails if an edge is out of range. */
dfgnn_status dfgnn__cuda_list_found(dfgnn_edge_list *l);

/* lib/backend_cuda_both.c: 1 if the list is to become a matrix with its
 * transpose, all in one allocation. */
int dfgnn__cuda_goes_both_ways(const dfgnn_edge_list *l);
/* Makes the arrays, in the order of the caller's stream. */
dfgnn_status dfgnn__cuda_sort_both_ways(dfgnn_edge_list *l,
                                        dfgnn_sorted_edges *sorted);

#endif
