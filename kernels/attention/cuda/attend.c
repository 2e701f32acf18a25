/* attend.c - see attend_launch.h */
#include "kernels/attention/cuda/attend_launch.h"
#include "kernels/attention/operators.h"

#include "lib/base/error.h"

/* ---- memory -------------------------------------------------------------- */

typedef struct places {
  char *lse, *state, *partial;
  size_t bytes;
} places;

static places place(const dfgnn_setting *s, const row_plan *plan,
                    void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const int64_t heads = problem->heads;
  places at = {0};
  if (problem->weights) /* finish_weights() reads lse; args may have none */
    at.lse = dfgnn__part(&at.bytes, workspace, s->matrix->destinations * heads,
                         size);
  if (!plan->by_blocks) {
    const int64_t slots = dfgnn__row_slots(s, plan) * heads;
    at.state = dfgnn__part(&at.bytes, workspace, slots * 2, size);
    at.partial = dfgnn__part(&at.bytes, workspace, slots * problem->dim, size);
  }
  return at;
}

size_t dfgnn__attend_workspace(const dfgnn_setting *setting,
                               const row_plan *plan) {
  return place(setting, plan, NULL).bytes;
}

/* ---- arguments ----------------------------------------------------------- */

/* Fills the parameters that follow from the arguments and the matrix. */
static dfgnn_status fill(attend_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  attention_tensors t;
  DFGNN_TRY(dfgnn__tensors(&t, launch));
  *p = (attend_params){.schedule = dfgnn__schedule_rows(launch->setting.matrix),
                       .query = t.query,
                       .key = t.key,
                       .value = t.value,
                       .out = t.out,
                       .score_dst = args->score_dst,
                       .score_src = args->score_src,
                       .att = args->att,
                       .beta = args->beta,
                       .bias = problem->bias ? args->bias : NULL,
                       .weights = problem->weights ? args->weights : NULL,
                       .dropout = dfgnn__dropout_params(problem, args),
                       .lse = args->lse,
                       .scale = !DFGNN_HAS_ATT(problem->op) ? args->scale
                                : args->slope > 1           ? -1
                                                            : 1,
                       .slope = args->slope};
  return DFGNN_OK;
}

/* ---- launches ------------------------------------------------------------ */

static int edge_mode_of(const dfgnn_problem *problem) {
  return (problem->dropout ? EDGE_DROPOUT : 0) |
         (problem->bias ? EDGE_BIAS : 0) |
         (problem->weights ? EDGE_WEIGHTS : 0);
}

/* Launches attend() in the order of the plan; tensors that are not aligned are
 * loaded by narrower vectors. */
static dfgnn_status attend(attend_params *p, const dfgnn_launch *launch,
                           const row_plan *planned) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const tensor_view *const views[] = {&p->query, &p->key, &p->value, &p->out};
  row_plan plan = *planned;
  lane_shape shape;
  int vector = dfgnn__vector_width(problem);
  if (p->schedule.units == 0)
    return DFGNN_OK;
  while (vector > 1 && !dfgnn__views_aligned(views, 4, problem, vector))
    vector /= 2;
  dfgnn__row_lanes(&shape, &plan, problem, vector);
  row_constants k = dfgnn__row_constants(
      problem, &shape, plan.unroll, dfgnn__views_packed(views, 4, problem));
  k.mode = edge_mode_of(problem);
  const dfgnn_program rows = DFGNN_PROGRAM_OF(
      "kernels/attention/cuda/attend.cuh", "dfgnn::attend", ROW_CONSTANTS, &k);
  const dfgnn_program blocks =
      DFGNN_PROGRAM_OF("kernels/attention/cuda/attend_block.cuh",
                       "dfgnn::attend_block", ROW_CONSTANTS, &k);
  const dfgnn_program program = plan.by_blocks ? blocks : rows;
  dfgnn_grid grid =
      dfgnn__row_grid(&p->share, setting, &plan, &shape, p->schedule.units);
  if (plan.by_blocks) {
    grid.blocks[0] += (unsigned)p->schedule.heavy_rows;
    grid.shared = (unsigned)dfgnn__row_parts_bytes(problem, &plan);
  }
  /* A large L1 costs items 6 % on arxiv (H200, GT 1 x 128). */
  if (plan.item_edges)
    grid.carveout = DFGNN_CARVEOUT_DEFAULT;
  if (shape.tiles > DFGNN_GRID_Y_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%d tiles of heads, a launch has at most 65535",
                       shape.tiles);
  return dfgnn__launch_struct(setting->queue, &program, grid, p);
}

dfgnn_status dfgnn__attend_merge(const attend_params *p, int64_t dim,
                                 const dfgnn_view *items,
                                 const dfgnn_launch *launch) {
  enum { THREADS = 256 };
  const dfgnn_problem *problem = launch->setting.problem;
  const int wanted = dfgnn__ceil_power(dim);
  const int width = wanted < 32 ? 32 : wanted > THREADS ? THREADS : wanted;
  const int64_t rows = items ? items->extra : p->schedule.rows;
  const int64_t blocks = rows * problem->heads;
  const merge_params m = {.schedule = p->schedule,
                          .heavy = items ? items->array[3] : NULL,
                          .partial = p->partial,
                          .partial_state = p->partial_state,
                          .out = p->out,
                          .lse = p->lse,
                          .heads = (int)problem->heads,
                          .dim = (int)dim,
                          .width = width};
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/attention/cuda/merge.cuh", "dfgnn::merge",
                    DFGNN_TYPE(problem->dtype));
  if (blocks == 0)
    return DFGNN_OK;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld rows to merge need more than 2^31 - 1 blocks",
                       (long long)blocks);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks},
                   .threads = THREADS,
                   .overlaps = 1,
                   .shared =
                       (unsigned)(THREADS / width * dim *
                                  (int64_t)dfgnn__scalar_size(problem->dtype))},
      &m);
}

dfgnn_status dfgnn__attend_weights(void *weights, const void *lse,
                                   const dfgnn_launch *launch) {
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_problem *problem = launch->setting.problem;
  const weights_params w = {.lse = lse,
                            .offsets = matrix->offsets,
                            .weights = weights,
                            .offsets64 = matrix->offsets64,
                            .heads = (int)problem->heads,
                            .rows = matrix->destinations,
                            .edges = matrix->edges};
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/weights.cuh", "dfgnn::finish_weights",
      DFGNN_TYPE(problem->dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32));
  const int64_t blocks = dfgnn__ceil_div(w.edges, 8 * WEIGHTS_EDGES);
  if (blocks == 0)
    return DFGNN_OK;
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)(blocks < 65535 ? blocks : 65535)},
                   .threads = 256,
                   .overlaps = 1},
      &w);
}

dfgnn_status dfgnn__attend_launch(const dfgnn_launch *launch,
                                  const row_plan *plan) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const places at = place(setting, plan, launch->workspace);
  attend_params p;
  DFGNN_TRY(fill(&p, launch));
  p.partial_state = at.state;
  p.partial = at.partial;
  if (problem->weights && !p.lse)
    p.lse = at.lse;
  dfgnn__schedule_as(&p.schedule, plan, launch, 0);
  dfgnn_status status = attend(&p, launch, plan);
  const int items = plan->item_edges && !plan->by_blocks;
  if (!status && (items || p.schedule.slices))
    status = dfgnn__attend_merge(&p, problem->dim,
                                 items ? launch->views[0] : NULL, launch);
  return status || !problem->weights
             ? status
             : dfgnn__attend_weights(p.weights, p.lse, launch);
}
