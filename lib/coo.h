/* coo.h - edge lists in host memory */
#ifndef DFGNN_LIB_COO_H
#define DFGNN_LIB_COO_H

#include "lib/backend.h"

/* The CPU backend's sort_edges: a stable counting sort. */
dfgnn_status dfgnn__sort_edges(dfgnn_device *device, dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo, void *stream);

#endif
