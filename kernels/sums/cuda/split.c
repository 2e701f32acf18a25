/* split.c - the split families: rows cut into items of bounded size, so that
 * many warps share a row with many edges; a second kernel merges the items of
 * such rows */
#include "kernels/sums/cuda/sums.h"

enum { LANES, VECTORS, UNROLL, ROWS, EDGES };

static int legal(sums_group group, const int *x) {
  return x[ROWS] * x[LANES] <= 32 && (x[ROWS] == 1 || x[EDGES] <= 64) &&
         dfgnn__sums_listed(group, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

static int spmm_legal(const int *x) { return legal(SUMS_OF_SPMM, x); }
static int reduce_legal(const int *x) { return legal(SUMS_OF_REDUCE, x); }
static int message_legal(const int *x) {
  return legal(SUMS_OF_MESSAGE, x) && x[ROWS] <= 2 && x[EDGES] <= 256;
}

/* The longest row is known in the forward pass only: backward walks columns. */
static const char *applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  const dfgnn_matrix *m = s->matrix;
  const int64_t rows =
      m->destinations > m->sources ? m->destinations : m->sources;
  gather_shape shape;
  if (rows + m->edges / x[EDGES] > INT32_MAX - 65536)
    return "more than 2^31 items";
  if ((dfgnn__sums_backward(s->problem) ? m->edges : m->max_degree) <= x[EDGES])
    return "no row is longer than an item";
  return dfgnn__sums_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

static const char *message_applicable(const dfgnn_setting *s) {
  return dfgnn__sums_copies(s->problem)
             ? "messages are copies of nodes, which spmm and reduce serve"
             : applicable(s);
}

static size_t workspace(const dfgnn_setting *s) {
  return dfgnn__sums_layout(s, s->parameter[EDGES], 0).bytes;
}

static int views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__sums_views(s, requests, DFGNN_VIEW_WORK_ITEMS,
                           s->parameter[EDGES]);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  sums_call call = {.launch = launch,
                    .warps = GATHER_ONCE_WARPS,
                    .rows = x[ROWS],
                    .span = GATHER_ONCE};
  return dfgnn__sums_launch(&call, x, DFGNN_VIEW_WORK_ITEMS, x[EDGES]);
}

#define DTYPES                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))
#define FAMILY(group, pass_name, pass, version)                                \
  .name = "cuda." group "." pass_name ".split", .algorithm = "split",          \
  .backend = "cuda", .passes = DFGNN_BIT(pass), .dtypes = DTYPES,              \
  .revision = version, .deterministic = 1, .parameters = DFGNN_GATHER_SPLIT,   \
  .workspace = workspace, .views = views, .launch = launch
#define SPMM                                                                   \
  .ops = DFGNN_OPS_SPMM, .legal = spmm_legal, .applicable = applicable
#define REDUCE                                                                 \
  .ops = DFGNN_OPS_REDUCE, .legal = reduce_legal, .applicable = applicable
#define MESSAGE                                                                \
  .ops = DFGNN_OPS_MESSAGE, .legal = message_legal,                            \
  .applicable = message_applicable, .edge_ops = DFGNN_OPS_MESSAGE,             \
  .messages = DFGNN_MESSAGES_ALL

DFGNN_FAMILIES(sums_cuda_split) = {
    {FAMILY("message", "fwd", DFGNN_PASS_FORWARD, 1), MESSAGE},
    {FAMILY("message", "bwd", DFGNN_PASS_BACKWARD, 1), MESSAGE},
    {FAMILY("reduce", "fwd", DFGNN_PASS_FORWARD, 3), REDUCE},
    {FAMILY("reduce", "bwd", DFGNN_PASS_BACKWARD, 3), REDUCE},
    {FAMILY("spmm", "fwd", DFGNN_PASS_FORWARD, 3), SPMM},
    {FAMILY("spmm", "bwd", DFGNN_PASS_BACKWARD, 3), SPMM},
    DFGNN_FAMILIES_END,
};
