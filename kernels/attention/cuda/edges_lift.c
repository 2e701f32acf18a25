/* edges_lift.c - attention whose lanes make W e of each edge: GATv2 with edge
 * features; GT and GATv2 with edges as [E,H,D]; GAT with a scalar an edge and
 * head */
#include "base/error.h"
#include "kernels/attention/cuda/edges_lift_plans.h"
#include "kernels/attention/cuda/qk_norm_launch.h"

enum { LANES, UNROLL, WARPS, BLOCKS, EDGES };

static lift_plan plan_of(const dfgnn_setting *setting, lift_walk walk) {
  const int *x = setting->parameter;
  return (lift_plan){.lanes = x[LANES],
                     .unroll = x[UNROLL],
                     .warps = x[WARPS],
                     .blocks = x[BLOCKS],
                     .item_edges = x[EDGES],
                     .walk = walk};
}

static int legal(const int *x) {
  return x[WARPS] * x[BLOCKS] <= 32 && x[WARPS] * x[BLOCKS] >= 8;
}

/* ---- forward ------------------------------------------------------------- */

static const char *forward_applicable(const dfgnn_setting *setting) {
  const lift_plan plan = plan_of(setting, LIFT_FORWARD);
  return dfgnn__lift_refusal(setting, &plan);
}

/* Launches a walk over rows. */
static dfgnn_status walk_rows(const edges_params *p, const dfgnn_launch *launch,
                              lift_walk walk, int edge, const char *source,
                              const char *name) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const int ones = p->constant != NULL;
  lift_plan plan = plan_of(setting, walk);
  lift_shape shape;
  const dfgnn_status status =
      dfgnn__lift_shape_for(&shape, &plan, p, setting, ones);
  if (status || p->schedule.units == 0)
    return status;
  const dfgnn_program program = DFGNN_PROGRAM(
      source, name, (int)problem->op, DFGNN_TYPE(problem->dtype), shape.vector,
      plan.lanes, shape.head_lanes, shape.states, plan.unroll,
      (int)problem->heads, (int)problem->dim, shape.packed,
      dfgnn__lift_width(problem), ones, dfgnn__edges_use(problem), edge,
      plan.warps, plan.blocks, shape.staged);
  return dfgnn__launch_struct(
      setting->queue, &program,
      (dfgnn_grid){
          .blocks = {dfgnn__lift_blocks(setting, &plan, p->schedule.units)},
          .threads = (unsigned)plan.warps * 32,
          .shared = (unsigned)shape.shared},
      p);
}

static size_t forward_workspace(const dfgnn_setting *setting) {
  return dfgnn__qk_norm_workspace(setting) +
         dfgnn__edges_forward_memory(NULL, setting, setting->parameter[EDGES],
                                     NULL);
}

static int forward_views(const dfgnn_setting *setting,
                         dfgnn_view_request *requests) {
  return dfgnn__edges_item_views(requests, setting->parameter[EDGES], 0);
}

static dfgnn_status attend(const dfgnn_launch *launch) {
  const int items = launch->setting.parameter[EDGES];
  edges_params p;
  dfgnn_status status = dfgnn__lift_fill(&p, launch);
  if (status)
    return status;
  dfgnn__edges_forward_memory(&p, &launch->setting, items, launch->workspace);
  if (items)
    dfgnn__schedule_items(&p.schedule, launch->views[0],
                          launch->setting.matrix);
  if ((status = walk_rows(&p, launch, LIFT_FORWARD,
                          dfgnn__edges_forward_mode(launch, items),
                          "kernels/attention/cuda/edges_lift_forward.cuh",
                          "dfgnn::lift_attend")))
    return status;
  return dfgnn__edges_forward_finish(&p, items ? launch->views[0] : NULL,
                                     launch);
}

static dfgnn_status forward_launch(const dfgnn_launch *launch) {
  return dfgnn__qk_norm_launch(launch, attend);
}

/* ---- backward ------------------------------------------------------------ */

typedef struct lift_memory {
  char *pairs, *carry, *totals, *partial, *partial_state;
  size_t bytes;
} lift_memory;

static char *take(lift_memory *m, char *base, int64_t count, size_t size) {
  char *at = base ? base + m->bytes : NULL;
  m->bytes += dfgnn__align256((size_t)count * size);
  return at;
}

/* The number of columns of a block's totals: those of W, and one of att. */
static int total_columns(const dfgnn_problem *problem, int ones) {
  const int width = dfgnn__lift_width(problem);
  return (width > 0 ? width + ones : 0) + 1;
}

static lift_memory memory_of(const dfgnn_setting *s, char *base) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const lift_plan rows = plan_of(s, LIFT_ROWS);
  lift_plan sums = plan_of(s, LIFT_SUMS);
  lift_memory m = {0};
  m.pairs = take(&m, base, s->matrix->edges * problem->heads * 2, size);
  if (problem->edge_dim > 0)
    m.carry = take(&m, base, s->matrix->edges * problem->edge_dim, size);
  if (problem->op == DFGNN_OP_GATV2) {
    const int64_t blocks =
        dfgnn__lift_blocks(s, &sums, dfgnn__edges_units(s, sums.item_edges));
    m.totals =
        take(&m, base,
             (blocks > s->device->units ? blocks : s->device->units) *
                 problem->heads * problem->dim * total_columns(problem, 1),
             size);
  }
  m.partial_state =
      take(&m, base, dfgnn__edges_partial_state(s, rows.item_edges), size);
  m.partial = take(&m, base, dfgnn__edges_partial(s, rows.item_edges, 2), size);
  return m;
}

