/* backward.c - which walks a call of backward needs, and their launches */
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/operators.h"

/* ---- shapes -------------------------------------------------------------- */

/* The lanes of a walk over spilled dS.  It holds fewer rows, so it has as many
 * edges in flight as fit, up to 4, whatever the plan says. */
static void given_lanes(lane_shape *shape, row_plan *plan,
                        const dfgnn_problem *problem) {
  const int vector = dfgnn__vector_width(problem);
  const int features = (plan->lanes == 32 ? 16 : 32) *
                       (dfgnn_dtype_size(problem->dtype) == 2 ? 2 : 1);
  for (plan->unroll = 4; plan->unroll > 0; plan->unroll /= 2) {
    const int most = features / plan->unroll / vector;
    if (most > 0 && dfgnn__lane_shape(shape, problem, vector, plan->lanes,
                                      plan->heads, most))
      return;
  }
  plan->unroll = 1;
  (void)dfgnn__row_shape(shape, problem, plan, 1);
}

/* ---- modes --------------------------------------------------------------- */

static int edges_of(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  return (problem->bias && a->bias ? EDGE_BIAS : EDGE_PLAIN) |
         (problem->dropout && a->dropout > 0 ? EDGE_DROPOUT : EDGE_PLAIN);
}

static int mode_of(const dfgnn_launch *launch, const row_plan *plan,
                   int columns) {
  if (plan->spill)
    return columns ? edges_of(launch) | EDGE_WRITE : GRAD_GIVEN;
  return edges_of(launch);
}

/* ---- one walk ------------------------------------------------------------ */

/* GATv2: is leaky(t) the larger of t and slope t, with the sign of t?  1 for
 * the other operators. */
static int usual_slope(const grad_params *p, const dfgnn_problem *problem) {
  return !DFGNN_HAS_ATT(problem->op) || (p->slope >= 0 && p->slope <= 1);
}

dfgnn_grid dfgnn__grad_grid(grad_params *p, const dfgnn_setting *s,
                            const row_plan *plan, const lane_shape *shape) {
  row_plan as = *plan;
  const int most = 32 / shape->lanes, units = p->schedule.units;
  const int rows = plan->rows < most ? plan->rows : most;
  /* Each block leaves totals, so that there are few. */
  if (p->totals && plan->span == SPAN_ONCE &&
      dfgnn__ceil_div(units, plan->warps * rows) >
          dfgnn__resident(s, plan->warps))
    as.span = SPAN_DEALT;
  return dfgnn__row_grid(&p->share, s, &as, shape, units);
}

static dfgnn_status walk_as(grad_params *p, const dfgnn_launch *launch,
                            const row_plan *plan, const lane_shape *shape,
                            int mode, int columns, int64_t *blocks) {
  const dfgnn_problem *problem = launch->setting.problem;
  row_constants k = dfgnn__row_constants(problem, shape, plan->unroll,
                                         dfgnn__grad_packed(p, problem));
  k.columns = columns;
  k.mode = mode | (p->adds ? GRAD_ADDS : 0) |
           (usual_slope(p, problem) ? 0 : GRAD_ANY_SLOPE);
  const dfgnn_program program =
      DFGNN_PROGRAM_OF("kernels/attention/cuda/backward.cuh", "dfgnn::gradient",
                       ROW_CONSTANTS, &k);
  dfgnn_grid grid = dfgnn__grad_grid(p, &launch->setting, plan, shape);
  grid.overlaps = columns || plan->spill; /* others came before */
  *blocks = grid.blocks[0];
  return dfgnn__launch_struct(launch->setting.queue, &program, grid, p);
}

int dfgnn__grad_vector(const grad_params *rows, const grad_params *columns,
                       const dfgnn_problem *problem) {
  int vector = dfgnn__vector_width(problem);
  while (vector > 1 && !(dfgnn__grad_aligned(rows, problem, vector) &&
                         dfgnn__grad_aligned(columns, problem, vector)))
    vector /= 2;
  return vector;
}

/* One walk, merged; *totals becomes the number of rows of its totals.  Both
 * walks of a call have the same vector, so that delta, which one may leave for
 * the other, is summed in the order of dP. */
