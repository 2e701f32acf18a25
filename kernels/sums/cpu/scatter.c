/* scatter.c - gradients of min and max, sent to the sources from the rows: a
 * task takes some features of all rows */
#include <string.h>

#include "kernels/sums/cpu/sums.h"

enum { SIMD, PREFETCH, FEATURES };

static int has_moments(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_REDUCE_PNA;
}

static size_t workspace(const dfgnn_setting *setting) {
  return dfgnn__cpu_sums_workspace(setting, DFGNN_CPU_ROW);
}

static int views(const dfgnn_setting *setting, dfgnn_view_request *requests) {
  return has_moments(setting->problem) ? dfgnn__cpu_views(setting, requests)
                                       : 0;
}

typedef struct scattering {
  const dfgnn_cpu_sums_call *call;
  dfgnn_cpu_table sums;
  int64_t slice, slices; /* of a piece */
  int fresh;             /* sums hold nothing yet */
} scattering;

static void clear(const scattering *s, int64_t piece, int64_t first,
                  int64_t count) {
  const dfgnn_cpu_sums *job = &s->call->job;
  size_t size = dfgnn__cpu_scalar_bytes(s->call->launch->setting.problem);
  char *to = s->sums.base + dfgnn__cpu_piece_at(&s->sums, &job->pieces, piece);
  for (int64_t j = 0; j < job->columns; j++)
    memset(to + j * s->sums.node + (size_t)first * size, 0,
           (size_t)count * size);
}

static void scatter_slices(void *data, int64_t begin, int64_t end) {
  const scattering *s = data;
  const dfgnn_cpu_sums *job = &s->call->job;
  const dfgnn_cpu_reduced *r = &job->reduced;
  int pna = job->op == DFGNN_OP_REDUCE_PNA;
  for (int64_t k = begin; k < end; k++) {
    int64_t piece = k / s->slices, d = k % s->slices * s->slice;
    int64_t dim = job->pieces.dim;
    int64_t last = dim - d < s->slice ? dim : d + s->slice;
    if (s->fresh)
      clear(s, piece, d, last - d);
    if (r->arg_min.base)
      s->call->kernels->scatter(job, &s->sums, pna ? &r->least : &r->out,
                                &r->arg_min, piece, d, last);
    if (r->arg_max.base)
      s->call->kernels->scatter(job, &s->sums, pna ? &r->most : &r->out,
                                &r->arg_max, piece, d, last);
  }
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  int threads = dfgnn__cpu_threads(setting);
  dfgnn_cpu_sums_call c;
  dfgnn__cpu_sums_begin(&c, launch, DFGNN_CPU_PLAIN);
  c.job.to = dfgnn__cpu_table(problem, launch->args->grad_value,
                              &launch->args->grad_value_strides);
  if (has_moments(problem)) {
    dfgnn__cpu_sums_record(&c);
    dfgnn__cpu_sums_columns(&c, 1);
  }
  scattering s = {.call = &c,
                  .sums = c.job.to,
                  .slice = setting->parameter[FEATURES],
                  .fresh = !has_moments(problem)};
  s.slices = (c.job.pieces.dim + s.slice - 1) / s.slice;
  dfgnn__cpu_for(threads, c.job.pieces.count * s.slices, 1, scatter_slices, &s);
  return DFGNN_OK;
}

DFGNN_FAMILIES(sums_cpu_scatter) = {
    {.name = "cpu.reduce.bwd.scatter",
     .algorithm = "scatter",
     .backend = "cpu",
     .ops = DFGNN_BIT(DFGNN_OP_REDUCE_MIN) | DFGNN_BIT(DFGNN_OP_REDUCE_MAX) |
            DFGNN_BIT(DFGNN_OP_REDUCE_PNA),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .widened = 1,
     .revision = 1,
     .deterministic = 1,
     .parameters = DFGNN_CPU_SIZED_PARAMETERS("features", 2, {16, 64}),
     .legal = dfgnn__cpu_legal,
     .applicable = dfgnn__cpu_applicable,
     .workspace = workspace,
     .views = views,
     .launch = launch},
    DFGNN_FAMILIES_END,
};
