/* explain.c - why a plan has its variant, and why not each of the others */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/handle.h"
#include "lib/plan_race.h"

#define REASON_LENGTH 96

_Static_assert(sizeof(dfgnn_candidate) ==
                   2 * sizeof(char *) + 2 * sizeof(double),
               "programs that were built before step through candidates");

typedef struct explanation {
  dfgnn_explanation public;
  char because[sizeof((dfgnn_choice *)0)->because], model[320];
  char (*reasons)[REASON_LENGTH];
} explanation;

static const dfgnn_ranked *find_ranked(const dfgnn_decision *d,
                                       const char *variant) {
  for (size_t i = 0; d && i < d->count; i++)
    if (!strcmp(d->ranked[i].variant, variant))
      return &d->ranked[i];
  return NULL;
}

static void give_reason(char *reason, const dfgnn_variant *v,
                        const dfgnn_plan *plan, const dfgnn_decision *d,
                        double predicted) {
  dfgnn_setting setting = dfgnn__setting(plan->graph, &plan->problem);
  const char *refusal = dfgnn__variant_refusal(v, &setting);
  const dfgnn_ranked *ranked = find_ranked(d, v->name);
  if (v == dfgnn__race_current(plan)->variant)
    snprintf(reason, REASON_LENGTH, "chosen");
  else if (refusal)
    snprintf(reason, REASON_LENGTH, "%s", refusal);
  else if (v->family->reference)
    snprintf(reason, REASON_LENGTH, "reference only");
  else if (v->family->paper)
    snprintf(reason, REASON_LENGTH, "a paper's, not offered");
  else if (plan->ctx->broken[dfgnn__variant_index(v)])
    snprintf(reason, REASON_LENGTH, "the device refused it");
  else if (ranked && !ranked->sure && ranked->tied)
    snprintf(reason, REASON_LENGTH, "noisy (%s), so that it changes nothing",
             dfgnn__noise_name(ranked->noise));
  else if (ranked && ranked->tied)
    snprintf(reason, REASON_LENGTH, "ties with the fastest: %.2fx",
             exp(ranked->log_ratio));
  else if (ranked)
    snprintf(reason, REASON_LENGTH, "slower: %.2fx", exp(ranked->log_ratio));
  else if (predicted > 0)
    snprintf(reason, REASON_LENGTH,
             "not measured on this graph; predicted %.2fx", predicted);
  else
    snprintf(reason, REASON_LENGTH, "not measured on this graph");
}

dfgnn_status dfgnn_plan_explain(dfgnn_explanation **out,
                                const dfgnn_plan *plan) {
  dfgnn_status status = dfgnn__check_plan(plan);
  if (status)
    return status;
  if (!out)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "explanation is NULL");
  status = dfgnn__graph_know(plan->graph);
  if (status)
    return status;
  size_t total = dfgnn__variant_count(), count = 0;
  explanation *e = calloc(1, sizeof *e);
  dfgnn_candidate *candidates = calloc(total + 1, sizeof *candidates);
  char(*reasons)[REASON_LENGTH] = calloc(total + 1, sizeof *reasons);
  if (!e || !candidates || !reasons) {
    free(e);
    free(candidates);
    free(reasons);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  dfgnn_query query = {.setting = dfgnn__setting(plan->graph, &plan->problem),
                       .family = plan->graph->family};
  pthread_mutex_lock(&plan->ctx->lock);
  query.broken = plan->ctx->broken;
  const dfgnn_decision *d = dfgnn__table_exact(plan->ctx->table, &query);
  if (plan->ctx->model)
    dfgnn__prediction_text(e->model, sizeof e->model, plan->ctx->model, &query);
  const dfgnn_prediction *prediction =
      plan->ctx->model ? dfgnn__predict_all(plan->ctx->model, &query) : NULL;
  for (size_t i = 0; i < total; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!(v->family->ops & DFGNN_BIT(plan->problem.op)) ||
        !(v->family->passes & DFGNN_BIT(plan->problem.pass)))
      continue;
    const dfgnn_ranked *ranked = find_ranked(d, v->name);
    const double predicted =
        prediction ? dfgnn__predicted_ratio(prediction, v) : 0;
    give_reason(reasons[count], v, plan, d, predicted);
    candidates[count].variant = v->name;
    candidates[count].measured = ranked ? exp(ranked->log_ratio) : 0;
    candidates[count].predicted = predicted;
    candidates[count].reason = reasons[count];
    count++;
  }
  pthread_mutex_unlock(&plan->ctx->lock);
  memcpy(e->because, plan->choice.because, sizeof e->because);
  e->reasons = reasons;
  e->public = (dfgnn_explanation){.variant = dfgnn_plan_variant(plan),
                                  .source = plan->choice.source,
                                  .distance = plan->choice.distance,
                                  .because = e->because,
                                  .count = count,
                                  .candidates = candidates,
                                  .model = e->model};
  *out = &e->public;
  return DFGNN_OK;
}

void dfgnn_explanation_free(dfgnn_explanation *out) {
  explanation *e = (explanation *)out;
  if (!e)
    return;
  free((void *)e->public.candidates);
  free(e->reasons);
  free(e);
}
