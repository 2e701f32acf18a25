/* online.cu - one pass over the rows with an online softmax */
#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

using namespace dfgnn;

enum { LANES, UNROLL, WARPS, ROWS, SPAN, ORDER, HEADS, NORM };
enum { NATURAL, BY_DEGREE };
enum { IN_GRID, IN_WARP };
enum { FROM_ROW, FROM_TABLE };

static int online_legal(const int *x) {
  if (x[ROWS] * x[LANES] > 32)
    return 0;
  if (x[ORDER] == BY_DEGREE)
    return x[SPAN] == ATTEND_ONCE && x[ROWS] == 1 && x[WARPS] == 4;
  if (x[SPAN] == ATTEND_PIECE)
    return x[WARPS] == 16;
  return x[WARPS] == (x[ROWS] == 4 ? 8 : 4);
}

static const char *online_applicable(const dfgnn_setting *s) {
  attend_shape shape;
  const int *x = s->parameter;
  if (s->matrix->max_degree > INT32_MAX ||
      s->matrix->destinations > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if (x[HEADS] == IN_WARP && s->problem->heads == 1)
    return "one head";
  if (x[NORM] == FROM_TABLE && s->problem->op != DFGNN_OP_AGNN)
    return "norms are of AGNN";
  if (!attend_shape_find(&shape, s->problem->op, s, x[LANES], x[UNROLL],
                         x[HEADS] == IN_WARP))
    return "no instance of this width";
  return NULL;
}

static size_t scalar_size(const dfgnn_setting *s) {
  return s->problem->dtype == DFGNN_F64 ? 8 : 4;
}

static size_t aligned_bytes(int64_t count, size_t size) {
  return (static_cast<size_t>(count) * size + 255) / 256 * 256;
}

static size_t online_workspace(const dfgnn_setting *s) {
  return s->parameter[NORM] == FROM_TABLE
             ? aligned_bytes(s->matrix->sources * s->problem->heads,
                             scalar_size(s))
             : 0;
}

static int online_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  if (s->parameter[ORDER] != BY_DEGREE)
    return 0;
  request[0].kind = DFGNN_VIEW_DEGREE_ORDER;
  request[0].parameter = 0;
  return 1;
}

static dfgnn_status online_prepare(void **state, const dfgnn_setting *s,
                                   const dfgnn_view *const *) {
  attend_shape shape;
  const int *x = s->parameter;
  *state = NULL;
  if (attend_shape_find(&shape, s->problem->op, s, x[LANES], x[UNROLL],
                        x[HEADS] == IN_WARP))
    attend_prefer_cache(s->problem->op, s, &shape);
  return DFGNN_OK;
}

static dfgnn_status online_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  attend_shape shape;
  attend_params p;
  dfgnn_status status = attend_fill(&p, launch);
  if (status)
    return status;
  if (!attend_shape_find(&shape, s->problem->op, s, x[LANES], x[UNROLL],
                         x[HEADS] == IN_WARP))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "no instance of this width");
  if (x[NORM] == FROM_TABLE) {
    if ((status = attend_inverse_norms(launch->workspace, &p.value,
                                       s->matrix->sources, launch)))
      return status;
    p.inverse_norms = launch->workspace;
  }
  const attend_schedule schedule = {
      x[WARPS], x[ROWS], static_cast<attend_span>(x[SPAN]),
      x[ORDER] == BY_DEGREE ? launch->views[0] : NULL, NULL};
  return attend_run(&p, s->problem->op, launch, &shape, &schedule);
}

DFGNN_FAMILIES(attention_cuda_online) = {
    {"cuda.attention.fwd.online",
     "online",
     "cuda",
     DFGNN_OPS_ATTENTION,
     DFGNN_BIT(DFGNN_PASS_FORWARD),
     DFGNN_DTYPES_ALL,
     1,
     1,
     0,
     0,
     0,
     0,
     {{"lanes", 4, {4, 8, 16, 32}, {}},
      {"unroll", 4, {1, 2, 4, 8}, {}},
      {"warps", 3, {4, 8, 16}, {}},
      {"rows", 3, {1, 2, 4}, {}},
      {"span", 2, {ATTEND_ONCE, ATTEND_PIECE}, {"once", "piece"}},
      {"order", 2, {NATURAL, BY_DEGREE}, {"natural", "degree"}},
      {"heads", 2, {IN_GRID, IN_WARP}, {"grid", "warp"}},
      {"norm", 2, {FROM_ROW, FROM_TABLE}, {"row", "table"}}},
     online_legal,
     online_applicable,
     online_workspace,
     online_views,
     online_prepare,
     NULL,
     online_launch},
    DFGNN_FAMILIES_END};
