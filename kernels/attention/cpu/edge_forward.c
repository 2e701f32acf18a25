/* edge_forward.c - the CPU family of forward attention with edge features */
#include "kernels/attention/cpu/edges.h"

enum { SIMD, SCHEDULE };
enum { TASK_ROWS = 64 };

static dfgnn_cpu_choice choice(const dfgnn_setting *setting,
                               const dfgnn_problem *padded) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){.simd = p[SIMD],
                            .schedule = p[SCHEDULE],
                            .thread_bytes = dfgnn__cpu_across_bytes(padded) +
                                            dfgnn__cpu_window_bytes(padded)};
}

static size_t workspace(const dfgnn_setting *given) {
  const dfgnn_problem padded =
      dfgnn__cpu_padded(given->problem, given->parameter[SIMD]);
  dfgnn_setting setting = *given;
  setting.problem = &padded;
  dfgnn_cpu_choice c = choice(&setting, &padded);
  return dfgnn__cpu_edges_bytes(&padded) + dfgnn__cpu_workspace(&setting, &c);
}

static const char *applicable(const dfgnn_setting *setting) {
  return dfgnn__cpu_edges_refusal(setting, setting->parameter[SIMD]);
}

static void rows(const dfgnn_cpu_job *job, void *data, char *memory,
                 int64_t begin, int64_t end) {
  (void)data;
  job->kernels->attend(job, begin, end, memory);
}

static dfgnn_status attend_all(const dfgnn_launch *given) {
  const int simd = given->setting.parameter[SIMD];
  const dfgnn_problem padded = dfgnn__cpu_padded(given->setting.problem, simd);
  dfgnn_launch launch = *given;
  dfgnn_cpu_edges edges;
  dfgnn_cpu_job job;
  dfgnn__cpu_edges_begin(&edges, given, &padded, simd, given->workspace);
  launch.setting.problem = &padded;
  launch.workspace = (char *)given->workspace + dfgnn__cpu_edges_bytes(&padded);
  dfgnn_cpu_choice c = choice(&launch.setting, &padded);
  c.term = &edges;
  c.dim = edges.dim;
  c.att = edges.att;
  dfgnn__cpu_begin(&job, &launch, &c);
  dfgnn__cpu_rows(&job, c.schedule, TASK_ROWS, rows, NULL);
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
        .widened = 1,
        .revision = 3,
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
