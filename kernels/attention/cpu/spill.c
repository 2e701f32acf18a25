/* spill.c - the first walk computes the terms of all edges and leaves them in
 * memory; the second only sums rows by these terms.  The memory holds dS of
 * each edge and head if columns are walked first, and P as well if rows are */
#include "kernels/attention/cpu/backward.h"

enum { SIMD, FIRST, PREFETCH, SCHEDULE };
enum { ROWS, COLUMNS };

static dfgnn_cpu_plan plan_of(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_plan){.simd = p[SIMD],
                          .schedule = p[SCHEDULE],
                          .prefetch = p[PREFETCH],
                          .spill = p[FIRST] == ROWS ? 2 : 1};
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
  int rows_first = launch->setting.parameter[FIRST] == ROWS;
  dfgnn_cpu_backward b;
  dfgnn__cpu_backward_begin(&b, launch, &plan);
  dfgnn_cpu_side *first = rows_first ? &b.rows : &b.columns;
  dfgnn_cpu_side *second = rows_first ? &b.columns : &b.rows;
  if (first->wanted && second->wanted) {
    first->terms = DFGNN_CPU_SPILL;
    first->wants_gradients = 1;
    second->terms = DFGNN_CPU_READ;
    second->wants_gradients = 1;
    second->values.prefetch = second->scores.prefetch = plan.prefetch;
  }
  dfgnn__cpu_backward_walk(first, plan.schedule);
  dfgnn__cpu_backward_walk(second, plan.schedule);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_spill) = {
    {
        .name = "cpu.attention.bwd.spill",
        .algorithm = "spill",
        .backend = "cpu",
        .ops = DFGNN_OPS_ATTENTION,
        .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 1,
        .deterministic = 1,
        .bias = 1,
        .dropout = 1,
        .accumulate = 1,
        .edge_ops = DFGNN_BIT(DFGNN_OP_GAT),
        .parameters = {DFGNN_CPU_SIMD,
                       {"first", 2, {ROWS, COLUMNS}, {"rows", "columns"}},
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
