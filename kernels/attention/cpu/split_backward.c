/* split_backward.c - the two walks of twopass over rows and columns cut
 * into items of at most `edges` edges; the sums of the items of a long row or
 * column are added in the order of the items */
#include "kernels/attention/cpu/backward.h"

enum { SIMD, EDGES, PREFETCH };

static dfgnn_cpu_plan plan_of(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_plan){.simd = p[SIMD],
                          .schedule = DFGNN_CPU_DYNAMIC,
                          .prefetch = p[PREFETCH],
                          .split = p[EDGES]};
}

static size_t workspace(const dfgnn_setting *setting) {
  dfgnn_cpu_plan plan = plan_of(setting);
  return dfgnn__cpu_backward_workspace(setting, &plan);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  dfgnn_cpu_plan plan = plan_of(setting);
  return dfgnn__cpu_backward_views(&plan, requests);
}

/* The largest degree of a column is not known here.  In an undirected graph it
 * is that of a row; and if the mean degree of columns is above the limit, so is
 * some column's. */
static const char *applicable(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  const dfgnn_matrix *m = setting->matrix;
  if (m->max_degree <= p[EDGES] && m->edges <= p[EDGES] * m->sources)
    return "no row has more edges than an item: nothing to split";
  return dfgnn__cpu_simd_missing(p[SIMD]);
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

DFGNN_FAMILIES(attention_cpu_split_backward) = {
    {
        .name = "cpu.attention.bwd.split",
        .algorithm = "split",
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
                       {"edges", 2, {128, 1024}, {0}},
                       {"prefetch", 2, {0, 24}, {0}}},
        .legal = legal,
        .applicable = applicable,
        .workspace = workspace,
        .views = views,
        .launch = launch,
        .block = DFGNN_CPU_BLOCK,
    },
    DFGNN_FAMILIES_END,
};
