/* partition.h - the methods of dfgnn_csr_partition
 *
 * Every method is a pure function of the graph, so that all ranks find the
 * same. */
#ifndef DFGNN_PARTITION_PARTITION_H
#define DFGNN_PARTITION_PARTITION_H

#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "graph/reorder/reorder.h"

/* In the balance of parts a row counts as its number of edges plus this
 * constant, for the work that a layer does once per node. */
#define DFGNN_PARTITION_NODE 4

static inline int64_t dfgnn__row_work(const dfgnn_csr *csr, int64_t i) {
  return dfgnn__csr_offset(csr, i + 1) - dfgnn__csr_offset(csr, i) +
         DFGNN_PARTITION_NODE;
}

/* The version of a part's file. */
#define DFGNN_PART_FORMAT 1

/* Groups of nodes as the nodes of a smaller graph. */
typedef struct dfgnn__groups {
  int32_t *group; /* [nodes]: the group of each node */
  int64_t *work;  /* [count]: the work of each group's rows */
  int64_t count;
  dfgnn__adjacency graph; /* its nodes are groups; weights count edges */
} dfgnn__groups;

/* Groups nodes by size-constrained label propagation (Meyerhenke, Sanders &
 * Schulz 2014), until the graph of the groups takes no more than `bytes`. */
dfgnn_status dfgnn__groups_build(dfgnn__groups *groups, const dfgnn_csr *csr,
                                 int parts, int64_t bytes);
void dfgnn__groups_free(dfgnn__groups *groups);

/* Moves nodes to the part that most of their neighbours are in, where that
 * leaves no part more than 3 % above its share of the work. */
dfgnn_status dfgnn__refine(int32_t *owner, const dfgnn_csr *csr, int parts);

/* Finds parts by METIS, with balanced sums of work [graph->nodes]. */
dfgnn_status dfgnn__metis_parts(int32_t *part, const dfgnn__adjacency *graph,
                                const int64_t *work, int parts);

#endif
