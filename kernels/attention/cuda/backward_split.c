/* backward_split.c - the walks of twopass over rows and columns cut into
 * items of bounded size, whose sums are merged in order */
#include "kernels/attention/cuda/backward_plans.h"

enum { LANES, UNROLL, SPAN, EDGES, HEADS };

static grad_plan plan_of(const int *x) {
  return (grad_plan){.lanes = x[LANES],
                     .unroll = x[UNROLL],
                     .warps = x[SPAN] == SPAN_DEALT ? 8 : 4,
                     .rows = 1,
                     .heads = x[HEADS],
                     .span = (row_span)x[SPAN],
                     .item_edges = x[EDGES]};
}

static int split_legal(const int *x) {
  return dfgnn__grad_legal(x[LANES], x[UNROLL], x[HEADS]);
}

DFGNN_GRAD_FUNCTIONS(split)

DFGNN_FAMILIES(attention_cuda_backward_split) = {
    {.name = "cuda.attention.bwd.split",
     .algorithm = "split",
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
                    {.name = "span",
                     .count = 2,
                     .values = {SPAN_ONCE, SPAN_DEALT},
                     .labels = {"once", "dealt"}},
                    {.name = "edges",
                     .count = 5,
                     .values = {16, 64, 128, 512, 4096}},
                    {.name = "heads",
                     .count = 3,
                     .values = {HEADS_GRID, HEADS_WARP, HEADS_ROW},
                     .labels = {"grid", "warp", "row"}}},
     .legal = split_legal,
     .applicable = split_applicable,
     .workspace = split_workspace,
     .views = split_views,
     .launch = split_launch},
    DFGNN_FAMILIES_END};
