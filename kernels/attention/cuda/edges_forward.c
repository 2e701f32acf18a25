/* edges_forward.c - GT with edge features, without W e of any edge */
#include "kernels/attention/cuda/edges_plans.h"

enum { LANES, UNROLL, ROWS, BLOCKS };

static edges_plan plan_of(const dfgnn_setting *setting) {
  const int *x = setting->parameter;
  return (edges_plan){.lanes = x[LANES],
                      .unroll = x[UNROLL],
                      .rows = x[ROWS],
                      .blocks = x[BLOCKS]};
}

static int legal(const int *x) { return x[ROWS] * x[BLOCKS] <= 32; }

static const char *applicable(const dfgnn_setting *setting) {
  const edges_plan plan = plan_of(setting);
  return dfgnn__edges_refusal(setting, &plan);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int ones = launch->args->edge_bias != NULL;
  const int edge = (problem->bias ? EDGE_BIAS : 0) |
                   (launch->args->dropout > 0 ? EDGE_DROPOUT : 0);
  edges_plan plan = plan_of(&launch->setting);
  edges_shape shape;
  edges_params p;
  dfgnn_status status = dfgnn__edges_fill(&p, launch);
  if (status || p.schedule.units == 0)
    return status;
  if ((status =
           dfgnn__edges_shape_for(&shape, &plan, &p, &launch->setting, ones)))
    return status;
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_forward.cuh", "dfgnn::edge_attend",
      DFGNN_TYPE(problem->dtype), shape.vector, plan.lanes, shape.head_lanes,
      shape.states, plan.unroll, (int)problem->heads, (int)problem->dim,
      shape.packed, (int)problem->edge_dim, ones, dfgnn__edges_use(problem),
      edge, plan.rows, plan.blocks, shape.staged);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__edges_blocks(&launch->setting, &plan)},
                   .threads = (unsigned)plan.rows * 32,
                   .shared = (unsigned)shape.shared},
      &p);
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
     .bias = 1,
     .dropout = 1,
     .parameters = {{.name = "lanes", .count = 3, .values = {8, 16, 32}},
                    {.name = "unroll", .count = 3, .values = {1, 2, 4}},
                    {.name = "rows", .count = 2, .values = {8, 16}},
                    {.name = "blocks", .count = 4, .values = {1, 2, 3, 4}}},
     .legal = legal,
     .applicable = applicable,
     .launch = launch},
    DFGNN_FAMILIES_END};
