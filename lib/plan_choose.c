/* plan_choose.c - the choice of a plan's variant: as before for a graph like
 * it, else by stores and model, else by the rule */
#include <string.h>

#include "lib/base/error.h"
#include "lib/decided.h"
#include "lib/key.h"
#include "lib/plan.h"

/* avoided: by variant index, beside those that are broken; NULL: none. */
static dfgnn_query query_of(const dfgnn_graph *graph,
                            const dfgnn_problem *problem,
                            const unsigned char *avoided) {
  return (dfgnn_query){.setting = dfgnn__setting(graph, problem),
                       .family = graph->family,
                       .broken = avoided ? avoided : graph->ctx->broken};
}

static dfgnn_status choose_forced(dfgnn_choice *choice,
                                  const dfgnn_variant *variant,
                                  const dfgnn_query *query) {
  const char *reason = dfgnn__variant_refusal(variant, &query->setting);
  if (reason)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "variant %s: %s", variant->name,
                       reason);
  *choice = (dfgnn_choice){.variant = variant,
                           .source = DFGNN_SOURCE_FORCED,
                           .distance = -1,
                           .because = "asked for by name"};
  return DFGNN_OK;
}

static void select_locked(dfgnn_choice *choice, dfgnn_context *ctx,
                          const dfgnn_query *query) {
  pthread_mutex_lock(&ctx->lock);
  if (query->setting.problem->effort == DFGNN_EFFORT_PAPER)
    dfgnn__paper_choice(choice, ctx->table, query, ctx->paper_capacity);
  else
    dfgnn__select(choice, ctx->table, query);
  pthread_mutex_unlock(&ctx->lock);
}

static int is_stored(const dfgnn_choice *choice) {
  return choice->variant && (choice->source == DFGNN_SOURCE_PINNED ||
                             choice->source == DFGNN_SOURCE_EXACT ||
                             choice->source == DFGNN_SOURCE_NEAR);
}

/* Says once of a GPU that neither a portfolio nor a store knows how to measure
 * it. */
static void tell_of_device(dfgnn_context *ctx, const dfgnn_query *query) {
  const char *cell = dfgnn__portfolio_cell(&query->setting);
  const char *arch = strstr(cell, " of ");
  uint64_t rows = 0;
  for (size_t i = 0; i < ctx->layer_count; i++)
    rows += ctx->layers[i].rows;
  if (strcmp(ctx->info.backend, "cuda") || rows ||
      (arch && !strcmp(arch + strlen(" of "), ctx->info.arch)) ||
      atomic_exchange(&ctx->told_device, 1))
    return;
  dfgnn__log(ctx, DFGNN_LOG_WARN,
             "nobody measured kernels on %s (%s), so that those of another GPU "
             "are chosen; `dfgnn-tune run GRAPH --budget 1s` measures them "
             "here, DFGNN_RECORD=FOLDER notes what to measure",
             ctx->info.model, ctx->info.arch);
}

static dfgnn_status tune_miss(dfgnn_choice *choice, dfgnn_graph *graph,
                              const dfgnn_query *query) {
  dfgnn_context *ctx = graph->ctx;
  if (!ctx->on_miss)
    return dfgnn__fail(DFGNN_ERROR_NOT_TUNED,
                       "the problem is not measured and no tuner is linked");
  if (ctx->backend->capturing(ctx->device, NULL))
    return dfgnn__fail(DFGNN_ERROR_CAPTURING,
                       "effort measure cannot tune while a stream is "
                       "capturing");
  dfgnn_status status =
      ctx->on_miss(ctx->on_miss_data, ctx, graph, query->setting.problem);
  if (!status)
    select_locked(choice, ctx, query);
  return status;
}

dfgnn_status dfgnn__choose_forced(dfgnn_choice *choice, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_variant *variant) {
  dfgnn_status status = dfgnn__graph_know(graph);
  const dfgnn_query query = query_of(graph, problem, NULL);
  return status ? status : choose_forced(choice, variant, &query);
}

/* A limit of the workspace may be all that is in the way. */
static dfgnn_status none_applies(const char *text, const dfgnn_context *ctx,
                                 const dfgnn_setting *setting) {
  const int64_t limit = setting->problem->max_workspace;
  const int64_t least = limit < 0 ? -1 : dfgnn__least_workspace(setting);
  if (least > limit)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "no variant applies to %s on %s with "
                       "problem.max_workspace %lld: the least that one needs "
                       "is %lld bytes",
                       text, ctx->info.backend, (long long)limit,
                       (long long)least);
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "no variant applies to %s on %s",
                     text, ctx->info.backend);
}

