/* passes.h - arguments of attention in separate passes on a GPU: the baselines
 *
 * Scores are kept in base 2 (times log2 e), one plane a head: score of edge e
 * and head h at scores[h * edges + e].  The softmax overwrites them with the
 * weights.  Host and device code share the types. */
#ifndef DFGNN_ATTENTION_CUDA_PASSES_H
#define DFGNN_ATTENTION_CUDA_PASSES_H

#include <stdint.h>

enum { PASS_THREADS = 256 }; /* threads of a block */

typedef struct dfgnn_operand {
  const void *data;
  int64_t node, head, feature; /* strides in elements */
} dfgnn_operand;

/* The arguments of a call. */
typedef struct dfgnn_passes {
  int64_t rows, edges;
  int heads, dim;
  int heavy; /* rows of more edges take a whole block */
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  const int32_t *row_of_edge; /* smmf: NULL */
  dfgnn_operand query, key, value, out;
  const void *score_dst, *score_src, *att, *beta;
  void *lse, *weights, *scores;
  double scale, slope;
} dfgnn_passes;

enum {
  DFGNN_ROWS_SOFTMAX = 1, /* weights over scores, lse, args.weights */
  DFGNN_ROWS_GATHER = 2   /* out from the weights */
};

enum { SMMF_ROWS = 8 }; /* rows of a block of smmf */

/* The parameters of the kernel most_edges(). */
typedef struct most_edges_params {
  const void *offsets;
  int offsets64;
  int block;    /* rows of a block */
  int64_t rows; /* rows of the matrix */
  uint64_t *most;
} most_edges_params;

/* Vectors of a row that a lane of a score keeps in registers. */
#define PASS_HELD_VECTORS(vector) ((vector) == 8 ? 2 : 4)

/* The smallest power of two that is not below x, 32 at most. */
static inline int pass_lanes(int64_t x) {
  int p = 1;
  while (p < x && p < 32)
    p *= 2;
  return p;
}

#endif
