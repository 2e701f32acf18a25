/* backward_split.cu - the walks of twopass over rows and columns cut into
 * items of bounded size, whose sums are merged in order */
#include "kernels/attention/cuda/backward.h"

using namespace dfgnn;

enum { LANES, UNROLL, SPAN, EDGES, HEADS };

static grad_plan plan_of(const int *x) {
  grad_plan plan = {};
  plan.lanes = x[LANES];
  plan.unroll = x[UNROLL];
  plan.rows = 1;
  plan.span = static_cast<attend_span>(x[SPAN]);
  plan.warps = plan.span == ATTEND_DEALT ? 8 : 4;
  plan.item_edges = x[EDGES];
  plan.several = x[HEADS];
  return plan;
}

static int split_legal(const int *x) {
  return grad_legal(x[LANES], x[UNROLL], x[HEADS]);
}

static const char *split_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_refusal(s, &plan);
}

static size_t split_workspace(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_workspace(s, &plan);
}

static int split_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_views(&plan, request);
}

static dfgnn_status split_prepare(void **state, const dfgnn_setting *s,
                                  const dfgnn_view *const *) {
  const grad_plan plan = plan_of(s->parameter);
  *state = NULL;
  return grad_prepare(s, &plan);
}

static dfgnn_status split_launch(const dfgnn_launch *launch) {
  const grad_plan plan = plan_of(launch->setting.parameter);
  return grad_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_backward_split) = {
    {"cuda.attention.bwd.split",
     "split",
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
      {"span", 2, {ATTEND_ONCE, ATTEND_DEALT}, {"once", "dealt"}},
      {"edges", 5, {16, 64, 128, 512, 4096}, {}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     split_legal,
     split_applicable,
     split_workspace,
     split_views,
     split_prepare,
     NULL,
     split_launch},
    DFGNN_FAMILIES_END};
