/* spmm.h - SpMM on a GPU: what its families and kernels share
 *
 * One kernel serves both passes.  Forward gathers values by the rows of the
 * matrix, backward grad_out by the rows of its transpose; both multiply what
 * they gather by edge weights and by a scale of the node gathered, and the sum
 * by a scale of the row.  Means of the backward pass are such scales. */
#ifndef DFGNN_SPMM_CUDA_SPMM_H
#define DFGNN_SPMM_CUDA_SPMM_H

#include "kernels/common/cuda_gather.h"

namespace dfgnn {

/* What a gathered row is multiplied by. */
enum {
  SPMM_PLAIN = 0,
  SPMM_FACTOR = 1, /* a number an edge */
  SPMM_HEADS = 2,  /* a number an edge and head */
  SPMM_FACTORS = 3,
  SPMM_BALANCED = 4 /* added to those: the kernel of balanced shares */
};

/* (lanes, vectors, unroll) of rows; the same with more features a lane, which
 * 16-bit types, of twice as many a vector, have no registers for. */
#define DFGNN_SPMM_LIGHT(X)                                                    \
  X(32, 1, 4)                                                                  \
  X(32, 1, 8)                                                                  \
  X(32, 2, 2)                                                                  \
  X(16, 1, 4)                                                                  \
  X(16, 1, 8)                                                                  \
  X(16, 2, 1) X(16, 2, 2) X(8, 1, 4) X(8, 2, 2) X(4, 1, 4) X(4, 2, 2)
#define DFGNN_SPMM_HEAVY(X)                                                    \
  X(32, 2, 4) X(16, 2, 4) X(8, 2, 4) X(8, 4, 1) X(8, 4, 2) X(4, 2, 4)
#define DFGNN_SPMM_ROWS(X) DFGNN_SPMM_LIGHT(X) DFGNN_SPMM_HEAVY(X)
/* Of balanced shares. */
#define DFGNN_SPMM_SHARES_LIGHT(X) X(32, 1, 4) X(16, 1, 4) X(8, 1, 4) X(4, 1, 4)
#define DFGNN_SPMM_SHARES_HEAVY(X) X(32, 1, 8) X(32, 2, 4) X(16, 2, 4)
#define DFGNN_SPMM_SHARES(X)                                                   \
  DFGNN_SPMM_SHARES_LIGHT(X) DFGNN_SPMM_SHARES_HEAVY(X)
/* For any strides. */
#define DFGNN_GATHER_NARROW(X) X(4, 1, 4) X(32, 1, 4) X(32, 4, 2)

gather_finder spmm_kernel, spmm_f32, spmm_f16, spmm_bf16, spmm_narrow;

/* Why no shape serves the setting, or NULL.  shares: balanced. */
const char *spmm_refusal(gather_shape *shape, const dfgnn_setting *setting,
                         int shares, int lanes, int vectors, int unroll);

/* Asks for as much L1 as there is, whatever the kernel chosen later. */
void spmm_prefer_cache(const dfgnn_problem *problem, const gather_shape *shape,
                       int shares);

/* Bytes for scales by destination: of the backward pass of means. */
size_t spmm_scale_bytes(const dfgnn_setting *setting);

/* One pass over rows.  The transpose is NULL in the forward pass; scales has
 * spmm_scale_bytes.  DFGNN_OP_REDUCE_MEAN is served as well. */
struct spmm_call {
  const dfgnn_launch *launch;
  const dfgnn_view *transpose;
  void *scales;
  gather_shape shape;
};

/* order: DEGREE_ORDER or NULL. */
dfgnn_status spmm_rows(const spmm_call *call, const dfgnn_view *order,
                       int warps, int rows, gather_span span);
/* Rows cut into the items of a view.  partial: spmm_item_bytes. */
dfgnn_status spmm_items(const spmm_call *call, const dfgnn_view *items,
                        void *partial, int warps, int rows);
size_t spmm_item_bytes(const dfgnn_setting *setting, int item_edges);
/* Equal shares of rows and edges.  partial: spmm_share_bytes. */
dfgnn_status spmm_shares(const spmm_call *call, int share, void *partial,
                         int warps);
size_t spmm_share_bytes(const dfgnn_setting *setting, int share);

/* Sums the partial results of rows of several items, or of balanced shares. */
dfgnn_status spmm_merge_items(gather_params *p, const dfgnn_view *items,
                              const dfgnn_launch *launch);
dfgnn_status spmm_merge_shares(gather_params *p, const dfgnn_launch *launch);

/* grad_edge_weight. */
dfgnn_status spmm_grad_weights(const dfgnn_launch *launch);

} // namespace dfgnn

#endif
