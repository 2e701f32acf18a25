/* backward.c - which walks a call of backward needs, and their launches */
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/operators.h"

/* ---- shapes -------------------------------------------------------------- */

int dfgnn__grad_legal(int lanes, int unroll, int heads) {
  if (heads == HEADS_ROW)
    return lanes == 32 && unroll <= 2;
  if (heads == HEADS_LANES)
    return lanes >= 8 && lanes < 32 && unroll <= 2;
  if (heads)
    return lanes == 32 ? unroll == 2 : lanes >= 8 && unroll <= lanes / 8;
  return unroll <= (lanes >= 16 ? 4 : 2);
}

/* A walk holds four rows of a lane's features and two rows of each edge in
 * flight, which bounds the features of a lane; 16-bit types take half the
 * registers. */
int dfgnn__grad_shape(lane_shape *shape, const dfgnn_problem *problem,
                      const grad_plan *plan, int unroll) {
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int vector = dfgnn__vector_width(problem);
  const int many = plan->lanes == 32 && plan->heads != HEADS_ROW;
  const int alone = (many ? 32 : 16) / (size == 8 ? 2 : 1);
  const int together = size == 8 ? 8 : size == 4 ? 16 : 32;
  const int most = (unroll == 1 ? alone : together / unroll) / vector;
  return most > 0 && dfgnn__lane_shape(shape, problem, vector, plan->lanes,
                                       plan->heads, most);
}

/* The lanes of a walk over spilled dS.  It holds fewer rows, so it has as many
 * edges in flight as fit, up to 4, whatever the plan says. */
static int given_shape(lane_shape *shape, const dfgnn_problem *problem,
                       const grad_plan *plan, int *unroll) {
  for (*unroll = 4; *unroll > 0; *unroll /= 2) {
    const int vector = dfgnn__vector_width(problem);
    const int most = (plan->lanes == 32 ? 16 : 32) *
                     (dfgnn_dtype_size(problem->dtype) == 2 ? 2 : 1) / *unroll /
                     vector;
    if (most > 0 && dfgnn__lane_shape(shape, problem, vector, plan->lanes,
                                      plan->heads, most))
      return 1;
  }
  *unroll = 1;
  return dfgnn__grad_shape(shape, problem, plan, 1);
}

static int shape_of(lane_shape *shape, const dfgnn_problem *problem,
                    const grad_plan *plan, int mode, int *unroll) {
  *unroll = plan->unroll;
  return mode == GRAD_GIVEN ? given_shape(shape, problem, plan, unroll)
                            : dfgnn__grad_shape(shape, problem, plan, *unroll);
}

grad_plan dfgnn__grad_plain_plan(void) {
  return (grad_plan){
      .lanes = 32, .unroll = 1, .rows = 1, .warps = 4, .span = SPAN_ONCE};
}

int dfgnn__grad_is_plain(const grad_plan *plan) {
  return plan->lanes == 32 && plan->unroll == 1 && !plan->heads &&
         plan->rows == 1 && plan->span == SPAN_ONCE;
}

/* ---- applicability ------------------------------------------------------- */

enum { MOST_FEATURES = 2048 };

const char *dfgnn__grad_limits(const dfgnn_setting *s, const grad_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const dfgnn_matrix *matrix = s->matrix;
  const int64_t more = plan->item_edges ? matrix->edges / plan->item_edges : 0;
  if (matrix->max_degree > INT32_MAX ||
      matrix->destinations + more > INT32_MAX - 65536 ||
      matrix->sources + more > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if (plan->item_edges && matrix->edges <= plan->item_edges)
    return "no row is longer than an item";
  if (problem->dim > MOST_FEATURES)
    return "more than 2048 features";
  if (problem->heads > DFGNN_GRID_Y_MAX)
    return "more than 65535 heads";
  if (plan->heads && problem->heads == 1)
    return "the problem has one head";
  return NULL;
}

/* The heads that 32 vectors of a warp take; 0 if it cannot hold them. */
static int heads_of_warp(const dfgnn_problem *problem, const grad_plan *plan) {
  grad_plan warp = *plan;
  lane_shape shape;
  warp.heads = HEADS_WARP;
  return dfgnn__grad_shape(&shape, problem, &warp, warp.unroll)
             ? shape.tile_heads
             : 0;
}

const char *dfgnn__grad_refusal(const dfgnn_setting *s, const grad_plan *plan) {
  const char *reason = dfgnn__grad_limits(s, plan);
  lane_shape shape;
  if (reason || dfgnn__grad_is_plain(plan))
    return reason;
  if (!dfgnn__grad_shape(&shape, s->problem, plan, plan->unroll))
    return "a lane would hold more features than registers can";
  const int usual = heads_of_warp(s->problem, plan);
  if (plan->heads == HEADS_ROW && usual >= shape.tile_heads)
    return "32 vectors span the row";
  if (plan->heads == HEADS_LANES && usual == shape.tile_heads)
    return "the lanes span as many heads as 32 vectors";
  return NULL;
}

int dfgnn__grad_views(const grad_plan *plan, dfgnn_view_request *requests) {
  int count = 0;
  requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  for (int columns = 0; columns < 2; columns++)
    if (plan->item_edges)
      requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                               .parameter = plan->item_edges,
                                               .transposed = columns};
    else if (plan->by_degree)
      requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_DEGREE_ORDER,
                                               .transposed = columns};
  return count;
}

/* ---- modes --------------------------------------------------------------- */

static int edges_of(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  return (problem->bias && a->bias ? EDGE_BIAS : EDGE_PLAIN) |
         (problem->dropout && a->dropout > 0 ? EDGE_DROPOUT : EDGE_PLAIN);
}

