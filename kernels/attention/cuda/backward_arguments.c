/* backward_arguments.c - memory and arguments of the walks of backward */
#include "base/error.h"
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/operators.h"

/* ---- memory -------------------------------------------------------------- */

/* The size of the parts of the parameters' gradients that the blocks of a walk
 * leave. */
static int64_t totals_count(const dfgnn_setting *s, const grad_plan *plan) {
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

grad_memory dfgnn__grad_memory(const dfgnn_setting *s, const grad_plan *plan,
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
  if (plan->item_edges) { /* two partial results a cut: see row_of_unit() */
    const int64_t slots = matrix->edges / plan->item_edges * 2 * heads;
    m.partial = dfgnn__part(&m.bytes, workspace,
                            slots * problem->dim * GRAD_SUMS(op, 1), size);
    if (DFGNN_HAS_SCALARS(op))
      m.partial_scalar = dfgnn__part(&m.bytes, workspace, slots, size);
  }
  return m;
}

size_t dfgnn__grad_workspace(const dfgnn_setting *s, const grad_plan *plan) {
  return dfgnn__grad_memory(s, plan, NULL).bytes;
}

/* ---- tensors ------------------------------------------------------------- */

dfgnn_status dfgnn__grad_tensors(grad_params *p, const dfgnn_launch *launch,
                                 int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int gt = DFGNN_HAS_KEY(problem->op),
            gat = DFGNN_HAS_SCALARS(problem->op);
  tensor_view query, key, value, grad_out, grad_query, grad_key, grad_value;
  const tensor_view none = {0};
  dfgnn_status status;
  if ((status = dfgnn__view_tensor(&query, "query", gat ? NULL : a->query,
                                   &a->query_strides, size)) ||
      (status = dfgnn__view_tensor(&key, "key", gt ? a->key : NULL,
                                   &a->key_strides, size)) ||
      (status = dfgnn__view_tensor(&value, "value", a->value, &a->value_strides,
                                   size)) ||
      (status =
           dfgnn__view_tensor(&p->out, "out", a->out, &a->out_strides, size)) ||
      (status = dfgnn__view_tensor(&grad_out, "grad_out", a->grad_out,
                                   &a->grad_out_strides, size)) ||
      (status = dfgnn__view_tensor(&grad_query, "grad_query",
                                   gat ? NULL : a->grad_query,
                                   &a->grad_query_strides, size)) ||
      (status =
           dfgnn__view_tensor(&grad_key, "grad_key", gt ? a->grad_key : NULL,
                              &a->grad_key_strides, size)) ||
      (status = dfgnn__view_tensor(&grad_value, "grad_value", a->grad_value,
                                   &a->grad_value_strides, size)))
    return status;
  const tensor_view destination[2] = {gat ? grad_out : query,
                                      gat ? none : grad_out};
  const tensor_view source[2] = {gt ? key : value, gt ? value : none};
  for (int t = 0; t < 2; t++) {
    p->own[t] = columns ? source[t] : destination[t];
    p->far[t] = columns ? destination[t] : source[t];
  }
  if (columns)
    p->out = none;
  p->to[0] = !columns ? grad_query : gt ? grad_key : grad_value;
  p->to[1] = columns && gt ? grad_value : none;
  return DFGNN_OK;
}

enum { TENSORS = 7 };

static void all_tensors(const tensor_view *views[TENSORS],
                        const grad_params *p) {
  const tensor_view *all[TENSORS] = {&p->own[0], &p->own[1], &p->far[0],
                                     &p->far[1], &p->to[0],  &p->to[1],
                                     &p->out};
  for (int i = 0; i < TENSORS; i++)
    views[i] = all[i];
}

int dfgnn__grad_aligned(const grad_params *p, const dfgnn_problem *problem,
                        int vector) {
  const tensor_view *views[TENSORS];
  int aligned = problem->dim % vector == 0;
  all_tensors(views, p);
  for (int i = 0; i < TENSORS; i++)
    aligned = aligned && dfgnn__view_aligned(views[i], problem->heads, vector,
                                             dfgnn_dtype_size(problem->dtype));
  return aligned;
}

int dfgnn__grad_packed(const grad_params *p, const dfgnn_problem *problem) {
  const tensor_view *views[TENSORS];
  int packed = 1;
  all_tensors(views, p);
  for (int i = 0; i < TENSORS; i++)
    packed =
        packed && dfgnn__view_packed(views[i], problem->heads, problem->dim,
                                     dfgnn_dtype_size(problem->dtype));
  return packed;
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
