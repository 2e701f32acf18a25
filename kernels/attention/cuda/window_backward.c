/* window_backward.c - gradients on tensor cores, windows of rows with the
 * columns that they touch */
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS, CHUNKS };

static tile_plan plan_of(const dfgnn_setting *s) {
  const int *x = s->parameter;
  return (tile_plan){.rows = x[ROWS], .split = x[CHUNKS]};
}

DFGNN_TILE_BACKWARD(window)

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
