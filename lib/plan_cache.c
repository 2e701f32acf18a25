/* plan_cache.c - the plans that a graph keeps, found again by their problem */
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/plan.h"

static dfgnn_plan *cache_find(dfgnn_graph *graph, uint64_t hash,
                              const dfgnn_problem *problem) {
  size_t mask = graph->plan_capacity - 1;
  if (!graph->plan_capacity)
    return NULL;
  for (size_t s = hash & mask; graph->plans[s]; s = (s + 1) & mask)
    if (graph->plans[s]->hash == hash &&
        !memcmp(&graph->plans[s]->problem, problem, sizeof *problem))
      return graph->plans[s];
  return NULL;
}

static void cache_place(dfgnn_plan **plans, size_t capacity, dfgnn_plan *plan) {
  size_t s = plan->hash & (capacity - 1);
  while (plans[s])
    s = (s + 1) & (capacity - 1);
  plans[s] = plan;
}

static dfgnn_status cache_add(dfgnn_graph *graph, dfgnn_plan *plan) {
  if (2 * (graph->plan_count + 1) > graph->plan_capacity) {
    size_t capacity = graph->plan_capacity ? 2 * graph->plan_capacity : 16;
    dfgnn_plan **grown = calloc(capacity, sizeof *grown);
    if (!grown)
      return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    for (size_t s = 0; s < graph->plan_capacity; s++)
      if (graph->plans[s])
        cache_place(grown, capacity, graph->plans[s]);
    free(graph->plans);
    graph->plans = grown;
    graph->plan_capacity = capacity;
  }
  cache_place(graph->plans, graph->plan_capacity, plan);
  graph->plan_count++;
  return DFGNN_OK;
}

dfgnn_plan *dfgnn__plan_kept(dfgnn_graph *graph, const dfgnn_problem *problem) {
  uint64_t hash = dfgnn__problem_hash(problem);
  pthread_rwlock_rdlock(&graph->plans_lock);
  dfgnn_plan *plan = cache_find(graph, hash, problem);
  if (plan)
    atomic_fetch_add(&plan->references, 1);
  pthread_rwlock_unlock(&graph->plans_lock);
  return plan;
}

/* Takes a plan whose launch was refused out of the cache; the hash chain is
 * rebuilt, which is rare. */
static void take_out(dfgnn_graph *graph, dfgnn_plan *plan) {
  dfgnn_plan **old = graph->plans;
  int found = 0;
  graph->plans = calloc(graph->plan_capacity, sizeof *graph->plans);
  if (!graph->plans) {
    graph->plans = old;
    return;
  }
  for (size_t s = 0; s < graph->plan_capacity; s++)
    if (old[s] == plan)
      found = 1;
    else if (old[s])
      cache_place(graph->plans, graph->plan_capacity, old[s]);
  free(old);
  if (found) {
    graph->plan_count--;
    dfgnn_plan_destroy(plan);
  }
}

dfgnn_status dfgnn__plan_keep(dfgnn_plan **plan) {
  dfgnn_graph *graph = (*plan)->graph;
  dfgnn_status status = DFGNN_OK;
  pthread_rwlock_wrlock(&graph->plans_lock);
  dfgnn_plan *other = cache_find(graph, (*plan)->hash, &(*plan)->problem);
  if (!other)
    status = cache_add(graph, *plan);
  if (other || !status)
    atomic_fetch_add(&(other ? other : *plan)->references, 1);
  pthread_rwlock_unlock(&graph->plans_lock);
  if (other || status) {
    dfgnn_plan_destroy(*plan);
    *plan = other;
  }
  return status;
}

void dfgnn__plan_give_up(dfgnn_plan *plan) {
  pthread_rwlock_wrlock(&plan->graph->plans_lock);
  take_out(plan->graph, plan);
  pthread_rwlock_unlock(&plan->graph->plans_lock);
}

void dfgnn__graph_forget_plans(dfgnn_graph *graph) {
  pthread_rwlock_wrlock(&graph->plans_lock);
  dfgnn_plan **plans = graph->plans;
  size_t capacity = graph->plan_capacity;
  graph->plans = NULL;
  graph->plan_count = graph->plan_capacity = 0;
  pthread_rwlock_unlock(&graph->plans_lock);
  for (size_t s = 0; s < capacity; s++) /* destroying takes the lock */
    if (plans[s])
      dfgnn_plan_destroy(plans[s]);
  free(plans);
}
