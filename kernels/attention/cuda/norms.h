/* norms.h - arguments of inverse_norms() */
#ifndef DFGNN_ATTENTION_CUDA_NORMS_H
#define DFGNN_ATTENTION_CUDA_NORMS_H

#include "kernels/attention/cuda/lanes.h"

typedef struct norms_params {
  void *inverse; /* [nodes,H] */
  tensor_view tensor;
  int64_t pairs; /* nodes times heads */
  int heads, dim;
  int lanes; /* lanes of a pair, a power of two */
} norms_params;

#endif