static dfgnn_status walk(grad_params *p, const dfgnn_launch *launch,
                         const row_plan *plan, int columns, int vector,
                         int64_t *totals) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int mode = mode_of(launch, plan, columns);
  row_plan as = *plan;
  int64_t blocks = 0;
  lane_shape shape;
  dfgnn_status status;
  dfgnn__schedule_as(&p->schedule, plan, launch, columns);
  *totals = 0;
  if (p->schedule.units == 0)
    return DFGNN_OK;
  if (mode == GRAD_GIVEN && dfgnn__row_as_planned(plan, problem, vector))
    given_lanes(&shape, &as, problem);
  else
    dfgnn__row_lanes(&shape, &as, problem, vector);
  status = walk_as(p, launch, &as, &shape, mode, columns, &blocks);
  *totals = DFGNN_HAS_NORMS(problem->op) ? blocks * shape.tiles : blocks;
  if (!status && plan->item_edges)
    status = dfgnn__grad_merge(p, GRAD_SUMS(problem->op, columns),
                               launch->views[1 + columns], launch);
  return status;
}

static dfgnn_status walk_rows(const dfgnn_launch *launch, const row_plan *plan,
                              const grad_memory *memory, grad_params *p,
                              int vector) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  dfgnn_status status;
  int64_t totals;
  if (DFGNN_HAS_NORMS(problem->op) &&
      (status = dfgnn__inverse_norms(memory->norms, &p->far[0],
                                     launch->setting.matrix->sources, launch)))
    return status;
  if ((status = walk(p, launch, plan, 0, vector, &totals)) || !p->totals)
    return status;
  return DFGNN_HAS_NORMS(problem->op)
             ? dfgnn__grad_totals(a->grad_beta, memory->totals, totals, 1,
                                  launch)
             : dfgnn__grad_totals(a->grad_att, memory->totals, totals,
                                  problem->heads * problem->dim, launch);
}

/* ---- both ---------------------------------------------------------------- */

static int gives_rows(const grad_params *p) {
  return p->to[0].data || p->to_scalar || p->totals;
}

static int gives_columns(const grad_params *p) {
  return p->to[0].data || p->to[1].data || p->to_scalar;
}

/* Computes stats for calls without a walk over rows. */
static dfgnn_status stats_alone(const grad_params *rows,
                                const dfgnn_launch *launch,
                                const row_plan *plan, int vector) {
  const int planned =
      dfgnn__row_as_planned(plan, launch->setting.problem, vector);
  return dfgnn__grad_stats(rows, planned ? plan->lanes : 32, vector, launch);
}

/* Walks over columns first, which keep dS of each edge for the rows. */
static dfgnn_status spill_launch(const dfgnn_launch *launch,
                                 const row_plan *plan,
                                 const grad_memory *memory, grad_params *rows,
                                 grad_params *columns, int vector) {
  const dfgnn_args *a = launch->args;
  const int gat = DFGNN_HAS_SCALARS(launch->setting.problem->op);
  const int by_rows = gives_rows(rows);
  int64_t totals;
  dfgnn_status status = stats_alone(rows, launch, plan, vector);
  if (status)
    return status;
  columns->grad_bias = a->grad_bias;
  if (by_rows && a->grad_bias && !gat) /* grad_bias is dS: rows read it */
    rows->spill = a->grad_bias;
  else if (by_rows)
    rows->spill = columns->spill = memory->spill;
  if ((status = walk(columns, launch, plan, 1, vector, &totals)) || !by_rows)
    return status;
  return gat ? dfgnn__grad_row_sums(a->grad_score_dst, memory->spill, launch)
             : walk_rows(launch, plan, memory, rows, vector);
}

dfgnn_status dfgnn__grad_launch(const dfgnn_launch *launch,
                                const row_plan *plan) {
  const grad_memory memory =
      dfgnn__grad_memory(&launch->setting, plan, launch->workspace);
  grad_params rows, columns;
  dfgnn_status status;
  int64_t totals;
  if ((status = dfgnn__grad_fill(&rows, launch, &memory, 0)) ||
      (status = dfgnn__grad_fill(&columns, launch, &memory, 1)))
    return status;
  const int vector =
      dfgnn__grad_vector(&rows, &columns, launch->setting.problem);
  if (plan->spill)
    return spill_launch(launch, plan, &memory, &rows, &columns, vector);
  status = gives_rows(&rows) || launch->args->grad_bias
               ? walk_rows(launch, plan, &memory, &rows, vector)
               : stats_alone(&rows, launch, plan, vector);
  return status || !gives_columns(&columns)
             ? status
             : walk(&columns, launch, plan, 1, vector, &totals);
}
