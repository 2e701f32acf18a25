/* split.c - rows cut into items of bounded size, so that a row with many
 * edges is shared by many warps; their partial softmax results are merged by a
 * second kernel over those rows alone */
#include "kernels/attention/cuda/attend_launch.h"

enum { LANES, UNROLL, WARPS, ROWS, SPAN, EDGES, HEADS };

static int legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 128))
    return 0;
  if (x[HEADS] == HEADS_ROW && (x[LANES] != 32 || x[UNROLL] > 2))
    return 0;
  if (x[LANES] < 16 && x[UNROLL] > 4)
    return 0;
  return (x[SPAN] == SPAN_DEALT) == (x[WARPS] == 16);
}

static attend_plan plan_of(const dfgnn_setting *setting) {
  const int *x = setting->parameter;
  return (attend_plan){.lanes = x[LANES],
                       .unroll = x[UNROLL],
                       .warps = x[WARPS],
                       .rows = x[ROWS],
                       .heads = x[HEADS],
                       .span = (row_span)x[SPAN],
                       .item_edges = x[EDGES]};
}

DFGNN_ATTEND_FUNCTIONS(split)

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
     .parameters = {{.name = "lanes", .count = 4, .values = {4, 8, 16, 32}},
                    {.name = "unroll", .count = 4, .values = {1, 2, 4, 8}},
                    {.name = "warps", .count = 2, .values = {4, 16}},
                    {.name = "rows", .count = 2, .values = {1, 2}},
                    {.name = "span",
                     .count = 2,
                     .values = {SPAN_ONCE, SPAN_DEALT},
                     .labels = {"once", "dealt"}},
                    {.name = "edges",
                     .count = 4,
                     .values = {32, 128, 256, 1024}},
                    {.name = "heads",
                     .count = 3,
                     .values = {HEADS_GRID, HEADS_WARP, HEADS_ROW},
                     .labels = {"grid", "warp", "row"}}},
     .legal = legal,
     .applicable = split_applicable,
     .workspace = split_workspace,
     .views = split_views,
     .launch = split_launch},
    DFGNN_FAMILIES_END};
