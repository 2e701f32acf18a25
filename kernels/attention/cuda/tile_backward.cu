/* tile_backward.cu - the host's side of gradients over tiles */
#include "kernels/attention/cuda/launch.cuh"
#include "kernels/attention/cuda/tile_backward.h"

#include <cstdlib>
#include <cstring>

namespace dfgnn {

static const void *grad_tile_kernel(int op, dfgnn_dtype dtype, int kind,
                                    int64_t dim, int exact) {
  static grad_tile_finder *const find[][3] = {
      {grad_tile_gt_f32, grad_tile_agnn_f32, grad_tile_gat_f32},
      {grad_tile_gt_f16, grad_tile_agnn_f16, grad_tile_gat_f16},
      {grad_tile_gt_bf16, grad_tile_agnn_bf16, grad_tile_gat_bf16}};
  return find[dtype][op](kind, static_cast<int>(dim), exact);
}

static int is_exact(const dfgnn_problem *problem) {
  return problem->math != DFGNN_MATH_TF32;
}

static int padded_width(int64_t dim) {
  return dim <= 32 ? 32 : dim <= 64 ? 64 : 128;
}

static size_t shared_bytes(const dfgnn_problem *problem, int columns,
                           int window) {
  return grad_tile_shared(
      problem->op, columns, window,
      padded_width(problem->dim) *
          static_cast<int>(dfgnn_dtype_size(problem->dtype)));
}

static dfgnn_view_request request_of(const grad_tile_plan *plan, int columns) {
  dfgnn_view_request request = {};
  request.kind = DFGNN_VIEW_TILES;
  request.parameter =
      dfgnn__tiles_parameter(plan->rows, plan->split, plan->dense);
  request.transposed = columns;
  return request;
}

/* For arguments that no copy of 16 bytes can read: any stride will do. */
static grad_plan plain_plan() {
  grad_plan plan = {};
  plan.lanes = 32;
  plan.unroll = plan.rows = 1;
  plan.warps = 4;
  plan.span = ATTEND_ONCE;
  return plan;
}

/* Rows of partial results; of either pass, since they follow each other. */
struct partial_rows {
  int64_t sums, scalars;
};

static partial_rows partial_of(const dfgnn_setting *s,
                               const grad_tile_plan *plan) {
  partial_rows rows = {};
  for (int columns = 0; columns < 2; columns++) {
    const dfgnn_view_request request = request_of(plan, columns);
    const int64_t n =
        dfgnn__tiles_slots(s, &request) * s->problem->heads * plan->rows;
    const int64_t sums = n * grad_tile_sums(s->problem->op, columns);
    rows.scalars = n > rows.scalars ? n : rows.scalars;
    rows.sums = sums > rows.sums ? sums : rows.sums;
  }
  return rows;
}

/* ---- applicability ------------------------------------------------------- */

/* What masks say of absent edges must not outweigh the matrix. */
constexpr double kLeastDensity = 1.0 / 64;
/* So many windows a multiprocessor need no cutting. */
constexpr int kWindowsEnough = 8;

static const char *split_refusal(const dfgnn_setting *s,
                                 const grad_tile_plan *plan) {
  const int64_t n = s->matrix->destinations, m = s->matrix->sources;
  const partial_rows partial = partial_of(s, plan);
  if (!plan->split)
    return nullptr;
  if (partial.scalars == 0)
    return "no window is longer than an item";
  if ((n < m ? n : m) / plan->rows > int64_t(s->device->units) * kWindowsEnough)
    return "there are windows enough without cutting them";
  return partial.sums > 4 * (n + 2 * m) * s->problem->heads
             ? "partial results might take four times the memory of gradients"
             : nullptr;
}

static int compute_capability(const dfgnn_device_info *device) {
  return strncmp(device->arch, "sm_", 3) == 0 ? atoi(device->arch + 3) : 0;
}

const char *grad_tile_refusal(const dfgnn_setting *s,
                              const grad_tile_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const dfgnn_matrix *matrix = s->matrix;
  const int vector = static_cast<int>(16 / dfgnn_dtype_size(problem->dtype));
  if (compute_capability(s->device) < 80)
    return "needs tensor cores of sm_80 or later";
  if (problem->dim > 128)
    return "more than 128 features";
  if (problem->dim % vector != 0 ||
      (problem->layout != DFGNN_LAYOUT_NHD && problem->heads > 1))
    return "features are not aligned to 16 bytes";
  if (problem->heads > 65535)
    return "more than 65535 heads";
  if (matrix->destinations > INT32_MAX - 65536 ||
      matrix->sources > INT32_MAX - 65536 || matrix->max_degree > INT32_MAX)
    return "a row or the number of rows exceeds 2^31";
  for (int columns = 0; columns < 2; columns++)
    if (shared_bytes(problem, columns, plan->rows) >
        static_cast<size_t>(s->device->shared_bytes))
      return "a block's rows exceed shared memory";
  if (plan->dense && matrix->destinations != matrix->sources)
    return "the matrix is not square";
  if (plan->dense && !(s->signature->density >= kLeastDensity))
    return "the blocks of the batch are too sparse";
  return split_refusal(s, plan);
}

/* ---- memory -------------------------------------------------------------- */

struct grad_tile_memory {
  grad_memory walk;
  char *block_totals;
};

constexpr int kTotalsWidth = 256;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static grad_tile_memory memory_of(const dfgnn_setting *s,
                                  const grad_tile_plan *plan, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const dfgnn_matrix *matrix = s->matrix;
  const int64_t heads = problem->heads;
  const int64_t pairs = matrix->destinations * heads;
  char *base = static_cast<char *>(workspace);
  grad_tile_memory m = {};
  m.walk.stats = grad_part(&m.walk, base, pairs * stats_count(problem->op), 4);
  if (problem->op == DFGNN_OP_AGNN) {
    m.walk.norms = grad_part(&m.walk, base, matrix->sources * heads, 4);
    m.walk.totals = grad_part(&m.walk, base,
                              ceil_div(pairs, kTotalsWidth) * kTotalsWidth, 4);
    m.block_totals = grad_part(&m.walk, base, kTotalsWidth, 4);
  }
  const partial_rows partial = partial_of(s, plan);
  m.walk.partial =
      grad_part(&m.walk, base, partial.sums * padded_width(problem->dim), 4);
  m.walk.partial_scalar = grad_part(&m.walk, base, partial.scalars, 4);
  return m;
}

size_t grad_tile_workspace(const dfgnn_setting *setting,
                           const grad_tile_plan *plan) {
  const grad_plan plain = plain_plan();
  const size_t other = grad_workspace(setting, &plain);
  const size_t own = memory_of(setting, plan, nullptr).walk.bytes;
  return own > other ? own : other;
}

int grad_tile_views(const grad_tile_plan *plan, dfgnn_view_request *requests) {
  requests[0] = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  requests[1] = request_of(plan, 0);
  requests[2] = request_of(plan, 1);
  return 3;
}

dfgnn_status grad_tile_prepare(const dfgnn_setting *setting) {
  const dfgnn_problem *problem = setting->problem;
  for (int columns = 0; columns < 2; columns++) {
    const void *kernel =
        grad_tile_kernel(problem->op, problem->dtype,
                         columns ? GRAD_TILE_COLUMNS : GRAD_TILE_ROWS,
                         problem->dim, is_exact(problem));
    DFGNN_CUDA_TRY(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(setting->device->shared_bytes)));
    /* A hint: if it is refused, the kernel still runs. */
    if (cudaFuncSetAttribute(kernel,
                             cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared) != cudaSuccess)
      (void)cudaGetLastError();
  }
  return DFGNN_OK;
}

