/* backward_spill.c - gradients by a walk over columns that keeps dS of
 * each edge and head, then one over rows that gathers the score's row alone
 * (GAT: sums the dS that was kept) */
#include "kernels/attention/cuda/backward_plans.h"

enum { LANES, UNROLL, ROWS, SPAN, HEADS };

static grad_plan plan_of(const int *x) {
  return (grad_plan){.lanes = x[LANES],
                     .unroll = x[UNROLL],
                     .warps = x[SPAN] == SPAN_PIECE ? 8 : 4,
                     .rows = x[ROWS],
                     .heads = x[HEADS],
                     .span = (row_span)x[SPAN],
                     .spill = 1};
}

static int spill_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 && (x[ROWS] < 4 || x[HEADS] == HEADS_LANES) &&
         dfgnn__grad_legal(x[LANES], x[UNROLL], x[HEADS]);
}

static const char *spill_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return dfgnn__grad_refusal(s, &plan);
}

static size_t spill_workspace(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return dfgnn__grad_workspace(s, &plan);
}

static int spill_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const grad_plan plan = plan_of(s->parameter);
  return dfgnn__grad_views(&plan, requests);
}

static dfgnn_status spill_launch(const dfgnn_launch *launch) {
  const grad_plan plan = plan_of(launch->setting.parameter);
  return dfgnn__grad_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_backward_spill) = {
    {.name = "cuda.attention.bwd.spill",
     .algorithm = "spill",
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
                    {.name = "heads",
                     .count = 4,
                     .values = {HEADS_GRID, HEADS_WARP, HEADS_ROW, HEADS_LANES},
                     .labels = {"grid", "warp", "row", "lanes"}}},
     .legal = spill_legal,
     .applicable = spill_applicable,
     .workspace = spill_workspace,
     .views = spill_views,
     .launch = spill_launch},
    DFGNN_FAMILIES_END};
