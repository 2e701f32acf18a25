/* row.c - the row families: a group of lanes takes a row; shapes narrower than
 * a row work in panels of features, which fit the L2 where whole rows do not */
#include "kernels/sums/cuda/sums.h"

enum { LANES, VECTORS, UNROLL, ROWS, SPAN, ORDER };
enum { NATURAL, BY_DEGREE };

static int legal(sums_group group, const int *x) {
  return dfgnn__sums_listed(group, 1, x[LANES], x[VECTORS], x[UNROLL]) &&
         x[ROWS] * x[LANES] <= 32 &&
         (x[ORDER] == NATURAL || (x[SPAN] == GATHER_ONCE && x[ROWS] == 1));
}

static int spmm_legal(const int *x) { return legal(SUMS_OF_SPMM, x); }
static int reduce_legal(const int *x) { return legal(SUMS_OF_REDUCE, x); }
static int message_legal(const int *x) {
  return legal(SUMS_OF_MESSAGE, x) && x[ROWS] <= 4;
}

static const char *applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  gather_shape shape;
  return dfgnn__sums_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

static const char *message_applicable(const dfgnn_setting *s) {
  return dfgnn__sums_copies(s->problem)
             ? "messages are copies of nodes, which spmm and reduce serve"
             : applicable(s);
}

static size_t workspace(const dfgnn_setting *s) {
  return dfgnn__sums_layout(s, 0, 0).bytes;
}

static dfgnn_view_kind view_of(const dfgnn_setting *s) {
  return s->parameter[ORDER] == BY_DEGREE ? DFGNN_VIEW_DEGREE_ORDER
                                          : DFGNN_VIEW_NONE;
}

static int views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__sums_views(s, requests, view_of(s), 0);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  sums_call call = {.launch = launch,
                    .warps = x[SPAN] == GATHER_PIECE ? GATHER_PIECE_WARPS
                                                     : GATHER_ONCE_WARPS,
                    .rows = x[ROWS],
                    .span = (gather_span)x[SPAN]};
  return dfgnn__sums_launch(&call, x, view_of(&launch->setting), 0);
}

#define FAMILY(group, pass_name, pass, version)                                \
  .name = "cuda." group "." pass_name ".row", .algorithm = "row",              \
  .backend = "cuda", .passes = DFGNN_BIT(pass), .dtypes = DFGNN_DTYPES_ALL,    \
  .revision = version, .deterministic = 1, .parameters = DFGNN_GATHER_ROW,     \
  .workspace = workspace, .views = views, .launch = launch
#define SPMM                                                                   \
  .ops = DFGNN_OPS_SPMM, .legal = spmm_legal, .applicable = applicable
#define REDUCE                                                                 \
  .ops = DFGNN_OPS_REDUCE, .legal = reduce_legal, .applicable = applicable
#define MESSAGE                                                                \
  .ops = DFGNN_OPS_MESSAGE, .legal = message_legal,                            \
  .applicable = message_applicable, .edge_ops = DFGNN_OPS_MESSAGE,             \
  .messages = DFGNN_MESSAGES_ALL

DFGNN_FAMILIES(sums_cuda_row) = {
    {FAMILY("message", "fwd", DFGNN_PASS_FORWARD, 1), MESSAGE},
    {FAMILY("message", "bwd", DFGNN_PASS_BACKWARD, 1), MESSAGE},
    {FAMILY("reduce", "fwd", DFGNN_PASS_FORWARD, 3), REDUCE},
    {FAMILY("reduce", "bwd", DFGNN_PASS_BACKWARD, 3), REDUCE},
    {FAMILY("spmm", "fwd", DFGNN_PASS_FORWARD, 3), SPMM},
    {FAMILY("spmm", "bwd", DFGNN_PASS_BACKWARD, 3), SPMM},
    DFGNN_FAMILIES_END,
};
