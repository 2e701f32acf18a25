/* edge_forward.c - the CPU family of forward attention with edge features */
#include "kernels/attention/cpu/edges.h"

enum { SIMD, SCHEDULE };
enum { TASK_ROWS = 64 };

DFGNN_CPU_EDGE_WALK(walk_of, dfgnn__cpu_edge_attend)

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){
      .simd = p[SIMD],
      .schedule = p[SCHEDULE],
      .thread_bytes = walk_of(setting->problem)->bytes(setting),
      .shared_bytes = dfgnn__cpu_edges_bytes(setting->problem)};
}

static size_t workspace(const dfgnn_setting *setting) {
  dfgnn_cpu_choice c = choice(setting);
  return dfgnn__cpu_workspace(setting, &c);
}

static const char *applicable(const dfgnn_setting *setting) {
  return dfgnn__cpu_simd_missing(setting->parameter[SIMD]);
}

static dfgnn_status attend_all(const dfgnn_launch *launch) {
  dfgnn_cpu_choice c = choice(&launch->setting);
  const dfgnn_problem *p = launch->setting.problem;
  dfgnn_cpu_edge_forward w = {.problem = p};
  char *shared = dfgnn__cpu_begin(&w.job, launch, &c);
  dfgnn__cpu_edges_begin(&w.edges, launch, c.simd, shared);
  w.shorts = w.edges.keys &&
             dfgnn__cpu_edges_short(&w.edges, &w.job, &w.job.key, &w.job.value);
  dfgnn__cpu_rows(&w.job, c.schedule, TASK_ROWS, walk_of(p)->rows, &w);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_edge_forward) = {
    {
        .name = "cpu.attention.fwd.edges",
        .algorithm = "edges",
        .backend = "cpu",
        .ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),
        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 1,
        .deterministic = 1,
        .weights = 1,
        .bias = 1,
        .dropout = 1,
        .edge_ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),
        .edges_only = 1,
        .edge_list = 1,
        .parameters = {DFGNN_CPU_SIMD, DFGNN_CPU_SCHEDULE},
        .applicable = applicable,
        .workspace = workspace,
        .launch = attend_all,
        .block = DFGNN_CPU_BLOCK,
    },
    DFGNN_FAMILIES_END,
};
