/* tile_backward.c - host code of gradients over tiles */
#include "kernels/attention/cuda/tile_backward.h"

#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/cuda/tile_plans.h"
#include "kernels/attention/operators.h"

static int width_of(const dfgnn_problem *problem) {
  return GRAD_TILE_WIDTH((int)problem->dim);
}

static size_t shared_bytes(const dfgnn_problem *problem, int columns,
                           int window) {
  const size_t row =
      (size_t)width_of(problem) * dfgnn_dtype_size(problem->dtype);
  const size_t own = (size_t)GRAD_TILE_OWN(problem->op, columns);
  const size_t far = (size_t)GRAD_TILE_FAR(problem->op, columns);
  const size_t extras = (size_t)GRAD_TILE_EXTRAS(problem->op, columns);
  return own * (size_t)window * row + GRAD_TILE_STAGES * GRAD_TILE_STEP *
                                          (far * row + extras * sizeof(float));
}

/* ---- applicability ------------------------------------------------------- */

const char *dfgnn__grad_tile_refusal(const dfgnn_setting *s,
                                     const tile_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const dfgnn_matrix *matrix = s->matrix;
  const char *reason = dfgnn__tile_limits(s, plan);
  if (!reason && plan->direct)
    reason = dfgnn__direct_limits(problem);
  if (reason)
    return reason;
  if (problem->dim % dfgnn__wide_vector(problem->dtype) != 0 ||
      (problem->layout != DFGNN_LAYOUT_NHD && problem->heads > 1))
    return "features are not aligned to 16 bytes";
  if (matrix->sources > INT32_MAX - 65536 || matrix->max_degree > INT32_MAX)
    return "a row or the number of rows exceeds 2^31";
  for (int columns = 0; columns < 2 && !plan->direct; columns++)
    if (shared_bytes(problem, columns, plan->rows) >
        (size_t)s->device->shared_bytes)
      return "a block's rows exceed shared memory";
  return NULL;
}

/* ---- memory -------------------------------------------------------------- */

typedef struct grad_tile_memory {
  grad_memory walk;
  char *block_totals;
} grad_tile_memory;

enum { TOTALS_WIDTH = 256 };

static int64_t padded_pairs(int64_t pairs) {
  return dfgnn__ceil_div(pairs, TOTALS_WIDTH) * TOTALS_WIDTH;
}

static grad_tile_memory memory_of(const dfgnn_setting *s, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const dfgnn_matrix *matrix = s->matrix;
  const int64_t heads = problem->heads;
  const int64_t pairs = matrix->destinations * heads;
  grad_tile_memory m = {0};
  m.walk.stats =
      dfgnn__part(&m.walk.bytes, workspace, pairs * GRAD_STATS(problem->op), 4);
  if (DFGNN_HAS_NORMS(problem->op)) {
    m.walk.norms =
        dfgnn__part(&m.walk.bytes, workspace, matrix->sources * heads, 4);
    m.walk.totals =
        dfgnn__part(&m.walk.bytes, workspace, padded_pairs(pairs), 4);
    m.block_totals = dfgnn__part(&m.walk.bytes, workspace, TOTALS_WIDTH, 4);
  }
  return m;
}

/* The larger of this plan's workspace and that of the plan for unaligned
 * arguments. */
size_t dfgnn__grad_tile_workspace(const dfgnn_setting *s,
                                  const tile_plan *plan) {
  (void)plan;
  const row_plan plain = dfgnn__plain_plan();
  const size_t other = dfgnn__grad_workspace(s, &plain);
  const size_t own = memory_of(s, NULL).walk.bytes;
  return own > other ? own : other;
}

