/* direct.c - tiles of narrow heads, whose operands go from memory into
 * registers without a stop in shared memory */
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS, COLUMNS };
enum { OF_WINDOW, OF_BLOCKS };

static tile_plan plan_of(const dfgnn_setting *s) {
  const int *x = s->parameter;
  return (tile_plan){.rows = x[ROWS],
                     .stages = 1,
                     .direct = 1,
                     .dense = x[COLUMNS] == OF_BLOCKS};
}

DFGNN_TILE_FORWARD(direct)

DFGNN_FAMILIES(attention_cuda_direct) = {
    {.name = "cuda.attention.fwd.direct",
     .algorithm = "direct",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GAT),
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) |
               DFGNN_BIT(DFGNN_BF16),
     .revision = 1,
     .deterministic = 1,
     .bias = 1,
     .dropout = 1,
     .parameters = {{.name = "rows", .count = 4, .values = {16, 32, 64, 128}},
                    {.name = "columns",
                     .count = 2,
                     .values = {OF_WINDOW, OF_BLOCKS},
                     .labels = {"window", "blocks"}}},
     .applicable = direct_applicable,
     .workspace = direct_workspace,
     .views = direct_views,
     .prepare = direct_prepare,
     .launch = direct_launch},
    DFGNN_FAMILIES_END};
