/* spmm.h - host functions that the GPU families of SpMM share
 *
 * One kernel serves both passes.  Forward gathers values by the rows of the
 * matrix, backward grad_out by the rows of its transpose; both multiply what
 * they gather by edge weights and by a scale of the node gathered, and the sum
 * by a scale of the row.  The backward pass of a mean divides the scales of the
 * nodes gathered by their degrees. */
#ifndef DFGNN_SPMM_CUDA_SPMM_H
#define DFGNN_SPMM_CUDA_SPMM_H

#include "kernels/common/cuda_gather_host.h"
#include "kernels/spmm/cuda/factor.h"
#include "kernels/spmm/cuda/values.h"

/* The shapes that rows are worth tuning for. */
extern const gather_choice dfgnn__spmm_row_shapes[];
/* The shapes that balanced shares are worth tuning for. */
extern const gather_choice dfgnn__spmm_share_shapes[];

/* Returns NULL and the shape that serves the setting, or why none does; shares
 * is 1 for balanced shares. */
const char *dfgnn__spmm_refusal(gather_shape *shape,
                                const dfgnn_setting *setting, int shares,
                                int lanes, int vectors, int unroll);

/* Bytes of scales by destination, for the backward pass of a mean; else 0. */
size_t dfgnn__spmm_scale_bytes(const dfgnn_setting *setting);
/* Fills these scales: `scale` (NULL: 1) over the degree. */
dfgnn_status dfgnn__spmm_mean_scales(void *to, const void *scale,
                                     const dfgnn_launch *launch);

/* One pass over rows.  The transpose is NULL in the forward pass; scales points
 * to dfgnn__spmm_scale_bytes.  DFGNN_OP_REDUCE_MEAN is served as well. */
typedef struct spmm_call {
  const dfgnn_launch *launch;
  const dfgnn_view *transpose;
  void *scales;
  gather_shape shape;
} spmm_call;

/* order: DEGREE_ORDER or NULL. */
dfgnn_status dfgnn__spmm_rows(const spmm_call *call, const dfgnn_view *order,
                              int warps, int rows, gather_span span);
/* Walks rows cut into the items of a view.  partial: dfgnn__spmm_item_bytes. */
dfgnn_status dfgnn__spmm_items(const spmm_call *call, const dfgnn_view *items,
                               void *partial, int warps, int rows);
size_t dfgnn__spmm_item_bytes(const dfgnn_setting *setting, int item_edges);
/* Walks equal shares of rows and edges.  partial: dfgnn__spmm_share_bytes. */
dfgnn_status dfgnn__spmm_shares(const spmm_call *call, int share, void *partial,
                                int warps);
size_t dfgnn__spmm_share_bytes(const dfgnn_setting *setting, int share);

/* Sums the partial results of rows of several items, or of balanced shares. */
dfgnn_status dfgnn__spmm_merge_items(gather_params *p, const dfgnn_view *items,
                                     const dfgnn_launch *launch);
dfgnn_status dfgnn__spmm_merge_shares(gather_params *p,
                                      const dfgnn_launch *launch);

/* Fills the values that cuSPARSE multiplies by. */
dfgnn_status dfgnn__spmm_values(const dfgnn_spmm_values *values,
                                const dfgnn_queue *queue);
/* Computes the sums of a pass by our own kernels, at any strides.  scales: for
 * the backward pass of a mean, workspace of a number a destination. */
dfgnn_status dfgnn__spmm_plain(const dfgnn_launch *launch,
                               const dfgnn_view *transpose, void *scales);

/* Writes args->grad_edge_weight. */
dfgnn_status dfgnn__spmm_grad_weights(const dfgnn_launch *launch);

#endif
