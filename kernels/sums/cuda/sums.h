/* sums.h - host functions of the GPU families of sums, reductions and messages
 *
 * All of them gather rows (kernels/common/cuda_gather.h).  An operator differs
 * in the message of an edge, a copy of its source's value or computed from it,
 * and in what a row does with its messages: it adds them up (found_by() = 0) or
 * finds extremes and moments.  A call is one or several passes over rows; those
 * of var and std also need the moments of rows before their backward pass. */
#ifndef DFGNN_SUMS_CUDA_SUMS_H
#define DFGNN_SUMS_CUDA_SUMS_H

#include "kernels/common/cuda_gather_host.h"
#include "kernels/sums/cuda/params.h"

/* ---- operators ----------------------------------------------------------- */

static inline int dfgnn__sums_backward(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}
static inline int dfgnn__sums_copies(const dfgnn_problem *problem) {
  return problem->message == DFGNN_MESSAGE_COPY;
}
static inline int dfgnn__sums_gated(const dfgnn_problem *problem) {
  return dfgnn__message_gated(problem->message);
}
static inline int dfgnn__sums_averages(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_SPMM_MEAN ||
         problem->op == DFGNN_OP_REDUCE_MEAN;
}
/* The REDUCE_... bits of the results that an operator finds; 0: it adds up. */
int dfgnn__sums_found(const dfgnn_problem *problem);
/* Does its backward pass walk the rows first, for their moments? */
int dfgnn__sums_walks_rows(const dfgnn_problem *problem);

/* ---- kernels ------------------------------------------------------------- */

/* The passes of a call: one more than the kernels' own. */
enum { SUMS_MOMENTS = SUMS_ROWS + 1 };

/* A kernel without its shape: the constants of its program. */
typedef struct sums_kernel {
  enum {
    SUMS_ADD,          /* spmm_rows: sums of copies */
    SUMS_BLOCK,        /* spmm_blocks: the same, long rows by whole blocks */
    SUMS_FIND,         /* reduce_rows: extremes and moments of copies */
    SUMS_GRADE,        /* reduce_gradients: their gradients */
    SUMS_ADD_MESSAGES, /* message_rows: sums of messages, and all gradients */
    SUMS_FIND_MESSAGES /* reduce_messages */
  } kind;
  int factor;   /* FACTOR_... */
  int found;    /* REDUCE_... bits */
  int gathered; /* REDUCE_PICK, _SPREAD, _BOTH */
  int what;     /* MESSAGE_... bits */
  int fields;   /* of an edge, or MESSAGE_EDGES_... */
} sums_kernel;

/* The units of a pass. */
typedef enum sums_walk {
  SUMS_OVER_ROWS,  /* or items */
  SUMS_OVER_BLOCKS /* rows, of which blocks take the long ones */
} sums_walk;

/* The kernel of a pass; p: its arguments, NULL as long as there are none. */
sums_kernel dfgnn__sums_kernel(const dfgnn_problem *problem, int pass,
                               sums_walk walk, const gather_params *p);
/* The MESSAGE_... bits that all passes of a problem have. */
int dfgnn__sums_message_bits(const dfgnn_problem *problem);
/* A gather_finder of sums_kernels. */
int dfgnn__sums_program(dfgnn_program *program, dfgnn_dtype dtype,
                        const void *kernel, const gather_shape *shape,
                        int width);

/* The operators of a family share the shapes that are worth tuning for. */
typedef enum sums_group {
  SUMS_OF_SPMM,
  SUMS_OF_REDUCE,
  SUMS_OF_MESSAGE
} sums_group;

/* Has any kernel of the group such a shape?  narrow: shapes for any strides
 * count too. */
int dfgnn__sums_listed(sums_group group, int narrow, int lanes, int vectors,
                       int unroll);

/* Returns NULL and the shape that serves the setting, or why none does. */
const char *dfgnn__sums_refusal(gather_shape *shape,
                                const dfgnn_setting *setting, sums_walk walk,
                                int lanes, int vectors, int unroll);

/* ---- the workspace ------------------------------------------------------- */

