#include "tuner/history.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

struct dfgnn_history {
  dfgnn_rows *stored;
  dfgnn_measurement *row; /* the problem's rows, stored and added */
  size_t count, capacity;
  dfgnn_decisions *decisions;
};

dfgnn_status dfgnn__history_add(dfgnn_history *h,
                                const dfgnn_measurement *row) {
  if (h->count == h->capacity) {
    size_t capacity = h->capacity ? 2 * h->capacity : 64;
    dfgnn_measurement *grown = realloc(h->row, capacity * sizeof *grown);
    if (!grown)
      return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    h->row = grown;
    h->capacity = capacity;
  }
  h->row[h->count++] = *row;
  return DFGNN_OK;
}

dfgnn_status dfgnn__history_load(dfgnn_history **out, dfgnn_context *ctx,
                                 const dfgnn_measurement *problem) {
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  filter.backend = problem->backend;
  filter.arch = problem->arch;
  filter.op = problem->op;
  filter.pass = problem->pass;
  filter.dtype = problem->dtype;
  filter.fingerprint = &problem->signature.fingerprint;
  filter.heads = problem->heads;
  filter.dim = problem->dim;
  dfgnn_history *h = calloc(1, sizeof *h);
  if (!h)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  size_t count = 0;
  dfgnn_status status = dfgnn__rows_create(&h->stored);
  if (!status)
    status = dfgnn__context_measured(h->stored, ctx, &filter);
  const dfgnn_measurement *row =
      status ? NULL : dfgnn__rows_get(h->stored, &count);
  for (size_t i = 0; i < count && !status; i++)
    if (dfgnn__same_problem(&row[i], problem))
      status = dfgnn__history_add(h, &row[i]);
  if (status) {
    dfgnn__history_free(h);
    return status;
  }
  *out = h;
  return DFGNN_OK;
}

void dfgnn__history_free(dfgnn_history *h) {
  if (!h)
    return;
  if (h->decisions)
    dfgnn__decisions_free(h->decisions);
  dfgnn__rows_free(h->stored);
  free(h->row);
  free(h);
}

const dfgnn_measurement *dfgnn__history_rows(const dfgnn_history *h,
                                             size_t *count) {
  *count = h->count;
  return h->row;
}

static int usable(void *data, const char *name, int revision) {
  (void)data;
  const dfgnn_variant *v = dfgnn__variant_find(name);
  return v && v->family->revision == revision;
}

dfgnn_status dfgnn__history_decide(const dfgnn_decision **decision,
                                   dfgnn_history *h, double margin) {
  if (h->decisions)
    dfgnn__decisions_free(h->decisions);
  h->decisions = NULL;
  *decision = NULL;
  DFGNN_TRY(dfgnn__decide(&h->decisions, NULL, h->row, h->count, margin, usable,
                          NULL));
  if (h->decisions->count > 0 && h->decisions->decision[0].count > 0)
    *decision = &h->decisions->decision[0];
  return DFGNN_OK;
}

int dfgnn__row_is_partial(const dfgnn_measurement *row) {
  return strstr(row->protocol, DFGNN_PARTIAL) != NULL;
}

static int tells_more(const dfgnn_measurement *a, const dfgnn_measurement *b) {
  int x = dfgnn__row_is_partial(a), y = dfgnn__row_is_partial(b);
  if (x == y) {
    x = 2 * a->disturbed > a->samples;
    y = 2 * b->disturbed > b->samples;
  }
  return x != y ? y : a->samples > b->samples;
}

const dfgnn_measurement *dfgnn__history_row(const dfgnn_history *h,
                                            const dfgnn_variant *variant) {
  const dfgnn_measurement *best = NULL;
  for (size_t i = 0; i < h->count; i++) {
    const dfgnn_measurement *row = &h->row[i];
    if (strcmp(row->variant, variant->name) ||
        row->revision != variant->family->revision)
      continue;
    if (strcmp(row->status, "ok"))
      return row;
    if (!best || tells_more(row, best))
      best = row;
  }
  return best;
}
