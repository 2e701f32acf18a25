/* balanced.c - the balanced families: every group of lanes takes as many edges
 * and ends of rows as any other (merge-based CSR: Merrill and Garland 2016);
 * rows that span several groups are summed by a second kernel, always in the
 * same order */
#include "kernels/sums/cuda/sums.h"

enum { LANES, VECTORS, UNROLL, STEPS };

static int legal(const int *x) {
  return dfgnn__sums_share_listed(x[LANES], x[VECTORS], x[UNROLL]);
}

static const char *applicable(const dfgnn_setting *s) {
  const int *x = s->parameter;
  const dfgnn_matrix *m = s->matrix;
  const int64_t rows =
      m->destinations > m->sources ? m->destinations : m->sources;
  gather_shape shape;
  if ((rows + m->edges) / x[STEPS] > (1 << 30) - 1)
    return "more than 2^30 shares";
  return dfgnn__sums_refusal(&shape, s, 1, x[LANES], x[VECTORS], x[UNROLL]);
}

static size_t workspace(const dfgnn_setting *s) {
  return dfgnn__sums_layout(s, 0, s->parameter[STEPS]).bytes;
}

static int views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  return dfgnn__sums_views(s, requests, DFGNN_VIEW_NONE, 0);
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const int *x = launch->setting.parameter;
  sums_call call = {
      .launch = launch, .warps = GATHER_ONCE_WARPS, .share = x[STEPS]};
  return dfgnn__sums_launch(&call, x, DFGNN_VIEW_NONE, 0);
}

/* Gradients won one of 42 problems where they were measured, and are not
 * offered (data/models/h200_campaign.jsonl.xz). */
DFGNN_FAMILIES(sums_cuda_balanced) = {
    {.name = "cuda.spmm.fwd.balanced",
     .algorithm = "balanced",
     .backend = "cuda",
     .ops = DFGNN_OPS_SPMM,
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
     .dtypes = DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) |
               DFGNN_BIT(DFGNN_BF16),
     .revision = 3,
     .deterministic = 1,
     .parameters = {{.name = "lanes", .count = 4, .values = {4, 8, 16, 32}},
                    {.name = "vectors", .count = 2, .values = {1, 2}},
                    {.name = "unroll", .count = 2, .values = {4, 8}},
                    {.name = "steps", .count = 3, .values = {128, 256, 512}}},
     .legal = legal,
     .applicable = applicable,
     .workspace = workspace,
     .views = views,
     .launch = launch},
    DFGNN_FAMILIES_END};
