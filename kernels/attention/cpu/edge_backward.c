/* edge_backward.c - gradients of attention with edge features: memory, and sums
 * by parts */
#include "kernels/attention/cpu/edge_backward.h"

enum { SIMD, SCHEDULE };

DFGNN_CPU_EDGE_WALK(rows_gt, dfgnn__cpu_edge_rows_gt)
DFGNN_CPU_EDGE_WALK(rows_gatv2, dfgnn__cpu_edge_rows_gatv2)

static const dfgnn_cpu_edge_walk *walk_of(const dfgnn_problem *p) {
  return p->op == DFGNN_OP_GT ? rows_gt(p) : rows_gatv2(p);
}

/* ---- memory -------------------------------------------------------------- */

#define MOST_PARTS 64
#define PARTS_BYTES ((size_t)16 << 20) /* of the sums of all parts */

static size_t weight_numbers(const dfgnn_problem *p) {
  return p->edge_dim > 0 ? (size_t)(p->heads * p->dim * p->edge_dim) : 0;
}

static size_t part_bytes(const dfgnn_problem *p) {
  size_t row = (size_t)(p->heads * p->dim);
  return dfgnn__cpu_aligned((weight_numbers(p) + 2 * row) *
                                dfgnn__cpu_scalar_size(p) +
                            DFGNN_CPU_PADDING);
}

static int64_t part_count(const dfgnn_setting *setting) {
  enum { WORK = 1024 };
  const dfgnn_matrix *m = setting->matrix;
  int64_t parts = (m->edges + 2 * m->destinations) / WORK + 1;
  int64_t most = (int64_t)(PARTS_BYTES / part_bytes(setting->problem));
  parts = parts < MOST_PARTS ? parts : MOST_PARTS;
  return parts < most ? parts : most < 4 ? 4 : most;
}

typedef struct layout {
  size_t edges, parts, threads, nodes, end;
  size_t thread_bytes;
} layout;

static dfgnn_cpu_plan plan_of(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  return (dfgnn_cpu_plan){.simd = p[SIMD], .schedule = p[SCHEDULE], .spill = 2};
}

static layout lay_out(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  dfgnn_cpu_plan plan = plan_of(setting);
  layout l = {.edges = 0};
  l.thread_bytes = dfgnn__cpu_aligned(walk_of(p)->bytes(setting));
  l.parts = l.edges + dfgnn__cpu_edges_bytes(p);
  l.threads = l.parts + (size_t)part_count(setting) * part_bytes(p);
  l.nodes = l.threads + (size_t)setting->device->units * l.thread_bytes;
  l.end = l.nodes + dfgnn__cpu_backward_workspace(setting, &plan);
  return l;
}

static size_t workspace(const dfgnn_setting *setting) {
  return lay_out(setting).end;
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  dfgnn_cpu_plan plan = plan_of(setting);
  return dfgnn__cpu_backward_views(&plan, requests);
}

static const char *applicable(const dfgnn_setting *setting) {
  return dfgnn__cpu_simd_missing(setting->parameter[SIMD]);
}

static dfgnn_cpu_edge_sums sums_of(const dfgnn_cpu_edge_backward *w,
                                   int64_t part) {
  const dfgnn_problem *p = w->problem;
  const dfgnn_args *args = w->args;
  char *at = w->parts + (size_t)part * w->part_bytes;
  int64_t row = p->heads * p->dim, count = (int64_t)weight_numbers(p);
  dfgnn_cpu_edge_sums s = {NULL, NULL, NULL};
  if (p->edge_dim > 0 && args->grad_edge_weight)
    s.weight = at;
  if (p->edge_dim > 0 && args->grad_edge_bias)
    s.bias = dfgnn__cpu_scalar(&w->nodes.rows.job, at, count);
  if (p->op == DFGNN_OP_GATV2 && args->grad_att)
    s.att = dfgnn__cpu_scalar(&w->nodes.rows.job, at, count + row);
  return s;
}

