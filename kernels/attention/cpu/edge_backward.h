/* edge_backward.h - the walks of the gradients with edge features
 *
 * A walk over rows computes P r and dS of every edge and head, leaves them in
 * memory for the columns, and writes the gradients of rows and edges.  Those of
 * W, b and att are summed by parts of the rows, which are the same for any
 * number of threads. */
#ifndef DFGNN_ATTENTION_CPU_EDGE_BACKWARD_H
#define DFGNN_ATTENTION_CPU_EDGE_BACKWARD_H

#include "kernels/attention/cpu/backward.h"
#include "kernels/attention/cpu/edges.h"

typedef struct dfgnn_cpu_edge_backward {
  dfgnn_cpu_edges edges;
  dfgnn_cpu_backward nodes;
  const dfgnn_problem *problem;
  const dfgnn_args *args;
  char *parts; /* of part_bytes each */
  int64_t part_count;
  size_t part_bytes;
} dfgnn_cpu_edge_backward;

/* Sums of a part, of scalars; NULL: not wanted. */
typedef struct dfgnn_cpu_edge_sums {
  void *weight; /* [heads dim, F] */
  void *bias;   /* [heads dim] */
  void *att;    /* [heads dim] GATv2 */
} dfgnn_cpu_edge_sums;

typedef struct dfgnn_cpu_edge_part {
  const dfgnn_cpu_edge_backward *w;
  dfgnn_cpu_edge_sums sums;
} dfgnn_cpu_edge_part;

static inline int dfgnn__cpu_edge_sums_wanted(const dfgnn_cpu_edge_sums *p) {
  return p->weight || p->bias;
}

#endif
