/* window.cu - windows of rows with the columns that they touch, as masked
 * dense attention on tensor cores */
#include "kernels/attention/cuda/tile_forward.h"

using namespace dfgnn;

namespace {

enum { ROWS, STAGES, CHUNKS };

tile_plan plan_of(const dfgnn_setting *s) {
  const int *x = s->parameter;
  return {x[ROWS], x[STAGES], x[CHUNKS], 0};
}

const char *window_applicable(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s);
  return tile_refusal(s, &plan);
}

size_t window_workspace(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s);
  return tile_workspace(s, &plan);
}

int window_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const tile_plan plan = plan_of(s);
  request[0] = tile_request(&plan);
  return 1;
}

dfgnn_status window_prepare(void **state, const dfgnn_setting *s,
                            const dfgnn_view *const *) {
  *state = NULL;
  return tile_prepare(s);
}

dfgnn_status window_launch(const dfgnn_launch *launch) {
  const tile_plan plan = plan_of(&launch->setting);
  return tile_launch(launch, &plan);
}

} // namespace

DFGNN_FAMILIES(attention_cuda_window) = {
    {"cuda.attention.fwd.window",
     "window",
     "cuda",
     DFGNN_OPS_ATTENTION,
     DFGNN_BIT(DFGNN_PASS_FORWARD),
     DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),
     2,
     1,
     0,
     0,
     0,
     0,
     {{"rows", 4, {16, 32, 64, 128}, {}},
      {"stages", 2, {1, 2}, {}},
      {"chunks", 3, {0, 32, 128}, {"any", "32", "128"}}},
     NULL,
     window_applicable,
     window_workspace,
     window_views,
     window_prepare,
     NULL,
     window_launch},
    DFGNN_FAMILIES_END};
