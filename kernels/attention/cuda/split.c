/* split.c - rows cut into items of bounded size, so that a row with many
 * edges is shared by many warps; their partial softmax results are merged by a
 * second kernel over those rows alone */
#include "kernels/attention/cuda/attend_launch.h"
#include "kernels/attention/cuda/qk_norm_launch.h"

enum { LANES, UNROLL, WARPS, ROWS, SPAN, EDGES, HEADS };

static int legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 128))
    return 0;
  if (x[HEADS] == HEADS_ROW && (x[LANES] != 32 || x[UNROLL] > 2))
    return 0;
  if (x[LANES] < 16 && x[UNROLL] > 4)
    return 0;
  return (x[SPAN] == ATTEND_DEALT) == (x[WARPS] == 16);
}

static attend_plan plan_of(const dfgnn_setting *setting) {
  const int *x = setting->parameter;
  return (attend_plan){.lanes = x[LANES],
                       .unroll = x[UNROLL],
                       .warps = x[WARPS],
                       .rows = x[ROWS],
                       .heads = x[HEADS],
                       .span = (attend_span)x[SPAN],
                       .item_edges = x[EDGES]};
}

static const char *applicable(const dfgnn_setting *setting) {
  const attend_plan plan = plan_of(setting);
  return dfgnn__attend_refusal(setting, &plan);
}

static size_t workspace(const dfgnn_setting *setting) {
  const attend_plan plan = plan_of(setting);
  return dfgnn__qk_norm_workspace(setting) +
         dfgnn__attend_workspace(setting, &plan);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *request) {
  const attend_plan plan = plan_of(setting);
  return dfgnn__attend_views(&plan, request);
}

static dfgnn_status attend(const dfgnn_launch *launch) {
  const attend_plan plan = plan_of(&launch->setting);
  return dfgnn__attend(launch, &plan);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  return dfgnn__qk_norm_launch(launch, attend);
}

DFGNN_FAMILIES(attention_cuda_split) = {
    {.name = "cuda.attention.fwd.split",
     .algorithm = "split",
     .backend = "cuda",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 1,
     .deterministic = 1,
     .weights = 1,
     .bias = 1,
     .dropout = 1,
     .qk_norm = 1,
     .parameters = {{"lanes", 4, {4, 8, 16, 32}, {0}},
                    {"unroll", 4, {1, 2, 4, 8}, {0}},
                    {"warps", 2, {4, 16}, {0}},
                    {"rows", 2, {1, 2}, {0}},
                    {"span", 2, {ATTEND_ONCE, ATTEND_DEALT}, {"once", "dealt"}},
                    {"edges", 4, {32, 128, 256, 1024}, {0}},
                    {"heads",
                     3,
                     {HEADS_GRID, HEADS_WARP, HEADS_ROW},
                     {"grid", "warp", "row"}}},
     .legal = legal,
     .applicable = applicable,
     .workspace = workspace,
     .views = views,
     .launch = launch},
    DFGNN_FAMILIES_END};
