/* tile_order.h - arguments of find_disorder() */
#ifndef DFGNN_ATTENTION_CUDA_TILE_ORDER_H
#define DFGNN_ATTENTION_CUDA_TILE_ORDER_H

#include <stdint.h>

typedef struct tile_order_params {
  const void *offsets;
  int32_t offsets64;
  const int32_t *indices;
  int64_t rows;
  int32_t *found; /* becomes 1 if the columns of some row fall */
} tile_order_params;

#endif
