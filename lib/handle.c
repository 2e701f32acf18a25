#include "lib/handle.h"

#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/context.h"
#include "lib/edge_program.h"
#include "lib/plan.h"

static dfgnn_status check(const void *handle, dfgnn_handle kind,
                          const char *name, const char *type) {
  if (!handle)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL", name);
  if (!dfgnn__is(handle, kind))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s is no %s, or one that was destroyed", name, type);
  return DFGNN_OK;
}

static dfgnn_status check_fork(const dfgnn_context *ctx) {
  if (ctx->forks == dfgnn__fork_depth() || ctx->backend->survives_fork)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_DEVICE,
                     "the context was made before fork(), which %s does not "
                     "survive: create one in this process",
                     ctx->backend->name);
}

dfgnn_status dfgnn__check_context(const dfgnn_context *ctx) {
  DFGNN_TRY(check(ctx, DFGNN_HANDLE_CONTEXT, "ctx", "dfgnn_context"));
  return check_fork(ctx);
}

dfgnn_status dfgnn__check_graph(const dfgnn_graph *graph) {
  return check(graph, DFGNN_HANDLE_GRAPH, "graph", "dfgnn_graph");
}

dfgnn_status dfgnn__check_edge_program(const dfgnn_edge_program *program) {
  return check(program, DFGNN_HANDLE_EDGE_PROGRAM, "program",
               "dfgnn_edge_program");
}

dfgnn_status dfgnn__check_plan(const dfgnn_plan *plan) {
  dfgnn_status status = check(plan, DFGNN_HANDLE_PLAN, "plan", "dfgnn_plan");
  if (!status && !plan->graph)
    status = dfgnn__fail(DFGNN_ERROR_INVALID,
                         "the plan's graph was destroyed before it");
  return status ? status : check_fork(plan->ctx);
}

dfgnn_status dfgnn__check_graph_of(const dfgnn_graph *graph,
                                   const dfgnn_context *ctx) {
  DFGNN_TRY(dfgnn__check_context(ctx));
  DFGNN_TRY(dfgnn__check_graph(graph));
  if (graph->ctx != ctx)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "the graph belongs to another context");
  return DFGNN_OK;
}
