/* weights.h - arguments of the gradient of edge weights */
#ifndef DFGNN_SUMS_CUDA_WEIGHTS_H
#define DFGNN_SUMS_CUDA_WEIGHTS_H

#include "kernels/common/cuda_gather.h"

enum {
  WEIGH_RUN = 64,     /* edges of a group of lanes */
  WEIGH_THREADS = 128 /* threads of a block */
};

typedef struct weigh_params {
  int64_t edges;
  csr_offsets offsets;
  const int *indices;
  int rows, heads, dim;
  feature_tensor grad, value;
  const void *row_scale, *gathered_scale;
  void *to;
} weigh_params;

#endif
