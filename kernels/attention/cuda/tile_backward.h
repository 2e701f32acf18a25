/* tile_backward.h - arguments of the kernels of gradients over the TILES view
 *
 * A block has an item of the view (kernels/common/tiles.h), a warp 16 rows of
 * its window in one head.  A bit of a mask says that a pair is an edge; other
 * pairs have weight 0.  But 0 times a row that is not finite is NaN, and so are
 * the TF32 parts of infinity: rows of results that are not finite are computed
 * again along their edges.  A pass over the graph's tiles gives the gradients
 * of destinations, one over the tiles of its transpose those of sources; "own"
 * and "far" are those of backward.h, with ' for the tensors of dP.  With the
 * edges of a tile as matrices
 *
 *     S  = own far^T       P  = exp(S - lse)
 *     dP = own' far'^T     dS = P (dP - delta)
 *
 * the sums are  dS far  and, in the pass over the transpose,  P far'.  GT and
 * GAT alone: the score of GATv2 is no product. */
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
} grad_tile_params;

enum { GRAD_TILE_STEP = 16 }; /* columns of a step */

/* The number of tensors of own rows, and of gathered rows. */
#define GRAD_TILE_TENSORS(op) (DFGNN_HAS_KEY(op) ? 2 : 1)

#endif
