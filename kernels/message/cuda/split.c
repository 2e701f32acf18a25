/* split.c - rows cut into items of bounded size, so that a row with many edges
 * is shared by many warps; a second kernel sums the items of such rows */
#include "base/error.h"
#include "kernels/message/cuda/message_host.h"

enum { LANES, VECTORS, UNROLL, ROWS, EDGES };

static int split_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 64))
    return 0;
  return dfgnn__gather_listed(dfgnn__message_shapes, x[LANES], x[VECTORS],
                              x[UNROLL]);
}

/* The longest row is known in the forward pass only: backward walks columns. */
static const char *split_applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  const dfgnn_matrix *m = s->matrix;
  gather_shape shape;
  const int64_t rows =
      m->destinations > m->sources ? m->destinations : m->sources;
  if (rows + m->edges / x[EDGES] > INT32_MAX - 65536)
    return "more than 2^31 items";
  if (s->problem->pass == DFGNN_PASS_FORWARD ? m->max_degree <= x[EDGES]
                                             : m->edges <= x[EDGES])
    return "no row is longer than an item";
  return dfgnn__message_refusal(&shape, s, x[LANES], x[VECTORS], x[UNROLL]);
}

static size_t split_workspace(const dfgnn_setting *s) {
  return dfgnn__message_layout(s, s->parameter[EDGES]).bytes;
}

static int split_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const int backward = s->problem->pass == DFGNN_PASS_BACKWARD;
  dfgnn_view_request items = {.kind = DFGNN_VIEW_WORK_ITEMS,
                              .parameter = s->parameter[EDGES]};
  int count = 0;
  if (backward) {
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
    items.transposed = 1;
    requests[count++] = items;
    items.transposed = 0;
  }
  if (!backward || dfgnn__message_gated(s->problem->message))
    requests[count++] = items;
  return dfgnn__message_views(s, requests, count);
}

static dfgnn_status split_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  const dfgnn_view *const *next = launch->views;
  message_call call = {.launch = launch,
                       .layout = dfgnn__message_layout(s, x[EDGES]),
                       .warps = GATHER_ONCE_WARPS,
                       .rows = x[ROWS],
                       .span = GATHER_ONCE};
  const char *reason =
      dfgnn__message_refusal(&call.shape, s, x[LANES], x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  if (s->problem->pass == DFGNN_PASS_BACKWARD)
    call.transpose = *next++;
  call.items = *next++;
  if (call.transpose && dfgnn__message_gated(s->problem->message))
    call.row_items = *next++;
  if (call.transpose && s->problem->edge_dim > 0)
    call.row_of_edge = *next;
  return dfgnn__message_run(&call);
}

#define PARAMETERS                                                             \
  {                                                                            \
    {"lanes", 4, {4, 8, 16, 32}}, {"vectors", 2, {1, 2}},                      \
        {"unroll", 2, {2, 4}}, {"rows", 2, {1, 2}}, {                          \
      "edges", 2, {64, 256}, {}                                                \
    }                                                                          \
  }
#define DTYPES                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))
#define FAMILY(pass_name, pass)                                                \
  {                                                                            \
    .name = "cuda.message." pass_name ".split", .algorithm = "split",          \
    .backend = "cuda", .ops = DFGNN_OPS_MESSAGE, .passes = DFGNN_BIT(pass),    \
    .dtypes = DTYPES, .revision = 1, .deterministic = 1,                       \
    .edge_ops = DFGNN_OPS_MESSAGE, .messages = DFGNN_MESSAGES_ALL,             \
    .parameters = PARAMETERS, .legal = split_legal,                            \
    .applicable = split_applicable, .workspace = split_workspace,              \
    .views = split_views, .launch = split_launch                               \
  }

DFGNN_FAMILIES(message_cuda_split) = {
    FAMILY("fwd", DFGNN_PASS_FORWARD),
    FAMILY("bwd", DFGNN_PASS_BACKWARD),
    DFGNN_FAMILIES_END,
};
