/* dense_backward.cu - gradients on tensor cores, a batch's graphs as dense
 * blocks */
#include "kernels/attention/cuda/tile_backward.h"

using namespace dfgnn;

enum { ROWS };

static grad_tile_plan plan_of(const int *x) { return {x[ROWS], 0, 1}; }

static const char *dense_applicable(const dfgnn_setting *s) {
  const grad_tile_plan plan = plan_of(s->parameter);
  return grad_tile_refusal(s, &plan);
}

static size_t dense_workspace(const dfgnn_setting *s) {
  const grad_tile_plan plan = plan_of(s->parameter);
  return grad_tile_workspace(s, &plan);
}

static int dense_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const grad_tile_plan plan = plan_of(s->parameter);
  return grad_tile_views(&plan, request);
}

static dfgnn_status dense_prepare(void **state, const dfgnn_setting *s,
                                  const dfgnn_view *const *) {
  *state = NULL;
  return grad_tile_prepare(s);
}

static dfgnn_status dense_launch(const dfgnn_launch *launch) {
  const grad_tile_plan plan = plan_of(launch->setting.parameter);
  return grad_tile_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_dense_backward) = {
    {"cuda.attention.bwd.dense",
     "dense",
     "cuda",
     DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_AGNN) |
         DFGNN_BIT(DFGNN_OP_GAT),
     DFGNN_BIT(DFGNN_PASS_BACKWARD),
     DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),
     1,
     1,
     0,
     0,
     0,
     0,
     {{"rows", 3, {32, 64, 128}, {}}},
     NULL,
     dense_applicable,
     dense_workspace,
     dense_views,
     dense_prepare,
     NULL,
     dense_launch},
    DFGNN_FAMILIES_END};
