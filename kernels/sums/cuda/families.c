/* families.c - the families of sums on a GPU
 *
 *   row       a group of lanes takes a row; shapes narrower than a row work in
 *             panels of features, which fit the L2 where whole rows do not
 *   split     rows are cut into items of bounded size, so that many warps share
 *             a row with many edges; a second kernel merges them
 *   block     a block takes a row with many edges and adds up the sums of its
 *             lanes in shared memory, so that nothing is left to merge; the
 *             other rows as in `row`.  Several blocks take a row of more than
 *             2048 edges, which a second kernel merges */
#include "kernels/sums/cuda/sums.h"

enum { LANES, VECTORS, UNROLL, ROWS, SPAN, ORDER };
enum { NATURAL, BY_DEGREE, BY_PLACE };
enum { EDGES = SPAN }; /* of split and block */

static int64_t longer_side(const dfgnn_matrix *m) {
  return m->destinations > m->sources ? m->destinations : m->sources;
}

static const char *refusal(const dfgnn_setting *s, sums_walk walk) {
  const int *x = s->parameter;
  gather_shape shape;
  return dfgnn__sums_refusal(&shape, s, walk, x[LANES], x[VECTORS], x[UNROLL]);
}

/* ---- row ----------------------------------------------------------------- */

static int row_legal(sums_group group, const int *x) {
  return dfgnn__sums_listed(group, 1, x[LANES], x[VECTORS], x[UNROLL]) &&
         x[ROWS] * x[LANES] <= 32 &&
         (x[ORDER] == NATURAL || (x[SPAN] == GATHER_ONCE && x[ROWS] == 1)) &&
         (group != SUMS_OF_MESSAGE || x[ROWS] <= 4);
}

static const char *row_applicable(const dfgnn_setting *s) {
  return refusal(s, SUMS_OVER_ROWS);
}

static size_t row_workspace(const dfgnn_setting *s) {
  return dfgnn__sums_layout(s, 0).bytes;
}

/* The view of the order of rows, of `row` and `block`. */
static dfgnn_view_kind order_view(const dfgnn_setting *s) {
  static const dfgnn_view_kind views[] = {[NATURAL] = DFGNN_VIEW_NONE,
                                          [BY_DEGREE] = DFGNN_VIEW_DEGREE_ORDER,
                                          [BY_PLACE] = DFGNN_VIEW_PLACE_ORDER};
  return views[s->parameter[ORDER]];
}

static int row_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__sums_views(s, requests, SUMS_OVER_ROWS, order_view(s), 0);
}

static dfgnn_status row_launch(const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  sums_call call = {.launch = launch,
                    .warps = x[SPAN] == GATHER_PIECE ? GATHER_PIECE_WARPS
                                                     : GATHER_ONCE_WARPS,
                    .rows = x[ROWS],
                    .span = (gather_span)x[SPAN]};
  return dfgnn__sums_launch(&call, x, order_view(&launch->setting), 0);
}

/* ---- split --------------------------------------------------------------- */

static int split_legal(sums_group group, const int *x) {
  return x[ROWS] * x[LANES] <= 32 && (x[ROWS] == 1 || x[EDGES] <= 64) &&
         dfgnn__sums_listed(group, 0, x[LANES], x[VECTORS], x[UNROLL]) &&
         (group != SUMS_OF_MESSAGE || (x[ROWS] <= 2 && x[EDGES] <= 256));
}

/* The longest row is known in the forward pass only: backward walks columns. */
static const char *split_applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  const dfgnn_matrix *m = s->matrix;
  if (longer_side(m) + m->edges / x[EDGES] > INT32_MAX - 65536)
    return "more than 2^31 items";
  if ((dfgnn__sums_backward(s->problem) ? m->edges : m->max_degree) <= x[EDGES])
    return "no row is longer than an item";
  return refusal(s, SUMS_OVER_ROWS);
}

static size_t split_workspace(const dfgnn_setting *s) {
  return dfgnn__sums_layout(s, s->parameter[EDGES]).bytes;
}

static int split_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__sums_views(s, requests, SUMS_OVER_ROWS, DFGNN_VIEW_WORK_ITEMS,
                           s->parameter[EDGES]);
}

static dfgnn_status split_launch(const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  sums_call call = {.launch = launch,
                    .warps = GATHER_ONCE_WARPS,
                    .rows = x[ROWS],
                    .span = GATHER_ONCE};
  return dfgnn__sums_launch(&call, x, DFGNN_VIEW_WORK_ITEMS, x[EDGES]);
}

/* ---- block --------------------------------------------------------------- */

