#include "tuner/candidates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"
#include "lib/predict.h"
#include "lib/signature.h"

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

typedef struct place {
  size_t trial, turn;
  uint64_t key;
  const dfgnn_family *family;
} place;

static int by_family(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->family != y->family)
    return x->family < y->family ? -1 : 1;
  return (x->key > y->key) - (x->key < y->key);
}

static int by_turn(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->turn != y->turn)
    return x->turn < y->turn ? -1 : 1;
  return (x->key > y->key) - (x->key < y->key);
}

static dfgnn_status order_trials(dfgnn_trials *t, uint64_t seed) {
  place *places = calloc(t->count, sizeof *places);
  t->order = calloc(t->count, sizeof *t->order);
  if (!places || !t->order) {
    free(places);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  for (size_t i = 0; i < t->count; i++)
    places[i] =
        (place){.trial = i,
                .key = dfgnn__mix(seed * 0x9e3779b97f4a7c15u +
                                  dfgnn__variant_index(t->trial[i].variant)),
                .family = t->trial[i].variant->family};
  qsort(places, t->count, sizeof *places, by_family);
  for (size_t i = 1; i < t->count; i++)
    if (places[i].family == places[i - 1].family)
      places[i].turn = places[i - 1].turn + 1;
  qsort(places, t->count, sizeof *places, by_turn);
  for (size_t i = 0; i < t->count; i++)
    t->order[i] = places[i].trial;
  free(places);
  return DFGNN_OK;
}

typedef struct foretold {
  size_t trial;
  double predicted;
} foretold;

static int by_prediction(const void *a, const void *b) {
  const foretold *x = a, *y = b;
  if (x->predicted != y->predicted)
    return x->predicted < y->predicted ? -1 : 1;
  return (x->trial > y->trial) - (x->trial < y->trial);
}

/* Puts the trials in the order of their predicted times, if there is a model;
 * trials that it does not know come last, in the order that they had. */
static dfgnn_status order_by_model(dfgnn_trials *t, dfgnn_context *ctx,
                                   const dfgnn_query *query) {
  if (!ctx->model)
    return DFGNN_OK;
  foretold *list = calloc(t->count, sizeof *list);
  double *predicted = calloc(t->count, sizeof *predicted);
  if (!list || !predicted) {
    free(list);
    free(predicted);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  pthread_mutex_lock(&ctx->lock);
  const dfgnn_prediction *p = dfgnn__predict_all(ctx->model, query);
  for (size_t k = 0; k < t->count; k++) {
    const size_t i = t->order[k];
    const double ratio = p ? dfgnn__predicted_ratio(p, t->trial[i].variant) : 0;
    predicted[i] = ratio > 0 ? log(ratio) : INFINITY;
    list[k] = (foretold){k, predicted[i]};
  }
  pthread_mutex_unlock(&ctx->lock);
  if (p) {
    qsort(list, t->count, sizeof *list, by_prediction);
    for (size_t k = 0; k < t->count; k++)
      list[k].trial = t->order[list[k].trial];
    for (size_t k = 0; k < t->count; k++)
      t->order[k] = list[k].trial;
    t->predicted = predicted;
    predicted = NULL;
  }
  free(predicted);
  free(list);
  return DFGNN_OK;
}

dfgnn_status dfgnn__trials_create(dfgnn_trials *t, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const char *const *names, uint64_t seed) {
  dfgnn_query query = {.setting = dfgnn__setting(graph, problem),
                       .family = graph->family,
                       .broken = graph->ctx->broken};
  dfgnn_choice rule;
  *t = (dfgnn_trials){0};
  dfgnn_status status = check_names(names);
  if (status)
    return status;
  dfgnn__rule_choice(&rule, &query);
  size_t all = dfgnn__variant_count();
  t->trial = calloc(all + 1, sizeof *t->trial);
  if (!t->trial)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < all; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (v->family->reference || query.broken[i] ||
        dfgnn__variant_refusal(v, &query.setting) ||
        (v != rule.variant &&
         (names ? !named(names, v->name) : v->family->paper)))
      continue;
    if (v == rule.variant)
      t->anchor = t->count;
    t->trial[t->count++].variant = v;
  }
  if (t->count) {
    status = order_trials(t, seed);
    if (!status)
      status = order_by_model(t, graph->ctx, &query);
  } else {
    char text[192];
    dfgnn__key_text(text, sizeof text, problem);
    status =
        dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "no variant applies to %s on %s",
                    text, graph->ctx->info.backend);
  }
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
