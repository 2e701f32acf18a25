/* plan_create.c - creates plans: chooses a variant, prepares its views, its
 * workspace and its kernels */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/decided.h"
#include "lib/describe.h"
#include "lib/edge_program.h"
#include "lib/halves.h"
#include "lib/handle.h"
#include "lib/plan_race.h"
#include "lib/unmeasured.h"

static void count_source(dfgnn_context *ctx, dfgnn_source source) {
  atomic_uint_fast64_t *const counters[] = {[DFGNN_SOURCE_EXACT] = &ctx->exact,
                                            [DFGNN_SOURCE_NEAR] = &ctx->near,
                                            [DFGNN_SOURCE_MODEL] = &ctx->model,
                                            [DFGNN_SOURCE_RULE] = &ctx->rule};
  if (source < sizeof counters / sizeof *counters && counters[source])
    atomic_fetch_add(counters[source], 1);
}

dfgnn_status dfgnn__problem_in(dfgnn_problem *problem, const dfgnn_context *ctx,
                               const dfgnn_problem *given) {
  DFGNN_TRY(dfgnn__problem_complete(problem, given));
  if (ctx->force_deterministic >= 0)
    problem->deterministic = !!ctx->force_deterministic;
  if (!dfgnn__operator(problem->op, problem->pass))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "operator %s has no %s pass",
                       dfgnn_name(DFGNN_NAMES_OP, problem->op),
                       dfgnn_name(DFGNN_NAMES_PASS, problem->pass));
  return DFGNN_OK;
}

static dfgnn_status complete(dfgnn_problem *problem, const dfgnn_context *ctx,
                             const dfgnn_problem *given) {
  DFGNN_TRY(dfgnn__problem_in(problem, ctx, given));
  if (problem->effort == DFGNN_EFFORT_DEFAULT)
    problem->effort = ctx->effort;
  return DFGNN_OK;
}

/* Programs depend on the problem and the variant alone: they are looked for
 * once. */
static dfgnn_status compile(dfgnn_plan *plan, const dfgnn_setting *setting,
                            dfgnn_engine *engine) {
  const dfgnn_query query = {.setting = *setting};
  const uint64_t key =
      dfgnn__decided_compiled(&query, plan->hash, plan->variant);
  if (dfgnn__decided_find(NULL, plan->ctx, key))
    return DFGNN_OK;
  dfgnn_status status = dfgnn__plan_compile(plan, setting, engine);
  if (!status)
    dfgnn__decided_keep(plan->ctx, key, &plan->choice);
  return status;
}

static dfgnn_status build_plan(dfgnn_plan **out, dfgnn_graph *graph,
                               const dfgnn_problem *problem,
                               const dfgnn_choice *choice) {
  const dfgnn_family *family = choice->variant->family;
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  dfgnn_plan *plan = dfgnn__plan_make(graph, problem);
  dfgnn_status status = DFGNN_OK;
  if (!plan)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  plan->variant = choice->variant;
  plan->choice = *choice;
  dfgnn_setting setting = {.problem = &plan->problem,
                           .matrix = plan->matrix,
                           .signature = plan->signature,
                           .device = &graph->ctx->info,
                           .parameter = plan->variant->parameter,
                           .program = dfgnn__edge_program_job(&plan->problem)};
  const dfgnn_queue queue = {.engine = dfgnn__context_engine(graph->ctx)};
  setting.queue = &queue;
  plan->workspace = (dfgnn__family_workspace(family, &setting) +
                     DFGNN_WORKSPACE_ALIGNMENT - 1) /
                    DFGNN_WORKSPACE_ALIGNMENT * DFGNN_WORKSPACE_ALIGNMENT;
  int views = family->views ? family->views(&setting, requests) : 0;
  for (int k = 0; k < views && !status; k++)
    status = dfgnn__graph_view(&plan->views[k], graph, &requests[k]);
  if (!status && family->prepare)
    status = dfgnn__graph_settle(graph);
  if (!status && family->prepare) {
    int previous = dfgnn__context_enter(graph->ctx);
    status = family->prepare(&plan->state, &setting, plan->views);
    dfgnn__context_leave(graph->ctx, previous);
  }
  if (!status && queue.engine)
    status = compile(plan, &setting, queue.engine);
  if (status) {
    dfgnn_plan_destroy(plan);
    return status;
  }
  *out = plan;
  return DFGNN_OK;
}