/* ---- launch -------------------------------------------------------------- */

static dfgnn_status pass(grad_tile_params *p, const dfgnn_launch *launch,
                         const grad_tile_plan *plan, int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_view *view = launch->views[1 + columns];
  const unsigned heads = static_cast<unsigned>(problem->heads);
  dfgnn_status status;
  p->items = static_cast<const dfgnn_tile *>(view->array[0]);
  p->columns = static_cast<const int *>(view->array[1]);
  p->masks = static_cast<const unsigned *>(view->array[2]);
  p->cuts = static_cast<const dfgnn_tile_cut *>(view->array[3]);
  p->window = plan->rows;
  p->dense = plan->dense;
  p->width = padded_width(problem->dim);
  if (view->count == 0)
    return DFGNN_OK;
  status = launch_kernel(
      "grad_tile_gradient",
      grad_tile_kernel(problem->op, problem->dtype,
                       columns ? GRAD_TILE_COLUMNS : GRAD_TILE_ROWS,
                       problem->dim, is_exact(problem)),
      dim3(static_cast<unsigned>(view->count), heads),
      dim3(static_cast<unsigned>(plan->rows * 2)),
      shared_bytes(problem, columns, plan->rows), launch->stream, *p);
  if (status || view->extra == 0)
    return status;
  return launch_kernel(
      "grad_tile_merge",
      grad_tile_kernel(problem->op, problem->dtype,
                       columns ? GRAD_TILE_MERGE_COLUMNS : GRAD_TILE_MERGE_ROWS,
                       problem->dim, is_exact(problem)),
      dim3(static_cast<unsigned>(view->extra), heads), dim3(256), 0,
      launch->stream, *p);
}

