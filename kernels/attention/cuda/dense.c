/* dense.c - the graphs of a batch as masked dense attention on tensor cores */
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS, STAGES };

static tile_plan plan_of(const dfgnn_setting *s) {
  const int *x = s->parameter;
  return (tile_plan){.rows = x[ROWS], .stages = x[STAGES], .dense = 1};
}

DFGNN_TILE_FORWARD(dense)

DFGNN_FAMILIES(attention_cuda_dense) = {
    {.name = "cuda.attention.fwd.dense",
     .algorithm = "dense",
     .backend = "cuda",
     .ops = DFGNN_OPS_ATTENTION,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) |
               DFGNN_BIT(DFGNN_BF16),
     .revision = 2,
     .deterministic = 1,
     .bias = 1,
     .dropout = 1,
     .parameters = {{.name = "rows", .count = 4, .values = {16, 32, 64, 128}},
                    {.name = "stages", .count = 2, .values = {1, 2}}},
     .applicable = dense_applicable,
     .workspace = dense_workspace,
     .views = dense_views,
     .prepare = dense_prepare,
     .launch = dense_launch},
    DFGNN_FAMILIES_END};
