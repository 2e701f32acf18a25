/* balanced.c - the balanced family: every group of lanes takes as many edges
 * and ends of rows as any other (merge-based CSR: Merrill and Garland 2016);
 * rows that span several groups are summed by a second kernel, always in the
 * same order */
#include "base/error.h"
#include "kernels/spmm/cuda/spmm.h"

enum { LANES, VECTORS, UNROLL, STEPS };

static int balanced_legal(const int *x) {
  return dfgnn__gather_listed(dfgnn__spmm_share_shapes, x[LANES], x[VECTORS],
                              x[UNROLL]);
}

static const char *balanced_applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  const dfgnn_matrix *m = s->matrix;
  gather_shape shape;
  const int64_t rows =
      m->destinations > m->sources ? m->destinations : m->sources;
  if (m->max_degree > INT32_MAX - 65536 || rows > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if ((rows + m->edges) / x[STEPS] > (1 << 30) - 1)
    return "more than 2^30 shares";
  return dfgnn__spmm_refusal(&shape, s, 1, x[LANES], x[VECTORS], x[UNROLL]);
}

static size_t balanced_workspace(const dfgnn_setting *s) {
  return dfgnn__spmm_scale_bytes(s) +
         dfgnn__spmm_share_bytes(s, s->parameter[STEPS]);
}

static dfgnn_status run(const dfgnn_launch *launch,
                        const dfgnn_view *transpose) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  spmm_call call = {
      .launch = launch, .transpose = transpose, .scales = launch->workspace};
  const char *reason =
      dfgnn__spmm_refusal(&call.shape, s, 1, x[LANES], x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  return dfgnn__spmm_shares(
      &call, x[STEPS], (char *)(launch->workspace) + dfgnn__spmm_scale_bytes(s),
      4);
}

static dfgnn_status forward_launch(const dfgnn_launch *launch) {
  return run(launch, NULL);
}

static int backward_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  (void)s;
  request[0] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  return 1;
}

static dfgnn_status backward_launch(const dfgnn_launch *launch) {
  dfgnn_status status = DFGNN_OK;
  if (launch->args->grad_value)
    status = run(launch, launch->views[0]);
  if (!status && launch->args->grad_edge_weight)
    status = dfgnn__spmm_grad_weights(launch);
  return status;
}

#define PARAMETERS                                                             \
  {                                                                            \
    {"lanes", 4, {4, 8, 16, 32}}, {"vectors", 2, {1, 2}},                      \
        {"unroll", 2, {4, 8}}, {                                               \
      "steps", 3, {128, 256, 512}, {}                                          \
    }                                                                          \
  }
#define DTYPES                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))

DFGNN_FAMILIES(spmm_cuda_balanced) = {{.name = "cuda.spmm.fwd.balanced",
                                       .algorithm = "balanced",
                                       .backend = "cuda",
                                       .ops = DFGNN_OPS_SPMM,
                                       .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
                                       .dtypes = DTYPES,
                                       .revision = 3,
                                       .deterministic = 1,
                                       .parameters = PARAMETERS,
                                       .legal = balanced_legal,
                                       .applicable = balanced_applicable,
                                       .workspace = balanced_workspace,
                                       .launch = forward_launch},
                                      {.name = "cuda.spmm.bwd.balanced",
                                       .algorithm = "balanced",
                                       .backend = "cuda",
                                       .ops = DFGNN_OPS_SPMM,
                                       .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
                                       .dtypes = DTYPES,
                                       .revision = 3,
                                       .deterministic = 1,
                                       .parameters = PARAMETERS,
                                       .legal = balanced_legal,
                                       .applicable = balanced_applicable,
                                       .workspace = balanced_workspace,
                                       .views = backward_views,
                                       .launch = backward_launch},
                                      DFGNN_FAMILIES_END};
