/* edges_items.c - rows cut into items whose partial results are merged, for the
 * kernels with edge features; see edges_plans.h */
#include "kernels/attention/cuda/attend_launch.h"
#include "kernels/attention/cuda/backward_plans.h"
#include "kernels/attention/cuda/edges_plans.h"

/* ---- applicability ------------------------------------------------------- */

/* A warp walks a whole row.  A row of more edges than these, which is also more
 * than the share of each of 4 warps a multiprocessor, is left to the variants
 * that cut rows. */
enum { LONG_ROW = 4096 };

/* Edges of the longest row or column that a pass walks over; the longest column
 * may be unknown, 0. */
static int64_t longest_of(const dfgnn_setting *s) {
  const int64_t row = s->matrix->max_degree;
  if (s->problem->pass == DFGNN_PASS_FORWARD)
    return row;
  const int64_t column = s->signature->max_source_degree;
  return column > row ? column : row;
}

const char *dfgnn__edges_items_refusal(const dfgnn_setting *s, int item_edges) {
  const int64_t longest = longest_of(s);
  const char *reason = dfgnn__units_refusal(s, item_edges);
  if (reason)
    return reason;
  if (item_edges)
    return longest <= item_edges ? "no row is longer than an item" : NULL;
  if (longest > LONG_ROW && longest * 4 * s->device->units > s->matrix->edges &&
      s->problem->max_workspace < 0)
    return "one warp would walk a row of thousands of edges; variants that cut "
           "rows share it out";
  return NULL;
}

/* ---- memory and views ---------------------------------------------------- */

int64_t dfgnn__edges_units(const dfgnn_setting *s, int item_edges) {
  return s->matrix->destinations +
         (item_edges ? s->matrix->edges / item_edges : 0);
}

int64_t dfgnn__edges_partial(const dfgnn_setting *s, int item_edges,
                             int tensors) {
  return dfgnn__slots(s->matrix, item_edges) * tensors * s->problem->heads *
         s->problem->dim;
}

int64_t dfgnn__edges_partial_state(const dfgnn_setting *s, int item_edges) {
  return dfgnn__slots(s->matrix, item_edges) * s->problem->heads * 2;
}

/* ---- forward ------------------------------------------------------------- */

int dfgnn__edges_forward_mode(const dfgnn_launch *launch, int item_edges) {
  const dfgnn_problem *problem = launch->setting.problem;
  return (problem->bias ? EDGE_BIAS : 0) |
         (launch->args->dropout > 0 ? EDGE_DROPOUT : 0) |
         (problem->weights ? EDGE_WEIGHTS : 0) | (item_edges ? EDGE_ITEMS : 0);
}

size_t dfgnn__edges_forward_memory(edges_params *p, const dfgnn_setting *s,
                                   int item_edges, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const int64_t pairs =
      problem->weights ? s->matrix->destinations * problem->heads : 0;
  size_t bytes = 0;
  void *lse = dfgnn__part(&bytes, workspace, pairs, size);
  void *state = dfgnn__part(&bytes, workspace,
                            dfgnn__edges_partial_state(s, item_edges), size);
  void *partial = dfgnn__part(&bytes, workspace,
                              dfgnn__edges_partial(s, item_edges, 1), size);
  if (!p)
    return bytes;
  if (problem->weights && !p->lse) /* the caller has none */
    p->lse = lse;
  p->partial_state = state;
  p->partial = partial;
  return bytes;
}

dfgnn_status dfgnn__edges_forward_finish(const edges_params *p,
                                         const dfgnn_view *items,
                                         const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const attend_params m = {.schedule = p->schedule,
                           .partial = p->partial,
                           .partial_state = p->partial_state,
                           .out = p->out,
                           .lse = p->lse};
  dfgnn_status status = DFGNN_OK;
  if (items && p->schedule.units)
    status = dfgnn__attend_merge(&m, problem->dim, items, launch);
  return status || !problem->weights
             ? status
             : dfgnn__attend_weights(p->weights, p->lse, launch);
}

/* ---- backward ------------------------------------------------------------ */

dfgnn_status dfgnn__edges_merge_gradients(const edges_params *p, int columns,
                                          const tensor_view *to, int tensors,
                                          void *to_scalar,
                                          const dfgnn_view *items,
                                          const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  grad_params g = {.schedule = p->schedule,
                   .heads = (int)problem->heads,
                   .dim = (int)problem->dim,
                   .to_scalar = to_scalar,
                   .partial = p->partial,
                   .partial_scalar = p->partial_state,
                   .adds = problem->accumulate && !columns};
  for (int t = 0; t < tensors; t++)
    g.to[t] = to[t];
  return dfgnn__grad_merge(&g, tensors, items, launch);
}
