/* edge_mode.h - what a kernel looks up by the numbers of edges: bits of a
 * template constant */
#ifndef DFGNN_ATTENTION_CUDA_EDGE_MODE_H
#define DFGNN_ATTENTION_CUDA_EDGE_MODE_H

typedef enum edge_mode {
  EDGE_PLAIN = 0,
  EDGE_BIAS = 1,    /* adds a bias to its scores */
  EDGE_DROPOUT = 2, /* drops some of its weights */
  EDGE_WRITE = 4,   /* backward: gradients of biases, scalars that are kept */
  EDGE_WEIGHTS = 8, /* forward: scores, for finish_weights() */
  EDGE_ITEMS = 32,  /* with edge features: units are items of split rows */
  EDGE_ADDS = 64    /* with edge features, backward by rows: adds */
} edge_mode;

#endif