static size_t backward_workspace(const dfgnn_setting *s) {
  return dfgnn__qk_norm_workspace(s) + memory_of(s, NULL).bytes;
}

static int backward_views(const dfgnn_setting *s,
                          dfgnn_view_request *requests) {
  const int items = s->parameter[EDGES];
  int count = 0;
  requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  for (int columns = 0; columns < 2; columns++)
    count += dfgnn__edges_item_views(requests + count, items, columns);
  return count;
}

static const char *backward_applicable(const dfgnn_setting *s) {
  static const lift_walk walks[] = {LIFT_ROWS, LIFT_COLUMNS, LIFT_SUMS};
  for (int i = 0; i < 3; i++) {
    const lift_plan plan = plan_of(s, walks[i]);
    const char *reason = dfgnn__lift_refusal(s, &plan);
    if (reason)
      return reason;
  }
  return NULL;
}

static dfgnn_status walk_columns(const edges_params *rows,
                                 const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_matrix matrix =
      dfgnn__transposed(setting->matrix, launch->views[0]);
  const int ones = rows->constant != NULL;
  const int gt = problem->op == DFGNN_OP_GT;
  lift_plan plan = plan_of(setting, LIFT_COLUMNS);
  lift_shape shape;
  edges_params p = *rows;
  dfgnn_status status = dfgnn__lift_shape_for(&shape, &plan, &p, setting, ones);
  if (matrix.max_degree > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "a column has %lld edges, expected below 2^31",
                       (long long)matrix.max_degree);
  p.schedule = dfgnn__schedule_rows(&matrix);
  if (plan.item_edges)
    dfgnn__schedule_items(&p.schedule, launch->views[2], &matrix);
  p.edge_of = launch->views[0]->array[2];
  if (status || p.schedule.units == 0)
    return status;
  const dfgnn_program lifted = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_lift_columns.cuh", "dfgnn::lift_columns",
      (int)problem->op, DFGNN_TYPE(problem->dtype), shape.vector, plan.lanes,
      shape.head_lanes, shape.states, plan.unroll, (int)problem->heads,
      (int)problem->dim, shape.packed, dfgnn__lift_width(problem), ones,
      plan.item_edges ? EDGE_ITEMS : 0, plan.warps, plan.blocks, shape.staged);
  /* GT reads no features of edges here. */
  const dfgnn_program plain = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_columns.cuh", "dfgnn::edge_columns",
      DFGNN_TYPE(problem->dtype), shape.vector, plan.lanes, shape.head_lanes,
      shape.states, plan.unroll, (int)problem->heads, (int)problem->dim,
      shape.packed, plan.item_edges != 0, plan.warps);
  if (gt)
    status = dfgnn__launch_struct(
        setting->queue, &plain,
        (dfgnn_grid){
            .blocks = {(unsigned)dfgnn__ceil_div(p.schedule.units, plan.warps),
                       (unsigned)shape.tiles},
            .threads = (unsigned)plan.warps * 32},
        &p);
  else
    status = dfgnn__launch_struct(
        setting->queue, &lifted,
        (dfgnn_grid){
            .blocks = {dfgnn__lift_blocks(setting, &plan, p.schedule.units)},
            .threads = (unsigned)plan.warps * 32,
            .shared = (unsigned)shape.shared},
        &p);
  const tensor_view to[2] = {gt ? p.grad_key : p.grad_value, p.grad_value};
  return status || !plan.item_edges
             ? status
             : dfgnn__edges_merge_gradients(&p, 1, to, gt ? 2 : 1,
                                            p.grad_score_src, launch->views[2],
                                            launch);
}

