/* twopass.c - gradients in two walks that share no memory: one over rows
 * for destinations and edges, one over columns for sources; scores and products
 * are computed in both */
#include "kernels/attention/cpu/backward.h"

enum { SIMD, PREFETCH, SCHEDULE };

static dfgnn_cpu_plan plan_of(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_plan){
      .simd = p[SIMD], .schedule = p[SCHEDULE], .prefetch = p[PREFETCH]};
}

static size_t workspace(const dfgnn_setting *setting) {
  dfgnn_cpu_plan plan = plan_of(setting);
  return dfgnn__cpu_backward_workspace(setting, &plan);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  dfgnn_cpu_plan plan = plan_of(setting);
  return dfgnn__cpu_backward_views(&plan, requests);
}

static const char *applicable(const dfgnn_setting *setting) {
  return dfgnn__cpu_simd_missing(setting->parameter[SIMD]);
}

static int legal(const int *p) { return p[SIMD] != 0 || p[PREFETCH] == 0; }

static dfgnn_status launch(const dfgnn_launch *launch) {
  dfgnn_cpu_plan plan = plan_of(&launch->setting);
  dfgnn_cpu_backward b;
  dfgnn__cpu_backward_begin(&b, launch, &plan);
  dfgnn__cpu_backward_walk(&b.rows, plan.schedule);
  dfgnn__cpu_backward_walk(&b.columns, plan.schedule);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_twopass) = {
    {
        .name = "cpu.attention.bwd.twopass",
        .algorithm = "twopass",
        .backend = "cpu",
        .ops = DFGNN_OPS_ATTENTION,
        .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 3,
        .deterministic = 1,
        .bias = 1,
        .dropout = 1,
        .accumulate = 1,
        .edge_ops = DFGNN_BIT(DFGNN_OP_GAT),
        .parameters = {DFGNN_CPU_SIMD,
                       {"prefetch", 2, {0, 24}, {0}},
                       DFGNN_CPU_SCHEDULE},
        .legal = legal,
        .applicable = applicable,
        .workspace = workspace,
        .views = views,
        .launch = launch,
        .block = DFGNN_CPU_BLOCK,
    },
    DFGNN_FAMILIES_END,
};
