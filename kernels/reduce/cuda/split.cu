/* split.cu - light rows several a warp, heavy ones cut into items
 * of bounded size, whose results are merged by a second kernel */
#include "kernels/reduce/cuda/reduce.h"

using namespace dfgnn;

namespace {

enum { LANES, VECTORS, UNROLL, ROWS, EDGES };

int split_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 64))
    return 0;
#define SAME(L, C, U)                                                          \
  if (x[LANES] == L && x[VECTORS] == C && x[UNROLL] == U)                      \
    return 1;
  DFGNN_REDUCE_BEST(SAME)
  DFGNN_REDUCE_MOMENTS(SAME)
  DFGNN_REDUCE_GRADIENTS(SAME)
#undef SAME
  return 0;
}

const char *split_applicable(const dfgnn_setting *s) {
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
  return reduce_refusal(&shape, s, x[LANES], x[VECTORS], x[UNROLL]);
}

size_t split_workspace(const dfgnn_setting *s) {
  return reduce_table_bytes(s) + reduce_item_bytes(s, s->parameter[EDGES]);
}

dfgnn_status split_prepare(void **state, const dfgnn_setting *s,
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
  char *workspace = static_cast<char *>(launch->workspace);
  *call = reduce_call{};
  call->launch = launch;
  call->warps = 4;
  call->rows = x[ROWS];
  call->tables = workspace;
  call->partial = workspace + reduce_table_bytes(&launch->setting);
  const char *reason = reduce_refusal(&call->shape, &launch->setting, x[LANES],
                                      x[VECTORS], x[UNROLL]);
  return reason ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason) : DFGNN_OK;
}

int forward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0] = {DFGNN_VIEW_WORK_ITEMS, s->parameter[EDGES], 0};
  return 1;
}

dfgnn_status forward_launch(const dfgnn_launch *launch) {
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  call.items = launch->views[0];
  return status ? status : reduce_forward(&call);
}

/* Var and std go over the rows of the matrix first. */
int backward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const int64_t edges = s->parameter[EDGES];
  request[0] = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  request[1] = {DFGNN_VIEW_WORK_ITEMS, edges, 1};
  if (s->problem->op != DFGNN_OP_REDUCE_VAR &&
      s->problem->op != DFGNN_OP_REDUCE_STD)
    return 2;
  request[2] = {DFGNN_VIEW_WORK_ITEMS, edges, 0};
  return 3;
}

dfgnn_status backward_launch(const dfgnn_launch *launch) {
  dfgnn_view_request request[DFGNN_MAX_VIEWS] = {};
  reduce_call call;
  dfgnn_status status = fill(&call, launch);
  call.transpose = launch->views[0];
  call.items = launch->views[1];
  if (backward_views(&launch->setting, request) > 2)
    call.row_items = launch->views[2];
  return status ? status : reduce_backward(&call);
}

} // namespace

#define PARAMETERS                                                             \
  {                                                                            \
    {"lanes", 4, {4, 8, 16, 32}, {}}, {"vectors", 3, {1, 2, 4}, {}},           \
        {"unroll", 4, {1, 2, 4, 8}, {}}, {"rows", 3, {1, 2, 4}, {}}, {         \
      "edges", 3, {64, 256, 1024}, {}                                          \
    }                                                                          \
  }
#define DTYPES                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))

DFGNN_FAMILIES(reduce_cuda_split) = {{"cuda.reduce.fwd.split",
                                      "split",
                                      "cuda",
                                      DFGNN_OPS_REDUCE,
                                      DFGNN_BIT(DFGNN_PASS_FORWARD),
                                      DTYPES,
                                      3,
                                      1,
                                      0,
                                      0,
                                      0,
                                      0,
                                      PARAMETERS,
                                      split_legal,
                                      split_applicable,
                                      split_workspace,
                                      forward_views,
                                      split_prepare,
                                      NULL,
                                      forward_launch},
                                     {"cuda.reduce.bwd.split",
                                      "split",
                                      "cuda",
                                      DFGNN_OPS_REDUCE,
                                      DFGNN_BIT(DFGNN_PASS_BACKWARD),
                                      DTYPES,
                                      3,
                                      1,
                                      0,
                                      0,
                                      0,
                                      0,
                                      PARAMETERS,
                                      split_legal,
                                      split_applicable,
                                      split_workspace,
                                      backward_views,
                                      split_prepare,
                                      NULL,
                                      backward_launch},
                                     DFGNN_FAMILIES_END};
