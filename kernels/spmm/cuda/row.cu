/* row.cu - rows by groups of lanes; narrow shapes of lanes and
 * vectors work in panels of features, which fit the L2 where rows do not */
#include "kernels/spmm/cuda/spmm.h"

using namespace dfgnn;

namespace {

enum { LANES, VECTORS, UNROLL, ROWS, SPAN, ORDER };
enum { NATURAL, BY_DEGREE };

int has_instance(const int *x) {
#define SAME(L, C, U)                                                          \
  if (x[LANES] == L && x[VECTORS] == C && x[UNROLL] == U)                      \
    return 1;
  DFGNN_SPMM_ROWS(SAME)
  DFGNN_GATHER_NARROW(SAME)
#undef SAME
  return 0;
}

int row_legal(const int *x) {
  if (!has_instance(x) || x[ROWS] * x[LANES] > 32)
    return 0;
  return x[ORDER] == NATURAL || (x[SPAN] == GATHER_ONCE && x[ROWS] == 1);
}

const char *row_applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  gather_shape shape;
  if (s->matrix->edges > 0 && s->matrix->max_degree > INT32_MAX - 65536)
    return "a row exceeds 2^31 edges";
  if (s->matrix->destinations > INT32_MAX - 65536 ||
      s->matrix->sources > INT32_MAX - 65536)
    return "the number of rows exceeds 2^31";
  return spmm_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

dfgnn_status row_prepare(void **state, const dfgnn_setting *s,
                         const dfgnn_view *const *) {
  const int *x = s->parameter;
  gather_shape shape;
  *state = NULL;
  if (!spmm_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]))
    spmm_prefer_cache(s->problem, &shape, 0);
  return DFGNN_OK;
}

dfgnn_status run(const dfgnn_launch *launch, const dfgnn_view *transpose,
                 const dfgnn_view *order) {
  const int *x = launch->setting.parameter;
  spmm_call call = {launch, transpose, launch->workspace, {}};
  const char *reason = spmm_refusal(&call.shape, &launch->setting, 0, x[LANES],
                                    x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  return spmm_rows(&call, order,
                   x[SPAN] == GATHER_PIECE ? kPieceWarps : kOnceWarps, x[ROWS],
                   static_cast<gather_span>(x[SPAN]));
}

int forward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  if (s->parameter[ORDER] != BY_DEGREE)
    return 0;
  request[0] = {DFGNN_VIEW_DEGREE_ORDER, 0, 0};
  return 1;
}

dfgnn_status forward_launch(const dfgnn_launch *launch) {
  return run(launch, NULL,
             launch->setting.parameter[ORDER] == BY_DEGREE ? launch->views[0]
                                                           : NULL);
}

int backward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0] = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  if (s->parameter[ORDER] != BY_DEGREE)
    return 1;
  request[1] = {DFGNN_VIEW_DEGREE_ORDER, 0, 1};
  return 2;
}

dfgnn_status backward_launch(const dfgnn_launch *launch) {
  dfgnn_status status = DFGNN_OK;
  if (launch->args->grad_value)
    status =
        run(launch, launch->views[0],
            launch->setting.parameter[ORDER] == BY_DEGREE ? launch->views[1]
                                                          : NULL);
  if (!status && launch->args->grad_edge_weight)
    status = spmm_grad_weights(launch);
  return status;
}

} // namespace

#define PARAMETERS                                                             \
  {                                                                            \
    {"lanes", 4, {4, 8, 16, 32}, {}}, {"vectors", 3, {1, 2, 4}, {}},           \
        {"unroll", 4, {1, 2, 4, 8}, {}}, {"rows", 4, {1, 2, 4, 8}, {}},        \
        {"span", 2, {GATHER_ONCE, GATHER_PIECE}, {"once", "piece"}}, {         \
      "order", 2, {NATURAL, BY_DEGREE}, { "natural", "degree" }                \
    }                                                                          \
  }

DFGNN_FAMILIES(spmm_cuda_row) = {{"cuda.spmm.fwd.row",
                                  "row",
                                  "cuda",
                                  DFGNN_OPS_SPMM,
                                  DFGNN_BIT(DFGNN_PASS_FORWARD),
                                  DFGNN_DTYPES_ALL,
                                  3,
                                  1,
                                  0,
                                  0,
                                  0,
                                  0,
                                  PARAMETERS,
                                  row_legal,
                                  row_applicable,
                                  NULL,
                                  forward_views,
                                  row_prepare,
                                  NULL,
                                  forward_launch},
                                 {"cuda.spmm.bwd.row",
                                  "row",
                                  "cuda",
                                  DFGNN_OPS_SPMM,
                                  DFGNN_BIT(DFGNN_PASS_BACKWARD),
                                  DFGNN_DTYPES_ALL,
                                  3,
                                  1,
                                  0,
                                  0,
                                  0,
                                  0,
                                  PARAMETERS,
                                  row_legal,
                                  row_applicable,
                                  spmm_scale_bytes,
                                  backward_views,
                                  row_prepare,
                                  NULL,
                                  backward_launch},
                                 DFGNN_FAMILIES_END};
