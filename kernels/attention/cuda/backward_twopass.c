/* backward_twopass.c - gradients by a walk over rows and one over columns
 * that both compute each edge's weight: nothing is kept of edges */
#include "kernels/attention/cuda/backward_plans.h"

enum { LANES, UNROLL, ROWS, SPAN, ORDER, HEADS };

static grad_plan plan_of(const int *x) {
  return (grad_plan){.lanes = x[LANES],
                     .unroll = x[UNROLL],
                     .warps = x[SPAN] == SPAN_PIECE ? 8 : 4,
                     .rows = x[ROWS],
                     .heads = x[HEADS],
                     .span = (row_span)x[SPAN],
                     .by_degree = x[ORDER]};
}

static int twopass_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 ||
      !dfgnn__grad_legal(x[LANES], x[UNROLL], x[HEADS]))
    return 0;
  return !x[ORDER] || (x[SPAN] == SPAN_ONCE && x[ROWS] == 1);
}

DFGNN_GRAD_FUNCTIONS(twopass)

DFGNN_FAMILIES(attention_cuda_backward_twopass) = {
    {.name = "cuda.attention.bwd.twopass",
     .algorithm = "twopass",
     .backend = "cuda",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .revision = 1,
     .deterministic = 1,
     .bias = 1,
     .dropout = 1,
     .accumulate = 1,
     .parameters = {{.name = "lanes", .count = 4, .values = {4, 8, 16, 32}},
                    {.name = "unroll", .count = 3, .values = {1, 2, 4}},
                    {.name = "rows", .count = 3, .values = {1, 2, 4}},
                    {.name = "span",
                     .count = 2,
                     .values = {SPAN_ONCE, SPAN_PIECE},
                     .labels = {"once", "piece"}},
                    {.name = "order",
                     .count = 2,
                     .values = {0, 1},
                     .labels = {"natural", "degree"}},
                    {.name = "heads",
                     .count = 3,
                     .values = {HEADS_GRID, HEADS_WARP, HEADS_ROW},
                     .labels = {"grid", "warp", "row"}}},
     .legal = twopass_legal,
     .applicable = twopass_applicable,
     .workspace = twopass_workspace,
     .views = twopass_views,
     .launch = twopass_launch},
    DFGNN_FAMILIES_END};
