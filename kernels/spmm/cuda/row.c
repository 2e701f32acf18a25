/* row.c - the row family: a group of lanes takes a row; shapes narrower than a
 * row work in panels of features, which fit the L2 where whole rows do not */
#include "base/error.h"
#include "kernels/spmm/cuda/spmm.h"

enum { LANES, VECTORS, UNROLL, ROWS, SPAN, ORDER };
enum { NATURAL, BY_DEGREE };

static int row_legal(const int *x) {
  if (!(dfgnn__gather_listed(dfgnn__spmm_row_shapes, x[LANES], x[VECTORS],
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
  if (s->matrix->edges > 0 && s->matrix->max_degree > INT32_MAX - 65536)
    return "a row exceeds 2^31 edges";
  if (s->matrix->destinations > INT32_MAX - 65536 ||
      s->matrix->sources > INT32_MAX - 65536)
    return "the number of rows exceeds 2^31";
  return dfgnn__spmm_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

static dfgnn_status run(const dfgnn_launch *launch, const dfgnn_view *transpose,
                        const dfgnn_view *order) {
  const int *x = launch->setting.parameter;
  spmm_call call = {
      .launch = launch, .transpose = transpose, .scales = launch->workspace};
  const char *reason = dfgnn__spmm_refusal(&call.shape, &launch->setting, 0,
                                           x[LANES], x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  return dfgnn__spmm_rows(&call, order,
                          x[SPAN] == GATHER_PIECE ? GATHER_PIECE_WARPS
                                                  : GATHER_ONCE_WARPS,
                          x[ROWS], (gather_span)x[SPAN]);
}

static int row_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__gather_views(s, requests,
                             s->parameter[ORDER] == BY_DEGREE
                                 ? DFGNN_VIEW_DEGREE_ORDER
                                 : DFGNN_VIEW_NONE,
                             0);
}

static dfgnn_status forward_launch(const dfgnn_launch *launch) {
  return run(launch, NULL,
             launch->setting.parameter[ORDER] == BY_DEGREE ? launch->views[0]
                                                           : NULL);
}

static dfgnn_status backward_launch(const dfgnn_launch *launch) {
  dfgnn_status status = DFGNN_OK;
  if (launch->args->grad_value)
    status =
        run(launch, launch->views[0],
            launch->setting.parameter[ORDER] == BY_DEGREE ? launch->views[1]
                                                          : NULL);
  if (!status && launch->args->grad_edge_weight)
    status = dfgnn__spmm_grad_weights(launch);
  return status;
}

DFGNN_FAMILIES(spmm_cuda_row) = {{.name = "cuda.spmm.fwd.row",
                                  .algorithm = "row",
                                  .backend = "cuda",
                                  .ops = DFGNN_OPS_SPMM,
                                  .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
                                  .dtypes = DFGNN_DTYPES_ALL,
                                  .revision = 3,
                                  .deterministic = 1,
                                  .parameters = DFGNN_GATHER_ROW,
                                  .legal = row_legal,
                                  .applicable = row_applicable,
                                  .views = row_views,
                                  .launch = forward_launch},
                                 {.name = "cuda.spmm.bwd.row",
                                  .algorithm = "row",
                                  .backend = "cuda",
                                  .ops = DFGNN_OPS_SPMM,
                                  .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
                                  .dtypes = DFGNN_DTYPES_ALL,
                                  .revision = 3,
                                  .deterministic = 1,
                                  .parameters = DFGNN_GATHER_ROW,
                                  .legal = row_legal,
                                  .applicable = row_applicable,
                                  .workspace = dfgnn__spmm_scale_bytes,
                                  .views = row_views,
                                  .launch = backward_launch},
                                 DFGNN_FAMILIES_END};
