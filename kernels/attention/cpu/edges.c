/* edges.c - the CPU families of attention with edge features, forward and
 * backward
 *
 * A launch begins with W and its transpose as scalars.  Backward, a walk over
 * rows computes P r and dS of every edge and head, leaves them in memory for
 * the columns, and writes the gradients of rows, edges and parameters. */
#include "kernels/attention/cpu/edges.h"
#include "kernels/attention/cpu/backward.h"

enum { SIMD, SCHEDULE };
enum { TASK_ROWS = 64 };

static const char *applicable(const dfgnn_setting *setting) {
  const char *missing = dfgnn__cpu_simd_missing(setting->parameter[SIMD]);
  return missing ? missing
         : setting->problem->heads > DFGNN_CPU_MOST_HEADS
             ? "edge features are for 256 heads or fewer"
             : NULL;
}

/* ---- W ------------------------------------------------------------------- */

static size_t row_of(const dfgnn_problem *padded) {
  return (size_t)(padded->heads * padded->dim);
}

static size_t weight_bytes(const dfgnn_problem *padded) {
  return padded->edge_dim > 0 ? dfgnn__cpu_heads_bytes(padded, padded->edge_dim)
                              : 0;
}

static size_t edges_bytes(const dfgnn_problem *padded) {
  return 2 * weight_bytes(padded) + dfgnn__cpu_heads_bytes(padded, 1) +
         dfgnn__cpu_att_bytes(padded);
}

static void transpose(char *to, const char *from, int64_t rows, int64_t columns,
                      size_t size) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      memcpy(to + (size_t)(c * rows + r) * size,
             from + (size_t)(r * columns + c) * size, size);
}

/* Fills edges, and padded with the problem whose heads fill vectors; returns
 * its launch. */
static dfgnn_launch begin(dfgnn_cpu_edges *edges, dfgnn_problem *padded,
                          const dfgnn_launch *launch) {
  const dfgnn_problem *p = launch->setting.problem;
  const int simd = launch->setting.parameter[SIMD];
  char *memory = launch->workspace;
  dfgnn_launch of_padded = *launch;
  *padded = dfgnn__cpu_padded(p, simd);
  of_padded.setting.problem = padded;
  of_padded.workspace = memory + edges_bytes(padded);
  const dfgnn_args *args = launch->args;
  const dfgnn_matrix *m = launch->setting.matrix;
  const dfgnn_cpu_kernels *kernels = dfgnn__cpu_kernels(simd, p->dtype);
  const int projects = p->edge_dim > 0, gt = p->op == DFGNN_OP_GT;
  char *transposed = memory + weight_bytes(padded);
  char *bias = transposed + weight_bytes(padded);
  *edges = (dfgnn_cpu_edges){
      .dim = p->dim,
      .features = projects ? p->edge_dim : 0,
      .width = projects ? p->edge_dim : p->heads * p->dim,
      .attr = args->edge_attr,
      .grad_attr = args->grad_edge_attr,
      .order = p->edge_list ? m->edge_order : NULL,
      .offsets64 = m->offsets64,
      .keys = !gt || p->edge_use != DFGNN_EDGE_VALUES,
      .values = gt && p->edge_use != DFGNN_EDGE_KEYS,
  };
  if (projects) {
    edges->weight = dfgnn__cpu_pad_heads(p, padded, args->edge_projection,
                                         p->edge_dim, memory);
    transpose(transposed, memory, (int64_t)row_of(padded), p->edge_dim,
              dfgnn__cpu_scalar_size(p));
    edges->transposed = transposed;
    if (args->edge_bias)
      edges->bias = dfgnn__cpu_pad_heads(p, padded, args->edge_bias, 1, bias);
  }
  const int64_t row = (int64_t)row_of(padded);
  edges->careful =
      !projects || (kernels->finite(edges->weight, row * p->edge_dim) &&
                    (!edges->bias || kernels->finite(edges->bias, row)));
  edges->att = dfgnn__cpu_pad_att(p, padded, args->att,
                                  bias + dfgnn__cpu_heads_bytes(padded, 1));
  return of_padded;
}

/* ---- the families -------------------------------------------------------- */

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_choice){.simd = p[SIMD],
                            .schedule = p[SCHEDULE],
                            .thread_bytes =
                                dfgnn__cpu_across_bytes(setting->problem) +
                                dfgnn__cpu_window_bytes(setting->problem)};
}

static dfgnn_cpu_plan plan_of(const dfgnn_setting *setting, int64_t dim) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_plan){
      .simd = p[SIMD], .schedule = p[SCHEDULE], .spill = 2, .dim = dim};
}

static size_t workspace(const dfgnn_setting *given) {
  const dfgnn_problem padded =
      dfgnn__cpu_padded(given->problem, given->parameter[SIMD]);
  dfgnn_setting setting = *given;
  setting.problem = &padded;
  const dfgnn_cpu_choice c = choice(&setting);
  const dfgnn_cpu_plan plan = plan_of(given, given->problem->dim);
  return edges_bytes(&padded) +
         (padded.pass == DFGNN_PASS_BACKWARD
              ? dfgnn__cpu_backward_workspace(&setting, &plan)
              : dfgnn__cpu_workspace(&setting, &c));
}

static void rows(const dfgnn_cpu_job *job, void *data, char *memory,
                 int64_t first, int64_t end) {
  (void)data;
  job->kernels->attend(job, first, end, memory);
}

static dfgnn_status attend_all(const dfgnn_launch *given) {
  dfgnn_problem padded;
  dfgnn_cpu_edges edges;
  dfgnn_cpu_job job;
  const dfgnn_launch launch = begin(&edges, &padded, given);
  dfgnn_cpu_choice c = choice(&launch.setting);
  c.term = &edges;
  c.dim = edges.dim;
  c.att = edges.att;
  dfgnn__cpu_begin(&job, &launch, &c);
  dfgnn__cpu_rows(&job, c.schedule, TASK_ROWS, rows, NULL);
  return DFGNN_OK;
}

static dfgnn_status gradients(const dfgnn_launch *given) {
  dfgnn_problem padded;
  dfgnn_cpu_edges edges;
  dfgnn_cpu_backward b;
  const dfgnn_launch launch = begin(&edges, &padded, given);
  dfgnn_cpu_plan plan = plan_of(&given->setting, edges.dim);
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

#define EDGES                                                                  \
  .algorithm = "edges", .backend = "cpu",                                      \
  .ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),                   \
  .edge_ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),              \
  .edges_only = 1, .edge_list = 1, .dtypes = DFGNN_DTYPES_ALL, .widened = 1,   \
  .revision = 3, .deterministic = 1, .bias = 1, .dropout = 1,                  \
  .parameters = {DFGNN_CPU_SIMD, DFGNN_CPU_SCHEDULE},                          \
  .applicable = applicable, .workspace = workspace, .block = DFGNN_CPU_BLOCK

DFGNN_FAMILIES(attention_cpu_edges) = {
    {EDGES, .name = "cpu.attention.bwd.edges",
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD), .accumulate = 1,
     .views = dfgnn__cpu_backward_views, .launch = gradients},
    {EDGES, .name = "cpu.attention.fwd.edges",
     .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .weights = 1,
     .launch = attend_all},
    DFGNN_FAMILIES_END};
