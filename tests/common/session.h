/* session.h - a problem on a graph, its tensors, and plans of the variants that
 * serve it */
#ifndef DFGNN_TESTS_SESSION_H
#define DFGNN_TESTS_SESSION_H

#include "lib/graph.h"
#include "lib/operator.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

typedef struct session {
  dfgnn_context *ctx;
  shape shape;
  dfgnn_graph *graph;
  dfgnn_problem problem; /* complete */
  dfgnn_harness *harness;
} session;

/* Makes a graph of the shape, and fills the tensors of a problem. */
static inline void open_session(session *s, const dfgnn_problem *problem) {
  s->graph = graph_on(s->ctx, &s->shape.csr);
  ck_ok(dfgnn__problem_complete(&s->problem, problem));
  ck_ok(dfgnn__harness_create(&s->harness, s->ctx, s->graph, &s->problem,
                              shape_seed()));
}

/* Gives back what a session has, its context with it. */
static inline void close_session(session *s) {
  dfgnn__harness_destroy(s->harness);
  done(s->graph);
  done(s->ctx);
}

/* Whether a variant is of the graph's device and takes the problem. */
static inline int applies(const dfgnn_variant *v, dfgnn_graph *graph,
                          const dfgnn_problem *problem) {
  const dfgnn_setting setting = dfgnn__setting(graph, problem);
  return !dfgnn__variant_refusal(v, &setting);
}

/* Makes a plan of a variant.  Returns 0 if it does not apply or the graph is
 * not for it. */
static inline int serves(dfgnn_plan **plan, dfgnn_graph *graph,
                         const dfgnn_problem *problem, const dfgnn_variant *v) {
  if (!applies(v, graph, problem))
    return 0;
  const dfgnn_status status =
      dfgnn_plan_create_forced(plan, graph->ctx, graph, problem, v->name);
  if (status != DFGNN_ERROR_UNSUPPORTED)
    ck_ok(status);
  return !status;
}

static inline const dfgnn_operator *operator_of(const session *s) {
  return dfgnn__operator(s->problem.op, s->problem.pass);
}

static inline size_t bytes_of(const session *s, const dfgnn_tensor *t) {
  const dfgnn_matrix *m = &s->graph->matrix;
  return (size_t)dfgnn__tensor_elements(t, &s->problem, m->destinations,
                                        m->sources, m->edges) *
         dfgnn__tensor_element_size(t, &s->problem);
}

/* Executes a plan, with args that are those of the harness or fewer, and waits
 * for it. */
static inline void execute(const session *s, const dfgnn_plan *plan,
                           const dfgnn_args *args) {
  void *workspace;
  ck_ok(dfgnn__harness_workspace(&workspace, s->harness, plan));
  ck_ok(dfgnn_execute(plan, args, workspace, NULL));
  ck_ok(s->ctx->backend->synchronize(s->ctx->device, NULL));
}

/* Copies memory of the device to the host, or the other way. */
static inline void copy(const session *s, void *to, const void *from,
                        size_t bytes) {
  ck_ok(s->ctx->backend->copy(s->ctx->device, to, from, bytes));
}

#endif
