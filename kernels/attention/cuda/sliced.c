/* sliced.c - scores, softmax and sums as passes over one table at a time, in
 * panels of features narrow enough that the gathered panel stays in the L2
 * cache; for tables beyond it whose rows are gathered at random.  As scores are
 * in memory, it also gives the attention weights.  With one panel of all
 * features it is the unfused baseline by our own kernels. */
#include "base/error.h"
#include "kernels/attention/cuda/attend_launch.h"
#include "kernels/attention/cuda/panel.h"

enum { PANEL, UNROLL, WARPS, EDGES };

/* ---- applicability ------------------------------------------------------- */

/* Lanes that span a panel with the widest vectors; 0 if they cannot. */
static int panel_lanes(const dfgnn_setting *s) {
  const int lanes = s->parameter[PANEL] / dfgnn__vector_width(s->problem);
  return lanes <= 32 && s->parameter[UNROLL] <= lanes ? lanes : 0;
}

static const char *refusal(const dfgnn_setting *s) {
  if (s->matrix->max_degree > INT32_MAX ||
      s->matrix->destinations + s->matrix->edges / s->parameter[EDGES] >
          INT32_MAX - 65536)
    return "more than 2^31 items";
  if (s->problem->heads > DFGNN_GRID_Y_MAX)
    return "more than 65535 heads";
  if (s->problem->dim > 1024)
    return "more than 1024 features";
  return panel_lanes(s) ? NULL : "32 lanes do not span a panel";
}

static const char *sliced_applicable(const dfgnn_setting *s) {
  if (s->parameter[PANEL] >= s->problem->dim)
    return "one panel would hold all features";
  return refusal(s);
}

static const char *whole_applicable(const dfgnn_setting *s) {
  if (s->parameter[PANEL] < s->problem->dim)
    return "more features than a panel holds";
  if (s->parameter[PANEL] > 32 && s->parameter[PANEL] / 2 >= s->problem->dim)
    return "a narrower panel would hold all features";
  return refusal(s);
}

/* ---- memory -------------------------------------------------------------- */

typedef struct places {
  char *scores, *lse2, *inverse_src, *inverse_dst, *state, *partial;
  size_t bytes;
} places;

static char *take(places *at, void *workspace, int64_t count, size_t size) {
  char *here = (char *)workspace + at->bytes;
  at->bytes += dfgnn__align256((size_t)count * size);
  return here;
}

/* The arrays of the workspace. */
static places place(const dfgnn_setting *s, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const int64_t heads = problem->heads;
  const int64_t slots = s->matrix->edges / s->parameter[EDGES] * 2 * heads;
  const int norms = problem->op == DFGNN_OP_AGNN;
  places at = {0};
  at.scores = take(&at, workspace, s->matrix->edges * heads, size);
  at.lse2 = take(&at, workspace, s->matrix->destinations * heads, size);
  at.inverse_src =
      take(&at, workspace, norms ? s->matrix->sources * heads : 0, size);
  at.inverse_dst =
      take(&at, workspace, norms ? s->matrix->destinations * heads : 0, size);
  at.state = take(&at, workspace, slots * 2, size);
  at.partial = take(&at, workspace, slots * problem->dim, size);
  return at;
}

static size_t workspace(const dfgnn_setting *s) { return place(s, NULL).bytes; }

static int views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS,
                                    .parameter = s->parameter[EDGES]};
  return 1;
}

/* ---- the passes ---------------------------------------------------------- */

/* How lanes share a panel. */
typedef struct panel_shape {
  int vector, lanes, unroll;
} panel_shape;

/* Tensors that are not aligned get panels of single elements. */
static panel_shape shape_of(const dfgnn_setting *s, const attend_params *p) {
  const int vector = dfgnn__vector_width(s->problem), lanes = panel_lanes(s);
  if (lanes && (vector == 1 || dfgnn__attend_aligned(p, s->problem, vector)))
    return (panel_shape){vector, lanes, s->parameter[UNROLL]};
  return (panel_shape){1, 32, 4};
}

static int panel_features(const panel_shape *shape, const dfgnn_problem *p,
                          int from) {
  const int width = shape->lanes * shape->vector, left = (int)p->dim - from;
  return left < width ? left : width;
}

static dfgnn_status score_pass(const panel_params *p,
                               const dfgnn_launch *launch,
                               const panel_shape *shape, int features) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int warps = launch->setting.parameter[WARPS];
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/attention/cuda/panel.cuh", "dfgnn::score_panel",
                    (int)problem->op, DFGNN_TYPE(problem->dtype), shape->vector,
                    shape->lanes, shape->unroll, features);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){
          .blocks = {(unsigned)dfgnn__ceil_div(p->schedule.units, warps),
                     (unsigned)p->heads},
          .threads = (unsigned)warps * 32},
      p);
}