static int block_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 &&
         dfgnn__sums_listed(SUMS_OF_SPMM, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

static const char *block_applicable(const dfgnn_setting *s) {
  if (dfgnn__sums_longest(s) <= s->parameter[EDGES])
    return "no row is long enough for a block";
  return refusal(s, SUMS_OVER_BLOCKS);
}

static size_t block_workspace(const dfgnn_setting *s) {
  return dfgnn__sums_layout(s, dfgnn__sums_hub(s) ? SUMS_HUB_EDGES : 0).bytes;
}

static int block_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__sums_views(s, requests, SUMS_OVER_BLOCKS, order_view(s),
                           s->parameter[EDGES]);
}

static dfgnn_status block_launch(const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  sums_call call = {.launch = launch,
                    .walk = SUMS_OVER_BLOCKS,
                    .warps = GATHER_PIECE_WARPS,
                    .rows = x[ROWS]};
  return dfgnn__sums_launch(&call, x, order_view(&launch->setting), x[EDGES]);
}

/* ---- families ------------------------------------------------------------ */

/* The functions that depend on the group of operators. */
#define OF_GROUPS(label)                                                       \
  static int label##_spmm_legal(const int *x) {                                \
    return label##_legal(SUMS_OF_SPMM, x);                                     \
  }                                                                            \
  static int label##_reduce_legal(const int *x) {                              \
    return label##_legal(SUMS_OF_REDUCE, x);                                   \
  }                                                                            \
  static int label##_message_legal(const int *x) {                             \
    return label##_legal(SUMS_OF_MESSAGE, x);                                  \
  }                                                                            \
  static const char *label##_message_applicable(const dfgnn_setting *s) {      \
    return dfgnn__sums_copies(s->problem)                                      \
               ? "messages are copies of nodes, which spmm and reduce serve"   \
               : label##_applicable(s);                                        \
  }
OF_GROUPS(row)
OF_GROUPS(split)

#define SINGLE                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))
#define FAMILY(label, group, in, pass)                                         \
  .name = "cuda." group "." in "." #label, .algorithm = #label,                \
  .backend = "cuda", .passes = DFGNN_BIT(DFGNN_PASS_##pass),                   \
  .deterministic = 1, .workspace = label##_workspace, .views = label##_views,  \
  .launch = label##_launch
#define FORWARD(label, group) FAMILY(label, group, "fwd", FORWARD)
#define BACKWARD(label, group) FAMILY(label, group, "bwd", BACKWARD)
#define SPMM(label)                                                            \
  .ops = DFGNN_OPS_SPMM, .revision = 3, .legal = label##_spmm_legal,           \
  .applicable = label##_applicable
#define REDUCE(label)                                                          \
  .ops = DFGNN_OPS_REDUCE, .revision = 3, .legal = label##_reduce_legal,       \
  .applicable = label##_applicable
#define MESSAGE(label)                                                         \
  .ops = DFGNN_OPS_MESSAGE, .revision = 1, .legal = label##_message_legal,     \
  .applicable = label##_message_applicable, .edge_ops = DFGNN_OPS_MESSAGE,     \
  .messages = DFGNN_MESSAGES_ALL
#define ROW .dtypes = DFGNN_DTYPES_ALL, .parameters = DFGNN_GATHER_ROW
#define SPLIT .dtypes = SINGLE, .parameters = DFGNN_GATHER_SPLIT

#define BLOCK                                                                  \
  .ops = DFGNN_OPS_SPMM, .revision = 2, .dtypes = SINGLE,                      \
  .legal = block_legal, .applicable = block_applicable,                        \
  .parameters = {DFGNN_GATHER_SHAPE,                                           \
                 {.name = "rows", .count = 3, .values = {1, 2, 4}},            \
                 {.name = "edges", .count = 3, .values = {32, 64, 128}},       \
                 {.name = "order",                                             \
                  .count = 2,                                                  \
                  .values = {NATURAL, BY_PLACE},                               \
                  .labels = {"natural", "place"}}}

DFGNN_FAMILIES(sums_cuda_families) = {
    {FORWARD(block, "spmm"), BLOCK},
    {BACKWARD(block, "spmm"), BLOCK},
    {FORWARD(row, "message"), MESSAGE(row), ROW},
    {BACKWARD(row, "message"), MESSAGE(row), ROW},
    {FORWARD(row, "reduce"), REDUCE(row), ROW},
    {BACKWARD(row, "reduce"), REDUCE(row), ROW},
    {FORWARD(row, "spmm"), SPMM(row), ROW},
    {BACKWARD(row, "spmm"), SPMM(row), ROW},
    {FORWARD(split, "message"), MESSAGE(split), SPLIT},
    {BACKWARD(split, "message"), MESSAGE(split), SPLIT},
    {FORWARD(split, "reduce"), REDUCE(split), SPLIT},
    {BACKWARD(split, "reduce"), REDUCE(split), SPLIT},
    {FORWARD(split, "spmm"), SPMM(split), SPLIT},
    {BACKWARD(split, "spmm"), SPMM(split), SPLIT},
    DFGNN_FAMILIES_END};