/* grad_beta, of the numbers that rows leave. */
static dfgnn_status sum_beta(const grad_tile_memory *memory,
                             const dfgnn_launch *launch) {
  const int64_t pairs =
      launch->setting.matrix->destinations * launch->setting.problem->heads;
  dfgnn_status status =
      grad_totals(memory->block_totals, memory->walk.totals,
                  ceil_div(pairs, kTotalsWidth), kTotalsWidth, launch);
  return status ? status
                : grad_totals(launch->args->grad_beta, memory->block_totals,
                              kTotalsWidth, 1, launch);
}

static dfgnn_status rows_pass(grad_tile_params *p, const dfgnn_launch *launch,
                              const grad_tile_plan *plan,
                              const grad_tile_memory *memory) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int64_t pairs = launch->setting.matrix->destinations * problem->heads;
  const int64_t padded = ceil_div(pairs, kTotalsWidth) * kTotalsWidth;
  dfgnn_status status;
  p->row_totals = p->walk.totals;
  if (p->row_totals)
    DFGNN_CUDA_TRY(cudaMemsetAsync(memory->walk.totals + pairs * 4, 0,
                                   static_cast<size_t>(padded - pairs) * 4,
                                   static_cast<cudaStream_t>(launch->stream)));
  status = pass(p, launch, plan, 0);
  return status || !p->row_totals ? status : sum_beta(memory, launch);
}

dfgnn_status grad_tile_launch(const dfgnn_launch *launch,
                              const grad_tile_plan *plan) {
  const dfgnn_setting *s = &launch->setting;
  const dfgnn_problem *problem = s->problem;
  const unsigned size = static_cast<unsigned>(dfgnn_dtype_size(problem->dtype));
  const grad_tile_memory memory = memory_of(s, plan, launch->workspace);
  const grad_plan plain = plain_plan();
  grad_tile_params rows = {}, columns = {};
  dfgnn_status status;
  if ((status = grad_fill(&rows.walk, launch, &memory.walk, 0)) ||
      (status = grad_fill(&columns.walk, launch, &memory.walk, 1)))
    return status;
  if (!grad_aligned(&rows.walk, size) || !grad_aligned(&columns.walk, size))
    return grad_launch(launch, &plain);
  const bool by_rows =
      rows.walk.to[0].data || rows.walk.to_scalar || rows.walk.totals;
  const bool by_columns = columns.walk.to[0].data || columns.walk.to[1].data ||
                          columns.walk.to_scalar;
  if (problem->op == DFGNN_OP_AGNN) {
    columns.walk.own_scalar = memory.walk.norms;
    if ((status = attend_inverse_norms(memory.walk.norms, &rows.walk.far[0],
                                       s->matrix->sources, launch)))
      return status;
  }
  status = by_rows ? rows_pass(&rows, launch, plan, &memory)
                   : grad_stats(&rows.walk, 32, launch);
  if (status)
    return status;
  return by_columns ? pass(&columns, launch, plan, 1) : DFGNN_OK;
}

} // namespace dfgnn
