/* reorder_plan.c - plans whose features are reordered inside
 *
 * The plan of the reordered graph runs on copies of the tensors, which lie
 * behind its own workspace. */
#include <stdlib.h>

#include "lib/base/error.h"
#include "lib/move.h"
#include "lib/reorder.h"

#define ALIGN(x) (((x) + 255) / 256 * 256)

static int moved(const dfgnn_tensor *t, const dfgnn_problem *problem,
                 const dfgnn_reordered *r) {
  uint32_t dims = DFGNN_DIM_N | DFGNN_DIM_E | (r->columns ? DFGNN_DIM_M : 0);
  return t->shape & dims && dfgnn__tensor_used(t, problem);
}

static size_t bytes_of(const dfgnn_tensor *t, const dfgnn_plan *plan) {
  const dfgnn_matrix *m = &plan->graph->matrix;
  int64_t elements = dfgnn__tensor_elements(t, &plan->problem, m->destinations,
                                            m->sources, m->edges);
  return ALIGN((size_t)elements *
               dfgnn__tensor_element_size(t, &plan->problem));
}

dfgnn_status dfgnn__reordered_plan(dfgnn_plan **out, dfgnn_graph *graph,
                                   dfgnn_plan *inner) {
  dfgnn_plan *plan = dfgnn__plan_make(graph, &inner->problem);
  if (!plan)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  plan->variant = inner->variant;
  plan->choice = inner->choice;
  plan->inner = inner;
  plan->workspace = ALIGN(inner->workspace);
  for (const dfgnn_tensor *t = plan->op->tensors; t->name; t++)
    if (moved(t, &plan->problem, graph->reordered))
      plan->workspace += bytes_of(t, plan);
  *out = plan;
  return DFGNN_OK;
}

static int64_t heads_of(const dfgnn_tensor *t, const dfgnn_problem *p) {
  return t->shape & DFGNN_DIM_H ? p->heads : 1;
}

static int64_t dim_of(const dfgnn_tensor *t, const dfgnn_problem *p) {
  return dfgnn__tensor_width(t, p) / heads_of(t, p);
}

static dfgnn_strides dense(const dfgnn_tensor *t, const dfgnn_problem *p) {
  int64_t heads = heads_of(t, p), dim = dim_of(t, p);
  int ndh = p->layout == DFGNN_LAYOUT_NDH;
  return (dfgnn_strides){
      .node = heads * dim, .head = ndh ? 1 : dim, .feature = ndh ? heads : 1};
}

/* Moves rows between the caller's tensor and its copy in the inner graph's
 * order; back: to the caller. */
static dfgnn_status move(const dfgnn_plan *plan, const dfgnn_tensor *t,
                         const dfgnn_args *args, void *copy, int back,
                         void *stream) {
  const dfgnn_reordered *r = plan->graph->reordered;
  const dfgnn_matrix *m = &plan->graph->matrix;
  const dfgnn_problem *p = &plan->problem;
  void *theirs = *dfgnn__tensor_slot(t, (dfgnn_args *)args);
  dfgnn_strides ours = dense(t, p), strides = ours;
  if (t->strides)
    strides = *(const dfgnn_strides *)((const char *)args + t->strides);
  dfgnn_move x = {.to = back ? theirs : copy,
                  .from = back ? copy : theirs,
                  .to_strides = back ? strides : ours,
                  .from_strides = back ? ours : strides,
                  .scatter = back,
                  .heads = heads_of(t, p),
                  .dim = dim_of(t, p),
                  .element = dfgnn__tensor_element_size(t, p)};
  if (t->shape & DFGNN_DIM_N) {
    x.rows = m->destinations;
    x.order = r->device_rows;
  } else if (t->shape & DFGNN_DIM_M) {
    x.rows = m->sources;
    x.order = r->device_columns;
  } else {
    x.rows = m->edges;
    x.order = r->inner->edge_order;
    x.wide = m->edges > INT32_MAX;
  }
  dfgnn__move_widen(&x);
  return plan->ctx->backend->move(plan->ctx->device, &x, stream);
}

/* The first copy of a tensor in a plan's workspace. */
static char *first_copy(const dfgnn_plan *plan, void *workspace) {
  return (char *)workspace + ALIGN(plan->inner->workspace);
}

dfgnn_status dfgnn__reordered_gather(dfgnn_args *inner_args,
                                     const dfgnn_plan *plan,
                                     const dfgnn_args *args, void *workspace,
                                     void *stream) {
  char *copy = first_copy(plan, workspace);
  dfgnn_status status = DFGNN_OK;
  if (args->edge_number && plan->problem.dropout)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "args.edge_number is given, but the graph is reordered "
                       "inside, expected NULL");
  *inner_args = *args;
  for (const dfgnn_tensor *t = plan->op->tensors; t->name && !status; t++) {
    void **slot = dfgnn__tensor_slot(t, inner_args);
    if (!moved(t, &plan->problem, plan->graph->reordered))
      continue;
    if (*slot) {
      if (dfgnn__role_reads(t->role) ||
          dfgnn__tensor_added_to(t, &plan->problem))
        status = move(plan, t, args, copy, 0, stream);
      *slot = copy;
      if (t->strides)
        *(dfgnn_strides *)((char *)inner_args + t->strides) =
            dense(t, &plan->problem);
    }
    copy += bytes_of(t, plan);
  }
  return status;
}

dfgnn_status dfgnn__reordered_scatter(const dfgnn_args *inner_args,
                                      const dfgnn_plan *plan,
                                      const dfgnn_args *args, void *workspace,
                                      void *stream) {
  char *copy = first_copy(plan, workspace);
  dfgnn_status status = DFGNN_OK;
  for (const dfgnn_tensor *t = plan->op->tensors; t->name && !status; t++) {
    if (!moved(t, &plan->problem, plan->graph->reordered))
      continue;
    if (!dfgnn__role_reads(t->role) &&
        *dfgnn__tensor_slot(t, (dfgnn_args *)inner_args))
      status = move(plan, t, args, copy, 1, stream);
    copy += bytes_of(t, plan);
  }
  return status;
}
