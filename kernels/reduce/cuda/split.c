/* split.c - the split family: a warp takes one or several light rows; a
 * heavy row is cut into items of bounded size, which a second kernel merges */
#include "base/error.h"
#include "kernels/reduce/cuda/reduce.h"

enum { LANES, VECTORS, UNROLL, ROWS, EDGES };

static int split_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 64))
    return 0;
  return dfgnn__reduce_listed(x[LANES], x[VECTORS], x[UNROLL]);
}

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
  return dfgnn__reduce_refusal(&shape, s, x[LANES], x[VECTORS], x[UNROLL]);
}

static size_t split_workspace(const dfgnn_setting *s) {
  return dfgnn__reduce_table_bytes(s) +
         dfgnn__reduce_item_bytes(s, s->parameter[EDGES]);
}

static dfgnn_status fill(reduce_call *call, const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  char *workspace = (char *)(launch->workspace);
  *call = (reduce_call){0};
  call->launch = launch;
  call->warps = 4;
  call->rows = x[ROWS];
  call->tables = workspace;
  call->partial = workspace + dfgnn__reduce_table_bytes(&launch->setting);
  const char *reason = dfgnn__reduce_refusal(&call->shape, &launch->setting,
                                             x[LANES], x[VECTORS], x[UNROLL]);
  return reason ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason) : DFGNN_OK;
}

/* var and std walk the rows of the matrix first. */
static int walks_rows(const dfgnn_setting *s) {
  return s->problem->pass == DFGNN_PASS_BACKWARD &&
         (s->problem->op == DFGNN_OP_REDUCE_VAR ||
          s->problem->op == DFGNN_OP_REDUCE_STD);
}

static int split_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const int64_t edges = s->parameter[EDGES];
  int count = dfgnn__gather_views(s, requests, DFGNN_VIEW_WORK_ITEMS, edges);
  if (walks_rows(s))
    requests[count++] =
        (dfgnn_view_request){.kind = DFGNN_VIEW_WORK_ITEMS, .parameter = edges};
  return count;
}

static dfgnn_status forward_launch(const dfgnn_launch *launch) {
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  call.items = launch->views[0];
  return status ? status : dfgnn__reduce_forward(&call);
}

static dfgnn_status backward_launch(const dfgnn_launch *launch) {
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  call.transpose = launch->views[0];
  call.items = launch->views[1];
  if (walks_rows(&launch->setting))
    call.row_items = launch->views[2];
  return status ? status : dfgnn__reduce_backward(&call);
}

#define DTYPES                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))

DFGNN_FAMILIES(reduce_cuda_split) = {{.name = "cuda.reduce.fwd.split",
                                      .algorithm = "split",
                                      .backend = "cuda",
                                      .ops = DFGNN_OPS_REDUCE,
                                      .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
                                      .dtypes = DTYPES,
                                      .revision = 3,
                                      .deterministic = 1,
                                      .parameters = DFGNN_GATHER_SPLIT,
                                      .legal = split_legal,
                                      .applicable = split_applicable,
                                      .workspace = split_workspace,
                                      .views = split_views,
                                      .launch = forward_launch},
                                     {.name = "cuda.reduce.bwd.split",
                                      .algorithm = "split",
                                      .backend = "cuda",
                                      .ops = DFGNN_OPS_REDUCE,
                                      .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
                                      .dtypes = DTYPES,
                                      .revision = 3,
                                      .deterministic = 1,
                                      .parameters = DFGNN_GATHER_SPLIT,
                                      .legal = split_legal,
                                      .applicable = split_applicable,
                                      .workspace = split_workspace,
                                      .views = split_views,
                                      .launch = backward_launch},
                                     DFGNN_FAMILIES_END};