int dfgnn__grad_tile_views(const dfgnn_setting *s, const tile_plan *plan,
                           dfgnn_view_request *requests) {
  (void)s;
  requests[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  requests[1] = dfgnn__tile_request(plan, 0);
  requests[2] = dfgnn__tile_request(plan, 1);
  return 3;
}

/* ---- launch -------------------------------------------------------------- */

static dfgnn_program gradient_program(const dfgnn_launch *launch, int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int terms =
      problem->dtype == DFGNN_F32 && problem->math != DFGNN_MATH_TF32 ? 3 : 1;
  return (dfgnn_program)DFGNN_PROGRAM(
      "kernels/attention/cuda/tile_backward.cuh", "dfgnn::grad_tile_gradient",
      (int)problem->op, DFGNN_TYPE(problem->dtype), (int)problem->dim, terms,
      columns, dfgnn__tile_edges(problem, launch->args));
}

static dfgnn_program direct_program(const dfgnn_launch *launch, int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  return (dfgnn_program)DFGNN_PROGRAM(
      "kernels/attention/cuda/direct_backward.cuh", "dfgnn::direct_gradients",
      (int)problem->op, DFGNN_TYPE(problem->dtype), (int)problem->dim,
      problem->math != DFGNN_MATH_TF32, columns,
      dfgnn__tile_edges(problem, launch->args));
}

static dfgnn_status pass(grad_tile_params *p, const dfgnn_launch *launch,
                         const tile_plan *plan, int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_view *view = launch->views[1 + columns];
  const dfgnn_program gradient = plan->direct
                                     ? direct_program(launch, columns)
                                     : gradient_program(launch, columns);
  const unsigned heads = (unsigned)problem->heads;
  p->items = view->array[0];
  p->columns = view->array[1];
  p->masks = view->array[2];
  p->window = plan->rows;
  p->dense = plan->dense;
  if (view->count == 0)
    return DFGNN_OK;
  const unsigned together =
      plan->direct ? (unsigned)dfgnn__direct_heads((int)heads, plan->rows) : 1;
  const dfgnn_grid grid = {
      .blocks = {(unsigned)view->count, (heads + together - 1) / together},
      .threads = (unsigned)plan->rows * 2 * together,
      .shared = plan->direct
                    ? 0
                    : (unsigned)shared_bytes(problem, columns, plan->rows),
      .carveout = plan->direct ? DFGNN_CARVEOUT_L1 : DFGNN_CARVEOUT_SHARED};
  return dfgnn__launch_struct(launch->setting.queue, &gradient, grid, p);
}

/* Sums grad_beta from the numbers that rows leave in totals. */
static dfgnn_status sum_beta(const grad_tile_memory *memory,
                             const dfgnn_launch *launch) {
  const int64_t pairs =
      launch->setting.matrix->destinations * launch->setting.problem->heads;
  dfgnn_status status = dfgnn__grad_totals(
      memory->block_totals, memory->walk.totals,
      dfgnn__ceil_div(pairs, TOTALS_WIDTH), TOTALS_WIDTH, launch);
  return status
             ? status
             : dfgnn__grad_totals(launch->args->grad_beta, memory->block_totals,
                                  TOTALS_WIDTH, 1, launch);
}

static dfgnn_status rows_pass(grad_tile_params *p, const dfgnn_launch *launch,
                              const tile_plan *plan,
                              const grad_tile_memory *memory) {
  const int64_t pairs =
      launch->setting.matrix->destinations * launch->setting.problem->heads;
  const int64_t padding = padded_pairs(pairs) - pairs;
  dfgnn_status status = DFGNN_OK;
  p->row_totals = p->walk.totals;
  if (p->row_totals && padding > 0)
    status = dfgnn__fill(launch->setting.queue, memory->walk.totals + pairs * 4,
                         0, (size_t)padding * 4);
  if (!status)
    status = pass(p, launch, plan, 0);
  return status || !p->row_totals ? status : sum_beta(memory, launch);
}

static int gives_rows(const grad_params *p) {
  return p->to[0].data || p->to_scalar || p->totals || p->grad_bias;
}

static int gives_columns(const grad_params *p) {
  return p->to[0].data || p->to[1].data || p->to_scalar;
}

dfgnn_status dfgnn__grad_tile_launch(const dfgnn_launch *launch,
                                     const tile_plan *plan) {
  const dfgnn_setting *s = &launch->setting;
  const int vector = dfgnn__wide_vector(s->problem->dtype);
  const grad_tile_memory memory = memory_of(s, launch->workspace);
  const row_plan plain = dfgnn__plain_plan();
  grad_tile_params rows = {0}, columns = {0};
  dfgnn_status status;
  if ((status = dfgnn__grad_fill(&rows.walk, launch, &memory.walk, 0)) ||
      (status = dfgnn__grad_fill(&columns.walk, launch, &memory.walk, 1)))
    return status;
  if (!dfgnn__grad_aligned(&rows.walk, s->problem, vector) ||
      !dfgnn__grad_aligned(&columns.walk, s->problem, vector))
    return dfgnn__grad_launch(launch, &plain);
  if (DFGNN_HAS_NORMS(s->problem->op)) {
    columns.walk.own_scalar = memory.walk.norms;
    if ((status = dfgnn__inverse_norms(memory.walk.norms, &rows.walk.far[0],
                                       s->matrix->sources, launch)))
      return status;
  }
  status = gives_rows(&rows.walk)
               ? rows_pass(&rows, launch, plan, &memory)
               : dfgnn__grad_stats(&rows.walk, 32, vector, launch);
  return status || !gives_columns(&columns.walk)
             ? status
             : pass(&columns, launch, plan, 1);
}
