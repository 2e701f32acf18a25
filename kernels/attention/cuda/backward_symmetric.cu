/* backward_symmetric.cu - gradients by one walk, of matrices that equal
 * their transpose: an edge is read once, nothing is kept of it */
#include "kernels/attention/cuda/backward_symmetric.h"
#include "kernels/attention/cuda/launch.cuh"

using namespace dfgnn;

enum { LANES, UNROLL, ROWS, SPAN, HEADS };

static grad_plan plan_of(const int *x) {
  grad_plan plan = {};
  plan.lanes = x[LANES];
  plan.unroll = x[UNROLL];
  plan.rows = x[ROWS];
  plan.span = static_cast<attend_span>(x[SPAN]);
  plan.warps = plan.span == ATTEND_PIECE ? 8 : 4;
  plan.several = x[HEADS];
  return plan;
}

static const void *kernel_of(const dfgnn_problem *problem,
                             const attend_shape *s) {
  static grad_both_finder *const find[][3] = {
      {grad_both_gt_f32, grad_both_gt_f16, grad_both_gt_bf16},
      {grad_both_agnn_f32, nullptr, nullptr},
      {nullptr, nullptr, nullptr},
      {grad_both_gatv2_f32, nullptr, nullptr}};
  grad_both_finder *const f = find[problem->op][problem->dtype];
  return f ? f(s->lanes, s->vectors, s->unroll, s->several) : nullptr;
}

/* ---- applicability ------------------------------------------------------- */

static int symmetric_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 &&
         (x[UNROLL] == 1 || x[LANES] == 32 || (x[LANES] == 16 && !x[HEADS]));
}

static const char *symmetric_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  attend_shape shape;
  if (s->matrix->destinations != s->matrix->sources)
    return "the matrix is not square";
  if (const char *reason = grad_limits(s, &plan))
    return reason;
  if (grad_odd(s->problem) || !grad_shape(&shape, s, &plan) ||
      !kernel_of(s->problem, &shape))
    return "no instance of this width";
  return nullptr;
}

static size_t symmetric_workspace(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_workspace(s, &plan);
}

static int symmetric_views(const dfgnn_setting *s,
                           dfgnn_view_request *request) {
  const grad_plan plan = plan_of(s->parameter);
  return grad_views(&plan, request);
}

/* ---- is it symmetric? ---------------------------------------------------- */

struct pair_of_arrays {
  const int *a, *b;
  int64_t count;
};

struct compare_params {
  pair_of_arrays pair[2];
  int *differ;
};

__global__ void __launch_bounds__(256)
    compare_arrays(const __grid_constant__ compare_params p) {
  int differ = 0;
  for (const pair_of_arrays &x : p.pair)
#pragma unroll 4
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
         i < x.count; i += int64_t(gridDim.x) * blockDim.x)
      differ |= __ldcs(x.a + i) != __ldcs(x.b + i);
  if (differ)
    *p.differ = 1;
}

/* Columns of a transposed matrix are in order, so that of rows which are not
 * differs too. */
static dfgnn_status differs(int *differ, const dfgnn_setting *s,
                            const dfgnn_view *transpose) {
  const dfgnn_matrix *m = s->matrix;
  const int64_t words = (m->destinations + 1) * (m->offsets64 ? 2 : 1);
  compare_params p = {
      {{static_cast<const int *>(m->offsets),
        static_cast<const int *>(transpose->array[0]), words},
       {m->indices, static_cast<const int *>(transpose->array[1]), m->edges}},
      nullptr};
  dfgnn_status status = DFGNN_OK;
  cudaError_t e = cudaMalloc(&p.differ, sizeof *p.differ);
  if (e == cudaSuccess)
    e = cudaMemset(p.differ, 0, sizeof *p.differ);
  if (e == cudaSuccess)
    status = launch_kernel("compare_arrays",
                           reinterpret_cast<const void *>(compare_arrays),
                           dim3(static_cast<unsigned>(s->device->units) * 8),
                           dim3(256), 0, nullptr, p);
  if (e == cudaSuccess && !status)
    e = cudaMemcpy(differ, p.differ, sizeof *differ, cudaMemcpyDeviceToHost);
  (void)cudaFree(p.differ);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return dfgnn__fail(DFGNN_ERROR_DEVICE, "comparing with the transpose: %s",
                       cudaGetErrorString(e));
  }
  return status;
}

