/* edge_mlp.c - runs MLPs on edges, as plans */
#include "lib/edge_mlp.h"

#include <string.h>

#include "kernels/mlp/cuda/plan.h"
#include "lib/base/error.h"

static int on_cpu(const dfgnn_graph *graph) {
  return !strcmp(graph->ctx->backend->name, "cpu");
}

const char *dfgnn__edge_mlp_missing(const dfgnn_mlp_job *job,
                                    const dfgnn_graph *graph) {
  return on_cpu(graph) ? dfgnn__mlp_cpu_missing(job)
                       : dfgnn__mlp_cuda_missing(job, &graph->ctx->info);
}

static dfgnn_status check_device(const dfgnn_mlp_job *job,
                                 const dfgnn_graph *graph) {
  const char *missing = dfgnn__edge_mlp_missing(job, graph);
  return missing ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", missing)
                 : DFGNN_OK;
}

dfgnn_status dfgnn__edge_mlp_problem_of(dfgnn_problem *problem,
                                        const dfgnn_mlp_job *job) {
  dfgnn_mlp_form form;
  dfgnn__mlp_form_of(&form, job);
  *problem = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  problem->op = DFGNN_OP_MLP;
  return dfgnn__edge_mlp_known(&problem->mlp, &form);
}

/* Checks a call, and says which problem it is. */
static dfgnn_status begin(dfgnn_problem *problem, dfgnn_mlp_job *job,
                          const dfgnn_edge_mlp *mlp, dfgnn_graph *graph,
                          const dfgnn_edge_mlp_args *args, dfgnn_pass pass) {
  dfgnn_status status = dfgnn__edge_mlp_prepare(job, mlp, graph, args, pass);
  if (!status)
    status = check_device(job, graph);
  return status ? status : dfgnn__edge_mlp_problem_of(problem, job);
}

int64_t dfgnn_edge_mlp_kept_width(const dfgnn_edge_mlp *mlp, int layer) {
  return mlp && layer >= 0 && layer < DFGNN_MLP_LAYERS
             ? dfgnn__mlp_kept_width(mlp, layer)
             : 0;
}

dfgnn_status dfgnn_edge_mlp_serves(const dfgnn_edge_mlp *mlp,
                                   dfgnn_graph *graph,
                                   const dfgnn_edge_mlp_args *args,
                                   dfgnn_pass pass) {
  dfgnn_mlp_job job;
  dfgnn_status status = dfgnn__edge_mlp_prepare(&job, mlp, graph, args, pass);
  return status ? status : check_device(&job, graph);
}

dfgnn_status dfgnn_edge_mlp_workspace(size_t *bytes, const dfgnn_edge_mlp *mlp,
                                      dfgnn_graph *graph,
                                      const dfgnn_edge_mlp_args *args,
                                      dfgnn_pass pass) {
  dfgnn_mlp_job job;
  dfgnn_problem problem;
  dfgnn_plan *plan;
  if (!bytes)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "bytes is NULL");
  *bytes = 0;
  dfgnn_status status = begin(&problem, &job, mlp, graph, args, pass);
  if (!status)
    status = dfgnn_plan_create(&plan, graph->ctx, graph, &problem);
  if (status)
    return status;
  *bytes = dfgnn_plan_workspace(plan);
  dfgnn_plan_destroy(plan);
  return DFGNN_OK;
}

dfgnn_status dfgnn_edge_mlp_execute_in(const dfgnn_edge_mlp *mlp,
                                       dfgnn_graph *graph,
                                       const dfgnn_edge_mlp_args *args,
                                       dfgnn_pass pass, void *workspace,
                                       void *stream) {
  dfgnn_args call = DFGNN_ARGS_INIT;
  dfgnn_mlp_job job;
  dfgnn_problem problem;
  dfgnn_plan *plan;
  dfgnn_status status = begin(&problem, &job, mlp, graph, args, pass);
  if (status)
    return status;
  call.mlp = mlp;
  call.mlp_args = args;
  if (!workspace)
    return dfgnn_call(graph->ctx, graph, &problem, &call, stream);
  status = dfgnn_plan_create(&plan, graph->ctx, graph, &problem);
  if (status)
    return status;
  status = dfgnn_execute(plan, &call, workspace, stream);
  dfgnn_plan_destroy(plan);
  return status;
}

dfgnn_status dfgnn_edge_mlp_execute(const dfgnn_edge_mlp *mlp,
                                    dfgnn_graph *graph,
                                    const dfgnn_edge_mlp_args *args,
                                    dfgnn_pass pass, void *stream) {
  return dfgnn_edge_mlp_execute_in(mlp, graph, args, pass, NULL, stream);
}

dfgnn_status dfgnn__edge_mlp_compare(double *worst, const char **where,
                                     const dfgnn_edge_mlp *mlp,
                                     dfgnn_graph *graph,
                                     const dfgnn_edge_mlp_args *args,
                                     dfgnn_pass pass, int exact) {
  dfgnn_mlp_job job;
  dfgnn_status status = dfgnn__edge_mlp_prepare(&job, mlp, graph, args, pass);
  if (!worst)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "worst is NULL");
  if (!status && !on_cpu(graph))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "MLPs are checked on the CPU, and the graph is on %s",
                         graph->ctx->backend->name);
  dfgnn_mlp_errors errors;
  job.exact = exact;
  if (!status)
    status = dfgnn__mlp_compare(&errors, &job);
  if (status)
    return status;
  *worst = errors.of_bound;
  if (where)
    *where = errors.where;
  return DFGNN_OK;
}

dfgnn_status dfgnn_edge_mlp_check(double *worst, const char **where,
                                  const dfgnn_edge_mlp *mlp, dfgnn_graph *graph,
                                  const dfgnn_edge_mlp_args *args,
                                  dfgnn_pass pass) {
  return dfgnn__edge_mlp_compare(worst, where, mlp, graph, args, pass, 0);
}
