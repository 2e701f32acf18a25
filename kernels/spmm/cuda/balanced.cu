/* balanced.cu - every group of lanes takes as many edges and ends of
 * rows as any other (merge-based CSR: Merrill and Garland 2016); rows that span
 * several groups are summed by a second kernel, always in the same order */
#include "kernels/spmm/cuda/spmm.h"

using namespace dfgnn;

namespace {

enum { LANES, VECTORS, UNROLL, STEPS };

int balanced_legal(const int *x) {
#define SAME(L, C, U)                                                          \
  if (x[LANES] == L && x[VECTORS] == C && x[UNROLL] == U)                      \
    return 1;
  DFGNN_SPMM_SHARES(SAME)
#undef SAME
  return 0;
}

const char *balanced_applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  const dfgnn_matrix *m = s->matrix;
  gather_shape shape;
  const int64_t rows =
      m->destinations > m->sources ? m->destinations : m->sources;
  if (m->max_degree > INT32_MAX - 65536 || rows > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if ((rows + m->edges) / x[STEPS] > (1 << 30) - 1)
    return "more than 2^30 shares";
  return spmm_refusal(&shape, s, 1, x[LANES], x[VECTORS], x[UNROLL]);
}

size_t balanced_workspace(const dfgnn_setting *s) {
  return spmm_scale_bytes(s) + spmm_share_bytes(s, s->parameter[STEPS]);
}

dfgnn_status balanced_prepare(void **state, const dfgnn_setting *s,
                              const dfgnn_view *const *) {
  const int *x = s->parameter;
  gather_shape shape;
  *state = NULL;
  if (!spmm_refusal(&shape, s, 1, x[LANES], x[VECTORS], x[UNROLL]))
    spmm_prefer_cache(s->problem, &shape, 1);
  return DFGNN_OK;
}

dfgnn_status run(const dfgnn_launch *launch, const dfgnn_view *transpose) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  spmm_call call = {launch, transpose, launch->workspace, {}};
  const char *reason =
      spmm_refusal(&call.shape, s, 1, x[LANES], x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  return spmm_shares(
      &call, x[STEPS],
      static_cast<char *>(launch->workspace) + spmm_scale_bytes(s), 4);
}

dfgnn_status forward_launch(const dfgnn_launch *launch) {
  return run(launch, NULL);
}

int backward_views(const dfgnn_setting *, dfgnn_view_request *request) {
  request[0] = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  return 1;
}

dfgnn_status backward_launch(const dfgnn_launch *launch) {
  dfgnn_status status = DFGNN_OK;
  if (launch->args->grad_value)
    status = run(launch, launch->views[0]);
  if (!status && launch->args->grad_edge_weight)
    status = spmm_grad_weights(launch);
  return status;
}

} // namespace

#define PARAMETERS                                                             \
  {                                                                            \
    {"lanes", 4, {4, 8, 16, 32}, {}}, {"vectors", 2, {1, 2}, {}},              \
        {"unroll", 2, {4, 8}, {}}, {                                           \
      "steps", 3, {128, 256, 512}, {}                                          \
    }                                                                          \
  }
#define DTYPES                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))

DFGNN_FAMILIES(spmm_cuda_balanced) = {{"cuda.spmm.fwd.balanced",
                                       "balanced",
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
                                       balanced_legal,
                                       balanced_applicable,
                                       balanced_workspace,
                                       NULL,
                                       balanced_prepare,
                                       NULL,
                                       forward_launch},
                                      {"cuda.spmm.bwd.balanced",
                                       "balanced",
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
                                       balanced_legal,
                                       balanced_applicable,
                                       balanced_workspace,
                                       backward_views,
                                       balanced_prepare,
                                       NULL,
                                       backward_launch},
                                      DFGNN_FAMILIES_END};
