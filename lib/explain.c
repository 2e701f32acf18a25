/* explain.c - why a plan has its variant, and why not each of the others */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/base/locale.h"
#include "lib/handle.h"
#include "lib/plan_race.h"

#define REASON_LENGTH 96
/* Candidates that are no members of the portfolio, at most. */
enum { OTHERS = 64 };

_Static_assert(sizeof(dfgnn_candidate) ==
                   2 * sizeof(char *) + 2 * sizeof(double),
               "programs that were built before step through candidates");

typedef struct explanation {
  dfgnn_explanation public;
  char because[sizeof((dfgnn_choice *)0)->because];
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
                        const dfgnn_plan *plan, const dfgnn_ranked *ranked,
                        double predicted) {
  dfgnn_setting setting = dfgnn__setting(plan->graph, &plan->problem);
  const char *refusal = dfgnn__variant_refusal(v, &setting);
  const locale_t before = dfgnn__locale_begin();
  if (v == dfgnn__race_current(plan)->variant)
    snprintf(reason, REASON_LENGTH, "chosen");
  else if (refusal)
    snprintf(reason, REASON_LENGTH, "%s", refusal);
  else if (plan->ctx->broken[dfgnn__variant_index(v)])
    snprintf(reason, REASON_LENGTH, "the device refused it");
  else if (dfgnn__table_bans(plan->ctx->table, v))
    snprintf(reason, REASON_LENGTH, "banned");
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
  dfgnn__locale_end(before);
}

/* ---- candidates ---------------------------------------------------------- */

typedef struct candidates {
  const dfgnn_variant *variant[DFGNN_PORTFOLIO_MOST + OTHERS];
  double predicted[DFGNN_PORTFOLIO_MOST + OTHERS];
  size_t count;
} candidates;

static void add(candidates *c, const dfgnn_variant *v) {
  for (size_t i = 0; i < c->count; i++)
    if (c->variant[i] == v)
      return;
  if (v && c->count < sizeof c->variant / sizeof *c->variant) {
    c->variant[c->count] = v;
    c->predicted[c->count++] = 0;
  }
}

/* Lists the members of the portfolio, what was chosen and what was measured;
 * the chosen one first. */
static void list(candidates *c, const dfgnn_plan *plan, const dfgnn_query *q,
                 const dfgnn_decision *d) {
  const dfgnn_variant *const chosen = dfgnn__race_current(plan)->variant;
  c->count = dfgnn__members(c->variant, c->predicted, plan->ctx->table, q);
  add(c, chosen);
  for (size_t i = 0; d && i < d->count; i++)
    add(c, dfgnn__variant_find(d->ranked[i].variant));
  for (size_t i = 1; i < c->count; i++)
    if (c->variant[i] == chosen) {
      const double predicted = c->predicted[i];
      memmove(c->variant + 1, c->variant, i * sizeof *c->variant);
      memmove(c->predicted + 1, c->predicted, i * sizeof *c->predicted);
      c->variant[0] = chosen;
      c->predicted[0] = predicted;
    }
}

dfgnn_status dfgnn_plan_explain(dfgnn_explanation **out,
                                const dfgnn_plan *plan) {
  candidates all;
  DFGNN_TRY(dfgnn__check_plan(plan));
  if (!out)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "explanation is NULL");
  DFGNN_TRY(dfgnn__graph_know(plan->graph));
  const size_t most = sizeof all.variant / sizeof *all.variant;
  explanation *e = calloc(1, sizeof *e);
  dfgnn_candidate *given = calloc(most, sizeof *given);
  char(*reasons)[REASON_LENGTH] = calloc(most, sizeof *reasons);
  if (!e || !given || !reasons) {
    free(e);
    free(given);
    free(reasons);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  const dfgnn_query query = {.setting =
                                 dfgnn__setting(plan->graph, &plan->problem),
                             .family = plan->graph->family,
                             .broken = plan->ctx->broken};
  pthread_mutex_lock(&plan->ctx->lock);
  const dfgnn_decision *d = dfgnn__table_exact(plan->ctx->table, &query);
  list(&all, plan, &query, d);
  for (size_t i = 0; i < all.count; i++) {
    const dfgnn_variant *v = all.variant[i];
    const dfgnn_ranked *ranked = find_ranked(d, v->name);
    give_reason(reasons[i], v, plan, ranked, all.predicted[i]);
    given[i].variant = v->name;
    given[i].measured = ranked ? exp(ranked->log_ratio) : 0;
    given[i].predicted = all.predicted[i];
    given[i].reason = reasons[i];
  }
  pthread_mutex_unlock(&plan->ctx->lock);
  memcpy(e->because, plan->choice.because, sizeof e->because);
  e->reasons = reasons;
  e->public =
      (dfgnn_explanation){.variant = dfgnn_plan_variant(plan),
                          .source = plan->choice.source,
                          .distance = plan->choice.distance,
                          .because = e->because,
                          .count = all.count,
                          .candidates = given,
                          .portfolio = dfgnn__portfolio_cell(&query.setting)};
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
