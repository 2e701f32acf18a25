#include "tuner/candidates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"

static int named(const char *const *names, const char *name) {
  for (; *names; names++)
    if (!strcmp(*names, name))
      return 1;
  return 0;
}

static dfgnn_status check_names(const char *const *names) {
  for (; names && *names; names++)
    if (!dfgnn__variant_find(*names))
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "unknown variant '%s'; `dfgnn-tune variants` lists "
                         "them",
                         *names);
  return DFGNN_OK;
}

/* Adds a variant that is none of the trials yet, with the logarithm of its
 * predicted time; 0 without memory. */
static int add(dfgnn_trials *t, const dfgnn_variant *v, double predicted) {
  if (!v || dfgnn__trials_find(t, v->name) < t->count)
    return 1;
  dfgnn_trial *trial = realloc(t->trial, (t->count + 1) * sizeof *trial);
  if (trial)
    t->trial = trial;
  size_t *order = realloc(t->order, (t->count + 1) * sizeof *order);
  if (order)
    t->order = order;
  double *all = realloc(t->predicted, (t->count + 1) * sizeof *all);
  if (all)
    t->predicted = all;
  if (!trial || !order || !all)
    return 0;
  trial[t->count] = (dfgnn_trial){.variant = v};
  order[t->count] = t->count;
  all[t->count++] = predicted;
  return 1;
}

/* Adds the members of the portfolio, as the model ranks them. */
static int add_members(dfgnn_trials *t, const dfgnn_context *ctx,
                       const dfgnn_query *query, const char *const *names) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  double ratio[DFGNN_PORTFOLIO_MOST];
  const size_t count = dfgnn__members(member, ratio, ctx->table, query);
  int memory = 1;
  for (size_t i = 0; i < count && memory; i++)
    if (!names || named(names, member[i]->name))
      memory = add(t, member[i], ratio[i] > 0 ? log(ratio[i]) : INFINITY);
  return memory;
}

/* Adds every variant that applies, or of these the named ones. */
static int add_all(dfgnn_trials *t, const dfgnn_context *ctx,
                   const dfgnn_query *query, const char *const *names) {
  int memory = 1;
  for (size_t i = 0; i < dfgnn__variant_count() && memory; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!query->broken[i] && !dfgnn__table_bans(ctx->table, v) &&
        !dfgnn__variant_refusal(v, &query->setting) &&
        (names ? named(names, v->name) : !v->family->paper))
      memory = add(t, v, INFINITY);
  }
  return memory;
}

/* Adds what was measured of this problem before, so that ratios go on having an
 * anchor in common; stored rows are not measured again. */
static int add_stored(dfgnn_trials *t, const dfgnn_context *ctx,
                      const dfgnn_query *query) {
  const dfgnn_decision *d = dfgnn__table_exact(ctx->table, query);
  int memory = 1;
  for (size_t i = 0; d && i < d->count && memory; i++) {
    const dfgnn_variant *v = dfgnn__variant_find(d->ranked[i].variant);
    if (v && !query->broken[dfgnn__variant_index(v)] &&
        !dfgnn__table_bans(ctx->table, v) &&
        !dfgnn__variant_refusal(v, &query->setting))
      memory = add(t, v, INFINITY);
  }
  return memory;
}

static dfgnn_status list(dfgnn_trials *t, dfgnn_graph *graph,
                         const dfgnn_query *query, const char *const *names,
                         int exhaustive) {
  dfgnn_context *ctx = graph->ctx;
  dfgnn_choice rule, choice;
  pthread_mutex_lock(&ctx->lock);
  dfgnn__rule_choice(&rule, ctx->table, query);
  dfgnn__select(&choice, ctx->table, query);
  int memory = add_members(t, ctx, query, names);
  if (memory && (names || exhaustive))
    memory = add_all(t, ctx, query, names);
  if (memory)
    memory = add_stored(t, ctx, query);
  if (memory)
    memory = add(t, choice.variant, INFINITY) && add(t, rule.variant, INFINITY);
  pthread_mutex_unlock(&ctx->lock);
  if (!memory)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!t->count) {
    char text[192];
    dfgnn__key_text(text, sizeof text, query->setting.problem);
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "no variant applies to %s on %s", text,
                       ctx->info.backend);
  }
  t->anchor = dfgnn__trials_find(t, rule.variant->name);
  t->chosen = dfgnn__trials_find(t, choice.variant->name);
  return DFGNN_OK;
}

dfgnn_status dfgnn__trials_create(dfgnn_trials *t, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const char *const *names, int exhaustive) {
  const dfgnn_query query = {.setting = dfgnn__setting(graph, problem),
                             .family = graph->family,
                             .broken = graph->ctx->broken};
  *t = (dfgnn_trials){0};
  dfgnn_status status = check_names(names);
  if (!status)
    status = list(t, graph, &query, names, exhaustive);
  if (status)
    dfgnn__trials_free(t);
  return status;
}

void dfgnn__trials_free(dfgnn_trials *t) {
  for (size_t i = 0; i < t->count; i++)
    dfgnn_plan_destroy(t->trial[i].plan);
  free(t->trial);
  free(t->order);
  free(t->predicted);
  *t = (dfgnn_trials){0};
}

size_t dfgnn__trials_find(const dfgnn_trials *t, const char *name) {
  size_t i = 0;
  while (i < t->count && strcmp(t->trial[i].variant->name, name))
    i++;
  return i;
}
