/* backward_arguments.c - memory and arguments of the walks of backward */
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/operators.h"
#include "lib/base/error.h"

/* ---- memory -------------------------------------------------------------- */

/* The size of the parts of the parameters' gradients that the blocks of a walk
 * leave. */
static int64_t totals_count(const dfgnn_setting *s, const row_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  int64_t units = s->matrix->destinations;
  if (plan->item_edges)
    units += s->matrix->edges / plan->item_edges;
  int64_t blocks = dfgnn__resident(s, plan->warps);
  if (blocks > units)
    blocks = units > 0 ? units : 1;
  return blocks * problem->heads *
         (DFGNN_HAS_NORMS(problem->op) ? 1 : problem->dim);
}

grad_memory dfgnn__grad_memory(const dfgnn_setting *s, const row_plan *plan,
                               void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const dfgnn_matrix *matrix = s->matrix;
  const dfgnn_op op = problem->op;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const int64_t heads = problem->heads;
  grad_memory m = {0};
  m.stats = dfgnn__part(&m.bytes, workspace,
                        matrix->destinations * heads * GRAD_STATS(op), size);
  if (DFGNN_HAS_NORMS(op))
    m.norms = dfgnn__part(&m.bytes, workspace, matrix->sources * heads, size);
  if (plan->spill)
    m.spill = dfgnn__part(&m.bytes, workspace, matrix->edges * heads, size);
  if (DFGNN_HAS_PARAMETERS(op))
    m.totals = dfgnn__part(&m.bytes, workspace, totals_count(s, plan), size);
  const int64_t slots = dfgnn__row_slots(s, plan) * heads;
  m.partial = dfgnn__part(&m.bytes, workspace,
                          slots * problem->dim * GRAD_SUMS(op, 1), size);
  if (DFGNN_HAS_SCALARS(op))
    m.partial_scalar = dfgnn__part(&m.bytes, workspace, slots, size);
  return m;
}

size_t dfgnn__grad_workspace(const dfgnn_setting *s, const row_plan *plan) {
  return dfgnn__grad_memory(s, plan, NULL).bytes;
}

/* ---- tensors ------------------------------------------------------------- */

dfgnn_status dfgnn__grad_tensors(grad_params *p, const dfgnn_launch *launch,
                                 int columns) {
  const dfgnn_op op = launch->setting.problem->op;
  const int gt = DFGNN_HAS_KEY(op), gat = DFGNN_HAS_SCALARS(op);
  const tensor_view none = {0};
  attention_tensors t;
  DFGNN_TRY(dfgnn__tensors(&t, launch));
  const tensor_view destination[2] = {gat ? t.grad_out : t.query,
                                      gat ? none : t.grad_out};
  const tensor_view source[2] = {gt ? t.key : t.value, gt ? t.value : none};
  for (int i = 0; i < 2; i++) {
    p->own[i] = columns ? source[i] : destination[i];
    p->far[i] = columns ? destination[i] : source[i];
  }
  p->out = columns ? none : t.out;
  p->to[0] = !columns ? t.grad_query : gt ? t.grad_key : t.grad_value;
  p->to[1] = columns && gt ? t.grad_value : none;
  return DFGNN_OK;
}

#define ALL_TENSORS(p)                                                         \
  {                                                                            \
    &(p)->own[0], &(p)->own[1], &(p)->far[0], &(p)->far[1], &(p)->to[0],       \
        &(p)->to[1], &(p)->out                                                 \
  }
enum { TENSORS = 7 };

int dfgnn__grad_aligned(const grad_params *p, const dfgnn_problem *problem,
                        int vector) {
  const tensor_view *const views[TENSORS] = ALL_TENSORS(p);
  return dfgnn__views_aligned(views, TENSORS, problem, vector);
}

int dfgnn__grad_packed(const grad_params *p, const dfgnn_problem *problem) {
  const tensor_view *const views[TENSORS] = ALL_TENSORS(p);
  return dfgnn__views_packed(views, TENSORS, problem);
}

/* ---- a walk -------------------------------------------------------------- */

dfgnn_status dfgnn__grad_fill(grad_params *p, const dfgnn_launch *launch,
                              const grad_memory *memory, int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const int gat = DFGNN_HAS_SCALARS(problem->op);
  dfgnn_matrix matrix = *launch->setting.matrix;
  if (columns)
    matrix = dfgnn__transposed(&matrix, launch->views[0]);
  if (matrix.max_degree > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "a column has %lld edges, expected below 2^31",
                       (long long)matrix.max_degree);
  *p = (grad_params){.schedule = dfgnn__schedule_rows(&matrix),
                     .heads = (int)problem->heads,
                     .dim = (int)problem->dim,
                     .lse = a->lse,
                     .grad_lse = columns ? NULL : a->grad_lse,
                     .stats = memory->stats,
                     .att = a->att,
                     .beta = a->beta,
                     .edge_of = columns ? launch->views[0]->array[2] : NULL,
                     .bias = a->bias,
                     .grad_bias = columns ? NULL : a->grad_bias,
                     .adds = problem->accumulate && !columns,
                     .dropout = dfgnn__dropout_params(problem, a),
                     .partial = memory->partial,
                     .partial_scalar = memory->partial_scalar,
                     .scale = a->scale,
                     .slope = a->slope};
  if (gat) {
    p->own_scalar = columns ? a->score_src : a->score_dst;
    p->far_scalar = columns ? NULL : a->score_src;
    p->to_scalar = columns ? a->grad_score_src : a->grad_score_dst;
  } else if (!columns) {
    p->far_scalar = memory->norms;
    p->totals = DFGNN_HAS_NORMS(problem->op) ? a->grad_beta : a->grad_att;
    if (p->totals)
      p->totals = memory->totals;
  }
  return dfgnn__grad_tensors(p, launch, columns);
}
