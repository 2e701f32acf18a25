/* edges_forward.c - GT with edge features, without W e of any edge */
#include "kernels/attention/cuda/attend_launch.h"
#include "kernels/attention/cuda/edges_plans.h"
#include "kernels/attention/cuda/qk_norm_launch.h"

enum { LANES, UNROLL, ROWS, BLOCKS, EDGES };

static edges_plan plan_of(const dfgnn_setting *setting) {
  const int *x = setting->parameter;
  return (edges_plan){.lanes = x[LANES],
                      .unroll = x[UNROLL],
                      .rows = x[ROWS],
                      .blocks = x[BLOCKS],
                      .item_edges = x[EDGES]};
}

static int legal(const int *x) { return x[ROWS] * x[BLOCKS] <= 32; }

static const char *applicable(const dfgnn_setting *setting) {
  const edges_plan plan = plan_of(setting);
  return dfgnn__edges_refusal(setting, &plan);
}

static size_t workspace(const dfgnn_setting *setting) {
  return dfgnn__qk_norm_workspace(setting) +
         dfgnn__edges_forward_memory(NULL, setting, setting->parameter[EDGES],
                                     NULL);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  return dfgnn__edges_item_views(requests, setting->parameter[EDGES], 0);
}

static dfgnn_status walk(const edges_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int ones = p->constant != NULL;
  edges_plan plan = plan_of(&launch->setting);
  edges_shape shape;
  const dfgnn_status status =
      dfgnn__edges_shape_for(&shape, &plan, p, &launch->setting, ones);
  if (status || p->schedule.units == 0)
    return status;
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_forward.cuh", "dfgnn::edge_attend",
      DFGNN_TYPE(problem->dtype), shape.vector, plan.lanes, shape.head_lanes,
      shape.states, plan.unroll, (int)problem->heads, (int)problem->dim,
      shape.packed, (int)problem->edge_dim, ones, dfgnn__edges_use(problem),
      dfgnn__edges_forward_mode(launch, plan.item_edges), plan.rows,
      plan.blocks, shape.staged);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__edges_blocks(&launch->setting, &plan,
                                                  p->schedule.units)},
                   .threads = (unsigned)plan.rows * 32,
                   .shared = (unsigned)shape.shared},
      p);
}

static dfgnn_status attend(const dfgnn_launch *launch) {
  const int items = launch->setting.parameter[EDGES];
  edges_params p;
  dfgnn_status status = dfgnn__edges_fill(&p, launch);
  if (status)
    return status;
  dfgnn__edges_forward_memory(&p, &launch->setting, items, launch->workspace);
  if (items)
    dfgnn__schedule_items(&p.schedule, launch->views[0],
                          launch->setting.matrix);
  if ((status = walk(&p, launch)))
    return status;
  return dfgnn__edges_forward_finish(&p, items ? launch->views[0] : NULL,
                                     launch);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  return dfgnn__qk_norm_launch(launch, attend);
}

DFGNN_FAMILIES(attention_cuda_edges_forward) = {
    {.name = "cuda.attention.fwd.edges",
     .algorithm = "edges",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_GT),
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .edge_ops = DFGNN_BIT(DFGNN_OP_GT),
     .edges_only = 1,
     .revision = 1,
     .deterministic = 1,
     .weights = 1,
     .bias = 1,
     .dropout = 1,
     .qk_norm = 1,
     .parameters = {{.name = "lanes", .count = 3, .values = {8, 16, 32}},
                    {.name = "unroll", .count = 3, .values = {1, 2, 4}},
                    {.name = "rows", .count = 2, .values = {8, 16}},
                    {.name = "blocks", .count = 4, .values = {1, 2, 3, 4}},
                    DFGNN_EDGES_ITEMS},
     .legal = legal,
     .applicable = applicable,
     .workspace = workspace,
     .views = views,
     .launch = launch},
    DFGNN_FAMILIES_END};
