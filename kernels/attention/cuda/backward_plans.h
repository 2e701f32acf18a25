/* backward_plans.h - host code of backward: plans of the families, arguments
 * and launches of the kernels */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_PLANS_H
#define DFGNN_ATTENTION_CUDA_BACKWARD_PLANS_H

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/layout.h"

/* The parameters of a variant, by name. */
typedef struct grad_plan {
  int lanes, unroll, warps, rows;
  int heads; /* enum lane_heads */
  row_span span;
  int by_degree;  /* views: rows, then columns, by falling degree */
  int item_edges; /* 0: whole rows; else views: items of rows, then columns */
  int spill;      /* columns first; they spill dS for rows */
} grad_plan;

/* ---- for families: backward.c -------------------------------------------- */

/* Do these parameters make a walk for some problem? */
int dfgnn__grad_legal(int lanes, int unroll, int heads);
/* NULL if every size is within the limits of all walks, else the reason. */
const char *dfgnn__grad_limits(const dfgnn_setting *setting,
                               const grad_plan *plan);
/* NULL if the plan can run, else the reason. */
const char *dfgnn__grad_refusal(const dfgnn_setting *setting,
                                const grad_plan *plan);
int dfgnn__grad_views(const grad_plan *plan, dfgnn_view_request *requests);
dfgnn_status dfgnn__grad_launch(const dfgnn_launch *launch,
                                const grad_plan *plan);

/* The plan for problems and arguments that vectors cannot load: it loads single
 * features at any stride. */
grad_plan dfgnn__grad_plain_plan(void);
/* Are the parameters those of dfgnn__grad_plain_plan()? */
int dfgnn__grad_is_plain(const grad_plan *plan);

/* The lanes of a walk with so many edges in flight; 0 if a lane would hold more
 * than registers can. */
int dfgnn__grad_shape(lane_shape *shape, const dfgnn_problem *problem,
                      const grad_plan *plan, int unroll);
/* Shares the units out to blocks of plan->warps warps; returns the number of
 * blocks. */
int64_t dfgnn__grad_lay_out(grad_params *p, const dfgnn_setting *setting,
                            const grad_plan *plan, const lane_shape *shape);
/* The elements of the widest vector that can be loaded from all tensors. */
int dfgnn__grad_vector(const grad_params *rows, const grad_params *columns,
                       const dfgnn_problem *problem);
/* Can the lanes be those of the plan, with such vectors? */
int dfgnn__grad_as_planned(const grad_plan *plan, const dfgnn_problem *problem,
                           int vector);
/* Makes the plan and shape for other vectors: one head a warp. */
void dfgnn__grad_narrow(lane_shape *shape, grad_plan *plan,
                        const dfgnn_problem *problem, int vector);
/* GATv2: is leaky(t) the larger of t and slope t, with the sign of t?  1 for
 * the other operators. */
int dfgnn__grad_usual_slope(const grad_params *p, const dfgnn_problem *problem);

/* ---- arguments: backward_arguments.c ------------------------------------- */

/* The parts of a workspace; NULL: absent. */
typedef struct grad_memory {
  char *stats, *norms, *spill, *totals, *partial, *partial_scalar;
  size_t bytes;
} grad_memory;

/* workspace may be NULL to count bytes. */
grad_memory dfgnn__grad_memory(const dfgnn_setting *setting,
                               const grad_plan *plan, void *workspace);
size_t dfgnn__grad_workspace(const dfgnn_setting *setting,
                             const grad_plan *plan);
/* Fills the parameters of a walk from the arguments and the matrix;
 * launch->views[0] is the TRANSPOSE view. */
dfgnn_status dfgnn__grad_fill(grad_params *p, const dfgnn_launch *launch,
                              const grad_memory *memory, int columns);
/* Fills the tensors alone. */
dfgnn_status dfgnn__grad_tensors(grad_params *p, const dfgnn_launch *launch,
                                 int columns);
/* Can vectors of so many elements be loaded from all tensors? */
int dfgnn__grad_aligned(const grad_params *p, const dfgnn_problem *problem,
                        int vector);
/* Are all tensors packed, as dfgnn__view_packed() has it? */
int dfgnn__grad_packed(const grad_params *p, const dfgnn_problem *problem);

/* ---- around the walks: backward_sums.c ----------------------------------- */

/* Computes the stats that a walk over rows with parameters p would leave.
 * delta is summed in the order of a walk with so many lanes and elements a
 * vector, so that dP - delta is 0 where an edge has the whole weight of its
 * row. */
dfgnn_status dfgnn__grad_stats(const grad_params *p, int lanes, int vector,
                               const dfgnn_launch *launch);
/* Sums the partial gradients of split rows. */
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
