/* backward_red.c - gradients by one walk over rows, which adds those of keys
 * and values to memory by atomic operations: it needs no transposed matrix and
 * no workspace, but their sums have no fixed order */
#include "kernels/attention/cuda/backward_red.h"

#include "kernels/attention/cuda/backward_plans.h"

static const char source[] = "kernels/attention/cuda/backward_red.cuh";

enum { LANES, UNROLL, ROWS, SPAN, HEADS };

static row_plan plan_of(const int *x) {
  return (row_plan){.lanes = x[LANES],
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
  const row_plan plan = plan_of(s->parameter);
  const char *reason = dfgnn__row_limits(s, &plan);
  lane_shape shape;
  if (reason || (plan.lanes == 32 && plan.unroll == 2 && !plan.heads &&
                 plan.span == SPAN_ONCE)) /* dfgnn__row_narrow() stands in */
    return reason;
  return dfgnn__row_shape(&shape, s->problem, &plan, plan.unroll)
             ? NULL
             : "a lane would hold more features than registers can";
}

/* ---- launch -------------------------------------------------------------- */

/* Sets a gradient to 0 before the walk adds to it. */
static dfgnn_status clear(const tensor_view *to, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int64_t row = problem->heads * problem->dim;
  const int64_t count = launch->setting.matrix->sources * row;
  const dfgnn_program program = {.source = source, .name = "dfgnn::red_clear"};
  const red_clear_params p = {.to = *to,
                              .count = count,
                              .heads = (int)problem->heads,
                              .dim = (int)problem->dim};
  const int64_t most = (int64_t)launch->setting.device->units * 16;
  const int64_t blocks = dfgnn__ceil_div(count, 256);
  if (!to->data || count == 0)
    return DFGNN_OK;
  if (to->node_bytes == row * (int64_t)sizeof(float) &&
      dfgnn__view_packed(to, problem->heads, problem->dim, sizeof(float)))
    return dfgnn__fill(launch->setting.queue, (void *)to->data, 0,
                       (size_t)count * sizeof(float));
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)(blocks < most ? blocks : most)},
                   .threads = 256},
      &p);
}

static dfgnn_status walk(grad_red_params *p, const dfgnn_launch *launch,
                         int vector) {
  const dfgnn_setting *s = &launch->setting;
  const dfgnn_problem *problem = s->problem;
  row_plan plan = plan_of(s->parameter);
  lane_shape shape;
  if (p->rows.schedule.units == 0)
    return DFGNN_OK;
  dfgnn__row_lanes(&shape, &plan, problem, vector);
  const row_constants k = dfgnn__row_constants(
      problem, &shape, plan.unroll, dfgnn__grad_packed(&p->rows, problem));
  const dfgnn_program program =
      DFGNN_PROGRAM_OF(source, "dfgnn::gradient_red", ROW_CONSTANTS, &k);
  const dfgnn_grid grid = dfgnn__grad_grid(&p->rows, s, &plan, &shape);
  return dfgnn__launch_struct(s->queue, &program, grid, p);
}

static dfgnn_status red_launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const grad_memory none = {0};
  grad_red_params p;
  grad_params columns = {0};
  dfgnn_status status;
  if ((status = dfgnn__grad_fill(&p.rows, launch, &none, 0)) ||
      (status = dfgnn__grad_tensors(&columns, launch, 1)) ||
      (status = clear(&columns.to[0], launch)) ||
      (status = clear(&columns.to[1], launch)))
    return status;
  p.key = columns.to[0];
  p.value = columns.to[1];
  return walk(&p, launch, dfgnn__grad_vector(&p.rows, &columns, problem));
}

DFGNN_FAMILIES(attention_cuda_backward_red) = {
    {.name = "cuda.attention.bwd.red",
     .algorithm = "red",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_GT),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_BIT(DFGNN_F32),
     .revision = 1,
     .parameters = {{"lanes", 3, {8, 16, 32}, {0}},
                    {"unroll", 2, {2, 4}, {0}},
                    {"rows", 2, {1, 2}, {0}},
                    DFGNN_SPAN_PIECE,
                    DFGNN_HEADS(2)},
     .legal = red_legal,
     .applicable = red_applicable,
     .launch = red_launch},
    DFGNN_FAMILIES_END};
