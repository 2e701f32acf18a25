/* edge_backward.c - the CPU family of the gradients of attention with edge
 * features
 *
 * A walk over rows computes P r and dS of every edge and head, leaves them in
 * memory for the columns, and writes the gradients of rows, edges and
 * parameters. */
#include "kernels/attention/cpu/backward.h"
#include "kernels/attention/cpu/edges.h"

enum { SIMD, SCHEDULE };

static dfgnn_cpu_plan plan_of(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_plan){.simd = p[SIMD],
                          .schedule = p[SCHEDULE],
                          .spill = 2,
                          .dim = setting->problem->dim};
}

static size_t workspace(const dfgnn_setting *given) {
  const dfgnn_problem padded =
      dfgnn__cpu_padded(given->problem, given->parameter[SIMD]);
  dfgnn_setting setting = *given;
  dfgnn_cpu_plan plan = plan_of(given);
  setting.problem = &padded;
  return dfgnn__cpu_edges_bytes(&padded) +
         dfgnn__cpu_backward_workspace(&setting, &plan);
}

static const char *applicable(const dfgnn_setting *setting) {
  return dfgnn__cpu_edges_refusal(setting, setting->parameter[SIMD]);
}

static dfgnn_status gradients(const dfgnn_launch *given) {
  dfgnn_cpu_plan plan = plan_of(&given->setting);
  const dfgnn_problem padded =
      dfgnn__cpu_padded(given->setting.problem, plan.simd);
  dfgnn_launch launch = *given;
  dfgnn_cpu_edges edges;
  dfgnn_cpu_backward b;
  dfgnn__cpu_edges_begin(&edges, given, &padded, plan.simd, given->workspace);
  launch.setting.problem = &padded;
  launch.workspace = (char *)given->workspace + dfgnn__cpu_edges_bytes(&padded);
  plan.term = &edges;
  dfgnn__cpu_backward_begin(&b, &launch, &plan);
  b.rows.terms = DFGNN_CPU_SPILL;
  b.rows.wanted = b.rows.wants_gradients = 1;
  if (padded.op == DFGNN_OP_GATV2) /* the gradients of parts are those of z */
    b.rows.wants_scores = 1;
  b.columns.terms = DFGNN_CPU_READ;
  dfgnn__cpu_spans(&b.rows);
  dfgnn__cpu_spans(&b.columns);
  dfgnn__cpu_backward_walk(&b.rows, plan.schedule);
  dfgnn__cpu_backward_walk(&b.columns, plan.schedule);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_edge_backward) = {
    {
        .name = "cpu.attention.bwd.edges",
        .algorithm = "edges",
        .backend = "cpu",
        .ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),
        .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .widened = 1,
        .revision = 3,
        .deterministic = 1,
        .bias = 1,
        .dropout = 1,
        .accumulate = 1,
        .edge_ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),
        .edges_only = 1,
        .edge_list = 1,
        .parameters = {DFGNN_CPU_SIMD, DFGNN_CPU_SCHEDULE},
        .applicable = applicable,
        .workspace = workspace,
        .views = dfgnn__cpu_backward_views,
        .launch = gradients,
        .block = DFGNN_CPU_BLOCK,
    },
    DFGNN_FAMILIES_END,
};
