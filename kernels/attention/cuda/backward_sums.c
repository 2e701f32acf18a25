/* backward_sums.c - launches of the small kernels around the walks of backward
 */
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/operators.h"
#include "lib/base/error.h"

static const char source[] = "kernels/attention/cuda/backward_sums.cuh";

static dfgnn_status too_many(const char *things, int64_t count) {
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "%lld %s need more than 2^31 - 1 blocks", (long long)count,
                     things);
}

/* The type of sums: double for tensors of double, else float. */
static int sum_type(const dfgnn_launch *launch) {
  return launch->setting.problem->dtype == DFGNN_F64 ? DFGNN_TYPE(DFGNN_F64)
                                                     : DFGNN_TYPE(DFGNN_F32);
}

dfgnn_status dfgnn__grad_stats(const grad_params *p, int lanes, int vector,
                               const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int gat = DFGNN_HAS_SCALARS(problem->op);
  const size_t size = dfgnn_dtype_size(problem->dtype);
  grad_stats_params s = {.grad_out = p->own[gat ? 0 : 1],
                         .out = p->out,
                         .lse = p->lse,
                         .grad_lse = p->grad_lse,
                         .score = p->own_scalar,
                         .stats = p->stats,
                         .pairs = launch->setting.matrix->destinations *
                                  problem->heads,
                         .heads = p->heads,
                         .dim = p->dim,
                         .lanes = 1,
                         .count = GRAD_STATS(problem->op)};
  if (DFGNN_HAS_NORMS(problem->op))
    s.query = p->own[0];
  if (s.dim % vector || !dfgnn__view_aligned(&s.query, s.heads, vector, size) ||
      !dfgnn__view_aligned(&s.grad_out, s.heads, vector, size) ||
      !dfgnn__view_aligned(&s.out, s.heads, vector, size))
    vector = 1;
  while (s.lanes < lanes && s.lanes * vector < s.dim)
    s.lanes *= 2;
  const dfgnn_program program = DFGNN_PROGRAM(
      source, "dfgnn::node_stats", DFGNN_TYPE(problem->dtype), vector);
  if (s.pairs == 0)
    return DFGNN_OK;
  if (s.pairs > (int64_t)INT32_MAX * 256 / s.lanes)
    return too_many("destinations and heads", s.pairs);
  return dfgnn__launch_struct(launch->setting.queue, &program,
                              dfgnn__grid_of(s.pairs * s.lanes, 256), &s);
}

dfgnn_status dfgnn__grad_merge(const grad_params *p, int tensors,
                               const dfgnn_view *items,
                               const dfgnn_launch *launch) {
  enum { THREADS = 256 }; /* kMergeThreads of backward_sums.cuh */
  const dfgnn_dtype dtype = launch->setting.problem->dtype;
  const dfgnn_program program =
      DFGNN_PROGRAM(source, "dfgnn::merge_gradients", DFGNN_TYPE(dtype));
  const int64_t rows = items ? items->extra : p->schedule.rows;
  const int64_t blocks = rows * p->heads;
  grad_merge_params q = {.schedule = p->schedule,
                         .to = {p->to[0], p->to[1]},
                         .to_scalar = p->to_scalar,
                         .partial = p->partial,
                         .partial_scalar = p->partial_scalar,
                         .heavy = items ? items->array[3] : NULL,
                         .tensors = tensors,
                         .heads = p->heads,
                         .dim = p->dim,
                         .width = 32,
                         .adds = p->adds};
  if (blocks == 0)
    return DFGNN_OK;
  if (blocks > INT32_MAX)
    return too_many("rows to merge", blocks);
  while (q.width < q.dim && q.width < THREADS)
    q.width *= 2;
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks},
                   .threads = THREADS,
                   .overlaps = 1,
                   .shared = (unsigned)(THREADS / q.width) * (unsigned)q.dim *
                             (unsigned)dfgnn__scalar_size(dtype)},
      &q);
}

dfgnn_status dfgnn__grad_totals(void *to, const void *totals, int64_t rows,
                                int64_t width, const dfgnn_launch *launch) {
  enum { COLUMNS = 32, ROWS = 16 }; /* kTotalColumns, kTotalRows there */
  const dfgnn_program program =
      DFGNN_PROGRAM(source, "dfgnn::sum_totals", sum_type(launch));
  const grad_totals_params p = {
      .to = to, .totals = totals, .rows = rows, .width = width};
  dfgnn_grid grid = dfgnn__grid_of(width, COLUMNS);
  grid.threads = COLUMNS * ROWS;
  grid.overlaps = 1;
  return dfgnn__launch_struct(launch->setting.queue, &program, grid, &p);
}

dfgnn_status dfgnn__grad_row_sums(void *to, const void *spill,
                                  const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_program program =
      DFGNN_PROGRAM(source, "dfgnn::row_sums", sum_type(launch));
  const grad_row_sums_params p = {
      .to = to,
      .spill = spill,
      .offsets = matrix->offsets,
      .offsets64 = matrix->offsets64,
      .heads = (int)problem->heads,
      .lanes = matrix->edges < matrix->destinations * 16 ? 8 : 32,
      .adds = problem->accumulate,
      .pairs = matrix->destinations * problem->heads};
  if (p.pairs == 0)
    return DFGNN_OK;
  if (p.pairs > (int64_t)INT32_MAX * 256 / p.lanes)
    return too_many("destinations and heads", p.pairs);
  dfgnn_grid grid = dfgnn__grid_of(p.pairs * p.lanes, 256);
  grid.overlaps = 1;
  return dfgnn__launch_struct(launch->setting.queue, &program, grid, &p);
}
