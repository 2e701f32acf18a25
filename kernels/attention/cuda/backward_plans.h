/* backward_plans.h - the host's side of backward: what families say, and the
 * pieces that they are launched with */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_PLANS_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_PLANS_H

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/layout.h"

/* One row a warp and lane group; or 32 warps a multiprocessor that come back
 * for more, each block with rows in one piece or with every n-th. */
typedef enum grad_span {
  GRAD_ONCE = 0,
  GRAD_PIECE = 1,
  GRAD_DEALT = 2
} grad_span;

/* How a variant of backward runs. */
typedef struct grad_plan {
  int lanes, unroll, warps, rows;
  int heads; /* of enum lane_heads */
  grad_span span;
  int by_degree;  /* views: rows, then columns, by falling degree */
  int item_edges; /* 0: whole rows; else views: items of rows, then columns */
  int spill;      /* columns first; they spill dS for rows */
} grad_plan;

/* ---- for families: backward.c -------------------------------------------- */

/* Is there a walk of these parameters for some problem? */
int dfgnn__grad_legal(int lanes, int unroll, int heads);
/* NULL if no size is beyond what any walk of the plan takes, else the reason.
 */
const char *dfgnn__grad_limits(const dfgnn_setting *setting,
                               const grad_plan *plan);
/* NULL if the plan can run, else the reason. */
const char *dfgnn__grad_refusal(const dfgnn_setting *setting,
                                const grad_plan *plan);
int dfgnn__grad_views(const grad_plan *plan, dfgnn_view_request *requests);
dfgnn_status dfgnn__grad_launch(const dfgnn_launch *launch,
                                const grad_plan *plan);

/* For problems that vectors do not serve, and arguments that they cannot load:
 * single features at any stride. */
grad_plan dfgnn__grad_plain_plan(void);
/* Is it the setting that stands for that plan? */
int dfgnn__grad_is_plain(const grad_plan *plan);

/* The lanes of a walk with so many edges in flight; 0 if a lane would hold more
 * than registers can. */
int dfgnn__grad_shape(lane_shape *shape, const dfgnn_problem *problem,
                      const grad_plan *plan, int unroll);
/* Deals the rows to blocks of plan->warps warps; returns how many blocks. */
int64_t dfgnn__grad_lay_out(grad_params *p, const dfgnn_setting *setting,
                            const grad_plan *plan, const lane_shape *shape);
/* GATv2: where leaky(t) is the larger of t and slope t, of the sign of t. */
int dfgnn__grad_usual_slope(const grad_params *p, const dfgnn_problem *problem);

/* ---- arguments: backward_arguments.c ------------------------------------- */

/* Where the parts of a workspace are; NULL: not there. */
typedef struct grad_memory {
  char *stats, *norms, *spill, *totals, *partial, *partial_scalar;
  size_t bytes;
} grad_memory;

/* workspace may be NULL to count bytes. */
grad_memory dfgnn__grad_memory(const dfgnn_setting *setting,
                               const grad_plan *plan, void *workspace);
size_t dfgnn__grad_workspace(const dfgnn_setting *setting,
                             const grad_plan *plan);
/* Puts an array behind the others; NULL if base is. */
char *dfgnn__grad_part(grad_memory *memory, char *base, int64_t count,
                       size_t size);
/* Blocks of a walk whose blocks leave totals, or take rows by turns. */
int64_t dfgnn__grad_resident(const dfgnn_setting *setting, int warps);

/* What the arguments and the matrix say of a walk; launch->views[0] is the
 * TRANSPOSE view. */
dfgnn_status dfgnn__grad_fill(grad_params *p, const dfgnn_launch *launch,
                              const grad_memory *memory, int columns);
/* The tensors alone. */
dfgnn_status dfgnn__grad_tensors(grad_params *p, const dfgnn_launch *launch,
                                 int columns);
/* Can vectors of so many elements be loaded of all tensors? */
int dfgnn__grad_aligned(const grad_params *p, const dfgnn_problem *problem,
                        int vector);
/* Are the heads of all tensors behind each other? */
int dfgnn__grad_packed(const grad_params *p, const dfgnn_problem *problem);

/* ---- around the walks: backward_sums.c ----------------------------------- */

/* What a walk over rows leaves in stats, from the arguments of one, summed in
 * the order of a walk with so many lanes and elements a vector: where an edge
 * has the whole weight of its row, dP - delta is 0 then. */
dfgnn_status dfgnn__grad_stats(const grad_params *p, int lanes, int vector,
                               const dfgnn_launch *launch);
/* Sums the partial gradients of rows of several items. */
dfgnn_status dfgnn__grad_merge(const grad_params *p, int tensors,
                               const dfgnn_view *items,
                               const dfgnn_launch *launch);
/* to[width] = the sums of the columns of totals[rows, width]. */
dfgnn_status dfgnn__grad_totals(void *to, const void *totals, int64_t rows,
                                int64_t width, const dfgnn_launch *launch);
/* to[N,H] = the sums over rows of spill[E,H]. */
dfgnn_status dfgnn__grad_row_sums(void *to, const void *spill,
                                  const dfgnn_launch *launch);

#endif
