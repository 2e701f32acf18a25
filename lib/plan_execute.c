/* plan_execute.c - executes plans: launches a variant or an entrant of a race
 */
#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/halves.h"
#include "lib/handle.h"
#include "lib/plan_race.h"

/* If the device refuses a launch, the entrant has failed, not the caller: the
 * best entrant runs in its place. */
static dfgnn_status execute_race(const dfgnn_plan *plan, const dfgnn_args *args,
                                 void *workspace, void *stream) {
  const dfgnn_race_call taken = dfgnn__race_take(plan, stream);
  if (taken.call < 0)
    return dfgnn_execute(taken.entrant, args, workspace, stream);
  dfgnn_status status = dfgnn__race_mark(plan, taken, 0, stream);
  if (!status)
    status = dfgnn_execute(taken.entrant, args, workspace, stream);
  if (!status)
    status = dfgnn__race_mark(plan, taken, 1, stream);
  dfgnn__race_made(plan, taken, status);
  if (status != DFGNN_ERROR_DEVICE || taken.entrant == taken.best)
    return status;
  return dfgnn_execute(taken.best, args, workspace, stream);
}

dfgnn_status dfgnn_execute(const dfgnn_plan *plan, const dfgnn_args *args,
                           void *workspace, void *stream) {
  dfgnn_args full;
  DFGNN_TRY(dfgnn__check_plan(plan));
  if (plan->race)
    return execute_race(plan, args, workspace, stream);
  if (plan->ctx->backend->late_fault)
    DFGNN_TRY(plan->ctx->backend->late_fault(plan->ctx->device));
  DFGNN_TRY(dfgnn__args_complete(&full, args, &plan->problem));
  if (plan->workspace && !workspace)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "workspace is NULL, the plan needs %zu bytes",
                       plan->workspace);
  const int alignment = plan->ctx->backend->alignment
                            ? plan->ctx->backend->alignment
                            : DFGNN_WORKSPACE_ALIGNMENT;
  if (plan->workspace && (uintptr_t)workspace & (uintptr_t)(alignment - 1))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "workspace is %p, expected an address aligned to %d",
                       workspace, alignment);
  dfgnn_launch launch = {
      .setting = {.problem = &plan->problem,
                  .matrix = plan->matrix,
                  .signature = plan->signature,
                  .device = &plan->ctx->info,
                  .program = dfgnn__edge_program_job(&plan->problem)},
      .args = &full,
      .views = plan->views,
      .workspace = workspace,
      .stream = stream,
      .state = plan->state};
  const dfgnn_queue queue = {.engine = dfgnn__context_engine(plan->ctx),
                             .stream = stream};
  launch.setting.parameter = plan->variant->parameter;
  launch.setting.queue = &queue;
  dfgnn__graph_used(plan->graph, stream);
  int previous = dfgnn__context_enter(plan->ctx);
  dfgnn_status status = dfgnn__graph_follow(plan->graph, stream);
  if (!status)
    status = plan->problem.program
                 ? dfgnn__edge_program_launch(plan, &launch)
                 : dfgnn__family_launch(plan->variant->family, &launch);
  dfgnn__context_leave(plan->ctx, previous);
  if (status == DFGNN_ERROR_DEVICE)
    atomic_store(&((dfgnn_plan *)plan)->refused, 1);
  return status;
}

dfgnn_status dfgnn_call(dfgnn_context *ctx, dfgnn_graph *graph,
                        const dfgnn_problem *problem, const dfgnn_args *args,
                        void *stream) {
  dfgnn_plan *plan;
  DFGNN_TRY(dfgnn_plan_create(&plan, ctx, graph, problem));
  if (plan->problem.program && !plan->workspace) {
    const dfgnn_status status = dfgnn_execute(plan, args, NULL, stream);
    dfgnn_plan_destroy(plan);
    return status;
  }
  pthread_mutex_lock(&ctx->lock);
  void *workspace;
  dfgnn_status status =
      dfgnn__context_reserve(&workspace, ctx, plan->workspace, stream);
  if (!status)
    status = dfgnn_execute(plan, args, workspace, stream);
  pthread_mutex_unlock(&ctx->lock);
  dfgnn_plan_destroy(plan);
  return status;
}
