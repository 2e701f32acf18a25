/* coo.h - edge lists in host memory */
#ifndef DFGNN_LIB_COO_H
#define DFGNN_LIB_COO_H

#include "lib/backend.h"

/* Makes the matrix of a list in host memory, by a stable counting sort. */
dfgnn_status dfgnn__sort_edges(dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo);

/* The number of self loops that coo asks for. */
int64_t dfgnn__coo_loops(const dfgnn_coo *coo);

#endif