/* ---- parts --------------------------------------------------------------- */

static void walk_parts(const dfgnn_cpu_job *job, void *data, char *memory,
                       int64_t begin, int64_t end) {
  const dfgnn_cpu_edge_backward *w = data;
  for (int64_t part = begin; part < end; part++) {
    memset(w->parts + (size_t)part * w->part_bytes, 0, w->part_bytes);
    dfgnn_cpu_edge_part of = {w, sums_of(w, part)};
    walk_of(w->problem)
        ->rows(job, &of, memory, dfgnn__cpu_part(job, part, w->part_count),
               dfgnn__cpu_part(job, part + 1, w->part_count));
  }
}

/* Adds up the parts in pairs, and writes the sums. */
static void add_parts(const dfgnn_cpu_edge_backward *w) {
  const dfgnn_problem *p = w->problem;
  const dfgnn_args *args = w->args;
  int64_t numbers = (int64_t)(w->part_bytes / w->edges.scalar_size);
  for (int64_t step = 1; step < w->part_count; step *= 2)
    for (int64_t part = 0; part + step < w->part_count; part += 2 * step) {
      char *to = w->parts + (size_t)part * w->part_bytes;
      w->nodes.rows.job.kernels->combine(
          to, 1, to + (size_t)step * w->part_bytes, 1, numbers);
    }
  dfgnn_cpu_edge_sums s = sums_of(w, 0);
  const struct {
    void *to;
    const char *from;
    int64_t count;
  } written[] = {{args->grad_edge_weight, s.weight, (int64_t)weight_numbers(p)},
                 {args->grad_edge_bias, s.bias, p->heads * p->dim},
                 {args->grad_att, s.att, p->heads * p->dim}};
  for (size_t k = 0; k < sizeof written / sizeof *written; k++)
    if (written[k].from)
      memcpy(written[k].to, written[k].from,
             (size_t)written[k].count * w->edges.scalar_size);
}

/* ---- launch -------------------------------------------------------------- */

static dfgnn_status gradients(const dfgnn_launch *given) {
  const dfgnn_setting *setting = &given->setting;
  const dfgnn_problem *p = setting->problem;
  dfgnn_cpu_plan plan = plan_of(setting);
  layout l = lay_out(setting);
  char *memory = given->workspace;
  dfgnn_launch launch = *given;
  dfgnn_cpu_edge_backward w = {.problem = p,
                               .args = given->args,
                               .parts = memory + l.parts,
                               .part_count = part_count(setting),
                               .part_bytes = part_bytes(p)};
  dfgnn__cpu_edges_begin(&w.edges, given, plan.simd, memory + l.edges);
  launch.workspace = memory + l.nodes;
  dfgnn__cpu_backward_begin(&w.nodes, &launch, &plan);
  dfgnn_cpu_side *columns = &w.nodes.columns;
  dfgnn_cpu_job job = w.nodes.rows.job;
  job.thread_memory = memory + l.threads;
  job.thread_bytes = l.thread_bytes;
  dfgnn__cpu_range(&job, plan.schedule, w.part_count, 1, walk_parts, &w);
  add_parts(&w);
  if (p->op == DFGNN_OP_GT) {
    columns->terms = DFGNN_CPU_READ;
    columns->wants_gradients = 1;
    dfgnn__cpu_backward_walk(columns, plan.schedule);
  } else if (columns->wanted) {
    dfgnn_cpu_job by_column = columns->job;
    by_column.thread_memory = job.thread_memory;
    by_column.thread_bytes = job.thread_bytes;
    dfgnn_cpu_edge_part all = {&w, {NULL, NULL, NULL}};
    dfgnn__cpu_rows(&by_column, plan.schedule, 64, walk_of(p)->columns, &all);
  }
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
        .revision = 1,
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
        .views = views,
        .launch = gradients,
        .block = DFGNN_CPU_BLOCK,
    },
    DFGNN_FAMILIES_END,
};
