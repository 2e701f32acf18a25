/* split.cu - rows cut into items of bounded size, so that a row with
 * many edges is shared by many warps; the items of such rows are summed by a
 * second kernel */
#include "kernels/spmm/cuda/spmm.h"

using namespace dfgnn;

namespace {

enum { LANES, VECTORS, UNROLL, ROWS, EDGES };

int split_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 64))
    return 0;
#define SAME(L, C, U)                                                          \
  if (x[LANES] == L && x[VECTORS] == C && x[UNROLL] == U)                      \
    return 1;
  DFGNN_SPMM_ROWS(SAME)
#undef SAME
  return 0;
}

/* Of the pass: which are long is known of the matrix only. */
const char *split_applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  const dfgnn_matrix *m = s->matrix;
  gather_shape shape;
  const int64_t rows =
      m->destinations > m->sources ? m->destinations : m->sources;
  if (rows + m->edges / x[EDGES] > INT32_MAX - 65536)
    return "more than 2^31 items";
  if (s->problem->pass == DFGNN_PASS_FORWARD && m->max_degree <= x[EDGES])
    return "no row is longer than an item";
  if (m->edges <= x[EDGES])
    return "no row is longer than an item";
  return spmm_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

size_t split_workspace(const dfgnn_setting *s) {
  return spmm_scale_bytes(s) + spmm_item_bytes(s, s->parameter[EDGES]);
}

dfgnn_status split_prepare(void **state, const dfgnn_setting *s,
                           const dfgnn_view *const *) {
  const int *x = s->parameter;
  gather_shape shape;
  *state = NULL;
  if (!spmm_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]))
    spmm_prefer_cache(s->problem, &shape, 0);
  return DFGNN_OK;
}

dfgnn_status run(const dfgnn_launch *launch, const dfgnn_view *transpose,
                 const dfgnn_view *items) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  spmm_call call = {launch, transpose, launch->workspace, {}};
  const char *reason =
      spmm_refusal(&call.shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  return spmm_items(
      &call, items,
      static_cast<char *>(launch->workspace) + spmm_scale_bytes(s), 4, x[ROWS]);
}

int forward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0] = {DFGNN_VIEW_WORK_ITEMS, s->parameter[EDGES], 0};
  return 1;
}

dfgnn_status forward_launch(const dfgnn_launch *launch) {
  return run(launch, NULL, launch->views[0]);
}

int backward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0] = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  request[1] = {DFGNN_VIEW_WORK_ITEMS, s->parameter[EDGES], 1};
  return 2;
}

dfgnn_status backward_launch(const dfgnn_launch *launch) {
  dfgnn_status status = DFGNN_OK;
  if (launch->args->grad_value)
    status = run(launch, launch->views[0], launch->views[1]);
  if (!status && launch->args->grad_edge_weight)
    status = spmm_grad_weights(launch);
  return status;
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

DFGNN_FAMILIES(spmm_cuda_split) = {{"cuda.spmm.fwd.split",
                                    "split",
                                    "cuda",
                                    DFGNN_OPS_SPMM,
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
                                   {"cuda.spmm.bwd.split",
                                    "split",
                                    "cuda",
                                    DFGNN_OPS_SPMM,
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