/* Computes the gradients of W, its bias and att. */
static dfgnn_status sums(const edges_params *p, const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_args *a = launch->args;
  const int width = dfgnn__lift_width(problem);
  const int ones = width > 0 && (p->constant || a->grad_edge_bias);
  lift_plan plan = plan_of(setting, LIFT_SUMS);
  lift_shape shape;
  const dfgnn_status status =
      dfgnn__lift_shape_for(&shape, &plan, p, setting, ones);
  if (status)
    return status;
  const unsigned blocks = dfgnn__lift_blocks(
      setting, &plan, dfgnn__edges_units(setting, plan.item_edges));
  const int slices =
      width > 0 ? (int)dfgnn__ceil_div(width + ones, shape.slice) : 1;
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_lift_weight.cuh",
      "dfgnn::lift_weight_gradient", DFGNN_TYPE(problem->dtype), shape.vector,
      plan.lanes, shape.head_lanes, shape.states, plan.unroll,
      (int)problem->heads, (int)problem->dim, shape.packed, width, ones,
      shape.slice, plan.warps, plan.blocks, shape.staged);
  const dfgnn_program total = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_weight.cuh", "dfgnn::edge_weight_total",
      DFGNN_TYPE(problem->dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32));
  const edges_total_params t = {.totals = p->totals,
                                .weight = a->grad_edge_weight,
                                .constant = a->grad_edge_bias,
                                .att = a->grad_att,
                                .features = problem->heads * problem->dim,
                                .blocks = (int)blocks,
                                .width = width > 0 ? width : 0,
                                .ones = ones,
                                .atts = 1};
  const dfgnn_status launched =
      blocks == 0 ? DFGNN_OK
                  : dfgnn__launch_struct(
                        setting->queue, &program,
                        (dfgnn_grid){.blocks = {blocks, (unsigned)slices,
                                                (unsigned)shape.tiles},
                                     .threads = (unsigned)plan.warps * 32,
                                     .shared = (unsigned)shape.shared},
                        p);
  if (launched)
    return launched;
  return dfgnn__launch_struct(
      setting->queue, &total,
      (dfgnn_grid){.blocks = {(unsigned)dfgnn__ceil_div(
                       t.features * (t.width + ones + 1), 256)},
                   .threads = 256},
      &t);
}

static dfgnn_status gradients(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const int items = launch->setting.parameter[EDGES];
  const lift_memory m = memory_of(&launch->setting, launch->workspace);
  edges_params p;
  dfgnn_status status = dfgnn__lift_fill(&p, launch);
  if (status)
    return status;
  p.pairs = m.pairs;
  p.carry = m.carry;
  p.totals = m.totals;
  p.partial = m.partial;
  p.partial_state = m.partial_state;
  p.grad_attr = a->grad_edge_attr;
  p.grad_bias = a->grad_bias;
  if (items)
    dfgnn__schedule_items(&p.schedule, launch->views[1],
                          launch->setting.matrix);
  if ((status = walk_rows(&p, launch, LIFT_ROWS,
                          (problem->bias ? EDGE_BIAS : 0) |
                              (a->dropout > 0 ? EDGE_DROPOUT : 0) |
                              (p.grad_attr ? EDGE_WRITE : 0) |
                              (problem->accumulate ? EDGE_ADDS : 0) |
                              (items ? EDGE_ITEMS : 0),
                          "kernels/attention/cuda/edges_lift_backward.cuh",
                          "dfgnn::lift_gradient")))
    return status;
  if (items && p.schedule.units &&
      (status = dfgnn__edges_merge_gradients(
           &p, 0, &p.grad_query, problem->op != DFGNN_OP_GAT, p.grad_score_dst,
           launch->views[1], launch)))
    return status;
  if ((p.grad_key.data || p.grad_value.data || p.grad_score_src) &&
      (status = walk_columns(&p, launch)))
    return status;
  return a->grad_att || a->grad_edge_weight || a->grad_edge_bias
             ? sums(&p, launch)
             : DFGNN_OK;
}

static dfgnn_status backward_launch(const dfgnn_launch *launch) {
  return dfgnn__qk_norm_launch(launch, gradients);
}

/* ---- families ------------------------------------------------------------ */

#define LIFT_OPS                                                               \
  (DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GAT) | DFGNN_BIT(DFGNN_OP_GATV2))
#define LIFT_PARAMETERS                                                        \
  {                                                                            \
    {.name = "lanes", .count = 3, .values = {8, 16, 32}},                      \
        {.name = "unroll", .count = 3, .values = {1, 2, 4}},                   \
        {.name = "warps", .count = 2, .values = {4, 8}},                       \
        {.name = "blocks", .count = 4, .values = {1, 2, 3, 4}},                \
        DFGNN_EDGES_ITEMS                                                      \
  }

DFGNN_FAMILIES(attention_cuda_edges_lift) = {
    {.name = "cuda.attention.fwd.lift",
     .algorithm = "lift",
     .backend = "cuda",
     .ops = LIFT_OPS,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .edge_ops = LIFT_OPS,
     .edges_only = 1,
     .revision = 1,
     .deterministic = 1,
     .weights = 1,
     .bias = 1,
     .dropout = 1,
     .qk_norm = 1,
     .parameters = LIFT_PARAMETERS,
     .legal = legal,
     .applicable = forward_applicable,
     .workspace = forward_workspace,
     .views = forward_views,
     .launch = forward_launch},
    {.name = "cuda.attention.bwd.lift",
     .algorithm = "lift",
     .backend = "cuda",
     .ops = LIFT_OPS,
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .edge_ops = LIFT_OPS,
     .edges_only = 1,
     .revision = 1,
     .deterministic = 1,
     .bias = 1,
     .dropout = 1,
     .accumulate = 1,
     .qk_norm = 1,
     .parameters = LIFT_PARAMETERS,
     .legal = legal,
     .applicable = backward_applicable,
     .workspace = backward_workspace,
     .views = backward_views,
     .launch = backward_launch},
    DFGNN_FAMILIES_END};
