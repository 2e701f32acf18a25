/* plan.c - the plan as an object: its graph, its references, its properties */
#include "lib/plan.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/handle.h"
#include "lib/plan_race.h"
#include "lib/signature.h"

dfgnn_setting dfgnn__setting(const dfgnn_graph *graph,
                             const dfgnn_problem *problem) {
  const int known = dfgnn__graph_known(graph);
  return (dfgnn_setting){.problem = problem,
                         .matrix = dfgnn__graph_matrix(graph),
                         .signature = known ? &graph->signature : &graph->guess,
                         .device = &graph->ctx->info,
                         .program = dfgnn__edge_program_job(problem)};
}

_Static_assert(sizeof(dfgnn_problem) % sizeof(uint64_t) == 0,
               "a problem is hashed by words");

uint64_t dfgnn__problem_hash(const dfgnn_problem *problem) {
  uint64_t words[sizeof *problem / sizeof(uint64_t)], h = 0;
  dfgnn_problem hashed = *problem;
  if (problem->program) /* others of the same hash compute the same */
    hashed.program = (void *)(uintptr_t)problem->program->hash;
  memcpy(words, &hashed, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    h += words[i] * (0x9e3779b97f4a7c15u * (2 * i + 1));
  return dfgnn__mix(h);
}

dfgnn_plan *dfgnn__plan_make(dfgnn_graph *graph, const dfgnn_problem *problem) {
  dfgnn_plan *plan = calloc(1, sizeof *plan);
  if (!plan)
    return NULL;
  plan->kind = DFGNN_HANDLE_PLAN;
  plan->ctx = graph->ctx;
  plan->graph = graph;
  plan->taken = atomic_load(&plan->ctx->taken);
  plan->problem = *problem;
  if (problem->program)
    dfgnn__edge_program_hold(problem->program);
  plan->op = dfgnn__operator(problem->op, problem->pass);
  plan->hash = dfgnn__problem_hash(problem);
  const dfgnn_setting setting = dfgnn__setting(graph, &plan->problem);
  plan->matrix = setting.matrix;
  plan->signature = setting.signature;
  atomic_init(&plan->references, 1);
  pthread_rwlock_wrlock(&graph->plans_lock);
  plan->next = graph->alive;
  if (plan->next)
    plan->next->previous = plan;
  graph->alive = plan;
  pthread_rwlock_unlock(&graph->plans_lock);
  return plan;
}

static void leave_graph(dfgnn_plan *plan) {
  dfgnn_graph *graph = plan->graph;
  if (!graph)
    return;
  pthread_rwlock_wrlock(&graph->plans_lock);
  if (plan->previous)
    plan->previous->next = plan->next;
  else
    graph->alive = plan->next;
  if (plan->next)
    plan->next->previous = plan->previous;
  pthread_rwlock_unlock(&graph->plans_lock);
}

static void release_plan(dfgnn_plan *plan) {
  dfgnn__race_store(plan);
  leave_graph(plan);
  if (plan->state && plan->variant->family->release)
    plan->variant->family->release(plan->state);
  for (size_t k = 0; plan->race && dfgnn__race_entrant(plan, k); k++)
    dfgnn_plan_destroy(dfgnn__race_entrant(plan, k));
  dfgnn__race_free(plan);
  if (plan->problem.program)
    dfgnn_edge_program_destroy((dfgnn_edge_program *)plan->problem.program);
  plan->kind = DFGNN_HANDLE_NONE;
  free(plan);
}

static void drop_reference(dfgnn_plan *plan) {
  if (atomic_fetch_sub(&plan->references, 1) == 1)
    release_plan(plan);
}

int dfgnn__graph_orphan_plans(dfgnn_graph *graph) {
  int count = 0;
  pthread_rwlock_wrlock(&graph->plans_lock);
  for (dfgnn_plan *plan = graph->alive; plan; plan = plan->next, count++)
    plan->graph = NULL;
  graph->alive = NULL;
  pthread_rwlock_unlock(&graph->plans_lock);
  return count;
}

void dfgnn_plan_destroy(dfgnn_plan *plan) {
  if (dfgnn__is_plan(plan))
    drop_reference(plan);
}

size_t dfgnn_plan_workspace(const dfgnn_plan *plan) {
  return dfgnn__is_plan(plan) ? plan->workspace : 0;
}

const char *dfgnn_plan_variant(const dfgnn_plan *plan) {
  return dfgnn__is_plan(plan) ? dfgnn__race_current(plan)->variant->name : NULL;
}

dfgnn_source dfgnn_plan_source(const dfgnn_plan *plan) {
  return dfgnn__is_plan(plan) ? plan->choice.source : (dfgnn_source)-1;
}
