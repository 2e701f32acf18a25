/* backward_twopass.cu - gradients by a walk over rows and one over columns
 * that find each edge's probability anew: nothing is kept of edges */
#include "kernels/attention/cuda/backward.h"

using namespace dfgnn;

enum { LANES, UNROLL, ROWS, SPAN, ORDER, HEADS };

static grad_plan plan_of(const int *x) {
  grad_plan plan = {};
  plan.lanes = x[LANES];
  plan.unroll = x[UNROLL];
  plan.rows = x[ROWS];
  plan.span = static_cast<attend_span>(x[SPAN]);
  plan.warps = plan.span == ATTEND_PIECE ? 8 : 4;
  plan.by_degree = x[ORDER];
  plan.several = x[HEADS];
  return plan;
}

static int twopass_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || !grad_legal(x[LANES], x[UNROLL], x[HEADS]))
    return 0;
  return !x[ORDER] || (x[SPAN] == ATTEND_ONCE && x[ROWS] == 1);
}

static const char *twopass_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_refusal(s, &plan);
}

static size_t twopass_workspace(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_workspace(s, &plan);
}

static int twopass_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_views(&plan, request);
}

static dfgnn_status twopass_prepare(void **state, const dfgnn_setting *s,
                                    const dfgnn_view *const *) {
  const grad_plan plan = plan_of(s->parameter);
  *state = NULL;
  return grad_prepare(s, &plan);
}

static dfgnn_status twopass_launch(const dfgnn_launch *launch) {
  const grad_plan plan = plan_of(launch->setting.parameter);
  return grad_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_backward_twopass) = {
    {"cuda.attention.bwd.twopass",
     "twopass",
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
      {"rows", 3, {1, 2, 4}, {}},
      {"span", 2, {ATTEND_ONCE, ATTEND_PIECE}, {"once", "piece"}},
      {"order", 2, {0, 1}, {"natural", "degree"}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     twopass_legal,
     twopass_applicable,
     twopass_workspace,
     twopass_views,
     twopass_prepare,
     NULL,
     twopass_launch},
    DFGNN_FAMILIES_END};
