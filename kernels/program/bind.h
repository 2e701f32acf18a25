/* bind.h - the numbers behind a program's sizes */
#ifndef DFGNN_PROGRAM_BIND_H
#define DFGNN_PROGRAM_BIND_H

#include "kernels/program/dag.h"

enum {
  DFGNN_BIND_ROW = 1 << 14,     /* elements of a value, but of a parameter's */
  DFGNN_BIND_PRODUCTS = 1 << 14 /* of a linear map, for each edge */
};

typedef struct dfgnn_binding {
  int64_t names[DFGNN_SIZE_NAMES]; /* 0: not known yet */
  int64_t counts[DFGNN_PLACES];    /* 1, 1, N, M, E */
} dfgnn_binding;

/* The axes of a node, and how many elements they have. */
typedef struct dfgnn_extent {
  int64_t axis[DFGNN_DAG_AXES], all;
} dfgnn_extent;

/* Gives names of sizes the numbers that make the axes of an input those of a
 * tensor. */
dfgnn_status dfgnn__bind_input(dfgnn_binding *binding, const dfgnn_dag *dag,
                               const dfgnn_port *port, const int64_t *axes);
/* The extents of all nodes, which fit together and into the limits; `extents`
 * has dag->count. */
dfgnn_status dfgnn__bind_nodes(dfgnn_extent *extents, const dfgnn_dag *dag,
                               const dfgnn_binding *binding);
/* The extent of an output. */
dfgnn_extent dfgnn__bind_port(const dfgnn_port *port,
                              const dfgnn_binding *binding);

#endif
