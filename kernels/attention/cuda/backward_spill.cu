/* backward_spill.cu - gradients by a walk over columns that keeps dS of
 * each edge and head, then one over rows that gathers the score's row alone
 * (GAT: sums what was kept) */
#include "kernels/attention/cuda/backward.h"

using namespace dfgnn;

enum { LANES, UNROLL, ROWS, SPAN, HEADS };

static grad_plan plan_of(const int *x) {
  grad_plan plan = {};
  plan.lanes = x[LANES];
  plan.unroll = x[UNROLL];
  plan.rows = x[ROWS];
  plan.span = static_cast<attend_span>(x[SPAN]);
  plan.warps = plan.span == ATTEND_PIECE ? 8 : 4;
  plan.several = x[HEADS];
  plan.spill = 1;
  return plan;
}

static int spill_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 && grad_legal(x[LANES], x[UNROLL], x[HEADS]);
}

static const char *spill_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_refusal(s, &plan);
}

static size_t spill_workspace(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_workspace(s, &plan);
}

static int spill_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_views(&plan, request);
}

static dfgnn_status spill_prepare(void **state, const dfgnn_setting *s,
                                  const dfgnn_view *const *) {
  const grad_plan plan = plan_of(s->parameter);
  *state = NULL;
  return grad_prepare(s, &plan);
}

static dfgnn_status spill_launch(const dfgnn_launch *launch) {
  const grad_plan plan = plan_of(launch->setting.parameter);
  return grad_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_backward_spill) = {
    {"cuda.attention.bwd.spill",
     "spill",
     "cuda",
     DFGNN_OPS_ATTENTION,
     DFGNN_BIT(DFGNN_PASS_BACKWARD),
     DFGNN_DTYPES_ALL,
     1,
     1,
     0,
     1,
     1,
     0,
     {{"lanes", 4, {4, 8, 16, 32}, {}},
      {"unroll", 3, {1, 2, 4}, {}},
      {"rows", 2, {1, 2}, {}},
      {"span", 2, {ATTEND_ONCE, ATTEND_PIECE}, {"once", "piece"}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     spill_legal,
     spill_applicable,
     spill_workspace,
     spill_views,
     spill_prepare,
     NULL,
     spill_launch},
    DFGNN_FAMILIES_END};
