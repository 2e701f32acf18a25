/* tile_backward.h - arguments of the kernels of gradients over the TILES view
 *
 * A block has an item of the view (kernels/common/tiles.h), a warp 16 rows of
 * its window.  A pass over the graph's tiles gives the gradients of
 * destinations, one over the tiles of its transpose those of sources; "own" and
 * "far" are those of backward.h, with ' for the tensors of dP.  With the edges
 * of a tile as matrices
 *
 *     S  = own far^T       P  = exp(S - lse)
 *     dP = own' far'^T     dS = P (dP - delta)
 *
 * the sums are  dS far  and, in the pass over the transpose,  P far'.  GATv2 is
 * left out: its score is no product. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_BACKWARD_H
#define DFGNN_ATTENTION_CUDA_TILE_BACKWARD_H

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/operators.h"
#include "kernels/common/tile.h"

typedef struct grad_tile_params {
  grad_params walk; /* its schedule is the matrix */
  const dfgnn_tile *items;
  const int32_t *columns;
  const uint32_t *masks;
  /* The rows of a window; 1 if the columns of an item follow each other. */
  int32_t window, dense;
  void *row_totals; /* AGNN, rows: [N,H] of grad_beta, or NULL */
} grad_tile_params;

enum {
  GRAD_TILE_STEP = 16, /* columns in a stage */
  GRAD_TILE_STAGES = 2,
  GRAD_TILE_MOST_WIDTH = 128
};

/* The number of features after padding. */
#define GRAD_TILE_WIDTH(dim) (((dim) + 31) / 32 * 32)

/* The number of tensors of own rows, and of gathered rows. */
#define GRAD_TILE_OWN(op, columns)                                             \
  (DFGNN_HAS_KEY(op) || (DFGNN_HAS_NORMS(op) && !(columns)) ? 2 : 1)
#define GRAD_TILE_FAR(op, columns)                                             \
  (DFGNN_HAS_KEY(op) || (DFGNN_HAS_NORMS(op) && (columns)) ? 2 : 1)
/* The number of scalars beside a gathered row. */
#define GRAD_TILE_EXTRAS(op, columns)                                          \
  ((columns) ? GRAD_STATS(op) : DFGNN_HAS_KEY(op) ? 0 : 1)

#endif
