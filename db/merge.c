#include "base/error.h"
#include "db/internal.h"

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

dfgnn_status dfgnn__store_record_all(dfgnn_store *store, uint64_t *added,
                                     const dfgnn_measurement *rows,
                                     size_t count) {
  merge m = {store, {0, 0, 0}, DFGNN_OK};
  dfgnn_status status = begin(store);
  if (status)
    return status;
  for (size_t i = 0; i < count && !m.status; i++)
    merge_row(&m, &rows[i]);
  status = end(store, m.status);
  if (!status && added)
    *added += m.counts.added;
  return status;
}

dfgnn_status dfgnn__store_merge(dfgnn_store *out, dfgnn_merge_counts *counts,
                                dfgnn_store *in,
                                const dfgnn_store_filter *filter) {
  merge m = {out, {0, 0, 0}, DFGNN_OK};
  if (in == out)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: a store cannot be merged into itself", in->path);
  if (in->newer)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: of a newer version: merging would lose what this "
                       "library does not know; update dfgnn",
                       in->path);
  dfgnn_status status = begin(out);
  if (status)
    return status;
  status = dfgnn__store_each(in, &m.counts.skipped, filter, merge_row, &m);
  status = end(out, m.status ? m.status : status);
  if (!status && counts) {
    counts->added += m.counts.added;
    counts->known += m.counts.known;
    counts->skipped += m.counts.skipped;
  }
  return status;
}
