/* attend.c - see attend_launch.h */
#include "kernels/attention/cuda/attend_launch.h"
#include "kernels/attention/operators.h"

#include "base/error.h"

/* ---- shapes -------------------------------------------------------------- */

/* Lanes and edges in flight of a launch. */
typedef struct attend_shape {
  lane_shape lane;
  int unroll;
} attend_shape;

/* The vectors that a lane may hold: the key and value rows of `unroll` edges, a
 * query and sums have to fit its registers. */
static int most_vectors(const attend_plan *plan, int vector) {
  const int features = plan->heads == HEADS_ROW ? 16 : 32;
  const int most = features / (vector * plan->unroll);
  return plan->lanes < 32 && most > 4 ? 4 : most;
}

static int find_shape(attend_shape *shape, const dfgnn_problem *problem,
                      const attend_plan *plan) {
  const int vector = dfgnn__vector_width(problem);
  shape->unroll = plan->unroll;
  return dfgnn__lane_shape(&shape->lane, problem, vector, plan->lanes,
                           plan->heads, most_vectors(plan, vector));
}

/* Can vectors of so many elements be loaded from all tensors of p? */
static int aligned(const attend_params *p, const dfgnn_problem *problem,
                   int vector) {
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int64_t heads = problem->heads;
  return dfgnn__view_aligned(&p->query, heads, vector, size) &&
         dfgnn__view_aligned(&p->key, heads, vector, size) &&
         dfgnn__view_aligned(&p->value, heads, vector, size) &&
         dfgnn__view_aligned(&p->out, heads, vector, size);
}

/* Replaces a shape by one head and one row a warp, with vectors that all
 * tensors are aligned to. */
static int narrow_shape(attend_shape *shape, const attend_params *p,
                        const dfgnn_problem *problem) {
  enum { MOST = 32 };
  int vector = shape->lane.vector;
  while (vector > 1 && !aligned(p, problem, vector))
    vector /= 2;
  if (!dfgnn__lane_shape(&shape->lane, problem, vector, 32, HEADS_GRID,
                         MOST / vector))
    return 0;
  shape->unroll = shape->lane.vectors == 1 ? 2 : 1;
  return 1;
}

