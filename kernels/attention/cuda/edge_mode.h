/* edge_mode.h - bits of a template constant: the arrays that a kernel reads or
 * writes by the number of an edge, and how */
#ifndef DFGNN_ATTENTION_CUDA_EDGE_MODE_H
#define DFGNN_ATTENTION_CUDA_EDGE_MODE_H

typedef enum edge_mode {
  EDGE_PLAIN = 0,
  EDGE_BIAS = 1,    /* adds a bias to its scores */
  EDGE_DROPOUT = 2, /* drops some of its weights */
  EDGE_WRITE = 4,   /* backward: writes dS, or gradients of edge features */
  EDGE_WEIGHTS = 8, /* forward: writes scores, for finish_weights() */
  EDGE_ITEMS = 32,  /* edge features: units are items of split rows */
  EDGE_ADDS = 64    /* edge features, rows of backward: adds to its outputs */
} edge_mode;

#endif
