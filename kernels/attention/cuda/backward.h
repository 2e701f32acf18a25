/* backward.h - what host code and the kernels of backward share
 *
 * A pass walks rows (of the CSR matrix: destinations) or columns (rows of its
 * transpose: sources).  "Own" is what belongs to the row of the walk, "far"
 * what its edges gather:
 *
 *             own             far           gives
 *   rows      q, dO [, O]     k, v          grad_query, grad_score_dst, ...
 *   columns   k, v            q, dO         grad_key, grad_value, ...
 *
 * One tensor where both are the same (AGNN, GATv2) or the score reads none
 * (GAT).  Rows leave what columns gather of a destination besides q and dO, its
 * log-sum-exp and delta = <dO, O>, in `stats`; without a walk over rows a small
 * kernel does. */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_H

#include "kernels/attention/cuda/attend.h"
#include "kernels/attention/cuda/dropout.cuh"
#include "kernels/attention/cuda/lanes.cuh"

namespace dfgnn {

/* EDGES: edges have numbers, for bias, dropout, grad_bias and spilled scalars.
 * GIVEN: dS was spilled by the other walk; of rows alone. */
enum grad_mode { GRAD_PLAIN, GRAD_EDGES, GRAD_GIVEN, GRAD_MODES };

/* Numbers of `stats` a destination and head: lse (log2; +inf if it is -inf),
 * delta, and what else the score needs: AGNN's inverse norm, GAT's score. */
constexpr int kLse = 0, kDelta = 1, kExtra = 2;
constexpr __host__ __device__ int stats_count(int op) {
  return op == DFGNN_OP_AGNN || op == DFGNN_OP_GAT ? 4 : 2;
}

struct grad_params {
  row_schedule schedule;
  int first_step, span, round_step; /* as attend_params */
  lane_layout layout;
  int mode;
  tensor_view own[2], far[2], to[2];
  tensor_view out;        /* rows */
  const void *lse;        /* rows: [N,H] */
  void *stats;            /* [N,H,stats_count]: rows write, columns read */
  const void *own_scalar; /* GAT: score of the own node, [rows,H] */
  const void *far_scalar; /* rows: AGNN inverse norm, GAT score, [M,H] */
  void *to_scalar;        /* GAT: [rows,H] */
  const void *att, *beta;
  const void *edge_of; /* columns: the edge of each; as wide as offsets */
  const void *bias;    /* [E,H] or NULL, like all that follow */
  void *grad_bias, *spill;
  dropout_params dropout;
  void *partial, *partial_scalar; /* [slots,tensors,H,D], [slots,H] */
  void
      *totals; /* rows: [blocks,H,D] of grad_att, [blocks,tiles] of grad_beta */
  double scale, slope;
};

/* An instance of gradient(); NULL if there is none. */
const void *grad_kernel(int op, dfgnn_dtype dtype, int columns, int mode,
                        int lanes, int vectors, int unroll, int several);

/* One file an operator and storage type defines these. */
typedef const void *grad_finder(int columns, int mode, int lanes, int vectors,
                                int unroll, int several);
grad_finder grad_gt_f32, grad_gt_f16, grad_gt_bf16, grad_agnn_f32,
    grad_agnn_f16, grad_agnn_bf16, grad_gat_f32, grad_gat_f16, grad_gat_bf16,
    grad_gatv2_f32, grad_gatv2_f16, grad_gatv2_bf16;

/* gradient_plain(): any stride, width and type; one warp a row and head. */
const void *grad_plain_kernel(int op, dfgnn_dtype dtype, int columns);

/* ---- around the walks: cuda_backward_sums.cu ---------------------------- */

/* What a walk over rows leaves in stats, from the arguments of one, summed in
 * the order of a walk with so many lanes: where an edge has the whole weight of
 * its row, dP - delta is 0 then. */
dfgnn_status grad_stats(const grad_params *p, int lanes,
                        const dfgnn_launch *launch);

/* Sums the partial gradients of rows of several items. */
dfgnn_status grad_merge(const grad_params *p, int tensors,
                        const dfgnn_view *items, const dfgnn_launch *launch);

/* to[width] = the sums of the columns of totals[rows, width]. */
dfgnn_status grad_totals(void *to, const void *totals, int64_t rows,
                         int64_t width, const dfgnn_launch *launch);

/* to[N,H] = the sums over rows of spill[E,H]. */
dfgnn_status grad_row_sums(void *to, const void *spill,
                           const dfgnn_launch *launch);

/* ---- arguments: cuda_backward.cu ----------------------------------------- */

/* Where the parts of a workspace are; NULL: not there. */
struct grad_memory {
  char *stats, *norms, *spill, *totals, *partial, *partial_scalar;
  size_t bytes;
};

grad_memory grad_memory_of(const dfgnn_setting *setting,
                           const struct grad_plan *plan, void *workspace);

/* Puts an array behind the others; base may be NULL to count bytes. */
char *grad_part(grad_memory *memory, char *base, int64_t count, size_t size);

/* What the arguments and the matrix say of a walk; launch->views[0] is the
 * TRANSPOSE view. */
dfgnn_status grad_fill(grad_params *p, const dfgnn_launch *launch,
                       const grad_memory *memory, int columns);

/* The tensors alone. */
dfgnn_status grad_tensors(grad_params *p, const dfgnn_launch *launch,
                          int columns);

/* Are all tensors fit for 16-byte loads? */
int grad_aligned(const grad_params *p, unsigned size);

/* GATv2: where leaky(t) is the larger of t and slope t, of the sign of t. */
int grad_usual_slope(const grad_params *p, const dfgnn_problem *problem);

/* Is the width or type one that only single features are loaded of? */
int grad_odd(const dfgnn_problem *problem);

/* The lanes of a plan; 0 if they do not hold a head. */
int grad_shape(attend_shape *shape, const dfgnn_setting *setting,
               const struct grad_plan *plan);

/* Deals the rows to blocks, and lanes to features; returns how many blocks. */
int64_t grad_lay_out(grad_params *p, const dfgnn_setting *setting,
                     const struct grad_plan *plan, const attend_shape *shape);

/* ---- for families -------------------------------------------------------- */

/* How a variant of backward runs. */
struct grad_plan {
  int lanes, unroll, several, warps, rows;
  attend_span span;
  int by_degree;  /* views: rows, then columns, by falling degree */
  int item_edges; /* 0: whole rows; else views: items of rows, then columns */
  int spill;      /* columns first; they spill dS for rows */
};

/* Is there an instance of gradient() for some problem? */
int grad_legal(int lanes, int unroll, int several);

/* NULL if no size is beyond what any walk of the plan takes, else the reason.
 */
const char *grad_limits(const dfgnn_setting *setting, const grad_plan *plan);
/* NULL if the plan can run, else the reason. */
const char *grad_refusal(const dfgnn_setting *setting, const grad_plan *plan);
size_t grad_workspace(const dfgnn_setting *setting, const grad_plan *plan);
int grad_views(const grad_plan *plan, dfgnn_view_request *requests);
dfgnn_status grad_prepare(const dfgnn_setting *setting, const grad_plan *plan);
dfgnn_status grad_launch(const dfgnn_launch *launch, const grad_plan *plan);

} // namespace dfgnn

#endif
