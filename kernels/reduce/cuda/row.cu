/* row.cu - rows by groups of lanes */
#include "kernels/reduce/cuda/reduce.h"

using namespace dfgnn;

namespace {

enum { LANES, VECTORS, UNROLL, ROWS, SPAN, ORDER };
enum { NATURAL, BY_DEGREE };

int has_instance(const int *x) {
#define SAME(L, C, U)                                                          \
  if (x[LANES] == L && x[VECTORS] == C && x[UNROLL] == U)                      \
    return 1;
  DFGNN_SPMM_ROWS(SAME)
  DFGNN_REDUCE_BEST(SAME)
  DFGNN_REDUCE_MOMENTS(SAME)
  DFGNN_REDUCE_GRADIENTS(SAME)
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
  if (s->matrix->max_degree > INT32_MAX - 65536 ||
      s->matrix->destinations > INT32_MAX - 65536 ||
      s->matrix->sources > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  return reduce_refusal(&shape, s, x[LANES], x[VECTORS], x[UNROLL]);
}

dfgnn_status row_prepare(void **state, const dfgnn_setting *s,
                         const dfgnn_view *const *) {
  const int *x = s->parameter;
  gather_shape shape;
  *state = NULL;
  if (!reduce_refusal(&shape, s, x[LANES], x[VECTORS], x[UNROLL]))
    reduce_prefer_cache(s->problem, &shape);
  return DFGNN_OK;
}

dfgnn_status fill(reduce_call *call, const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  *call = reduce_call{};
  call->launch = launch;
  call->span = static_cast<gather_span>(x[SPAN]);
  call->warps = x[SPAN] == GATHER_PIECE ? kPieceWarps : kOnceWarps;
  call->rows = x[ROWS];
  const char *reason = reduce_refusal(&call->shape, &launch->setting, x[LANES],
                                      x[VECTORS], x[UNROLL]);
  return reason ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason) : DFGNN_OK;
}

int forward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  if (s->parameter[ORDER] != BY_DEGREE)
    return 0;
  request[0] = {DFGNN_VIEW_DEGREE_ORDER, 0, 0};
  return 1;
}

dfgnn_status forward_launch(const dfgnn_launch *launch) {
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  if (launch->setting.parameter[ORDER] == BY_DEGREE)
    call.order = launch->views[0];
  return status ? status : reduce_forward(&call);
}

int backward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0] = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  if (s->parameter[ORDER] != BY_DEGREE)
    return 1;
  request[1] = {DFGNN_VIEW_DEGREE_ORDER, 0, 1};
  return 2;
}

dfgnn_status backward_launch(const dfgnn_launch *launch) {
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  call.transpose = launch->views[0];
  if (launch->setting.parameter[ORDER] == BY_DEGREE)
    call.order = launch->views[1];
  call.tables = launch->workspace;
  return status ? status : reduce_backward(&call);
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

DFGNN_FAMILIES(reduce_cuda_row) = {{"cuda.reduce.fwd.row",
                                    "row",
                                    "cuda",
                                    DFGNN_OPS_REDUCE,
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
                                   {"cuda.reduce.bwd.row",
                                    "row",
                                    "cuda",
                                    DFGNN_OPS_REDUCE,
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
                                    reduce_table_bytes,
                                    backward_views,
                                    row_prepare,
                                    NULL,
                                    backward_launch},
                                   DFGNN_FAMILIES_END};
