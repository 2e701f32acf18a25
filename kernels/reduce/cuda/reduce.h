/* reduce.h - reductions on a GPU: what their families share */
#ifndef DFGNN_REDUCE_CUDA_REDUCE_H
#define DFGNN_REDUCE_CUDA_REDUCE_H

#include "kernels/reduce/cuda/find.h"
#include "kernels/spmm/cuda/spmm.h"

/* Is there a pass of some operator with this shape? */
int dfgnn__reduce_listed(int lanes, int vectors, int unroll);

/* NULL if the pass and operator have a kernel of this shape. */
const char *dfgnn__reduce_refusal(gather_shape *shape,
                                  const dfgnn_setting *setting, int lanes,
                                  int vectors, int unroll);

/* How a pass over rows is scheduled: whole rows, or items of cut ones. */
typedef struct reduce_call {
  const dfgnn_launch *launch;
  gather_shape shape;
  int warps, rows;
  gather_span span;
  const dfgnn_view *order; /* DEGREE_ORDER; NULL */
  const dfgnn_view *items; /* WORK_ITEMS; NULL: rows are whole */
  void *partial;
  /* backward */
  const dfgnn_view *transpose;
  const dfgnn_view *row_items; /* WORK_ITEMS of the matrix itself; NULL */
  void *tables;
} reduce_call;

dfgnn_status dfgnn__reduce_forward(const reduce_call *call);
dfgnn_status dfgnn__reduce_backward(const reduce_call *call);

/* Workspace of partial results of rows cut into items; of tables by
 * destination that the backward pass makes. */
size_t dfgnn__reduce_item_bytes(const dfgnn_setting *setting, int item_edges);
size_t dfgnn__reduce_table_bytes(const dfgnn_setting *setting);

/* Merges items of cut rows; what: as the kernel's. */
dfgnn_status dfgnn__reduce_merge_items(gather_params *p,
                                       const dfgnn_view *items,
                                       const dfgnn_launch *launch, int what);
/* Fills p->coefficient and p->offset of PNA. */
dfgnn_status dfgnn__reduce_fill_tables(const gather_params *p,
                                       const feature_tensor *grad,
                                       const feature_tensor *grad_std,
                                       const feature_tensor *std, int rows,
                                       const dfgnn_launch *launch);

#endif
