/* window.c - windows of rows with the columns that they touch, as masked dense
 * attention on tensor cores */
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS, STAGES, CHUNKS };

static tile_plan plan_of(const dfgnn_setting *s) {
  const int *x = s->parameter;
  return (tile_plan){.rows = x[ROWS], .stages = x[STAGES], .split = x[CHUNKS]};
}

DFGNN_TILE_FORWARD(window)

DFGNN_FAMILIES(attention_cuda_window) = {
    {.name = "cuda.attention.fwd.window",
     .algorithm = "window",
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
                    {.name = "stages", .count = 2, .values = {1, 2}},
                    {.name = "chunks",
                     .count = 3,
                     .values = {0, 32, 128},
                     .labels = {"any", "32", "128"}}},
     .applicable = window_applicable,
     .workspace = window_workspace,
     .views = window_views,
     .prepare = window_prepare,
     .launch = window_launch},
    DFGNN_FAMILIES_END};
