/* dense_backward.c - gradients on tensor cores, a batch's graphs as dense
 * blocks */
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS };

static tile_plan plan_of(const dfgnn_setting *s) {
  const int *x = s->parameter;
  return (tile_plan){.rows = x[ROWS], .dense = 1};
}

DFGNN_TILE_BACKWARD(dense)

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