static dfgnn_status score_passes(const attend_params *p,
                                 const panel_shape *shape, const places *at,
                                 const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const tensor_view *source = problem->op == DFGNN_OP_GT ? &p->key : &p->value;
  dfgnn_status status = DFGNN_OK;
  panel_params panel = {.schedule = p->schedule,
                        .heads = (int)problem->heads,
                        .beta = p->beta,
                        .inverse_src = at->inverse_src,
                        .inverse_dst = at->inverse_dst,
                        .att_head = problem->dim,
                        .scores = at->scores,
                        .edges = launch->setting.matrix->edges,
                        .scale = problem->op == DFGNN_OP_AGNN ? 1.0 : p->scale,
                        .slope = p->slope};
  for (int from = 0, features; !status && from < problem->dim;
       from += features) {
    features = panel_features(shape, problem, from);
    panel.first = from == 0;
    panel.last = from + features == problem->dim;
    panel.query = dfgnn__view_from(&p->query, from);
    panel.source = dfgnn__view_from(source, from);
    panel.att = p->att ? (const char *)p->att +
                             (size_t)from * dfgnn_dtype_size(problem->dtype)
                       : NULL;
    status = score_pass(&panel, launch, shape, features);
  }
  return status;
}

static dfgnn_status softmax_rows(const attend_params *p,
                                 const dfgnn_launch *launch, const places *at) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int gat = problem->op == DFGNN_OP_GAT;
  const softmax_params softmax = {.offsets = p->schedule.offsets,
                                  .offsets64 = p->schedule.offsets64,
                                  .rows =
                                      (int)launch->setting.matrix->destinations,
                                  .heads = (int)problem->heads,
                                  .edges = launch->setting.matrix->edges,
                                  .indices = p->schedule.indices,
                                  .scores = at->scores,
                                  .score_dst = p->score_dst,
                                  .score_src = p->score_src,
                                  .bias = p->bias,
                                  .slope = p->slope,
                                  .lse2 = at->lse2,
                                  .lse = p->lse,
                                  .weights = p->weights};
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/softmax.cuh", "dfgnn::row_softmax",
      DFGNN_TYPE(problem->dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32), gat,
      !!problem->bias);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)dfgnn__ceil_div(softmax.rows, 8),
                              (unsigned)softmax.heads},
                   .threads = 256},
      &softmax);
}

static dfgnn_status sum_passes(const attend_params *whole,
                               const panel_shape *shape,
                               const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const attend_plan plan = {.lanes = shape->lanes,
                            .unroll = shape->unroll,
                            .warps = launch->setting.parameter[WARPS],
                            .rows = 1,
                            .heads = HEADS_GRID,
                            .span = SPAN_ONCE};
  const attend_shape attend = {.lane = {.vector = shape->vector,
                                        .lanes = shape->lanes,
                                        .vectors = 1,
                                        .tile_heads = 1,
                                        .tiles = (int)problem->heads},
                               .unroll = shape->unroll};
  dfgnn_status status = DFGNN_OK;
  for (int from = 0, features; !status && from < problem->dim;
       from += features) {
    attend_shape panel = attend;
    attend_params p = *whole;
    features = panel_features(shape, problem, from);
    panel.dim = features;
    p.value = dfgnn__view_from(&whole->value, from);
    p.out = dfgnn__view_from(&whole->out, from);
    status = dfgnn__attend_run(&p, DFGNN_SCORE_GIVEN, launch, &panel, &plan);
    if (!status)
      status = dfgnn__attend_merge(&p, features, launch->views[0], launch);
  }
  return status;
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const dfgnn_op op = s->problem->op;
  const places at = place(s, launch->workspace);
  attend_params p;
  dfgnn_status status = dfgnn__attend_fill(&p, launch);
  if (status || p.schedule.units == 0)
    return status;
  dfgnn__schedule_items(&p.schedule, launch->views[0], s->matrix);
  const panel_shape shape = shape_of(s, &p);
  p.edges = s->matrix->edges;
  p.scores = at.scores;
  p.lse2 = at.lse2;
  p.partial_state = at.state;
  p.partial = at.partial;
  if (op == DFGNN_OP_AGNN &&
      ((status = dfgnn__inverse_norms(at.inverse_src, &p.value,
                                      s->matrix->sources, launch)) ||
       (status = dfgnn__inverse_norms(at.inverse_dst, &p.query,
                                      s->matrix->destinations, launch))))
    return status;
  if (op != DFGNN_OP_GAT && s->matrix->edges > 0 &&
      (status = score_passes(&p, &shape, &at, launch)))
    return status;
  status = softmax_rows(&p, launch, &at);
  p.lse = NULL;
  return status ? status : sum_passes(&p, &shape, launch);
}

#define PASSES                                                                 \
  .backend = "cuda", .ops = DFGNN_OPS_ATTENTION,                               \
  .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .dtypes = DFGNN_DTYPES_ALL,         \
  .revision = 1, .deterministic = 1, .weights = 1, .bias = 1, .dropout = 1,    \
  .parameters = {{.name = "panel", .count = 4, .values = {32, 64, 128, 256}},  \
                 {.name = "unroll", .count = 2, .values = {4, 8}},             \
                 {.name = "warps", .count = 1, .values = {4}},                 \
                 {.name = "edges", .count = 2, .values = {256, 1024}}},        \
  .workspace = workspace, .views = views, .launch = launch

DFGNN_FAMILIES(attention_cuda_sliced) = {{.name = "cuda.attention.fwd.sliced",
                                          .algorithm = "sliced",
                                          .applicable = sliced_applicable,
                                          PASSES},
                                         {.name = "cuda.attention.fwd.unfused",
                                          .algorithm = "unfused",
                                          .applicable = whole_applicable,
                                          PASSES},
                                         DFGNN_FAMILIES_END};