/* Marks a family's variants in *avoided, by variant index.  If it is NULL it is
 * made, with the broken variants marked; the caller frees it. */
static dfgnn_status avoid_family(unsigned char **avoided,
                                 const dfgnn_context *ctx,
                                 const dfgnn_family *family) {
  const size_t count = dfgnn__variant_count();
  if (!*avoided) {
    *avoided = calloc(count + 1, 1);
    if (!*avoided)
      return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    memcpy(*avoided, ctx->broken, count);
  }
  for (size_t i = 0; i < count; i++)
    if (dfgnn__variant(i)->family == family)
      (*avoided)[i] = 1;
  return DFGNN_OK;
}

static void add_to_reason(dfgnn_choice *choice, const char *refused) {
  size_t length = strlen(choice->because);
  snprintf(choice->because + length, sizeof choice->because - length,
           "; not %s, which does not serve this graph", refused);
}

/* Lists the members of the portfolio, which race with a choice. */
static size_t list_rivals(const dfgnn_variant *rival[DFGNN_PORTFOLIO_MOST],
                          dfgnn_graph *graph, const dfgnn_problem *problem,
                          const unsigned char *avoided) {
  double ratio[DFGNN_PORTFOLIO_MOST];
  dfgnn_context *ctx = graph->ctx;
  const dfgnn_query query = {.setting = dfgnn__setting(graph, problem),
                             .family = graph->family,
                             .broken = avoided ? avoided : ctx->broken};
  pthread_mutex_lock(&ctx->lock);
  const size_t count = dfgnn__members(rival, ratio, ctx->table, &query);
  pthread_mutex_unlock(&ctx->lock);
  return count;
}

/* Makes *plan a race unless measurements of this graph back it, be it those of
 * an earlier race: it races with the first members of the portfolio.  A rival
 * that cannot be built is left out. */
static dfgnn_status start_race(dfgnn_plan **plan, dfgnn_graph *graph,
                               const dfgnn_problem *problem,
                               const unsigned char *avoided) {
  const dfgnn_variant *rival[DFGNN_PORTFOLIO_MOST];
  dfgnn_plan *entrant[DFGNN_RACE_ENTRANTS] = {*plan}, *race;
  dfgnn_choice choice = (*plan)->choice;
  size_t count = 1;
  if (choice.source == DFGNN_SOURCE_EXACT ||
      choice.source == DFGNN_SOURCE_PINNED ||
      choice.source == DFGNN_SOURCE_FORCED ||
      (choice.source == DFGNN_SOURCE_NEAR && choice.distance == 0 &&
       choice.fingerprint == graph->signature.fingerprint))
    return DFGNN_OK;
  const size_t rivals = list_rivals(rival, graph, problem, avoided);
  for (size_t k = 0; k < rivals && count < DFGNN_RACE_ENTRANTS; k++) {
    choice.variant = rival[k];
    if (rival[k] != (*plan)->variant &&
        !build_plan(&entrant[count], graph, problem, &choice))
      count++;
  }
  if (count == 1)
    return DFGNN_OK;
  dfgnn_status status = (race = dfgnn__plan_make(graph, problem))
                            ? dfgnn__race_begin(race, entrant, count)
                            : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status) {
    for (size_t k = 0; k < count; k++)
      dfgnn_plan_destroy(entrant[k]);
    if (race)
      dfgnn_plan_destroy(race);
    return status;
  }
  race->variant = (*plan)->variant;
  race->choice = (*plan)->choice;
  size_t length = strlen(race->choice.because);
  snprintf(race->choice.because + length, sizeof race->choice.because - length,
           "; the first calls race %zu variants", count);
  *plan = race;
  return DFGNN_OK;
}

/* A variant may ask more of a graph than its signature tells (it was fast on
 * near graphs, say): if it cannot be built, the next choice is taken. */
