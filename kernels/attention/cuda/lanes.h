/* lanes.h - arguments of kernels: tensors, and how the lanes of a warp share
 * their features
 *
 * Host and device code share the types. */
#ifndef DFGNN_ATTENTION_CUDA_LANES_H
#define DFGNN_ATTENTION_CUDA_LANES_H

#include <stdint.h>

/* A feature tensor [nodes, heads, dim]; distances are bytes. */
typedef struct tensor_view {
  const void *data;
  unsigned node_bytes, head_bytes, feature_bytes;
} tensor_view;

/* How lanes share the features of a problem: see lanes.cuh. */
typedef struct lane_shape {
  int vector;     /* elements a load */
  int lanes;      /* lanes of an edge, a power of two */
  int vectors;    /* vectors of a row in a lane */
  int tile_heads; /* heads that the lanes of an edge work on */
  int tiles;      /* tiles of tile_heads heads: blockIdx.y */
} lane_shape;

/* The constants of the kernels that walk rows: the operator, the type of
 * tensors, those of lane_shape, edges in flight of a side, whether tensors are
 * packed (lanes.cuh); of gradients, whether the rows are columns of the matrix;
 * bits of enum edge_mode, and of gradients those of backward.h. */
#define ROW_CONSTANTS(X)                                                       \
  X(op)                                                                        \
  X(type)                                                                      \
  X(vector)                                                                    \
  X(lanes)                                                                     \
  X(heads)                                                                     \
  X(dim)                                                                       \
  X(tile)                                                                      \
  X(packed)                                                                    \
  X(unroll)                                                                    \
  X(columns)                                                                   \
  X(mode)

/* Which heads the lanes of an edge work on. */
typedef enum lane_heads {
  HEADS_GRID = 0, /* one head */
  HEADS_WARP = 1, /* the heads that 32 vectors span */
  HEADS_ROW = 2,  /* all heads, or as many as registers can hold */
  HEADS_LANES = 3 /* the heads that one vector a lane spans */
} lane_heads;

#endif
