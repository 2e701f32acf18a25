/* window_backward.cu - gradients on tensor cores, windows of rows
 * with the columns that they touch */
#include "kernels/attention/cuda/tile_backward.h"

using namespace dfgnn;

enum { ROWS, CHUNKS };

static grad_tile_plan plan_of(const int *x) { return {x[ROWS], x[CHUNKS], 0}; }

static const char *window_applicable(const dfgnn_setting *s) {
  const grad_tile_plan plan = plan_of(s->parameter);
  return grad_tile_refusal(s, &plan);
}

static size_t window_workspace(const dfgnn_setting *s) {
  const grad_tile_plan plan = plan_of(s->parameter);
  return grad_tile_workspace(s, &plan);
}

static int window_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const grad_tile_plan plan = plan_of(s->parameter);
  return grad_tile_views(&plan, request);
}

static dfgnn_status window_prepare(void **state, const dfgnn_setting *s,
                                   const dfgnn_view *const *) {
  *state = NULL;
  return grad_tile_prepare(s);
}

static dfgnn_status window_launch(const dfgnn_launch *launch) {
  const grad_tile_plan plan = plan_of(launch->setting.parameter);
  return grad_tile_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_window_backward) = {
    {"cuda.attention.bwd.window",
     "window",
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
     {{"rows", 3, {32, 64, 128}, {}},
      {"chunks", 3, {0, 4, 32}, {"any", "4", "32"}}},
     NULL,
     window_applicable,
     window_workspace,
     window_views,
     window_prepare,
     NULL,
     window_launch},
    DFGNN_FAMILIES_END};
