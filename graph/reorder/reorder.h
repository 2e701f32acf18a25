/* reorder.h - the methods of dfgnn_csr_order, one file each
 *
 * A method orders the nodes of an undirected graph: order[p] is the node that
 * comes to position p.  Every method is a pure function of the graph, with ties
 * broken by the lower node, so that all ranks of a job find the same. */
#ifndef DFGNN_REORDER_REORDER_H
#define DFGNN_REORDER_REORDER_H

#include "dfgnn.h"
#include "dfgnn_graph.h"

/* An undirected graph without self loops, the neighbours of a node ascending
 * and distinct; the weight of {i, j} is how many edges lead from i to j and
 * from j to i. */
typedef struct dfgnn__adjacency {
  int64_t nodes;
  int64_t *offsets; /* [nodes + 1] */
  int32_t *neighbors, *weights;
} dfgnn__adjacency;

/* Builds the graph of A + A^T for a square matrix A; for a rectangular one, the
 * bipartite graph of its rows 0 .. N - 1 and columns N .. N + M - 1. */
dfgnn_status dfgnn__adjacency_build(dfgnn__adjacency *graph,
                                    const dfgnn_csr *csr);
void dfgnn__adjacency_free(dfgnn__adjacency *graph);

/* Orders nodes by falling degree, the sum of in-degree and out-degree; the
 * nodes of a rectangular matrix are its rows, and then its columns as N .. N +
 * M - 1. */
dfgnn_status dfgnn__order_degree(int32_t *order, const dfgnn_csr *csr);

/* Orders by reverse Cuthill-McKee (Cuthill & McKee 1969, George & Liu 1981). */
dfgnn_status dfgnn__order_rcm(int32_t *order, const dfgnn__adjacency *graph);

/* Divides nodes into parts by METIS (Karypis & Kumar 1998), so that the weights
 * of nodes (NULL: all alike) are balanced and little weight of edges is between
 * parts; part [nodes] gets each node's.  METIS draws from the random numbers of
 * the C library, so one call of a process runs at a time. */
dfgnn_status dfgnn__metis_partition(int32_t *part,
                                    const dfgnn__adjacency *graph,
                                    int32_t *weight, int32_t parts);

/* Orders nodes by METIS's parts, one after the other. */
dfgnn_status dfgnn__order_metis(int32_t *order, const dfgnn__adjacency *graph);

/* Orders by merging communities (Arai et al. 2016).  community (may be NULL)
 * gets the same number for all nodes of an outermost community. */
dfgnn_status dfgnn__order_community(int32_t *order, int32_t *community,
                                    const dfgnn__adjacency *graph);

/* Orders nodes by rising key, which is 0 or more; ties by node. */
dfgnn_status dfgnn__order_by_key(int32_t *order, const int64_t *key,
                                 int64_t count);

/* 1 if the library was built with the method. */
int dfgnn__order_built(dfgnn_order order);

#endif
