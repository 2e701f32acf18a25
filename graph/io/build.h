/* build.h - makes a dfgnn_csr that owns its arrays from CSR parts or edges */
#ifndef DFGNN_IO_BUILD_H
#define DFGNN_IO_BUILD_H

#include "dfgnn.h"
#include "lib/base/error.h"

/* Parts of a graph under construction; all arrays are malloc'd. */
typedef struct dfgnn__parts {
  int64_t destinations, sources, edges;
  int64_t *offsets;
  int32_t *indices;
  int64_t graphs;
  int64_t *graph_ptr;
  float *edge_attr; /* [edges, 3], or NULL; see sphere.h */
} dfgnn__parts;

void dfgnn__parts_free(dfgnn__parts *parts);

/* Takes the arrays over, also on failure.  Offsets become 32 bits wide where
 * the edges fit.  name is copied. */
dfgnn_status dfgnn__csr_own(dfgnn_csr **csr, dfgnn__parts *parts,
                            const char *name);

/* dfgnn__csr_own with the base name of a path, without its extensions. */
dfgnn_status dfgnn__csr_own_path(dfgnn_csr **csr, dfgnn__parts *parts,
                                 const char *path);

typedef struct dfgnn__edge {
  int32_t row, column;
} dfgnn__edge;

/* A growing list of edges. */
typedef struct dfgnn__edges {
  dfgnn__edge *edge;
  int64_t count, capacity;
} dfgnn__edges;

dfgnn_status dfgnn__edges_grow(dfgnn__edges *edges);
void dfgnn__edges_free(dfgnn__edges *edges);

static inline dfgnn_status dfgnn__edges_add(dfgnn__edges *edges, int32_t row,
                                            int32_t column) {
  if (edges->count == edges->capacity)
    DFGNN_TRY(dfgnn__edges_grow(edges));
  edges->edge[edges->count++] = (dfgnn__edge){row, column};
  return DFGNN_OK;
}

/* Sorts edges, which are within destinations x sources, into CSR with columns
 * ascending; releases the list. */
dfgnn_status dfgnn__edges_compress(dfgnn__parts *parts, dfgnn__edges *edges,
                                   int64_t destinations, int64_t sources);

/* Sorts count non-negative keys; scratch holds as many. */
void dfgnn__sort(int32_t *keys, int32_t *scratch, int64_t count);

/* Sorts the columns of every row. */
dfgnn_status dfgnn__sort_rows(dfgnn__parts *parts);

#endif
