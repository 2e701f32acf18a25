/* row.c - the row family: a group of lanes takes a row */
#include "base/error.h"
#include "kernels/reduce/cuda/reduce.h"

enum { LANES, VECTORS, UNROLL, ROWS, SPAN, ORDER };
enum { NATURAL, BY_DEGREE };

static int row_legal(const int *x) {
  if (!(dfgnn__reduce_listed(x[LANES], x[VECTORS], x[UNROLL]) ||
        dfgnn__gather_listed(dfgnn__spmm_row_shapes, x[LANES], x[VECTORS],
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
  if (s->matrix->max_degree > INT32_MAX - 65536 ||
      s->matrix->destinations > INT32_MAX - 65536 ||
      s->matrix->sources > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  return dfgnn__reduce_refusal(&shape, s, x[LANES], x[VECTORS], x[UNROLL]);
}

static dfgnn_status fill(reduce_call *call, const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  *call = (reduce_call){0};
  call->launch = launch;
  call->span = (gather_span)x[SPAN];
  call->warps =
      x[SPAN] == GATHER_PIECE ? GATHER_PIECE_WARPS : GATHER_ONCE_WARPS;
  call->rows = x[ROWS];
  const char *reason = dfgnn__reduce_refusal(&call->shape, &launch->setting,
                                             x[LANES], x[VECTORS], x[UNROLL]);
  return reason ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason) : DFGNN_OK;
}

static int row_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__gather_views(s, requests,
                             s->parameter[ORDER] == BY_DEGREE
                                 ? DFGNN_VIEW_DEGREE_ORDER
                                 : DFGNN_VIEW_NONE,
                             0);
}

static dfgnn_status forward_launch(const dfgnn_launch *launch) {
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  if (launch->setting.parameter[ORDER] == BY_DEGREE)
    call.order = launch->views[0];
  return status ? status : dfgnn__reduce_forward(&call);
}

static dfgnn_status backward_launch(const dfgnn_launch *launch) {
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  call.transpose = launch->views[0];
  if (launch->setting.parameter[ORDER] == BY_DEGREE)
    call.order = launch->views[1];
  call.tables = launch->workspace;
  return status ? status : dfgnn__reduce_backward(&call);
}

DFGNN_FAMILIES(reduce_cuda_row) = {{.name = "cuda.reduce.fwd.row",
                                    .algorithm = "row",
                                    .backend = "cuda",
                                    .ops = DFGNN_OPS_REDUCE,
                                    .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
                                    .dtypes = DFGNN_DTYPES_ALL,
                                    .revision = 3,
                                    .deterministic = 1,
                                    .parameters = DFGNN_GATHER_ROW,
                                    .legal = row_legal,
                                    .applicable = row_applicable,
                                    .views = row_views,
                                    .launch = forward_launch},
                                   {.name = "cuda.reduce.bwd.row",
                                    .algorithm = "row",
                                    .backend = "cuda",
                                    .ops = DFGNN_OPS_REDUCE,
                                    .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
                                    .dtypes = DFGNN_DTYPES_ALL,
                                    .revision = 3,
                                    .deterministic = 1,
                                    .parameters = DFGNN_GATHER_ROW,
                                    .legal = row_legal,
                                    .applicable = row_applicable,
                                    .workspace = dfgnn__reduce_table_bytes,
                                    .views = row_views,
                                    .launch = backward_launch},
                                   DFGNN_FAMILIES_END};
