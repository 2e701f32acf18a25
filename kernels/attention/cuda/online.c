/* online.c - one pass over the rows with an online softmax */
#include "kernels/attention/cuda/attend_launch.h"

enum { LANES, UNROLL, WARPS, ROWS, SPAN, ORDER, HEADS, NORM };
enum { NATURAL, BY_DEGREE };
enum { FROM_ROW, FROM_TABLE };

static int legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32)
    return 0;
  if (x[HEADS] == HEADS_ROW && (x[LANES] != 32 || x[UNROLL] > 2))
    return 0;
  if (x[HEADS] == HEADS_LANES && (x[LANES] > 16 || x[UNROLL] > 4))
    return 0;
  if (x[LANES] < 16 && x[UNROLL] > 4)
    return 0;
  if (x[ORDER] == BY_DEGREE)
    return x[SPAN] == SPAN_ONCE && x[ROWS] == 1 && x[WARPS] == 4;
  if (x[SPAN] == SPAN_PIECE)
    return x[WARPS] == 16;
  return x[WARPS] == (x[ROWS] == 4 ? 8 : 4);
}

static attend_plan plan_of(const dfgnn_setting *setting) {
  const int *x = setting->parameter;
  return (attend_plan){.lanes = x[LANES],
                       .unroll = x[UNROLL],
                       .warps = x[WARPS],
                       .rows = x[ROWS],
                       .heads = x[HEADS],
                       .span = (row_span)x[SPAN],
                       .by_degree = x[ORDER] == BY_DEGREE,
                       .norms_table = x[NORM] == FROM_TABLE};
}

DFGNN_ATTEND_FUNCTIONS(online)

DFGNN_FAMILIES(attention_cuda_online) = {
    {.name = "cuda.attention.fwd.online",
     .algorithm = "online",
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
                    {.name = "warps", .count = 3, .values = {4, 8, 16}},
                    {.name = "rows", .count = 3, .values = {1, 2, 4}},
                    {.name = "span",
                     .count = 2,
                     .values = {SPAN_ONCE, SPAN_PIECE},
                     .labels = {"once", "piece"}},
                    {.name = "order",
                     .count = 2,
                     .values = {NATURAL, BY_DEGREE},
                     .labels = {"natural", "degree"}},
                    {.name = "heads",
                     .count = 4,
                     .values = {HEADS_GRID, HEADS_WARP, HEADS_ROW, HEADS_LANES},
                     .labels = {"grid", "warp", "row", "lanes"}},
                    {.name = "norm",
                     .count = 2,
                     .values = {FROM_ROW, FROM_TABLE},
                     .labels = {"row", "table"}}},
     .legal = legal,
     .applicable = online_applicable,
     .workspace = online_workspace,
     .views = online_views,
     .launch = online_launch},
    DFGNN_FAMILIES_END};
