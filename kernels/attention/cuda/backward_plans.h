/* backward_plans.h - host code of backward: arguments and launches of the
 * kernels */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_PLANS_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_PLANS_H

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/plans.h"

/* ---- for families: backward.c -------------------------------------------- */

dfgnn_status dfgnn__grad_launch(const dfgnn_launch *launch,
                                const row_plan *plan);

/* Shares the units out to blocks of plan->warps warps. */
dfgnn_grid dfgnn__grad_grid(grad_params *p, const dfgnn_setting *setting,
                            const row_plan *plan, const lane_shape *shape);
/* The elements of the widest vector that can be loaded from all tensors. */
int dfgnn__grad_vector(const grad_params *rows, const grad_params *columns,
                       const dfgnn_problem *problem);

/* ---- arguments: backward_arguments.c ------------------------------------- */

/* The parts of a workspace; NULL: absent. */
typedef struct grad_memory {
  char *stats, *norms, *spill, *totals, *partial, *partial_scalar;
  size_t bytes;
} grad_memory;

/* workspace may be NULL to count bytes. */
grad_memory dfgnn__grad_memory(const dfgnn_setting *setting,
                               const row_plan *plan, void *workspace);
size_t dfgnn__grad_workspace(const dfgnn_setting *setting,
                             const row_plan *plan);
/* Fills the parameters of a walk from the arguments and the matrix;
 * launch->views[0] is the TRANSPOSE view. */
dfgnn_status dfgnn__grad_fill(grad_params *p, const dfgnn_launch *launch,
                              const grad_memory *memory, int columns);
/* Fills the tensors alone. */
dfgnn_status dfgnn__grad_tensors(grad_params *p, const dfgnn_launch *launch,
                                 int columns);
/* Can vectors of `vector` elements be loaded from all tensors? */
int dfgnn__grad_aligned(const grad_params *p, const dfgnn_problem *problem,
                        int vector);
/* Are all tensors packed, as dfgnn__view_packed() has it? */
int dfgnn__grad_packed(const grad_params *p, const dfgnn_problem *problem);

/* ---- around the walks: backward_sums.c ----------------------------------- */

/* Computes the stats that a walk over rows with parameters p would leave.
 * delta is summed in the order of a walk with these lanes and elements of a
 * vector, so that dP - delta is 0 where an edge has the whole weight of its
 * row. */
dfgnn_status dfgnn__grad_stats(const grad_params *p, int lanes, int vector,
                               const dfgnn_launch *launch);
/* Sums the partial gradients of split rows, those of a view of items, or NULL:
 * all. */
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
