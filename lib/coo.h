/* coo.h - edge lists in host memory */
#ifndef DFGNN_LIB_COO_H
#define DFGNN_LIB_COO_H

#include "lib/backend.h"

/* Makes the matrix of a list in host memory, by a stable counting sort.  That
 * of at most DFGNN_FEW_EDGES edges is sorted by columns in the same passes:
 * such graphs are those of batches, which a step reads in both directions and
 * then forgets. */
dfgnn_status dfgnn__sort_edges(dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo);
/* Frees the arrays of a list that was sorted in host memory. */
void dfgnn__sorted_edges_free(dfgnn_sorted_edges *sorted);

/* The number of self loops that coo asks for. */
int64_t dfgnn__coo_loops(const dfgnn_coo *coo);

#endif
