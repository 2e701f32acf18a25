/* split.cu - rows cut into items of bounded size, so that a row with many
 * edges is shared by many warps; their partial softmax results are merged by a
 * second kernel over those rows alone */
#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

using namespace dfgnn;

namespace {

enum { LANES, UNROLL, WARPS, ROWS, SPAN, EDGES, HEADS };

size_t aligned_bytes(int64_t count) {
  return (static_cast<size_t>(count) * sizeof(float) + 255) / 256 * 256;
}

/* Two results a cut: see row_of_unit(). */
int64_t slots(const dfgnn_setting *s) {
  return s->matrix->edges / s->parameter[EDGES] * 2 * s->problem->heads;
}

int split_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32 || (x[ROWS] > 1 && x[EDGES] > 128))
    return 0;
  return (x[SPAN] == ATTEND_DEALT) == (x[WARPS] == 16);
}

const char *split_applicable(const dfgnn_setting *s) {
  attend_shape shape;
  const int *x = s->parameter;
  if (s->matrix->destinations + s->matrix->edges / x[EDGES] > INT32_MAX - 65536)
    return "more than 2^31 items";
  if (s->matrix->max_degree <= x[EDGES])
    return "no row is longer than an item";
  if (x[HEADS] && s->problem->heads == 1)
    return "one head";
  if (!attend_shape_find(&shape, s->problem->op, s, x[LANES], x[UNROLL],
                         x[HEADS]))
    return "no instance of this width";
  return NULL;
}

size_t split_workspace(const dfgnn_setting *s) {
  return aligned_bytes(slots(s) * 2) +
         aligned_bytes(slots(s) * s->problem->dim);
}

int split_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0].kind = DFGNN_VIEW_WORK_ITEMS;
  request[0].parameter = s->parameter[EDGES];
  return 1;
}

dfgnn_status split_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  attend_shape shape;
  attend_params p;
  dfgnn_status status = attend_fill(&p, launch);
  if (status)
    return status;
  if (!attend_shape_find(&shape, s->problem->op, s, x[LANES], x[UNROLL],
                         x[HEADS]))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "no instance of this width");
  char *workspace = static_cast<char *>(launch->workspace);
  p.partial_state = workspace;
  workspace += aligned_bytes(slots(s) * 2);
  p.partial = workspace;
  const attend_schedule schedule = {x[WARPS], x[ROWS],
                                    static_cast<attend_span>(x[SPAN]), NULL,
                                    launch->views[0]};
  status = attend_run(&p, s->problem->op, launch, &shape, &schedule);
  return status ? status : attend_merge(&p, launch->views[0], launch);
}

} // namespace

DFGNN_FAMILIES(attention_cuda_split) = {
    {"cuda.attention.fwd.split",
     "split",
     "cuda",
     DFGNN_OPS_ATTENTION,
     DFGNN_BIT(DFGNN_PASS_FORWARD),
     DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),
     1,
     1,
     0,
     0,
     0,
     0,
     {{"lanes", 4, {4, 8, 16, 32}, {}},
      {"unroll", 4, {1, 2, 4, 8}, {}},
      {"warps", 2, {4, 16}, {}},
      {"rows", 2, {1, 2}, {}},
      {"span", 2, {ATTEND_ONCE, ATTEND_DEALT}, {"once", "dealt"}},
      {"edges", 4, {32, 128, 256, 1024}, {}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     split_legal,
     split_applicable,
     split_workspace,
     split_views,
     NULL,
     NULL,
     split_launch},
    DFGNN_FAMILIES_END};
