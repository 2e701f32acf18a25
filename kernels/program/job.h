/* job.h - a program, its tensors and a graph */
#ifndef DFGNN_KERNELS_PROGRAM_JOB_H
#define DFGNN_KERNELS_PROGRAM_JOB_H

#include "kernels/common/variant.h"
#include "program/lower.h"

/* A dense tensor: the rows of its place one after the other. */
typedef struct dfgnn_program_array {
  void *data; /* an input's is only read */
  dfgnn_dtype dtype;
} dfgnn_program_array;

typedef struct dfgnn_program_job {
  const dfgnn_lowered *lowered;
  const dfgnn_binding *binding;
  const dfgnn_extent *extents; /* of lowered->dag */
  dfgnn_matrix rows, columns;  /* columns: by source */
  const void *column_edges;    /* [E]: positions in rows of columns' edges, of
                                * the type of offsets */
  const dfgnn_program_array *inputs, *outputs;
  uint64_t seed; /* of dropout */
  int threads;
} dfgnn_program_job;

/* Does any walk go over columns? */
int dfgnn__program_needs_columns(const dfgnn_lowered *lowered);

/* Runs the program in blocks of edges that stay in the cache.  Sums are of
 * double if a tensor is F64, else of float, in an order that does not depend on
 * the number of threads. */
dfgnn_status dfgnn__program_cpu(const dfgnn_program_job *job);

/* The plain evaluation in double, each value for all places at once, with a
 * bound of how far one in sums of type `dtype` may be from it.  values[i] and
 * bounds[i] are those of output i, [count, elements]. */
dfgnn_status dfgnn__program_reference(const dfgnn_program_job *job,
                                      const dfgnn_dag *dag, dfgnn_dtype dtype,
                                      double **values, double **bounds);

#endif
