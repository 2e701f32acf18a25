/* backward_red.c - gradients by one walk over rows, which adds those of keys
 * and values to memory by atomic operations: it needs no transposed matrix, but
 * their sums have no fixed order */
#include "kernels/attention/cuda/backward_red.h"

#include "kernels/attention/cuda/backward_plans.h"

static const char plain_source[] =
    "kernels/attention/cuda/backward_red_plain.cuh";

enum { LANES, UNROLL, ROWS, SPAN, HEADS };

static grad_plan plan_of(const int *x) {
  return (grad_plan){.lanes = x[LANES],
                     .unroll = x[UNROLL],
                     .warps = x[SPAN] == SPAN_PIECE ? 8 : 4,
                     .rows = x[ROWS],
                     .heads = x[HEADS],
                     .span = (row_span)x[SPAN]};
}

static int red_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 &&
         (x[UNROLL] == 2 || (x[LANES] >= 16 && !x[HEADS]));
}

static const char *red_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  const char *reason = dfgnn__grad_limits(s, &plan);
  lane_shape shape;
  if (reason || (plan.lanes == 32 && plan.unroll == 2 && !plan.heads &&
                 plan.span == SPAN_ONCE)) /* gradient_red_plain() stands in */
    return reason;
  return dfgnn__grad_shape(&shape, s->problem, &plan, plan.unroll)
             ? NULL
             : "a lane would hold more features than registers can";
}

/* Accumulators of 16-bit gradients, [M,H,D] each. */
typedef struct red_memory {
  float *key, *value;
  size_t bytes;
} red_memory;

static red_memory memory_of(const dfgnn_setting *s, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const int64_t count = s->matrix->sources * problem->heads * problem->dim;
  if (problem->dtype == DFGNN_F32)
    return (red_memory){0};
  red_memory m = {0};
  m.key = dfgnn__part(&m.bytes, workspace, count, sizeof(float));
  m.value = dfgnn__part(&m.bytes, workspace, count, sizeof(float));
  return m;
}

static size_t red_workspace(const dfgnn_setting *s) {
  return memory_of(s, NULL).bytes;
}

/* ---- launch -------------------------------------------------------------- */

/* Stores accumulators as the gradient `to`; zeros if from is NULL. */
static dfgnn_status store_rows(const tensor_view *to, const float *from,
                               const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int64_t nodes = launch->setting.matrix->sources;
  const dfgnn_program program = DFGNN_PROGRAM(plain_source, "dfgnn::red_rows",
                                              DFGNN_TYPE(problem->dtype));
  const red_rows_params p = {.to = *to,
                             .from = from,
                             .count = nodes * problem->heads * problem->dim,
                             .heads = (int)problem->heads,
                             .dim = (int)problem->dim};
  const int64_t most = (int64_t)launch->setting.device->units * 16;
  const int64_t blocks = dfgnn__ceil_div(p.count, 256);
  if (p.count == 0)
    return DFGNN_OK;
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)(blocks < most ? blocks : most)},
                   .threads = 256},
      &p);
}

/* Clears the sums that the walk adds to: the gradient itself, or its
 * accumulators. */
static dfgnn_status clear_sums(tensor_view *sums, const tensor_view *gradient,
                               float *accumulators,
                               const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int64_t nodes = launch->setting.matrix->sources;
  const unsigned head = (unsigned)(problem->dim * (int64_t)sizeof(float));
  const tensor_view dense = {.data = accumulators,
                             .node_bytes = head * (unsigned)problem->heads,
                             .head_bytes = head,
                             .feature_bytes = sizeof(float)};
  *sums = (tensor_view){0};
  if (!gradient->data)
    return DFGNN_OK;
  *sums = accumulators ? dense : *gradient;
  if (!accumulators && (gradient->node_bytes != dense.node_bytes ||
                        !dfgnn__view_packed(gradient, problem->heads,
                                            problem->dim, sizeof(float))))
    return store_rows(gradient, NULL, launch);
  return dfgnn__fill(launch->setting.queue, (void *)sums->data, 0,
                     (size_t)nodes * dense.node_bytes);
}

