/* reduce.h - reductions on a GPU: what families and kernels share */
#ifndef DFGNN_REDUCE_CUDA_REDUCE_H
#define DFGNN_REDUCE_CUDA_REDUCE_H

#include "kernels/spmm/cuda/spmm.h"

namespace dfgnn {

/* What a forward kernel finds, in one pass. */
enum {
  REDUCE_MIN = 1,
  REDUCE_MAX = 2,
  REDUCE_MOMENTS = 4, /* mean and variance */
  REDUCE_ARG = 8,     /* which edge the extremes came from */
  REDUCE_ALL = REDUCE_MIN | REDUCE_MAX | REDUCE_MOMENTS
};

/* What a backward kernel gathers. */
enum {
  REDUCE_PICK,   /* the gradient where an edge was the extreme */
  REDUCE_SPREAD, /* a (x - mean), of var and std */
  REDUCE_BOTH    /* all of PNA */
};

/* (lanes, vectors, unroll) of one extreme; of one with its edge; of moments;
 * of gradients. */
#define DFGNN_REDUCE_BEST(X)                                                   \
  X(32, 1, 4)                                                                  \
  X(32, 1, 8)                                                                  \
  X(32, 2, 4)                                                                  \
  X(16, 1, 4)                                                                  \
  X(16, 2, 1)                                                                  \
  X(16, 2, 2)                                                                  \
  X(16, 2, 4) X(8, 1, 4) X(8, 2, 4) X(8, 4, 1) X(8, 4, 2) X(4, 1, 4) X(4, 2, 4)
#define DFGNN_REDUCE_ARGS(X)                                                   \
  X(32, 1, 4)                                                                  \
  X(32, 2, 2)                                                                  \
  X(16, 1, 4) X(16, 2, 2) X(8, 1, 4) X(8, 2, 2) X(8, 4, 1) X(4, 1, 4) X(4, 2, 2)
#define DFGNN_REDUCE_MOMENTS(X)                                                \
  X(32, 1, 4) X(16, 1, 4) X(16, 2, 2) X(8, 1, 4) X(8, 2, 2) X(4, 1, 4)
#define DFGNN_REDUCE_GRADIENTS(X)                                              \
  X(32, 1, 2) X(32, 1, 4) X(16, 1, 2) X(16, 1, 4) X(8, 1, 4) X(4, 1, 4)

/* what: of the first enumeration.  A kernel with REDUCE_ARG may have fewer
 * edges in flight than the shape asks for. */
gather_finder reduce_kernel, reduce_f32, reduce_f16, reduce_bf16, reduce_narrow;
/* what: of the second. */
gather_finder reduce_gradient_kernel;

/* NULL if the pass and operator have a kernel of this shape. */
const char *reduce_refusal(gather_shape *shape, const dfgnn_setting *setting,
                           int lanes, int vectors, int unroll);
void reduce_prefer_cache(const dfgnn_problem *problem,
                         const gather_shape *shape);

/* How a pass over rows is scheduled: whole rows, or items of cut ones. */
struct reduce_call {
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
};

dfgnn_status reduce_forward(const reduce_call *call);
dfgnn_status reduce_backward(const reduce_call *call);

/* Workspace of partial results of rows cut into items; of tables by
 * destination that the backward pass makes. */
size_t reduce_item_bytes(const dfgnn_setting *setting, int item_edges);
size_t reduce_table_bytes(const dfgnn_setting *setting);

/* Merges items of cut rows; what: as the kernel's. */
dfgnn_status reduce_merge_items(gather_params *p, const dfgnn_view *items,
                                const dfgnn_launch *launch, int what);
/* Fills p->coefficient and p->offset of PNA. */
dfgnn_status reduce_fill_tables(const gather_params *p,
                                const feature_tensor *grad,
                                const feature_tensor *grad_std,
                                const feature_tensor *std, int rows,
                                const dfgnn_launch *launch);

} // namespace dfgnn

#endif