static int mode_of(const dfgnn_launch *launch, const grad_plan *plan,
                   int columns) {
  if (plan->spill)
    return columns ? edges_of(launch) | EDGE_WRITE : GRAD_GIVEN;
  return edges_of(launch);
}

/* ---- one walk ------------------------------------------------------------ */

int dfgnn__grad_usual_slope(const grad_params *p,
                            const dfgnn_problem *problem) {
  return !DFGNN_HAS_ATT(problem->op) || (p->slope >= 0 && p->slope <= 1);
}

int64_t dfgnn__grad_lay_out(grad_params *p, const dfgnn_setting *s,
                            const grad_plan *plan, const lane_shape *shape) {
  const int most = 32 / shape->lanes, units = p->schedule.units;
  const int rows = plan->rows < most ? plan->rows : most;
  const int64_t blocks = dfgnn__ceil_div(units, plan->warps * rows);
  const int many = blocks > dfgnn__resident(s, plan->warps);
  /* Each block leaves totals, so that there are few. */
  const row_span span =
      p->totals && plan->span == SPAN_ONCE && many ? SPAN_DEALT : plan->span;
  return dfgnn__share_out(&p->share, s, units, plan->warps, rows, span);
}

static dfgnn_status walk_as(grad_params *p, const dfgnn_launch *launch,
                            const grad_plan *plan, const lane_shape *shape,
                            int mode, int columns, int64_t *blocks) {
  const dfgnn_problem *problem = launch->setting.problem;
  row_constants k = dfgnn__row_constants(problem, shape, plan->unroll,
                                         dfgnn__grad_packed(p, problem));
  k.columns = columns;
  k.mode = mode | (p->adds ? GRAD_ADDS : 0) |
           (dfgnn__grad_usual_slope(p, problem) ? 0 : GRAD_ANY_SLOPE);
  const dfgnn_program program =
      DFGNN_PROGRAM_OF("kernels/attention/cuda/backward.cuh", "dfgnn::gradient",
                       ROW_CONSTANTS, &k);
  *blocks = dfgnn__grad_lay_out(p, &launch->setting, plan, shape);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)*blocks, (unsigned)shape->tiles},
                   .threads = (unsigned)plan->warps * 32,
                   .carveout = DFGNN_CARVEOUT_L1},
      p);
}

/* Replaces a shape and plan by one head a warp, with narrower vectors: for
 * arguments that the plan's vectors cannot load, and widths that its lanes
 * cannot hold.  With vectors of one, features lie at any stride. */
void dfgnn__grad_narrow(lane_shape *shape, grad_plan *plan,
                        const dfgnn_problem *problem, int vector) {
  plan->lanes = 32;
  plan->unroll = plan->rows = 1;
  plan->heads = HEADS_GRID;
  (void)dfgnn__lane_shape(shape, problem, vector, plan->lanes, plan->heads,
                          MOST_FEATURES / 32);
}

int dfgnn__grad_vector(const grad_params *rows, const grad_params *columns,
                       const dfgnn_problem *problem) {
  int vector = dfgnn__vector_width(problem);
  while (vector > 1 && !(dfgnn__grad_aligned(rows, problem, vector) &&
                         dfgnn__grad_aligned(columns, problem, vector)))
    vector /= 2;
  return vector;
}

int dfgnn__grad_as_planned(const grad_plan *plan, const dfgnn_problem *problem,
                           int vector) {
  lane_shape shape;
  return vector == dfgnn__vector_width(problem) &&
         dfgnn__grad_shape(&shape, problem, plan, plan->unroll);
}

static void schedule(grad_params *p, const dfgnn_launch *launch,
                     const grad_plan *plan, int columns) {
  const dfgnn_matrix matrix = {.destinations = p->schedule.units};
  if (plan->item_edges)
    dfgnn__schedule_items(&p->schedule, launch->views[1 + columns], &matrix);
  else if (plan->by_degree)
    p->schedule.order = launch->views[1 + columns]->array[0];
}

/* One walk, merged; *totals becomes the number of rows of its totals.  Both
 * walks of a call have the same vector, so that delta, which one may leave for
 * the other, is summed in the order of dP. */
static dfgnn_status walk(grad_params *p, const dfgnn_launch *launch,
                         const grad_plan *plan, int columns, int vector,
                         int64_t *totals) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int mode = mode_of(launch, plan, columns);
  grad_plan as = *plan;
  int64_t blocks = 0;
  lane_shape shape;
  dfgnn_status status;
  schedule(p, launch, plan, columns);
  *totals = 0;
  if (p->schedule.units == 0)
    return DFGNN_OK;
  if (!dfgnn__grad_as_planned(plan, problem, vector) ||
      !shape_of(&shape, problem, plan, mode, &as.unroll))
    dfgnn__grad_narrow(&shape, &as, problem, vector);
  status = walk_as(p, launch, &as, &shape, mode, columns, &blocks);
  *totals = DFGNN_HAS_NORMS(problem->op) ? blocks * shape.tiles : blocks;
  if (!status && plan->item_edges)
    status = dfgnn__grad_merge(p, GRAD_SUMS(problem->op, columns),
                               launch->views[1 + columns], launch);
  return status;
}

static dfgnn_status walk_rows(const dfgnn_launch *launch, const grad_plan *plan,
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
                                const grad_plan *plan, int vector) {
  const int planned =
      dfgnn__grad_as_planned(plan, launch->setting.problem, vector);
  return dfgnn__grad_stats(rows, planned ? plan->lanes : 32, vector, launch);
}

/* Walks over columns first, which keep dS of each edge for the rows. */
static dfgnn_status spill_launch(const dfgnn_launch *launch,
                                 const grad_plan *plan,
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
                                const grad_plan *plan) {
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
