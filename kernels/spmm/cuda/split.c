/* split.c - rows cut into items of bounded size, so that many warps share a row
 * with many edges; a second kernel sums the items of such rows */
#include "base/error.h"
#include "kernels/spmm/cuda/spmm.h"

enum { LANES, VECTORS, UNROLL, ROWS, EDGES };

static int split_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 64))
    return 0;
  return dfgnn__gather_listed(dfgnn__spmm_row_shapes, x[LANES], x[VECTORS],
                              x[UNROLL]);
}

/* The longest row is known in the forward pass only: backward walks columns. */
static const char *split_applicable(const dfgnn_setting *s) {
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
  return dfgnn__spmm_refusal(&shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
}

static size_t split_workspace(const dfgnn_setting *s) {
  return dfgnn__spmm_scale_bytes(s) +
         dfgnn__spmm_item_bytes(s, s->parameter[EDGES]);
}

static dfgnn_status run(const dfgnn_launch *launch, const dfgnn_view *transpose,
                        const dfgnn_view *items) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  spmm_call call = {
      .launch = launch, .transpose = transpose, .scales = launch->workspace};
  const char *reason =
      dfgnn__spmm_refusal(&call.shape, s, 0, x[LANES], x[VECTORS], x[UNROLL]);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", reason);
  return dfgnn__spmm_items(
      &call, items, (char *)(launch->workspace) + dfgnn__spmm_scale_bytes(s), 4,
      x[ROWS]);
}

static int split_views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__gather_views(s, requests, DFGNN_VIEW_WORK_ITEMS,
                             s->parameter[EDGES]);
}

static dfgnn_status forward_launch(const dfgnn_launch *launch) {
  return run(launch, NULL, launch->views[0]);
}

static dfgnn_status backward_launch(const dfgnn_launch *launch) {
  dfgnn_status status = DFGNN_OK;
  if (launch->args->grad_value)
    status = run(launch, launch->views[0], launch->views[1]);
  if (!status && launch->args->grad_edge_weight)
    status = dfgnn__spmm_grad_weights(launch);
  return status;
}

#define DTYPES                                                                 \
  (DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16))

DFGNN_FAMILIES(spmm_cuda_split) = {{.name = "cuda.spmm.fwd.split",
                                    .algorithm = "split",
                                    .backend = "cuda",
                                    .ops = DFGNN_OPS_SPMM,
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
                                   {.name = "cuda.spmm.bwd.split",
                                    .algorithm = "split",
                                    .backend = "cuda",
                                    .ops = DFGNN_OPS_SPMM,
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
