/* tile_backward.c - host code of gradients over tiles */
#include "kernels/attention/cuda/tile_backward.h"

#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/cuda/tile_plans.h"

/* ---- applicability ------------------------------------------------------- */

const char *dfgnn__grad_tile_refusal(const dfgnn_setting *s,
                                     const tile_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const dfgnn_matrix *matrix = s->matrix;
  const char *reason = dfgnn__tile_limits(s, plan);
  if (!reason)
    reason = dfgnn__direct_limits(problem);
  if (reason)
    return reason;
  if (problem->dim % dfgnn__wide_vector(problem->dtype) != 0 ||
      (problem->layout != DFGNN_LAYOUT_NHD && problem->heads > 1))
    return "features are not aligned to 16 bytes";
  if (matrix->sources > INT32_MAX - 65536 || matrix->max_degree > INT32_MAX)
    return "a row or the number of rows exceeds 2^31";
  return NULL;
}

/* ---- memory -------------------------------------------------------------- */

static grad_memory memory_of(const dfgnn_setting *s, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  grad_memory m = {0};
  m.stats = dfgnn__part(
      &m.bytes, workspace,
      s->matrix->destinations * problem->heads * GRAD_STATS(problem->op), 4);
  return m;
}

/* The larger of this plan's workspace and that of the plan for unaligned
 * arguments. */
size_t dfgnn__grad_tile_workspace(const dfgnn_setting *s,
                                  const tile_plan *plan) {
  (void)plan;
  const row_plan plain = dfgnn__plain_plan();
  const size_t other = dfgnn__grad_workspace(s, &plain);
  const size_t bytes = memory_of(s, NULL).bytes;
  return bytes > other ? bytes : other;
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

static dfgnn_status pass(grad_tile_params *p, const dfgnn_launch *launch,
                         const tile_plan *plan, int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_view *view = launch->views[1 + columns];
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/direct_backward.cuh", "dfgnn::direct_gradients",
      (int)problem->op, DFGNN_TYPE(problem->dtype), (int)problem->dim,
      problem->math != DFGNN_MATH_TF32, columns,
      dfgnn__tile_edges(problem, launch->args));
  const unsigned heads = (unsigned)problem->heads;
  const unsigned together =
      (unsigned)dfgnn__direct_heads((int)heads, plan->rows);
  p->items = view->array[0];
  p->columns = view->array[1];
  p->masks = view->array[2];
  p->window = plan->rows;
  p->dense = plan->dense;
  if (view->count == 0)
    return DFGNN_OK;
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){
          .blocks = {(unsigned)view->count, (heads + together - 1) / together},
          .threads = (unsigned)plan->rows * 2 * together,
          .carveout = DFGNN_CARVEOUT_L1},
      p);
}

static int gives_rows(const grad_params *p) {
  return p->to[0].data || p->to_scalar || p->grad_bias;
}

static int gives_columns(const grad_params *p) {
  return p->to[0].data || p->to[1].data || p->to_scalar;
}

dfgnn_status dfgnn__grad_tile_launch(const dfgnn_launch *launch,
                                     const tile_plan *plan) {
  const dfgnn_setting *s = &launch->setting;
  const int vector = dfgnn__wide_vector(s->problem->dtype);
  const grad_memory memory = memory_of(s, launch->workspace);
  const row_plan plain = dfgnn__plain_plan();
  grad_tile_params rows = {0}, columns = {0};
  dfgnn_status status;
  if ((status = dfgnn__grad_fill(&rows.walk, launch, &memory, 0)) ||
      (status = dfgnn__grad_fill(&columns.walk, launch, &memory, 1)))
    return status;
  if (!dfgnn__grad_aligned(&rows.walk, s->problem, vector) ||
      !dfgnn__grad_aligned(&columns.walk, s->problem, vector))
    return dfgnn__grad_launch(launch, &plain);
  status = gives_rows(&rows.walk)
               ? pass(&rows, launch, plan, 0)
               : dfgnn__grad_stats(&rows.walk, 32, vector, launch);
  return status || !gives_columns(&columns.walk)
             ? status
             : pass(&columns, launch, plan, 1);
}
