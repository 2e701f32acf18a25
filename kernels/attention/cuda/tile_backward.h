/* tile_backward.h - gradients over the TILES view: what host code and
 * kernels share
 *
 * A block has an item of the view (kernels/common/tiles.h), a warp 16 rows of
 * its window.  A pass over the graph's tiles gives what belongs to
 * destinations, one over those of its transpose what belongs to sources; "own"
 * and "far" are those of cuda_backward.h.  With the edges of a tile as matrices
 *     S = own far^T, P = exp(S - lse), dP = own' far'^T, dS = P (dP - delta)
 * the sums are  dS far  and, over sources,  P far'.  No GATv2: its score is no
 * product. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_BACKWARD_H
#define DFGNN_ATTENTION_CUDA_TILE_BACKWARD_H

#include "kernels/attention/cuda/backward.h"
#include "kernels/common/tiles.h"

namespace dfgnn {

struct grad_tile_params {
  grad_params walk; /* its schedule is the matrix; partial is of slots */
  const dfgnn_tile *items;
  const int *columns;
  const unsigned *masks;
  const dfgnn_tile_cut *cuts;
  int window, dense, width; /* rows of the view; padded features */
  void *row_totals;         /* AGNN, rows: [N,H] of grad_beta, or NULL */
};

constexpr int kGradTileStep = 16; /* columns in a stage */
constexpr int kGradTileStages = 2;

/* Tensors: of own rows, gathered, summed. */
constexpr __host__ __device__ int grad_tile_own(int op, bool columns) {
  return op == DFGNN_OP_GT || (op == DFGNN_OP_AGNN && !columns) ? 2 : 1;
}
constexpr __host__ __device__ int grad_tile_far(int op, bool columns) {
  return op == DFGNN_OP_GT || (op == DFGNN_OP_AGNN && columns) ? 2 : 1;
}
constexpr __host__ __device__ int grad_tile_sums(int op, bool columns) {
  return op == DFGNN_OP_GAT ? columns : op == DFGNN_OP_GT && columns ? 2 : 1;
}
/* Numbers beside a gathered row. */
constexpr __host__ __device__ int grad_tile_extras(int op, bool columns) {
  return columns ? stats_count(op) : op == DFGNN_OP_GT ? 0 : 1;
}

/* In a mask of results, beside bit t for sum t: the sum of dS times the score's
 * inner derivative, which gives GAT's grad_score and AGNN's grad_beta. */
constexpr unsigned GRAD_TILE_INNER = 4;

/* Dynamic shared memory of a block. */
constexpr size_t grad_tile_shared(int op, bool columns, int window,
                                  int row_bytes) {
  return static_cast<size_t>(grad_tile_own(op, columns)) * window * row_bytes +
         kGradTileStages * kGradTileStep *
             (static_cast<size_t>(grad_tile_far(op, columns)) * row_bytes +
              sizeof(float) * grad_tile_extras(op, columns));
}

/* exact: products as exact as f32's.  NULL if there is no instance. */
enum grad_tile_kernel_kind {
  GRAD_TILE_ROWS,
  GRAD_TILE_COLUMNS,
  GRAD_TILE_MERGE_ROWS,
  GRAD_TILE_MERGE_COLUMNS
};
typedef const void *grad_tile_finder(int kind, int width, int exact);
grad_tile_finder grad_tile_gt_f32, grad_tile_gt_f16, grad_tile_gt_bf16,
    grad_tile_agnn_f32, grad_tile_agnn_f16, grad_tile_agnn_bf16,
    grad_tile_gat_f32, grad_tile_gat_f16, grad_tile_gat_bf16;

/* ---- for families -------------------------------------------------------- */

struct grad_tile_plan {
  int rows, split; /* of the view; split 0: windows are whole */
  int dense;
};

const char *grad_tile_refusal(const dfgnn_setting *setting,
                              const grad_tile_plan *plan);
size_t grad_tile_workspace(const dfgnn_setting *setting,
                           const grad_tile_plan *plan);
int grad_tile_views(const grad_tile_plan *plan, dfgnn_view_request *requests);
dfgnn_status grad_tile_prepare(const dfgnn_setting *setting);
dfgnn_status grad_tile_launch(const dfgnn_launch *launch,
                              const grad_tile_plan *plan);

} // namespace dfgnn

#endif
