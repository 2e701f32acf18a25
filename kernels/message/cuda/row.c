/* row.c - the row family: a group of lanes takes a row */
#include "base/error.h"
#include "kernels/message/cuda/message_host.h"

enum { LANES, VECTORS, UNROLL, ROWS, SPAN, ORDER };
enum { NATURAL, BY_DEGREE };

static int row_legal(const int *x) {
  if (!(dfgnn__gather_listed(dfgnn__message_shapes, x[LANES], x[VECTORS],
                             x[UNROLL]) ||
        dfgnn__gather_listed(dfgnn__gather_narrow_shapes, x[LANES], x[VECTORS],
                             x[UNROLL])) ||
      x[ROWS] * x[LANES] > 32)
    return 0;
  return x[ORDER] == NATURAL || (x[SPAN] == GATHER_ONCE && x[ROWS] == 1);
}

static const char *row_applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  gather_shape shape;
  return dfgnn__message_refusal(&shape, s, x[LANES], x[VECTORS], x[UNROLL]);
}

static size_t row_workspace(const dfgnn_setting *s) {
  return dfgnn__message_layout(s, 0).bytes;
}

static int row_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const int backward = s->problem->pass == DFGNN_PASS_BACKWARD;
  int count = 0;
  if (backward)
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  if (s->parameter[ORDER] == BY_DEGREE)
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_DEGREE_ORDER,
                                             .transposed = backward};
  return dfgnn__message_views(s, requests, count);
}

static dfgnn_status row_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  const dfgnn_view *const *next = launch->views;
  message_call call = {.launch = launch,
                       .layout = dfgnn__message_layout(s, 0),
                       .warps = x[SPAN] == GATHER_PIECE ? GATHER_PIECE_WARPS
                                                        : GATHER_ONCE_WARPS,
                       .rows = x[ROWS],
                       .span = (gather_span)x[SPAN]};
  const char *reason =
      dfgnn__message_refusal(&call.shape, s, x[LANES], x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  if (s->problem->pass == DFGNN_PASS_BACKWARD)
    call.transpose = *next++;
  if (x[ORDER] == BY_DEGREE)
    call.order = *next++;
  if (call.transpose && s->problem->edge_dim > 0)
    call.row_of_edge = *next;
  return dfgnn__message_run(&call);
}

#define PARAMETERS                                                             \
  {                                                                            \
    {"lanes", 4, {4, 8, 16, 32}}, {"vectors", 3, {1, 2, 4}},                   \
        {"unroll", 2, {2, 4}}, {"rows", 3, {1, 2, 4}},                         \
        {"span", 2, {GATHER_ONCE, GATHER_PIECE}, {"once", "piece"}}, {         \
      "order", 2, {NATURAL, BY_DEGREE}, { "natural", "degree" }                \
    }                                                                          \
  }
#define FAMILY(pass_name, pass)                                                \
  {                                                                            \
    .name = "cuda.message." pass_name ".row", .algorithm = "row",              \
    .backend = "cuda", .ops = DFGNN_OPS_MESSAGE, .passes = DFGNN_BIT(pass),    \
    .dtypes = DFGNN_DTYPES_ALL, .revision = 1, .deterministic = 1,             \
    .edge_ops = DFGNN_OPS_MESSAGE, .messages = DFGNN_MESSAGES_ALL,             \
    .parameters = PARAMETERS, .legal = row_legal,                              \
    .applicable = row_applicable, .workspace = row_workspace,                  \
    .views = row_views, .launch = row_launch                                   \
  }

DFGNN_FAMILIES(message_cuda_row) = {
    FAMILY("fwd", DFGNN_PASS_FORWARD),
    FAMILY("bwd", DFGNN_PASS_BACKWARD),
    DFGNN_FAMILIES_END,
};
