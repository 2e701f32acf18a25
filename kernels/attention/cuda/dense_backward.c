/* dense_backward.c - gradients on tensor cores, a batch's graphs as dense
 * blocks */
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS };

static tile_plan plan_of(const int *x) {
  return (tile_plan){.rows = x[ROWS], .dense = 1};
}

static const char *dense_applicable(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s->parameter);
  return dfgnn__grad_tile_refusal(s, &plan);
}

static size_t dense_workspace(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s->parameter);
  return dfgnn__grad_tile_workspace(s, &plan);
}

static int dense_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const tile_plan plan = plan_of(s->parameter);
  return dfgnn__grad_tile_views(&plan, requests);
}

static dfgnn_status dense_prepare(void **state, const dfgnn_setting *s,
                                  const dfgnn_view *const *views) {
  (void)views;
  *state = NULL;
  return dfgnn__tile_prepare(s);
}

static dfgnn_status dense_launch(const dfgnn_launch *launch) {
  const tile_plan plan = plan_of(launch->setting.parameter);
  return dfgnn__grad_tile_launch(launch, &plan);
}

DFGNN_FAMILIES(attention_cuda_dense_backward) = {
    {.name = "cuda.attention.bwd.dense",
     .algorithm = "dense",
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
     .parameters = {{.name = "rows", .count = 3, .values = {32, 64, 128}}},
     .applicable = dense_applicable,
     .workspace = dense_workspace,
     .views = dense_views,
     .prepare = dense_prepare,
     .launch = dense_launch},
    DFGNN_FAMILIES_END};