static dfgnn_status choose_and_build(dfgnn_plan **plan, dfgnn_graph *graph,
                                     const dfgnn_problem *problem) {
  unsigned char *avoided = NULL;
  const char *refused = NULL;
  char why[512];
  dfgnn_choice choice;
  dfgnn_status status;
  for (;;) {
    status = dfgnn__choose(&choice, graph, problem, avoided);
    if (status && refused)
      dfgnn__fail(status, "%s: %s", refused, why);
    if (status)
      break;
    if (refused)
      add_to_reason(&choice, refused);
    status = build_plan(plan, graph, problem, &choice);
    if (status != DFGNN_ERROR_UNSUPPORTED ||
        choice.source == DFGNN_SOURCE_FORCED)
      break;
    refused = choice.variant->family->name;
    snprintf(why, sizeof why, "%s", dfgnn_last_error());
    dfgnn__log(graph->ctx, DFGNN_LOG_INFO, "%s is passed over: %s", refused,
               dfgnn_last_error());
    status = avoid_family(&avoided, graph->ctx, choice.variant->family);
    if (status)
      break;
  }
  if (!status && problem->effort == DFGNN_EFFORT_RACE)
    status = start_race(plan, graph, problem, avoided);
  if (!status) {
    count_source(graph->ctx, choice.source);
    dfgnn__note_unmeasured(graph, problem, &choice);
  }
  free(avoided);
  return status;
}

/* Avoids the variant from now on, as a launch of this plan was refused. */
static void break_circuit(dfgnn_plan *plan) {
  dfgnn_context *ctx = plan->ctx;
  size_t i = dfgnn__variant_index(plan->variant);
  pthread_mutex_lock(&ctx->lock);
  int first = !ctx->broken[i];
  ctx->broken[i] = 1;
  pthread_mutex_unlock(&ctx->lock);
  if (!first)
    return;
  dfgnn__log(ctx, DFGNN_LOG_WARN, "the device refused %s; it is avoided",
             plan->variant->name);
  dfgnn__record_refusal(plan);
}

dfgnn_status dfgnn_plan_create(dfgnn_plan **out, dfgnn_context *ctx,
                               dfgnn_graph *graph,
                               const dfgnn_problem *problem) {
  dfgnn_problem full;
  dfgnn_plan *plan;
  if (!out)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "plan is NULL");
  DFGNN_TRY(dfgnn__check_graph_of(graph, ctx));
  DFGNN_TRY(complete(&full, ctx, problem));
  plan = dfgnn__plan_kept(graph, &full);
  const int refused =
      plan && atomic_load_explicit(&plan->refused, memory_order_relaxed);
  if (plan && !refused && plan->taken == atomic_load(&ctx->taken)) {
    atomic_fetch_add_explicit(&ctx->cached, 1, memory_order_relaxed);
    if (plan->race)
      dfgnn__race_store(plan);
    *out = plan;
    return DFGNN_OK;
  }
  if (refused)
    break_circuit(plan);
  if (plan) {
    dfgnn__plan_give_up(plan);
    dfgnn_plan_destroy(plan);
  }
  DFGNN_TRY(choose_and_build(&plan, graph, &full));
  dfgnn_status status = dfgnn__plan_keep(&plan);
  if (!status)
    *out = plan;
  return status;
}

dfgnn_status dfgnn_plan_create_forced(dfgnn_plan **out, dfgnn_context *ctx,
                                      dfgnn_graph *graph,
                                      const dfgnn_problem *problem,
                                      const char *name) {
  dfgnn_problem full;
  dfgnn_choice choice;
  if (!out || !name)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL",
                       out ? "variant" : "plan");
  DFGNN_TRY(dfgnn__check_graph_of(graph, ctx));
  DFGNN_TRY(complete(&full, ctx, problem));
  const dfgnn_variant *variant = dfgnn__variant_find(name);
  if (!variant)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "unknown variant '%s'; `dfgnn-tune variants` lists them",
                       name);
  dfgnn_status status = dfgnn__choose_forced(&choice, graph, &full, variant);
  return status ? status : build_plan(out, graph, &full, &choice);
}