static dfgnn_status search(dfgnn_choice *choice, dfgnn_graph *graph,
                           const dfgnn_query *query) {
  dfgnn_context *ctx = graph->ctx;
  const dfgnn_problem *problem = query->setting.problem;
  char text[192];
  select_locked(choice, ctx, query);
  if (problem->effort != DFGNN_EFFORT_PAPER) {
    if (!is_stored(choice))
      tell_of_device(ctx, query);
    int exact = choice->variant && (choice->source == DFGNN_SOURCE_EXACT ||
                                    choice->source == DFGNN_SOURCE_PINNED);
    if (problem->effort == DFGNN_EFFORT_MEASURE && !exact &&
        !graph->matrix.refilled)
      DFGNN_TRY(tune_miss(choice, graph, query));
    if (problem->effort == DFGNN_EFFORT_STORED && !is_stored(choice)) {
      dfgnn__key_text(text, sizeof text, problem);
      return dfgnn__fail(DFGNN_ERROR_NOT_TUNED,
                         "nothing stored answers %s; tune it with dfgnn-tune "
                         "run",
                         text);
    }
  }
  if (!choice->variant) {
    dfgnn__key_text(text, sizeof text, problem);
    return none_applies(text, ctx, &query->setting);
  }
  return DFGNN_OK;
}

/* ---- choices made before ------------------------------------------------- */

/* May the choice be one that was made before for a graph like this?  Not if
 * there are pins, or measurements of this very graph, or the effort measures.
 */
static int follows(const dfgnn_graph *graph, const dfgnn_problem *problem,
                   int known) {
  dfgnn_context *ctx = graph->ctx;
  const dfgnn_matrix *m = &graph->matrix;
  if (problem->effort != DFGNN_EFFORT_ESTIMATE &&
      problem->effort != DFGNN_EFFORT_STORED)
    return 0;
  pthread_mutex_lock(&ctx->lock);
  int own =
      known ? dfgnn__table_has_graph(ctx->table, graph->signature.fingerprint)
            : dfgnn__table_has_shape(ctx->table, m->destinations, m->sources,
                                     m->edges);
  int pins = dfgnn__table_has_pins(ctx->table);
  pthread_mutex_unlock(&ctx->lock);
  return !own && !pins;
}

static int applies(const dfgnn_choice *choice, const dfgnn_query *query) {
  return !query->broken[dfgnn__variant_index(choice->variant)] &&
         !dfgnn__variant_refusal(choice->variant, &query->setting);
}

/* Does the variant ask how many edges there are?  Attention finds edges by the
 * offsets of rows, except for weights and views that list all edges. */
static int counts_edges(const dfgnn_choice *choice, const dfgnn_query *query) {
  const dfgnn_family *family = choice->variant->family;
  const dfgnn_problem *problem = query->setting.problem;
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  dfgnn_setting setting = query->setting;
  setting.parameter = choice->variant->parameter;
  const int views = family->views ? family->views(&setting, requests) : 0;
  int lists = family->prepare || problem->weights || problem->edge_dim ||
              !(DFGNN_OPS_ATTENTION & DFGNN_BIT(problem->op));
  for (int k = 0; k < views; k++)
    lists |= requests[k].kind == DFGNN_VIEW_ROW_OF_EDGE ||
             requests[k].kind == DFGNN_VIEW_TILES;
  return lists;
}

/* Finds a choice that was kept under the key, if it serves this graph too. */
static int decided(dfgnn_choice *choice, dfgnn_context *ctx,
                   const dfgnn_query *query, uint64_t key) {
  return dfgnn__decided_find(choice, ctx, key) && applies(choice, query);
}

dfgnn_status dfgnn__choose(dfgnn_choice *choice, dfgnn_graph *graph,
                           const dfgnn_problem *problem,
                           const unsigned char *avoided) {
  dfgnn_context *ctx = graph->ctx;
  const dfgnn_variant *forced = ctx->forced_variant;
  const uint64_t hash = dfgnn__problem_hash(problem);
  uint64_t shape = 0, signature = 0;
  dfgnn_query query = query_of(graph, problem, avoided);
  const int forces = forced && forced->family->ops & DFGNN_BIT(problem->op) &&
                     forced->family->passes & DFGNN_BIT(problem->pass);
  if (!forces && !avoided && graph->checked && !dfgnn__graph_known(graph) &&
      follows(graph, problem, 0)) {
    shape = dfgnn__decided_by_shape(&query, hash);
    if (decided(choice, ctx, &query, shape) &&
        !(graph->edges_bound && counts_edges(choice, &query)))
      return DFGNN_OK;
  }
  DFGNN_TRY(dfgnn__graph_know(graph));
  dfgnn_status status = DFGNN_OK;
  query = query_of(graph, problem, avoided);
  if (forces)
    return choose_forced(choice, forced, &query);
  if (!avoided && follows(graph, problem, 1)) {
    signature = dfgnn__decided_by_signature(&query, hash);
    if (!decided(choice, ctx, &query, signature)) {
      status = search(choice, graph, &query);
      if (!status)
        dfgnn__decided_keep(ctx, signature, choice);
    }
    if (!status && shape)
      dfgnn__decided_keep(ctx, shape, choice);
    return status;
  }
  return search(choice, graph, &query);
}
