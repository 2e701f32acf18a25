/* tile_families.c - the families that work on tiles with tensor cores
 *
 *   dense   the graphs of a batch, as masked dense attention; forward
 *   window  windows of rows with the columns that they touch; forward
 *   direct  either, of narrow heads, whose operands go from memory into
 *           registers without a stop in shared memory; both passes
 */
#include "kernels/attention/cuda/layout.h"
#include "kernels/attention/cuda/tile_plans.h"

enum { ROWS, STAGES, COLUMNS = STAGES };
enum { OF_WINDOW, OF_BLOCKS };

static tile_plan dense_plan(const int *x) {
  return (tile_plan){.rows = x[ROWS], .stages = x[STAGES], .dense = 1};
}
static tile_plan window_plan(const int *x) {
  return (tile_plan){.rows = x[ROWS], .stages = x[STAGES]};
}
static tile_plan direct_plan(const int *x) {
  return (tile_plan){.rows = x[ROWS],
                     .stages = 1,
                     .direct = 1,
                     .dense = x[COLUMNS] == OF_BLOCKS};
}

DFGNN_PLAN_FUNCTIONS(dense, tile_plan, dense_plan, dfgnn__tile, dfgnn__tile)
DFGNN_PLAN_FUNCTIONS(window, tile_plan, window_plan, dfgnn__tile, dfgnn__tile)
DFGNN_PLAN_FUNCTIONS(direct, tile_plan, direct_plan, dfgnn__tile, dfgnn__tile)
DFGNN_PLAN_FUNCTIONS(direct_grad, tile_plan, direct_plan, dfgnn__grad_tile,
                     dfgnn__grad_tile)

/* GATv2's score is no product. */
#define GT_GAT (DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GAT))
#define PRODUCTS (GT_GAT | DFGNN_BIT(DFGNN_OP_AGNN))
#define TILE_FAMILY(of, label, in)                                             \
  .name = "cuda.attention." in "." of, .algorithm = of, .backend = "cuda",     \
  .dtypes =                                                                    \
      DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),     \
  .deterministic = 1, .bias = 1, .dropout = 1, .prepare = dfgnn__tile_prepare, \
  DFGNN_PLAN_MEMBERS(label)
#define FORWARD(label)                                                         \
  TILE_FAMILY(#label, label, "fwd"), .passes = DFGNN_BIT(DFGNN_PASS_FORWARD)
#define COLUMNS_PARAMETER                                                      \
  {                                                                            \
    "columns", 2, {OF_WINDOW, OF_BLOCKS}, { "window", "blocks" }               \
  }

DFGNN_FAMILIES(attention_cuda_tile_families) = {
    {FORWARD(dense), .ops = PRODUCTS, .revision = 3,
     .parameters = {{"rows", 2, {32, 64}, {0}}, {"stages", 1, {1}, {0}}}},
    {FORWARD(direct), .ops = GT_GAT, .revision = 3,
     .parameters = {{"rows", 1, {16}, {0}}, COLUMNS_PARAMETER}},
    {TILE_FAMILY("direct", direct_grad, "bwd"),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD), .ops = GT_GAT, .revision = 2,
     .parameters = {{"rows", 1, {16}, {0}}, COLUMNS_PARAMETER}},
    {FORWARD(window), .ops = PRODUCTS, .revision = 3,
     .parameters = {{"rows", 3, {16, 32, 64}, {0}},
                    {"stages", 2, {1, 2}, {0}}}},
    DFGNN_FAMILIES_END};
