/* tile_forward.h - what host code and the kernels of
 * cuda_tile_forward.cuh share */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_H
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_H

#include "kernels/attention/cuda/attend.h"
#include "kernels/common/tiles.h"

namespace dfgnn {

struct tile_params {
  const dfgnn_tile *items;
  const int *columns;
  const unsigned *masks;
  int rows;   /* R of the view: 16 a warp */
  int stages; /* 1 or 2 chunks in shared memory */
  int dense;  /* the columns of an item follow each other */
  int heads, dim;
  int wide; /* tensors may be read and written by 16 bytes */
  tensor_view query, key, value, out;
  const float *row_scalar, *column_scalar; /* GAT */
  const void *att;
  const float *beta;
  float *partial, *partial_state; /* [slot][head][R] of W sums, of m and l */
  float *lse;
  float scale, slope;
  /* The matrix, for rows that tiles cannot do. */
  const void *offsets;
  int offsets64;
  const int *indices;
};

constexpr int kTileMostWidth = 128;

/* Features are padded to this many; 0: too many. */
constexpr int tile_width(int64_t dim) {
  return dim <= 32               ? 32
         : dim <= 64             ? 64
         : dim <= kTileMostWidth ? kTileMostWidth
                                 : 0;
}

/* Staged rows lie this much further apart than they are long. */
constexpr int kTilePadBytes = 16;

/* The kernel of an operator and width, or NULL. */
typedef const void *tile_finder(int op, int width);
tile_finder tile_forward_f32, tile_forward_tf32, tile_forward_f16,
    tile_forward_bf16;

/* One setting of the families `dense` and `window`. */
struct tile_plan {
  int rows, stages, split, dense;
};

const char *tile_refusal(const dfgnn_setting *setting, const tile_plan *plan);
size_t tile_workspace(const dfgnn_setting *setting, const tile_plan *plan);
dfgnn_view_request tile_request(const tile_plan *plan);
dfgnn_status tile_prepare(const dfgnn_setting *setting);
dfgnn_status tile_launch(const dfgnn_launch *launch, const tile_plan *plan);

} // namespace dfgnn

#endif
