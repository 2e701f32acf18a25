/* dropout_params.h - arguments of attention dropout in a kernel */
#ifndef DFGNN_ATTENTION_CUDA_DROPOUT_PARAMS_H
#define DFGNN_ATTENTION_CUDA_DROPOUT_PARAMS_H

#include <stdint.h>

typedef struct dropout_params {
  int on;
  uint32_t threshold;
  double keep;          /* 1 / (1 - p) */
  const uint64_t *seed; /* in device memory; NULL: seed_value */
  uint64_t seed_value;
  const int64_t *number; /* numbers of edges; NULL: places in the matrix */
} dropout_params;

#endif