static dfgnn_status symmetric_prepare(void **state, const dfgnn_setting *s,
                                      const dfgnn_view *const *views) {
  const grad_plan plan = plan_of(s->parameter);
  attend_shape shape;
  int differ = 1;
  *state = NULL;
  if (dfgnn_status status = differs(&differ, s, views[0]))
    return status;
  if (differ)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "the matrix is not its transpose, or the edges of a row "
                       "are not in order");
  /* A hint: if it is refused, the kernel still runs. */
  if (grad_shape(&shape, s, &plan) &&
      cudaFuncSetAttribute(kernel_of(s->problem, &shape),
                           cudaFuncAttributePreferredSharedMemoryCarveout,
                           0) != cudaSuccess)
    (void)cudaGetLastError();
  return DFGNN_OK;
}

/* ---- launch -------------------------------------------------------------- */

static dfgnn_status walk_both(grad_both_params *p, const dfgnn_launch *launch,
                              const grad_plan *plan, const attend_shape *shape,
                              int64_t *blocks) {
  *blocks = 0;
  p->columns.schedule = p->rows.schedule;
  p->rows.stats = nullptr; /* columns read them of other rows */
  if (p->rows.schedule.units == 0)
    return DFGNN_OK;
  *blocks = grad_lay_out(&p->rows, &launch->setting, plan, shape);
  (void)grad_lay_out(&p->columns, &launch->setting, plan, shape);
  p->rows.layout.exact = p->rows.layout.exact && p->columns.layout.exact;
  p->columns.layout.exact = p->rows.layout.exact;
  return launch_kernel(
      "gradient_symmetric", kernel_of(launch->setting.problem, shape),
      dim3(static_cast<unsigned>(*blocks), static_cast<unsigned>(shape->tiles)),
      dim3(static_cast<unsigned>(plan->warps * 32)), 0, launch->stream, *p);
}

static dfgnn_status symmetric_launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const grad_plan plan = plan_of(launch->setting.parameter);
  const grad_memory memory =
      grad_memory_of(&launch->setting, &plan, launch->workspace);
  const unsigned size = static_cast<unsigned>(dfgnn_dtype_size(problem->dtype));
  grad_both_params p;
  attend_shape shape;
  dfgnn_status status;
  int64_t blocks;
  if ((status = grad_fill(&p.rows, launch, &memory, 0)) ||
      (status = grad_fill(&p.columns, launch, &memory, 1)))
    return status;
  if (!grad_aligned(&p.rows, size) || !grad_aligned(&p.columns, size) ||
      !grad_usual_slope(&p.rows, problem) ||
      !grad_shape(&shape, &launch->setting, &plan))
    return grad_launch(launch, &plan);
  if ((status = grad_stats(&p.rows, plan.lanes, launch)) ||
      (problem->op == DFGNN_OP_AGNN &&
       (status =
            attend_inverse_norms(memory.norms, &p.rows.far[0],
                                 launch->setting.matrix->sources, launch))) ||
      (status = walk_both(&p, launch, &plan, &shape, &blocks)) ||
      !p.rows.totals)
    return status;
  return problem->op == DFGNN_OP_AGNN
             ? grad_totals(a->grad_beta, memory.totals, blocks * shape.tiles, 1,
                           launch)
             : grad_totals(a->grad_att, memory.totals, blocks,
                           problem->heads * problem->dim, launch);
}

DFGNN_FAMILIES(attention_cuda_backward_symmetric) = {
    {"cuda.attention.bwd.symmetric",
     "symmetric",
     "cuda",
     DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_AGNN) |
         DFGNN_BIT(DFGNN_OP_GATV2),
     DFGNN_BIT(DFGNN_PASS_BACKWARD),
     DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),
     1,
     1,
     0,
     0,
     0,
     0,
     {{"lanes", 3, {8, 16, 32}, {}},
      {"unroll", 2, {1, 2}, {}},
      {"rows", 2, {1, 2}, {}},
      {"span", 2, {ATTEND_ONCE, ATTEND_PIECE}, {"once", "piece"}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     symmetric_legal,
     symmetric_applicable,
     symmetric_workspace,
     symmetric_views,
     symmetric_prepare,
     NULL,
     symmetric_launch},
    DFGNN_FAMILIES_END};
