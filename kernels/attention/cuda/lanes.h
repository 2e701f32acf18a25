/* lanes.h - arguments of kernels: tensors, and how the lanes of a warp share
 * their features
 *
 * The types are those of host and device code. */
#ifndef DFGNN_ATTENTION_CUDA_LANES_H
#define DFGNN_ATTENTION_CUDA_LANES_H

#include <stdint.h>

/* A feature tensor [nodes, heads, dim]; distances are bytes. */
typedef struct tensor_view {
  const void *data;
  unsigned node_bytes, head_bytes, feature_bytes;
} tensor_view;

/* The constants of lane_map<> (lanes.cuh) for a problem. */
typedef struct lane_shape {
  int vector;     /* elements a load */
  int lanes;      /* of an edge, a power of two */
  int vectors;    /* of a row, in a lane */
  int tile_heads; /* heads that the lanes of an edge work on */
  int tiles;      /* of tile_heads heads: blockIdx.y */
} lane_shape;

/* Which heads the lanes of an edge work on. */
typedef enum lane_heads {
  HEADS_GRID = 0, /* one */
  HEADS_WARP = 1, /* as many as 32 vectors span */
  HEADS_ROW = 2,  /* all, or as many as registers can hold */
  HEADS_LANES = 3 /* as many as there are lanes for: a vector each */
} lane_heads;

#endif
