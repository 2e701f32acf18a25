/* reduce.h - host functions that the GPU families of reductions share */
#ifndef DFGNN_REDUCE_CUDA_REDUCE_H
#define DFGNN_REDUCE_CUDA_REDUCE_H

#include "kernels/reduce/cuda/find.h"
#include "kernels/spmm/cuda/spmm.h"

/* Has any pass of any operator a kernel of this shape? */
int dfgnn__reduce_listed(int lanes, int vectors, int unroll);

/* Returns NULL if the pass and operator have a kernel of this shape, else the
 * reason why not. */
const char *dfgnn__reduce_refusal(gather_shape *shape,
                                  const dfgnn_setting *setting, int lanes,
                                  int vectors, int unroll);

/* How a pass over rows is scheduled: whole rows, or items of cut ones. */
typedef struct reduce_call {
  const dfgnn_launch *launch;
  gather_shape shape;
  int warps, rows;
  gather_span span;
  const dfgnn_view *order; /* DEGREE_ORDER or NULL */
  const dfgnn_view *items; /* WORK_ITEMS; NULL: rows are whole */
  void *partial;
  /* backward */
  const dfgnn_view *transpose;
  const dfgnn_view *row_items; /* WORK_ITEMS of the matrix itself, or NULL */
  void *tables;
} reduce_call;

dfgnn_status dfgnn__reduce_forward(const reduce_call *call);
dfgnn_status dfgnn__reduce_backward(const reduce_call *call);

/* Bytes of workspace for the partial results of rows cut into items, and for
 * the tables by destination of the backward pass. */
size_t dfgnn__reduce_item_bytes(const dfgnn_setting *setting, int item_edges);
size_t dfgnn__reduce_table_bytes(const dfgnn_setting *setting);

/* Merges the items of cut rows; what: the REDUCE_... bits of the kernel. */
dfgnn_status dfgnn__reduce_merge_items(gather_params *p,
                                       const dfgnn_view *items,
                                       const dfgnn_launch *launch, int what);
/* Fills the tables p->coefficient and p->offset for PNA's gradients. */
dfgnn_status dfgnn__reduce_fill_tables(const gather_params *p,
                                       const feature_tensor *grad,
                                       const feature_tensor *grad_std,
                                       const feature_tensor *std, int rows,
                                       const dfgnn_launch *launch);

#endif