static dfgnn_status walk_plain(const grad_red_params *p,
                               const dfgnn_launch *launch) {
  enum { WARPS = 4 };
  const dfgnn_program program =
      DFGNN_PROGRAM(plain_source, "dfgnn::gradient_red_plain",
                    DFGNN_TYPE(launch->setting.problem->dtype));
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){
          .blocks = {(unsigned)dfgnn__ceil_div(p->rows.schedule.units, WARPS),
                     (unsigned)p->rows.heads},
          .threads = WARPS * 32,
          .shared = (unsigned)sizeof(float) * WARPS * (unsigned)p->rows.dim},
      p);
}

static dfgnn_status walk(grad_red_params *p, const dfgnn_launch *launch,
                         int aligned, int packed) {
  const dfgnn_setting *s = &launch->setting;
  const dfgnn_problem *problem = s->problem;
  const grad_plan plan = plan_of(s->parameter);
  lane_shape shape;
  if (p->rows.schedule.units == 0)
    return DFGNN_OK;
  if (!aligned || !dfgnn__grad_shape(&shape, problem, &plan, plan.unroll))
    return walk_plain(p, launch);
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/attention/cuda/backward_red.cuh",
                    "dfgnn::gradient_red", DFGNN_TYPE(problem->dtype),
                    shape.vector, shape.lanes, (int)problem->heads,
                    (int)problem->dim, shape.tile_heads, packed, plan.unroll);
  const int64_t blocks = dfgnn__grad_lay_out(&p->rows, s, &plan, &shape);
  return dfgnn__launch_struct(
      s->queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks, (unsigned)shape.tiles},
                   .threads = (unsigned)plan.warps * 32,
                   .carveout = DFGNN_CARVEOUT_L1},
      p);
}

static dfgnn_status red_launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int vector = dfgnn__vector_width(problem);
  const red_memory memory = memory_of(&launch->setting, launch->workspace);
  const grad_memory none = {0};
  grad_red_params p;
  grad_params columns = {0};
  dfgnn_status status;
  if ((status = dfgnn__grad_fill(&p.rows, launch, &none, 0)) ||
      (status = dfgnn__grad_tensors(&columns, launch, 1)) ||
      (status = clear_sums(&p.key, &columns.to[0], memory.key, launch)) ||
      (status = clear_sums(&p.value, &columns.to[1], memory.value, launch)))
    return status;
  status = walk(&p, launch,
                dfgnn__grad_aligned(&p.rows, problem, vector) &&
                    dfgnn__grad_aligned(&columns, problem, vector),
                dfgnn__grad_packed(&p.rows, problem));
  if (!status && memory.key && columns.to[0].data)
    status = store_rows(&columns.to[0], memory.key, launch);
  if (!status && memory.value && columns.to[1].data)
    status = store_rows(&columns.to[1], memory.value, launch);
  return status;
}

DFGNN_FAMILIES(attention_cuda_backward_red) = {
    {.name = "cuda.attention.bwd.red",
     .algorithm = "red",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_GT),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) |
               DFGNN_BIT(DFGNN_BF16),
     .revision = 1,
     .parameters = {{.name = "lanes", .count = 3, .values = {8, 16, 32}},
                    {.name = "unroll", .count = 2, .values = {2, 4}},
                    {.name = "rows", .count = 2, .values = {1, 2}},
                    {.name = "span",
                     .count = 2,
                     .values = {SPAN_ONCE, SPAN_PIECE},
                     .labels = {"once", "piece"}},
                    {.name = "heads",
                     .count = 2,
                     .values = {HEADS_GRID, HEADS_WARP},
                     .labels = {"grid", "warp"}}},
     .legal = red_legal,
     .applicable = red_applicable,
     .workspace = red_workspace,
     .launch = red_launch},
    DFGNN_FAMILIES_END};
