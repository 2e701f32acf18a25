/* cuda_gather.h - parameters of kernels whose rows gather other rows (sums,
 * reductions and messages), for host and device code
 *
 * Features are numbered as in a dense tensor of the problem's layout, through
 * all heads: a node has `width` of them.  Where a tensor is dense within a
 * node, feature f lies at f and is loaded in vectors of at most 16 bytes, the
 * widest that fit the width and the alignment; any other strides are served one
 * element at a time. */
#ifndef DFGNN_KERNELS_CUDA_GATHER_H
#define DFGNN_KERNELS_CUDA_GATHER_H

#include <stdint.h>

#include "kernels/common/device.h"

/* CSR offsets of either width; the branch is uniform. */
typedef struct csr_offsets {
  const void *array;
  int wide;
#ifdef __CUDACC_RTC__
  DEVICE int64_t operator[](int64_t i) const {
    return wide ? __ldg(static_cast<const long long *>(array) + i)
                : static_cast<int64_t>(
                      __ldg(static_cast<const int *>(array) + i));
  }
#endif
} csr_offsets;

typedef struct feature_tensor {
  const void *data;
  unsigned node_bytes;
  int64_t head, feature; /* elements */
} feature_tensor;

/* Units of work are rows, or items of split rows.
 * Where there are heavy rows, each has a block of its own, before the blocks of
 * the others; the rows of more than hub_edges edges have several, before those.
 */
typedef struct gather_schedule {
  int units;
  int rows; /* of the matrix */
  int64_t edges;
  csr_offsets offsets;
  const int *indices;
  const int *order;    /* rows by degree; NULL: their natural order */
  const int *item_row; /* NULL: units are not items */
  const int64_t *item_first;
  const int *row_item;
  int item_edges, extra_items;
  const int
      *heavy; /* the rows of more than item_edges edges that blocks take */
  int heavy_rows;
  const int *hubs; /* the rows that are cut into items of hub_edges edges */
  int hub_rows, hub_edges, hub_blocks; /* hub_blocks: of each such row */
  int span;                            /* units of a block */
  int group;                           /* lanes of a row */
  int group_bits;                      /* log2(group) */
} gather_schedule;

typedef struct gather_params {
  gather_schedule schedule;
  int exact; /* every lane of every tile has features */
  int width, heads, dim, heads_inner;
  feature_tensor table, out;
  void *partial; /* results of units that are not whole rows */

  /* sums */
  csr_offsets edge_ids; /* which weight is an edge's; array NULL: in order */
  const void *weights, *gathered_scale, *row_scale;
  int mean;

  /* reductions, forward */
  int square_root;
  void *out_min, *out_max, *out_std;
  int *arg_min, *arg_max;
  feature_tensor row_grad; /* grad_out, for the coefficients of var and std */

  /* reductions, backward: rows are sources, which gather destinations */
  feature_tensor grad_min, grad_max, own, mean_out;
  csr_offsets row_offsets;       /* of the destinations */
  const int *row_arg, *row_arg2; /* [N, width] */
  void *coefficient, *offset;    /* [N, width] accumulators */

  /* messages */
  feature_tensor own_gate, far_gate, out_gate;
  const void *attr;   /* [E, fields]; given parts [E, width], heads first */
  void *grad_attr;    /* of given parts, [E, width]; NULL: not wanted */
  const void *matrix; /* [fields + 1][parts][width] scalars, features in the
                       * order of the layout; the last row is the offset */
} gather_params;

/* The warps of a block, by gather_span. */
enum { GATHER_ONCE_WARPS = 4, GATHER_PIECE_WARPS = 8 };

#endif
