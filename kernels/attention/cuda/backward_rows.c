/* backward_rows.c - the families whose gradients come by a walk over rows and
 * one over columns
 *
 *   twopass  both walks compute each edge's weight: nothing is kept of edges
 *   split    the same, over rows and columns cut into items of bounded size,
 *            whose sums are merged in order
 *   spill    the walk over columns comes first and keeps dS of each edge and
 *            head; that over rows gathers the score's row alone (GAT: sums dS)
 */
#include "kernels/attention/cuda/backward_plans.h"

/* Do these parameters make a walk for some problem? */
static int grad_legal(int lanes, int unroll, int heads) {
  if (heads == HEADS_ROW)
    return lanes == 32 && unroll <= 2;
  if (heads == HEADS_LANES)
    return lanes >= 8 && lanes < 32 && unroll <= 2;
  if (heads)
    return lanes == 32 ? unroll == 2 : lanes >= 8 && unroll <= lanes / 8;
  return unroll <= (lanes >= 16 ? 4 : 2);
}

static row_plan plan_of(int lanes, int unroll, int rows, int span, int heads) {
  return (row_plan){.lanes = lanes,
                    .unroll = unroll,
                    .warps = span == SPAN_ONCE ? 4 : 8,
                    .rows = rows,
                    .heads = heads,
                    .span = (row_span)span};
}

/* ---- twopass ------------------------------------------------------------- */

enum { LANES, UNROLL, ROWS, SPAN, ORDER, HEADS };

static row_plan twopass_plan(const int *x) {
  row_plan plan = plan_of(x[LANES], x[UNROLL], x[ROWS], x[SPAN], x[HEADS]);
  plan.order = (row_order)x[ORDER];
  return plan;
}

static int twopass_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 &&
         grad_legal(x[LANES], x[UNROLL], x[HEADS]) &&
         (!x[ORDER] || (x[SPAN] == SPAN_ONCE && x[ROWS] == 1));
}

DFGNN_PLAN_FUNCTIONS(twopass, row_plan, twopass_plan, dfgnn__row, dfgnn__grad)

/* ---- split --------------------------------------------------------------- */

enum { SPLIT_SPAN = 2, SPLIT_EDGES, SPLIT_HEADS };

static row_plan split_plan(const int *x) {
  row_plan plan =
      plan_of(x[LANES], x[UNROLL], 1, x[SPLIT_SPAN], x[SPLIT_HEADS]);
  plan.item_edges = x[SPLIT_EDGES];
  plan.padded = 1;
  return plan;
}

static int split_legal(const int *x) {
  return grad_legal(x[LANES], x[UNROLL], x[SPLIT_HEADS]);
}

DFGNN_PLAN_FUNCTIONS(split, row_plan, split_plan, dfgnn__row, dfgnn__grad)

/* ---- spill --------------------------------------------------------------- */

enum { SPILL_HEADS = 4 };

static row_plan spill_plan(const int *x) {
  row_plan plan =
      plan_of(x[LANES], x[UNROLL], x[ROWS], x[SPAN], x[SPILL_HEADS]);
  plan.spill = 1;
  return plan;
}

static int spill_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 &&
         (x[ROWS] < 4 || x[SPILL_HEADS] == HEADS_LANES) &&
         grad_legal(x[LANES], x[UNROLL], x[SPILL_HEADS]);
}

DFGNN_PLAN_FUNCTIONS(spill, row_plan, spill_plan, dfgnn__row, dfgnn__grad)

/* ---- families ------------------------------------------------------------ */

#define ROWS_FAMILY(label)                                                     \
  .name = "cuda.attention.bwd." #label, .algorithm = #label,                   \
  .backend = "cuda", .ops = DFGNN_OPS_ATTENTION,                               \
  .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD), .dtypes = DFGNN_DTYPES_ALL,        \
  .revision = 1, .deterministic = 1, .bias = 1, .dropout = 1, .accumulate = 1, \
  .legal = label##_legal, DFGNN_PLAN_MEMBERS(label)

DFGNN_FAMILIES(attention_cuda_backward_rows) = {
    {ROWS_FAMILY(spill), .parameters = {DFGNN_LANES,
                                        {"unroll", 2, {1, 2}, {0}},
                                        {"rows", 2, {1, 2}, {0}},
                                        DFGNN_SPAN_PIECE,
                                        DFGNN_HEADS(4)}},
    {ROWS_FAMILY(split), .parameters = {DFGNN_LANES,
                                        {"unroll", 2, {1, 2}, {0}},
                                        DFGNN_SPAN_DEALT,
                                        {"edges", 4, {16, 64, 128, 512}, {0}},
                                        DFGNN_HEADS(3)}},
    {ROWS_FAMILY(twopass), .parameters = {DFGNN_LANES,
                                          {"unroll", 2, {1, 2}, {0}},
                                          {"rows", 3, {1, 2, 4}, {0}},
                                          DFGNN_SPAN_PIECE,
                                          DFGNN_ORDER(2),
                                          DFGNN_HEADS(3)}},
    DFGNN_FAMILIES_END};
