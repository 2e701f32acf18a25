/* values.h - for C: the values of a sparse matrix as cuSPARSE wants
 * them, and what it does not do */
#ifndef DFGNN_SPMM_CUDA_SPMM_VALUES_H
#define DFGNN_SPMM_CUDA_SPMM_VALUES_H

#include "kernels/common/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the matrix, or of its transpose if there are edge_ids. */
typedef struct dfgnn_spmm_values {
  float *to;    /* [edges] */
  int64_t rows; /* of the matrix of offsets and indices */
  int64_t edges;
  int wide; /* offsets and edge ids are 64-bit */
  const void *offsets, *edge_ids;
  const int32_t *indices;
  const float *row_scale, *gathered_scale, *weights; /* NULL: 1 */
  int64_t heads, head;                               /* of the weights */
  int mean; /* over the edges of destinations */
  const void *destination_offsets;
} dfgnn_spmm_values;

dfgnn_status dfgnn__spmm_values(const dfgnn_spmm_values *values, void *stream);

/* The sums of a pass by kernels of ours, at any strides.  scales: of the
 * backward pass of means, a number a destination. */
dfgnn_status dfgnn__spmm_plain(const dfgnn_launch *launch,
                               const dfgnn_view *transpose, void *scales);
/* Writes args->grad_edge_weight. */
dfgnn_status dfgnn__spmm_grad_weights(const dfgnn_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
