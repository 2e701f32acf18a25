/* merge.c - the union of stores, and many rows in one transaction */
#include "db/internal.h"
#include "lib/base/error.h"

#include <stdlib.h>

typedef struct merge {
  dfgnn_store *out;
  dfgnn_merge_counts counts;
  dfgnn_status status;
} merge;

static int merge_row(void *data, const dfgnn_measurement *row) {
  merge *m = data;
  int added = 0;
  m->status = dfgnn__store_insert(m->out, &added, row);
  m->counts.added += added != 0;
  m->counts.known += added == 0;
  m->out->steps = UINT64_MAX; /* a row is bounded, their number is not */
  return m->status != DFGNN_OK;
}

static void add_counts(dfgnn_merge_counts *sum,
                       const dfgnn_merge_counts *counts) {
  sum->added += counts->added;
  sum->known += counts->known;
  sum->skipped += counts->skipped;
}

static dfgnn_status begin(dfgnn_store *store) {
  dfgnn__store_begin(store);
  return dfgnn__store_execute(store, "BEGIN IMMEDIATE",
                              "measurements cannot be written");
}

static dfgnn_status end(dfgnn_store *store, dfgnn_status status) {
  if (!status)
    status =
        dfgnn__store_execute(store, "COMMIT", "measurements cannot be written");
  if (status)
    dfgnn__store_rollback(store);
  return status;
}

dfgnn_status dfgnn__store_record_from(dfgnn_store *store,
                                      dfgnn_merge_counts *counts,
                                      dfgnn_store_next next, void *data) {
  merge m = {.out = store};
  const dfgnn_measurement *row = NULL;
  DFGNN_TRY(begin(store));
  dfgnn_status status = DFGNN_OK;
  while (!status && !(status = next(data, &row)) && row) {
    merge_row(&m, row);
    status = m.status;
  }
  status = end(store, status);
  if (!status && counts)
    add_counts(counts, &m.counts);
  return status;
}

typedef struct list {
  const dfgnn_measurement *at, *end;
} list;

static dfgnn_status next_of(void *data, const dfgnn_measurement **row) {
  list *l = data;
  *row = l->at < l->end ? l->at++ : NULL;
  return DFGNN_OK;
}

dfgnn_status dfgnn__store_record_all(dfgnn_store *store, uint64_t *added,
                                     const dfgnn_measurement *rows,
                                     size_t count) {
  dfgnn_merge_counts counts = {0};
  list l = {rows, rows + count};
  dfgnn_status status = dfgnn__store_record_from(store, &counts, next_of, &l);
  if (!status && added)
    *added += counts.added;
  return status;
}

static dfgnn_status check_source(const dfgnn_store *out,
                                 const dfgnn_store *in) {
  if (in == out)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: a store cannot be merged into itself", in->path);
  return DFGNN_OK;
}

static dfgnn_status merge_one(dfgnn_store *out, dfgnn_merge_counts *counts,
                              dfgnn_store *in,
                              const dfgnn_store_filter *filter) {
  merge m = {.out = out};
  dfgnn_status status =
      dfgnn__store_each(in, &m.counts.skipped, filter, merge_row, &m);
  *counts = m.counts;
  return m.status ? m.status : status;
}

dfgnn_status dfgnn__store_merge_all(dfgnn_store *out,
                                    dfgnn_merge_counts *counts,
                                    dfgnn_store *const *in, size_t count,
                                    const dfgnn_store_filter *filters) {
  dfgnn_merge_counts *each = calloc(count + 1, sizeof *each);
  dfgnn_status status =
      each ? DFGNN_OK
           : dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", out->path);
  for (size_t i = 0; i < count && !status; i++)
    status = check_source(out, in[i]);
  if (!status)
    status = begin(out);
  if (status)
    goto fail;
  for (size_t i = 0; i < count && !status; i++)
    status = merge_one(out, &each[i], in[i], filters ? &filters[i] : NULL);
  status = end(out, status);
  for (size_t i = 0; i < count && counts && !status; i++)
    add_counts(&counts[i], &each[i]);
fail:
  free(each);
  return status;
}

dfgnn_status dfgnn__store_merge(dfgnn_store *out, dfgnn_merge_counts *counts,
                                dfgnn_store *in,
                                const dfgnn_store_filter *filter) {
  return dfgnn__store_merge_all(out, counts, &in, 1, filter);
}
