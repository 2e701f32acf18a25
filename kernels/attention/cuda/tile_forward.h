/* tile_forward.h - arguments of the kernels of forward over the TILES view */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_H
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_H

#include <stdint.h>

#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/attention/cuda/edge_mode.h"
#include "kernels/attention/cuda/lanes.h"
#include "kernels/common/tile.h"

typedef struct tile_params {
  const dfgnn_tile *items;
  const int32_t *columns;
  const uint32_t *masks;
  int32_t rows;   /* R of the view: 16 a warp */
  int32_t stages; /* 1 or 2 chunks in shared memory */
  int32_t dense;  /* the columns of an item follow each other */
  int32_t heads;
  tensor_view query, key, value, out;
  const float *row_scalar, *column_scalar; /* GAT */
  const float *beta;
  float *lse;
  float scale, slope;
  /* The matrix, for rows along their edges and for numbers of edges. */
  const void *offsets;
  int32_t offsets64;
  const int32_t *indices;
  const float *bias; /* [E,H], or NULL */
  dropout_params dropout;
} tile_params;

enum {
  TILE_MOST_WIDTH = 128,
  /* Staged rows lie this much further apart than they are long. */
  TILE_PAD_BYTES = 16
};

/* The number of features after padding. */
#define TILE_WIDTH(dim) (((dim) + 31) / 32 * 32)

#endif