const char *dfgnn__attend_refusal(const dfgnn_setting *s,
                                  const attend_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const int64_t items =
      plan->item_edges ? s->matrix->edges / plan->item_edges : 0;
  attend_shape shape, usual;
  attend_plan warp = *plan;
  if (s->matrix->max_degree > INT32_MAX ||
      s->matrix->destinations + items > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if (plan->item_edges && s->matrix->max_degree <= plan->item_edges)
    return "no row is longer than an item";
  if (plan->heads != HEADS_GRID && problem->heads == 1)
    return "the problem has one head";
  if (plan->norms_table && !DFGNN_HAS_NORMS(problem->op))
    return "AGNN alone has a table of norms";
  if (problem->dim > 1024)
    return "more than 1024 features";
  if (!find_shape(&shape, problem, plan))
    return "a lane would hold too many features";
  warp.heads = HEADS_WARP;
  if (plan->heads == HEADS_ROW && find_shape(&usual, problem, &warp) &&
      usual.lane.tile_heads >= shape.lane.tile_heads)
    return "32 vectors span the row";
  if (plan->heads == HEADS_LANES && find_shape(&usual, problem, &warp) &&
      usual.lane.tile_heads == shape.lane.tile_heads)
    return "the lanes span as many heads as 32 vectors";
  return shape.lane.tiles > DFGNN_GRID_Y_MAX ? "more than 65535 tiles of heads"
                                             : NULL;
}

/* ---- memory -------------------------------------------------------------- */

typedef struct places {
  char *norms, *lse, *state, *partial;
  size_t bytes;
} places;

static places place(const dfgnn_setting *s, const attend_plan *plan,
                    void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const int64_t heads = problem->heads;
  places at = {0};
  if (plan->norms_table)
    at.norms =
        dfgnn__part(&at.bytes, workspace, s->matrix->sources * heads, size);
  if (problem->weights) /* finish_weights() reads lse; args may have none */
    at.lse = dfgnn__part(&at.bytes, workspace, s->matrix->destinations * heads,
                         size);
  if (plan->item_edges) { /* two partial results a cut: see row_of_unit() */
    const int64_t slots = s->matrix->edges / plan->item_edges * 2 * heads;
    at.state = dfgnn__part(&at.bytes, workspace, slots * 2, size);
    at.partial = dfgnn__part(&at.bytes, workspace, slots * problem->dim, size);
  }
  return at;
}

size_t dfgnn__attend_workspace(const dfgnn_setting *setting,
                               const attend_plan *plan) {
  return place(setting, plan, NULL).bytes;
}

int dfgnn__attend_views(const attend_plan *plan, dfgnn_view_request *request) {
  if (plan->item_edges)
    request[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                      .parameter = plan->item_edges};
  else if (plan->by_degree)
    request[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_DEGREE_ORDER};
  return plan->item_edges || plan->by_degree;
}

/* ---- arguments ----------------------------------------------------------- */

/* Fills the parameters that follow from the arguments and the matrix. */
static dfgnn_status fill(attend_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int gt = DFGNN_HAS_KEY(problem->op),
            gat = DFGNN_HAS_SCALARS(problem->op);
  dfgnn_status status;
  *p = (attend_params){.schedule = dfgnn__schedule_rows(launch->setting.matrix),
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
  if ((status = dfgnn__view_tensor(&p->query, "query", gat ? NULL : args->query,
                                   &args->query_strides, size)) ||
      (status = dfgnn__view_tensor(&p->key, "key", gt ? args->key : NULL,
                                   &args->key_strides, size)) ||
      (status = dfgnn__view_tensor(&p->value, "value", args->value,
                                   &args->value_strides, size)))
    return status;
  return dfgnn__view_tensor(&p->out, "out", args->out, &args->out_strides,
                            size);
}

static int packed(const attend_params *p, const dfgnn_problem *problem) {
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int64_t heads = problem->heads, dim = problem->dim;
  return dfgnn__view_packed(&p->query, heads, dim, size) &&
         dfgnn__view_packed(&p->key, heads, dim, size) &&
         dfgnn__view_packed(&p->value, heads, dim, size) &&
         dfgnn__view_packed(&p->out, heads, dim, size);
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
                           const attend_shape *wanted,
                           const attend_plan *plan) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  attend_shape shape = *wanted;
  if (shape.lane.vector > 1 && !aligned(p, problem, shape.lane.vector) &&
      !narrow_shape(&shape, p, problem))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "no kernel for unaligned tensors of %lld features",
                       (long long)problem->dim);
  const lane_shape *lane = &shape.lane;
  const int rows =
      plan->rows * lane->lanes > 32 ? 32 / lane->lanes : plan->rows;
  row_constants k =
      dfgnn__row_constants(problem, lane, shape.unroll, packed(p, problem));
  k.mode = edge_mode_of(problem);
  const dfgnn_program program = DFGNN_PROGRAM_OF(
      "kernels/attention/cuda/attend.cuh", "dfgnn::attend", ROW_CONSTANTS, &k);
  if (p->schedule.units == 0)
    return DFGNN_OK;
  const dfgnn_grid grid = {
      .blocks = {(unsigned)dfgnn__share_out(&p->share, setting,
                                            p->schedule.units, plan->warps,
                                            rows, plan->span),
                 (unsigned)lane->tiles},
      .threads = (unsigned)plan->warps * 32,
      /* A large L1 costs items 6 % on arxiv (H200, GT 1 x 128). */
      .carveout =
          p->schedule.item_row ? DFGNN_CARVEOUT_DEFAULT : DFGNN_CARVEOUT_L1};
  if (lane->tiles > DFGNN_GRID_Y_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%d tiles of heads, a launch has at most 65535",
                       lane->tiles);
  return dfgnn__launch_struct(setting->queue, &program, grid, p);
}

dfgnn_status dfgnn__attend_merge(const attend_params *p, int64_t dim,
                                 const dfgnn_view *items,
                                 const dfgnn_launch *launch) {
  enum { THREADS = 256 };
  const dfgnn_problem *problem = launch->setting.problem;
  const int wanted = dfgnn__ceil_power(dim);
  const int width = wanted < 32 ? 32 : wanted > THREADS ? THREADS : wanted;
  const int64_t blocks = items->extra * problem->heads;
  const merge_params m = {.schedule = p->schedule,
                          .heavy = items->array[3],
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
                   .threads = 256},
      &w);
}

dfgnn_status dfgnn__attend_launch(const dfgnn_launch *launch,
                                  const attend_plan *plan) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const places at = place(setting, plan, launch->workspace);
  const dfgnn_view *view =
      plan->item_edges || plan->by_degree ? launch->views[0] : NULL;
  attend_shape shape;
  attend_params p;
  dfgnn_status status = fill(&p, launch);
  if (!status && !find_shape(&shape, problem, plan))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "a lane would hold too many features");
  if (!status && plan->norms_table)
    status = dfgnn__inverse_norms(at.norms, &p.value, setting->matrix->sources,
                                  launch);
  if (status)
    return status;
  p.inverse_norms = plan->norms_table ? at.norms : NULL;
  p.partial_state = at.state;
  p.partial = at.partial;
  if (problem->weights && !p.lse)
    p.lse = at.lse;
  if (plan->item_edges)
    dfgnn__schedule_items(&p.schedule, view, setting->matrix);
  else if (plan->by_degree)
    p.schedule.order = view->array[0];
  status = attend(&p, launch, &shape, plan);
  if (!status && plan->item_edges)
    status = dfgnn__attend_merge(&p, problem->dim, view, launch);
  return status || !problem->weights
             ? status
             : dfgnn__attend_weights(p.weights, p.lse, launch);
}
