#include "tools/layers.h"
#include "lib/graph.h"
#include "lib/key.h"
#include "tuner/history.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct wanted {
  const dfgnn_problem *problem;
  uint64_t fingerprint, gate;
  const dfgnn_variant *variant;
  int found;
} wanted;

static int is_row(void *data, const dfgnn_measurement *row) {
  wanted *w = data;
  w->found = dfgnn__key_gate(row) == w->gate &&
             !strcmp(row->variant, w->variant->name) &&
             row->revision == w->variant->family->revision;
  return w->found;
}

static int is_pin(void *data, const dfgnn_pin *pin) {
  wanted *w = data;
  const dfgnn_problem *p = w->problem;
  w->found = !strcmp(pin->variant, w->variant->name) &&
             !strcmp(pin->op, dfgnn_name(DFGNN_NAMES_OP, p->op)) &&
             !strcmp(pin->pass, dfgnn_name(DFGNN_NAMES_PASS, p->pass)) &&
             !strcmp(pin->dtype, dfgnn_name(DFGNN_NAMES_DTYPE, p->dtype)) &&
             pin->bias <= p->bias && pin->dropout <= p->dropout &&
             (!pin->fingerprint || pin->fingerprint == w->fingerprint);
  return w->found;
}

void tool_layers_of(const tool_case *each, const dfgnn_choice *choice,
                    void (*found)(void *data, const char *path), void *data) {
  const dfgnn_problem *p = each->problem;
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  wanted w = {.problem = p,
              .fingerprint = each->graph->signature.fingerprint,
              .gate = choice->gate,
              .variant = choice->variant};
  int pinned = choice->source == DFGNN_SOURCE_PINNED;
  if (!pinned && choice->source != DFGNN_SOURCE_EXACT &&
      choice->source != DFGNN_SOURCE_NEAR)
    return;
  filter.backend = each->info->backend;
  filter.arch = each->info->arch;
  filter.status = "ok";
  filter.fingerprint = &choice->fingerprint;
  filter.heads = choice->heads;
  filter.dim = choice->dim;
  for (size_t i = 0; i < each->ctx->layer_count; i++) {
    dfgnn_store *store = NULL;
    w.found = 0;
    if (access(each->ctx->layers[i].path, R_OK) ||
        dfgnn__store_open(&store, each->ctx->layers[i].path, DFGNN_STORE_READ))
      continue;
    if (pinned)
      dfgnn__store_each_pin(store, is_pin, &w);
    else
      dfgnn__store_each(store, NULL, &filter, is_row, &w);
    dfgnn__store_close(store);
    if (w.found)
      found(data, each->ctx->layers[i].path);
  }
}

typedef struct census {
  const dfgnn_decisions *decisions;
  char *held; /* [decisions]: the layer has its winner */
  int64_t count;
} census;

static int mark(void *data, const dfgnn_measurement *row) {
  census *c = data;
  const dfgnn_decision *d = dfgnn__decision_find(c->decisions, row);
  char *held = d ? &c->held[d - c->decisions->decision] : NULL;
  if (d && !*held && d->count && !strcmp(d->ranked[0].variant, row->variant) &&
      d->ranked[0].revision == row->revision) {
    *held = 1;
    c->count++;
  }
  return 0;
}

size_t tool_layers_winners(int64_t *winners, const dfgnn_context *ctx) {
  census c = {.decisions = dfgnn__table_decisions(ctx->table)};
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  filter.backend = ctx->info.backend;
  filter.arch = ctx->info.arch;
  filter.status = "ok";
  for (size_t i = 0; i < ctx->layer_count; i++) {
    dfgnn_store *store = NULL;
    c.count = 0;
    c.held = calloc(c.decisions->count + 1, 1);
    if (c.held && !access(ctx->layers[i].path, R_OK) &&
        !dfgnn__store_open(&store, ctx->layers[i].path, DFGNN_STORE_READ))
      dfgnn__store_each(store, NULL, &filter, mark, &c);
    dfgnn__store_close(store);
    free(c.held);
    winners[i] = c.count;
  }
  return c.decisions->count;
}