/* The offsets of the parts of the workspace. */
typedef struct sums_layout {
  size_t scales;              /* by destination, for the gradients of means */
  size_t matrix;              /* the projection's matrix as scalars */
  size_t sums;                /* each block's gradients of matrix and offset */
  int blocks;                 /* the number of these blocks of edges */
  size_t coefficient, offset; /* by destination, for gradients of moments */
  size_t partial; /* results of units that are not whole rows; room for the
                   * largest pass */
  size_t bytes;   /* of all */
} sums_layout;

/* Over blocks: the edges of a hub's item.  A longer row would keep its block
 * busy while the others are done. */
enum { SUMS_HUB_EDGES = 2048 };
/* The longest row of the matrix that the pass walks first; a fresh graph's is a
 * guess. */
int64_t dfgnn__sums_longest(const dfgnn_setting *setting);
/* The same if SUMS_HUB_EDGES are fewer; else 0. */
int64_t dfgnn__sums_hub(const dfgnn_setting *setting);

/* item_edges is 0 where rows are no items. */
sums_layout dfgnn__sums_layout(const dfgnn_setting *setting, int item_edges);
/* The number of blocks of edges of a projection's gradients. */
int dfgnn__sums_blocks(const dfgnn_setting *setting);

/* ---- calls --------------------------------------------------------------- */

/* Requests what a call reads: in a backward pass the transposed matrix; a view
 * of the rows that the pass walks (DFGNN_VIEW_NONE: none); over blocks, items
 * of `parameter` edges and of hubs; the items of rows that it walks besides;
 * the rows of edges.  Returns the number of requests. */
int dfgnn__sums_views(const dfgnn_setting *setting,
                      dfgnn_view_request *requests, sums_walk walk,
                      dfgnn_view_kind kind, int64_t parameter);

/* How the passes of a call are scheduled.  Views are NULL if they are not
 * asked for. */
typedef struct sums_call {
  const dfgnn_launch *launch;
  gather_shape shape;
  sums_layout layout;
  sums_walk walk;
  int warps, rows;
  gather_span span;
  const dfgnn_view *transpose; /* backward */
  const dfgnn_view *order;     /* of rows, for FORWARD or COLUMNS */
  const dfgnn_view *items;     /* WORK_ITEMS for the same, or, over blocks, the
                                * long rows of that view; NULL: whole rows */
  const dfgnn_view *row_items; /* WORK_ITEMS for ROWS and MOMENTS */
  const dfgnn_view *hubs;      /* over blocks, WORK_ITEMS of hubs; NULL: none */
  const dfgnn_view *row_of_edge;
  /* dfgnn__sums_run() sets these. */
  const void *scale_dst, *scale_src; /* NULL: 1; backward, scale_dst has a
                                      * mean's share */
  void *coefficient, *offset;
  const void *matrix;
} sums_call;

/* Finds the shape of these lanes, vectors and edges in flight, the layout, and
 * the views that dfgnn__sums_views() asked for, and runs all passes. */
dfgnn_status dfgnn__sums_launch(sums_call *call, const int *shape,
                                dfgnn_view_kind kind, int64_t parameter);

/* ---- arguments ----------------------------------------------------------- */

typedef struct sums_tensor {
  feature_tensor *to;
  const char *name;
  const void *data;
  const dfgnn_strides *strides;
} sums_tensor;

dfgnn_status dfgnn__sums_find_tensors(const sums_tensor *list, int count,
                                      dfgnn_dtype dtype);
/* Fills the arguments of a pass; matrix: that of the rows it walks.  *vector
 * becomes less where the tensors cannot be loaded in vectors of so many. */
dfgnn_status dfgnn__sums_fill(gather_params *p, int *vector,
                              const sums_call *call, int pass,
                              const dfgnn_matrix *matrix);
/* Sets the arrays by destination from which the gradients of a reduction's
 * messages are computed. */
void dfgnn__sums_fill_grades(gather_params *p, const sums_call *call);

/* ---- other kernels ------------------------------------------------------- */

/* Writes args->grad_edge_weight of weighted sums. */
dfgnn_status dfgnn__sums_grade_weights(const dfgnn_launch *launch);

/* Converts the matrix of a projection into call->matrix. */
dfgnn_status dfgnn__sums_convert(const sums_call *call);
/* Writes args->grad_edge_attr, grad_edge_projection and grad_edge_bias of a
 * projection. */
dfgnn_status dfgnn__sums_grade_projection(const sums_call *call);

#endif
