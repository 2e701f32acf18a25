/* backward_red.cu - gradients by one walk over rows, those of keys and
 * values by additions in memory: no transposed matrix, no order of sums */
#include "kernels/attention/cuda/backward_red.h"
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
  static grad_red_finder *const find[] = {grad_red_f32, grad_red_f16,
                                          grad_red_bf16};
  return find[problem->dtype](s->lanes, s->vectors, s->unroll, s->several);
}

static int red_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 &&
         (x[UNROLL] == 2 || (x[LANES] >= 16 && !x[HEADS]));
}

static const char *red_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  attend_shape shape;
  if (const char *reason = grad_limits(s, &plan))
    return reason;
  if (grad_odd(s->problem))
    return plan.lanes == 32 && plan.unroll == 2 && !plan.several &&
                   plan.span == ATTEND_ONCE
               ? nullptr
               : "this width has one setting";
  if (!grad_shape(&shape, s, &plan) || !kernel_of(s->problem, &shape))
    return "no instance of this width";
  return nullptr;
}

/* Accumulators of 16-bit gradients, [M,H,D] each. */
struct red_memory {
  float *key, *value;
  size_t bytes;
};

static red_memory memory_of(const dfgnn_setting *s, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const int64_t count = s->matrix->sources * problem->heads * problem->dim;
  grad_memory parts = {};
  red_memory m = {};
  if (problem->dtype == DFGNN_F32)
    return m;
  char *base = static_cast<char *>(workspace);
  m.key =
      reinterpret_cast<float *>(grad_part(&parts, base, count, sizeof(float)));
  m.value =
      reinterpret_cast<float *>(grad_part(&parts, base, count, sizeof(float)));
  m.bytes = parts.bytes;
  return m;
}

static size_t red_workspace(const dfgnn_setting *s) {
  return memory_of(s, nullptr).bytes;
}

static dfgnn_status red_prepare(void **state, const dfgnn_setting *s,
                                const dfgnn_view *const *) {
  const grad_plan plan = plan_of(s->parameter);
  attend_shape shape;
  *state = NULL;
  /* A hint: if it is refused, the kernel still runs. */
  if (!grad_odd(s->problem) && grad_shape(&shape, s, &plan) &&
      cudaFuncSetAttribute(kernel_of(s->problem, &shape),
                           cudaFuncAttributePreferredSharedMemoryCarveout,
                           0) != cudaSuccess)
    (void)cudaGetLastError();
  return DFGNN_OK;
}

/* ---- launch -------------------------------------------------------------- */

/* Zeros what the walk adds to: the gradient itself, or accumulators of it. */
static dfgnn_status clear_sums(tensor_view *sums, const tensor_view *gradient,
                               float *accumulators,
                               const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int64_t nodes = launch->setting.matrix->sources;
  const unsigned head = static_cast<unsigned>(problem->dim * sizeof(float));
  const tensor_view dense = {accumulators,
                             head * static_cast<unsigned>(problem->heads), head,
                             sizeof(float)};
  *sums = tensor_view{};
  if (!gradient->data)
    return DFGNN_OK;
  *sums = accumulators ? dense : *gradient;
  if (!accumulators &&
      (gradient->node_bytes != dense.node_bytes ||
       gradient->feature_bytes != dense.feature_bytes ||
       (problem->heads > 1 && gradient->head_bytes != dense.head_bytes)))
    return grad_red_rows(gradient, nullptr, nodes, launch);
  DFGNN_CUDA_TRY(cudaMemsetAsync(const_cast<void *>(sums->data), 0,
                                 size_t(nodes) * dense.node_bytes,
                                 static_cast<cudaStream_t>(launch->stream)));
  return DFGNN_OK;
}

static dfgnn_status walk_plain(const grad_red_params *p,
                               const dfgnn_launch *launch) {
  const int warps = 4;
  const int64_t blocks = (int64_t(p->rows.schedule.units) + warps - 1) / warps;
  return launch_kernel("gradient_red_plain",
                       grad_red_plain_kernel(launch->setting.problem->dtype),
                       dim3(static_cast<unsigned>(blocks),
                            static_cast<unsigned>(p->rows.layout.heads)),
                       dim3(warps * 32),
                       sizeof(float) * warps * size_t(p->rows.layout.dim),
                       launch->stream, *p);
}

static dfgnn_status walk(grad_red_params *p, const dfgnn_launch *launch,
                         int aligned) {
  const dfgnn_setting *s = &launch->setting;
  const grad_plan plan = plan_of(s->parameter);
  attend_shape shape;
  if (p->rows.schedule.units == 0)
    return DFGNN_OK;
  if (!aligned || grad_odd(s->problem) || !grad_shape(&shape, s, &plan))
    return walk_plain(p, launch);
  const int64_t blocks = grad_lay_out(&p->rows, s, &plan, &shape);
  return launch_kernel(
      "gradient_red", kernel_of(s->problem, &shape),
      dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(shape.tiles)),
      dim3(static_cast<unsigned>(plan.warps * 32)), 0, launch->stream, *p);
}

static dfgnn_status red_launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const unsigned size = static_cast<unsigned>(dfgnn_dtype_size(problem->dtype));
  const int64_t nodes = launch->setting.matrix->sources;
  const red_memory memory = memory_of(&launch->setting, launch->workspace);
  const grad_memory none = {};
  grad_red_params p;
  grad_params columns = {};
  dfgnn_status status;
  if ((status = grad_fill(&p.rows, launch, &none, 0)) ||
      (status = grad_tensors(&columns, launch, 1)) ||
      (status = clear_sums(&p.key, &columns.to[0], memory.key, launch)) ||
      (status = clear_sums(&p.value, &columns.to[1], memory.value, launch)))
    return status;
  const int aligned =
      grad_aligned(&p.rows, size) && grad_aligned(&columns, size);
  status = walk(&p, launch, aligned);
  if (!status && memory.key && columns.to[0].data)
    status = grad_red_rows(&columns.to[0], memory.key, nodes, launch);
  if (!status && memory.value && columns.to[1].data)
    status = grad_red_rows(&columns.to[1], memory.value, nodes, launch);
  return status;
}

DFGNN_FAMILIES(attention_cuda_backward_red) = {
    {"cuda.attention.bwd.red",
     "red",
     "cuda",
     DFGNN_BIT(DFGNN_OP_GT),
     DFGNN_BIT(DFGNN_PASS_BACKWARD),
     DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),
     1,
     0,
     0,
     0,
     0,
     0,
     {{"lanes", 3, {8, 16, 32}, {}},
      {"unroll", 2, {2, 4}, {}},
      {"rows", 2, {1, 2}, {}},
      {"span", 2, {ATTEND_ONCE, ATTEND_PIECE}, {"once", "piece"}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     red_legal,
     red_applicable,
     red_workspace,
     NULL,
     red_prepare,
     NULL,
     red_launch},
    DFGNN_FAMILIES_END};
