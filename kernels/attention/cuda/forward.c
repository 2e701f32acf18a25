/* forward.c - the families that walk rows with a running softmax: `online`
 * takes whole rows; `split` cuts them into items of bounded size, so that many
 * warps share a row with many edges, and a second kernel merges the items of
 * such rows; `block` gives such a row to a block, which merges it itself */
#include "kernels/attention/cuda/attend_launch.h"

enum {
  LANES,
  UNROLL,
  WARPS,
  ROWS,
  SPAN,
  ORDER,
  EDGES = ORDER, /* of split */
  HEADS
};

static int lanes_legal(const int *x) {
  if (x[HEADS] == HEADS_ROW && (x[LANES] != 32 || x[UNROLL] > 2))
    return 0;
  return x[ROWS] * x[LANES] <= 32 && (x[LANES] >= 16 || x[UNROLL] <= 4);
}

static int online_legal(const int *x) {
  if (!lanes_legal(x) ||
      (x[HEADS] == HEADS_LANES && (x[LANES] > 16 || x[UNROLL] > 4)))
    return 0;
  if (x[ORDER] != ORDER_NATURAL)
    return x[SPAN] == SPAN_ONCE && x[ROWS] == 1 && x[WARPS] == 4;
  if (x[SPAN] == SPAN_PIECE)
    return x[WARPS] == 16;
  return x[WARPS] == (x[ROWS] == 4 ? 8 : 4);
}

static int split_legal(const int *x) {
  return lanes_legal(x) && (x[ROWS] == 1 || x[EDGES] <= 128) &&
         (x[SPAN] == SPAN_ONCE) == (x[WARPS] == 4) &&
         (x[SPAN] != SPAN_SORTED || x[ROWS] == 2);
}

static int block_legal(const int *x) { return lanes_legal(x) && x[LANES] >= 8; }

static row_plan plan_of(const int *x) {
  return (row_plan){.lanes = x[LANES],
                    .unroll = x[UNROLL],
                    .warps = x[WARPS],
                    .rows = x[ROWS],
                    .heads = x[HEADS],
                    .span = (row_span)x[SPAN]};
}

static row_plan online_plan(const int *x) {
  row_plan plan = plan_of(x);
  plan.order = (row_order)x[ORDER];
  return plan;
}

static row_plan split_plan(const int *x) {
  row_plan plan = plan_of(x);
  plan.item_edges = x[EDGES];
  plan.padded = x[SPAN] != SPAN_SORTED;
  return plan;
}

static row_plan block_plan(const int *x) {
  row_plan plan = split_plan(x);
  plan.by_blocks = 1;
  plan.padded = 0;
  return plan;
}

DFGNN_PLAN_FUNCTIONS(block, row_plan, block_plan, dfgnn__row, dfgnn__attend)
DFGNN_PLAN_FUNCTIONS(online, row_plan, online_plan, dfgnn__row, dfgnn__attend)
DFGNN_PLAN_FUNCTIONS(split, row_plan, split_plan, dfgnn__row, dfgnn__attend)

#define ROWS_FAMILY(label)                                                     \
  .name = "cuda.attention.fwd." #label, .algorithm = #label,                   \
  .backend = "cuda", .ops = DFGNN_OPS_ATTENTION,                               \
  .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .dtypes = DFGNN_DTYPES_ALL,         \
  .revision = 1, .deterministic = 1, .weights = 1, .bias = 1, .dropout = 1,    \
  .legal = label##_legal, DFGNN_PLAN_MEMBERS(label)

DFGNN_FAMILIES(attention_cuda_forward) = {
    {ROWS_FAMILY(block), .parameters = {DFGNN_LANES,
                                        {"unroll", 2, {2, 4}, {0}},
                                        {"warps", 2, {4, 8}, {0}},
                                        {"rows", 2, {1, 2}, {0}},
                                        {"span", 1, {SPAN_ONCE}, {"once"}},
                                        {"edges", 3, {32, 64, 128}, {0}},
                                        DFGNN_HEADS(2)}},
    {ROWS_FAMILY(online), .parameters = {DFGNN_LANES,
                                         {"unroll", 4, {1, 2, 4, 8}, {0}},
                                         {"warps", 3, {4, 8, 16}, {0}},
                                         {"rows", 3, {1, 2, 4}, {0}},
                                         DFGNN_SPAN_PIECE,
                                         DFGNN_ORDER(3),
                                         DFGNN_HEADS(4),
                                         {"norm", 1, {0}, {"row"}}}},
    {ROWS_FAMILY(split),
     .parameters = {DFGNN_LANES,
                    {"unroll", 4, {1, 2, 4, 8}, {0}},
                    {"warps", 2, {4, 16}, {0}},
                    {"rows", 2, {1, 2}, {0}},
                    {"span", 2, {SPAN_ONCE, SPAN_SORTED}, {"once", "sorted"}},
                    {"edges", 3, {32, 128, 256}, {0}},
                    DFGNN_HEADS(2)}},
    DFGNN_FAMILIES_END};
