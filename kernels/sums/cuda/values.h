/* values.h - the values of a sparse matrix as cuSPARSE wants them */
#ifndef DFGNN_SUMS_CUDA_VALUES_H
#define DFGNN_SUMS_CUDA_VALUES_H

#include <stdint.h>

/* The arguments of fill_values, for the edges of the matrix or, if there are
 * edge_ids, of its transpose. */
typedef struct dfgnn_spmm_values {
  float *to;    /* [edges] */
  int64_t rows; /* of the matrix of offsets and indices */
  int64_t edges;
  int wide; /* offsets and edge ids are 64-bit */
  const void *offsets, *edge_ids;
  const int32_t *indices;
  const float *row_scale, *gathered_scale, *weights; /* NULL: 1 */
  int64_t heads, head;                               /* of the weights */
  int mean; /* values are divided by the destinations' degrees */
  const void *destination_offsets;
} dfgnn_spmm_values;

#endif
