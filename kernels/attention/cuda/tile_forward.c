/* tile_forward.c - host code of forward over tiles */
#include "kernels/attention/cuda/tile_forward.h"

#include "kernels/attention/cuda/layout.h"
#include "kernels/attention/cuda/tile_plans.h"
#include "kernels/attention/operators.h"
#include "lib/base/error.h"

/* ---- memory and applicability -------------------------------------------- */

static int width_of(const dfgnn_problem *problem) {
  return TILE_WIDTH((int)problem->dim);
}

/* Bytes of shared memory of a block, as tile_forward<> lays it out. */
static size_t shared_bytes(const dfgnn_problem *problem,
                           const tile_plan *plan) {
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const size_t width = (size_t)width_of(problem);
  const size_t row = width * size + TILE_PAD_BYTES;
  const int gt = DFGNN_HAS_KEY(problem->op);
  const int agnn = DFGNN_HAS_NORMS(problem->op);
  size_t rows = (size_t)(plan->stages * DFGNN_TILE_COLUMNS);
  size_t scalars = 0;
  if (gt)
    rows *= 2;
  if (size == 4 && (gt || agnn))
    rows += (size_t)plan->rows;
  if (agnn)
    scalars += DFGNN_TILE_COLUMNS;
  return rows * row + scalars * sizeof(float);
}

size_t dfgnn__tile_workspace(const dfgnn_setting *s, const tile_plan *plan) {
  (void)s, (void)plan;
  return 0;
}

int dfgnn__tile_views(const dfgnn_setting *s, const tile_plan *plan,
                      dfgnn_view_request *requests) {
  (void)s;
  requests[0] = dfgnn__tile_request(plan, 0);
  return 1;
}

const char *dfgnn__tile_refusal(const dfgnn_setting *s, const tile_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const char *reason = dfgnn__tile_limits(s, plan);
  if (!reason && plan->direct)
    reason = dfgnn__direct_limits(problem);
  if (reason)
    return reason;
  if (shared_bytes(problem, plan) > (size_t)s->device->shared_bytes)
    return "a tile is larger than the shared memory of a block";
  return NULL;
}

/* ---- programs ------------------------------------------------------------ */

static dfgnn_program attend_program(const dfgnn_problem *problem, int wide,
                                    int edges) {
  return (dfgnn_program)DFGNN_PROGRAM(
      "kernels/attention/cuda/tile_forward.cuh", "dfgnn::tile_attend",
      (int)problem->op, DFGNN_TYPE(problem->dtype),
      problem->math != DFGNN_MATH_TF32, (int)problem->dim, wide, edges);
}

static dfgnn_program direct_program(const dfgnn_problem *problem, int edges) {
  return (dfgnn_program)DFGNN_PROGRAM(
      "kernels/attention/cuda/direct_forward.cuh", "dfgnn::direct_attend",
      (int)problem->op, DFGNN_TYPE(problem->dtype),
      problem->math != DFGNN_MATH_TF32, (int)problem->dim, edges);
}

/* ---- launch -------------------------------------------------------------- */

/* Can all tensors be read and written by 16 bytes? */
static int is_wide(const tile_params *p, const dfgnn_problem *problem) {
  const tensor_view *const views[] = {&p->query, &p->key, &p->value, &p->out};
  return dfgnn__views_aligned(views, 4, problem,
                              dfgnn__wide_vector(problem->dtype));
}

static dfgnn_status fill(tile_params *p, const dfgnn_launch *launch,
                         const tile_plan *plan) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *a = launch->args;
  const dfgnn_view *view = launch->views[0];
  const int gat = DFGNN_HAS_SCALARS(problem->op);
  attention_tensors t;
  const dfgnn_status status = dfgnn__tensors(&t, launch);
  *p = (tile_params){.query = t.query,
                     .key = t.key,
                     .value = t.value,
                     .out = t.out,
                     .items = view->array[0],
                     .columns = view->array[1],
                     .masks = view->array[2],
                     .rows = plan->rows,
                     .stages = plan->stages,
                     .dense = plan->dense,
                     .heads = (int)problem->heads,
                     .row_scalar = gat ? a->score_dst : NULL,
                     .column_scalar = gat ? a->score_src : NULL,
                     .beta = a->beta,
                     .lse = a->lse,
                     .scale = (float)a->scale,
                     .slope = (float)a->slope,
                     .offsets = matrix->offsets,
                     .offsets64 = matrix->offsets64,
                     .indices = matrix->indices,
                     .bias = a->bias,
                     .dropout = dfgnn__dropout_params(problem, a)};
  return status;
}

dfgnn_status dfgnn__tile_launch(const dfgnn_launch *launch,
                                const tile_plan *plan) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_view *view = launch->views[0];
  const int edges = dfgnn__tile_edges(problem, launch->args);
  tile_params p;
  dfgnn_status status;
  if (view->count == 0)
    return DFGNN_OK;
  if (view->count > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld items of windows, expected below 2^31",
                       (long long)view->count);
  if ((status = fill(&p, launch, plan)))
    return status;
  const int wide = is_wide(&p, problem);
  const int direct = wide && plan->direct;
  const dfgnn_program program = direct ? direct_program(problem, edges)
                                       : attend_program(problem, wide, edges);
  const int together = direct ? dfgnn__direct_heads(p.heads, plan->rows) : 1;
  const dfgnn_grid grid = {
      .blocks = {(unsigned)view->count,
                 (unsigned)dfgnn__ceil_div(p.heads, together)},
      .threads = (unsigned)(plan->rows * 2 * together),
      .shared = direct ? 0 : (unsigned)shared_bytes(problem, plan),
      .carveout = direct ? DFGNN_CARVEOUT_L1 : DFGNN_CARVEOUT_SHARED};
  return dfgnn__launch_struct(launch->setting.queue, &program, grid, &p);
}
