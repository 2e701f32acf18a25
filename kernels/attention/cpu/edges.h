/* edges.h - the edge features of a launch on a CPU
 *
 * An edge adds a row of features to the keys, and of GT to the values, of all
 * heads: its part, W e + b, or e itself if the caller has projected it.
 * heads_edges.h computes parts.
 *
 * Heads are taken side by side, whatever they are: where they do not fill
 * vectors, or do not lie together, tensors are copied to rows that do, with
 * zeros between the heads. */
#ifndef DFGNN_ATTENTION_CPU_EDGES_H
#define DFGNN_ATTENTION_CPU_EDGES_H

#include "kernels/attention/cpu/attention.h"

typedef struct dfgnn_cpu_edges {
  int64_t dim;       /* of a head, without padding */
  int64_t features;  /* of an edge: F; 0: they are projected */
  int64_t width;     /* numbers of an edge: F, or heads x dim */
  const char *attr;  /* [edges, width] scalar */
  char *grad_attr;   /* NULL: not wanted */
  const void *order; /* the row of each edge in both, as wide as offsets; NULL:
                      * its number */
  int offsets64;
  int keys, values; /* are parts added to keys, to values? */
  int careful; /* are edges whose weight is 0 left out?  0 times an infinity is
                * NaN; a W or b that is not finite spoils them, too */
  const void *weight;     /* [heads, dim, F] scalars; NULL: projected */
  const void *transposed; /* [F, heads, dim] scalars */
  const void *bias;       /* [heads, dim] scalars, or NULL */
  const void *att;        /* [heads, dim] scalar; GATv2 */
} dfgnn_cpu_edges;

/* The row of an edge's features. */
static inline int64_t dfgnn__cpu_edges_row(const dfgnn_cpu_edges *edges,
                                           int64_t e) {
  return edges->order ? dfgnn__index_at(edges->order, edges->offsets64, e) : e;
}

#endif
