/* edge_mode.h - what a kernel looks up by the numbers of edges: bits of a
 * template constant */
#ifndef DFGNN_ATTENTION_CUDA_EDGE_MODE_H
#define DFGNN_ATTENTION_CUDA_EDGE_MODE_H

typedef enum edge_mode {
  EDGE_PLAIN = 0,
  EDGE_BIAS = 1,
  EDGE_DROPOUT = 2,
  EDGE_WRITE = 4 /* backward: gradients of biases, scalars that are kept */
} edge_mode;

#endif
