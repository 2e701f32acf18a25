/* passes.h - attention in separate passes on a GPU: the baselines
 *
 * Scores are kept in base 2 (times log2 e), one plane a head: score of edge e
 * and head h at scores[h * edges + e].  The softmax overwrites them with the
 * weights.  Plain C around the kernels of cuda_scores_*.cu, cuda_rows.cu and
 * cuda_smmf_*.cu. */
#ifndef DFGNN_ATTENTION_CUDA_PASSES_H
#define DFGNN_ATTENTION_CUDA_PASSES_H

#include "kernels/common/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dfgnn_operand {
  const void *data;
  int64_t node, head, feature; /* strides in elements */
} dfgnn_operand;

/* A call as the kernels see it. */
typedef struct dfgnn_passes {
  dfgnn_op op;
  dfgnn_dtype dtype;
  int vector; /* elements of a load; 1: any strides */
  int64_t rows, edges;
  int heads, dim;
  int heavy; /* rows of more edges take a whole block */
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  const int32_t *row_of_edge; /* NULL where it is not needed */
  dfgnn_operand query, key, value, out;
  const void *score_dst, *score_src, *att, *beta;
  void *lse, *weights, *scores;
  double scale, slope;
  void *stream;
} dfgnn_passes;

/* scalar: never load more than one element at a time.  scores is the
 * workspace, row_of_edge the first view if there is one. */
void dfgnn__passes_fill(dfgnn_passes *passes, const dfgnn_launch *launch,
                        int scalar);

/* Bytes of a score or a sum. */
size_t dfgnn__passes_scalar(dfgnn_dtype dtype);
/* Bytes of all scores. */
size_t dfgnn__passes_score_bytes(const dfgnn_setting *setting);

/* Scores of all edges.  by_row: a warp takes a row, else every group of lanes
 * the same number of edges (row_of_edge needed). */
dfgnn_status dfgnn__cuda_scores(const dfgnn_passes *passes, int by_row);

enum {
  DFGNN_ROWS_SOFTMAX = 1,  /* weights over scores, lse, args.weights */
  DFGNN_ROWS_GATHER = 2,   /* out from the weights */
  DFGNN_ROWS_REDUNDANT = 4 /* every lane makes its weights from the scores */
};
dfgnn_status dfgnn__cuda_rows(const dfgnn_passes *passes, int what);

typedef struct dfgnn_smmf {
  int rows;      /* of a block */
  int by_row;    /* scores: a warp takes a row, not a share of the edges */
  int redundant; /* as DFGNN_ROWS_REDUNDANT */
  size_t shared; /* bytes for scores; a block that needs more uses
                  * passes.scores */
} dfgnn_smmf;

dfgnn_status dfgnn__cuda_smmf(const dfgnn_passes *passes,
                              const dfgnn_smmf *smmf);
/* Lets the kernels use that much shared memory. */
dfgnn_status dfgnn__cuda_smmf_allow(dfgnn_op op, dfgnn_dtype dtype,
                                    size_t shared);
/* The most edges of `rows` consecutive rows that begin at a multiple of it. */
dfgnn_status dfgnn__cuda_most_edges(int64_t *most, const dfgnn_matrix *matrix,
                                    int rows);

#ifdef __cplusplus
}
#endif
#endif
