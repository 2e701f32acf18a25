/* backward_symmetric.c - gradients by one walk over a matrix that equals its
 * transpose: an edge is read once, and nothing is kept of it */
#include "kernels/attention/cuda/backward_symmetric.h"

#include "base/error.h"
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/operators.h"

enum { LANES, UNROLL, ROWS, SPAN, HEADS };

static grad_plan plan_of(const int *x) {
  return (grad_plan){.lanes = x[LANES],
                     .unroll = x[UNROLL],
                     .warps = x[SPAN] == SPAN_PIECE ? 8 : 4,
                     .rows = x[ROWS],
                     .heads = x[HEADS],
                     .span = (row_span)x[SPAN]};
}

/* A lane holds the rows of both walks at once, so it has room for half as many
 * features as in one. */
static int shape_of(lane_shape *shape, const dfgnn_problem *problem,
                    const grad_plan *plan) {
  return dfgnn__grad_shape(shape, problem, plan, plan->unroll * 2);
}

/* ---- applicability ------------------------------------------------------- */

static int symmetric_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 &&
         (x[UNROLL] == 1 || x[LANES] == 32 || (x[LANES] == 16 && !x[HEADS]));
}

static const char *symmetric_applicable(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  lane_shape shape;
  if (s->matrix->destinations != s->matrix->sources)
    return "the matrix is not square";
  const char *reason = dfgnn__grad_limits(s, &plan);
  if (reason)
    return reason;
  return shape_of(&shape, s->problem, &plan)
             ? NULL
             : "a lane would hold more features than registers can";
}

static size_t symmetric_workspace(const dfgnn_setting *s) {
  const grad_plan plan = plan_of(s->parameter);
  return dfgnn__grad_workspace(s, &plan);
}

static int symmetric_views(const dfgnn_setting *s,
                           dfgnn_view_request *requests) {
  const grad_plan plan = plan_of(s->parameter);
  return dfgnn__grad_views(&plan, requests);
}

/* ---- is it symmetric? ---------------------------------------------------- */

/* The rows of a transposed matrix are sorted, so a matrix whose rows are not
 * differs from its transpose, too. */
static dfgnn_status differs(int32_t *differ, const dfgnn_setting *s,
                            const dfgnn_view *transpose) {
  static const dfgnn_program program = {
      .source = "kernels/attention/cuda/backward_compare.cuh",
      .name = "dfgnn::compare_arrays"};
  const dfgnn_matrix *m = s->matrix;
  const int64_t words = (m->destinations + 1) * (m->offsets64 ? 2 : 1);
  compare_params p = {.pair = {{m->offsets, transpose->array[0], words},
                               {m->indices, transpose->array[1], m->edges}}};
  const dfgnn_grid grid = {.blocks = {(unsigned)s->device->units * 8},
                           .threads = 256};
  void *memory = NULL;
  dfgnn_status status = dfgnn__borrow(s->queue, &memory, sizeof *differ);
  p.differ = memory;
  if (!status)
    status = dfgnn__fill(s->queue, p.differ, 0, sizeof *differ);
  if (!status)
    status = dfgnn__launch_struct(s->queue, &program, grid, &p);
  if (!status)
    status = dfgnn__read(s->queue, differ, p.differ, sizeof *differ);
  dfgnn__give_back(s->queue, memory);
  return status;
}

static dfgnn_status symmetric_prepare(void **state, const dfgnn_setting *s,
                                      const dfgnn_view *const *views) {
  int32_t differ = 1;
  *state = NULL;
  dfgnn_status status = differs(&differ, s, views[0]);
  if (!status && differ)
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "the matrix is not its transpose, or the edges of a "
                         "row are not in order");
  return status;
}

/* ---- launch -------------------------------------------------------------- */

static dfgnn_status walk_both(grad_both_params *p, const dfgnn_launch *launch,
                              const grad_plan *plan, const lane_shape *shape,
                              int64_t *blocks) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int packed = dfgnn__grad_packed(&p->rows, problem) &&
                     dfgnn__grad_packed(&p->columns, problem);
  const row_constants k =
      dfgnn__row_constants(problem, shape, plan->unroll, packed);
  const dfgnn_program program =
      DFGNN_PROGRAM_OF("kernels/attention/cuda/backward_symmetric.cuh",
                       "dfgnn::gradient_symmetric", ROW_CONSTANTS, &k);
  *blocks = 0;
  p->columns.schedule = p->rows.schedule;
  p->rows.stats = NULL; /* no writing: other blocks read the stats */
  if (p->rows.schedule.units == 0)
    return DFGNN_OK;
  *blocks = dfgnn__grad_lay_out(&p->rows, &launch->setting, plan, shape);
  (void)dfgnn__grad_lay_out(&p->columns, &launch->setting, plan, shape);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)*blocks, (unsigned)shape->tiles},
                   .threads = (unsigned)plan->warps * 32,
                   .carveout = DFGNN_CARVEOUT_L1},
      p);
}

static dfgnn_status symmetric_launch(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const grad_plan plan = plan_of(launch->setting.parameter);
  const int vector = dfgnn__vector_width(problem);
  const grad_memory memory =
      dfgnn__grad_memory(&launch->setting, &plan, launch->workspace);
  grad_both_params p;
  lane_shape shape;
  dfgnn_status status;
  int64_t blocks;
  if ((status = dfgnn__grad_fill(&p.rows, launch, &memory, 0)) ||
      (status = dfgnn__grad_fill(&p.columns, launch, &memory, 1)))
    return status;
  if (!dfgnn__grad_aligned(&p.rows, problem, vector) ||
      !dfgnn__grad_aligned(&p.columns, problem, vector) ||
      !dfgnn__grad_usual_slope(&p.rows, problem) ||
      !shape_of(&shape, problem, &plan))
    return dfgnn__grad_launch(launch, &plan);
  if ((status = dfgnn__grad_stats(&p.rows, plan.lanes, vector, launch)) ||
      (DFGNN_HAS_NORMS(problem->op) &&
       (status =
            dfgnn__inverse_norms(memory.norms, &p.rows.far[0],
                                 launch->setting.matrix->sources, launch))) ||
      (status = walk_both(&p, launch, &plan, &shape, &blocks)) ||
      !p.rows.totals)
    return status;
  return DFGNN_HAS_NORMS(problem->op)
             ? dfgnn__grad_totals(a->grad_beta, memory.totals,
                                  blocks * shape.tiles, 1, launch)
             : dfgnn__grad_totals(a->grad_att, memory.totals, blocks,
                                  problem->heads * problem->dim, launch);
}

DFGNN_FAMILIES(attention_cuda_backward_symmetric) = {
    {.name = "cuda.attention.bwd.symmetric",
     .algorithm = "symmetric",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_AGNN) |
            DFGNN_BIT(DFGNN_OP_GATV2),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) |
               DFGNN_BIT(DFGNN_BF16),
     .revision = 1,
     .deterministic = 1,
     .parameters = {{"lanes", 3, {8, 16, 32}, {0}},
                    {"unroll", 2, {1, 2}, {0}},
                    {"rows", 2, {1, 2}, {0}},
                    DFGNN_SPAN_PIECE,
                    DFGNN_HEADS(2)},
     .legal = symmetric_legal,
     .applicable = symmetric_applicable,
     .workspace = symmetric_workspace,
     .views = symmetric_views,
     .prepare = symmetric_prepare,
     .launch = symmetric_launch},
    DFGNN_FAMILIES_END};
