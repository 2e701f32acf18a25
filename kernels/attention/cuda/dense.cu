/* dense.cu - the graphs of a batch as masked dense attention on tensor
 * cores */
#include "kernels/attention/cuda/tile_forward.h"

using namespace dfgnn;

namespace {

enum { ROWS, STAGES };

tile_plan plan_of(const dfgnn_setting *s) {
  const int *x = s->parameter;
  return {x[ROWS], x[STAGES], 0, 1};
}

const char *dense_applicable(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s);
  return tile_refusal(s, &plan);
}

size_t dense_workspace(const dfgnn_setting *s) {
  const tile_plan plan = plan_of(s);
  return tile_workspace(s, &plan);
}

int dense_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  const tile_plan plan = plan_of(s);
  request[0] = tile_request(&plan);
  return 1;
}

dfgnn_status dense_prepare(void **state, const dfgnn_setting *s,
                           const dfgnn_view *const *) {
  *state = NULL;
  return tile_prepare(s);
}

dfgnn_status dense_launch(const dfgnn_launch *launch) {
  const tile_plan plan = plan_of(&launch->setting);
  return tile_launch(launch, &plan);
}

} // namespace

DFGNN_FAMILIES(attention_cuda_dense) = {
    {"cuda.attention.fwd.dense",
     "dense",
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
     {{"rows", 4, {16, 32, 64, 128}, {}}, {"stages", 2, {1, 2}, {}}},
     NULL,
     dense_applicable,
     dense_workspace,
     dense_views,
     dense_prepare,
     NULL,
     dense_launch},
    DFGNN_FAMILIES_END};
