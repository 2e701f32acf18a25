/* window_backward.c - gradients on tensor cores, windows of rows with the
 * columns that they touch */
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS, CHUNKS };

static tile_plan plan_of(const int *x) {
  return (tile_plan){.rows = x[ROWS], .split = x[CHUNKS]};
}

static const char *window_applicable(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s->parameter);
  return dfgnn__grad_tile_refusal(s, &plan);
}

static size_t window_workspace(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s->parameter);
  return dfgnn__grad_tile_workspace(s, &plan);
}

static int window_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const tile_plan plan = plan_of(s->parameter);
  return dfgnn__grad_tile_views(&plan, requests);
}

static dfgnn_status window_prepare(void **state, const dfgnn_setting *s,
                                   const dfgnn_view *const *views) {
  (void)views;
  *state = NULL;
  return dfgnn__tile_prepare(s);
}

static dfgnn_status window_launch(const dfgnn_launch *launch) {
  const tile_plan plan = plan_of(launch->setting.parameter);
  return dfgnn__grad_tile_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_window_backward) = {
    {.name = "cuda.attention.bwd.window",
     .algorithm = "window",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_AGNN) |
            DFGNN_BIT(DFGNN_OP_GAT),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) |
               DFGNN_BIT(DFGNN_BF16),
     .revision = 1,
     .deterministic = 1,
     .bias = 1,
     .dropout = 1,
     .parameters = {{.name = "rows", .count = 3, .values = {32, 64, 128}},
                    {.name = "chunks",
                     .count = 3,
                     .values = {0, 4, 32},
                     .labels = {"any", "4", "32"}}},
     .applicable = window_applicable,
     .workspace = window_workspace,
     .views = window_views,
     .prepare = window_prepare,
     .launch = window_launch},
    DFGNN_FAMILIES_END};
