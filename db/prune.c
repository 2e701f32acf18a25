/* prune.c - the removal of rows that nobody can use */
#include "db/internal.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct prune {
  int (*keep)(void *data, const dfgnn_measurement *row);
  void *data;
  unsigned char (*hash)[DFGNN_HASH_BYTES]; /* of rows that stay, ascending */
  size_t count, room;
  dfgnn_prune_counts counts;
  int failed;
} prune;

static int visit(void *data, const unsigned char *hash,
                 const dfgnn_measurement *row) {
  prune *p = data;
  if (!p->keep(p->data, row)) {
    p->counts.removed++;
    return 0;
  }
  if (p->count == p->room) {
    size_t room = p->room ? 2 * p->room : 256;
    void *grown = realloc(p->hash, room * sizeof *p->hash);
    if (!grown)
      return p->failed = 1;
    p->hash = grown;
    p->room = room;
  }
  memcpy(p->hash[p->count++], hash, DFGNN_HASH_BYTES);
  p->counts.kept++;
  return 0;
}

static int compare(const void *a, const void *b) {
  return memcmp(a, b, DFGNN_HASH_BYTES);
}

/* SQL: stays(hash) */
static void stays(sqlite3_context *context, int count, sqlite3_value **value) {
  const prune *p = sqlite3_user_data(context);
  (void)count;
  sqlite3_result_int(context,
                     sqlite3_value_type(*value) == SQLITE_BLOB &&
                         sqlite3_value_bytes(*value) == DFGNN_HASH_BYTES &&
                         p->count &&
                         bsearch(sqlite3_value_blob(*value), p->hash, p->count,
                                 DFGNN_HASH_BYTES, compare) != NULL);
}

static dfgnn_status remove_rows(dfgnn_store *store, prune *p) {
  const char *attempt = "rows cannot be removed";
  char sql[128];
  int rc = sqlite3_create_function(store->db, "stays", 1,
                                   SQLITE_UTF8 | SQLITE_DIRECTONLY, p, stays,
                                   NULL, NULL);
  if (rc)
    return dfgnn__store_fail(store, rc, attempt);
  store->steps = UINT64_MAX;
  dfgnn_status status = dfgnn__store_execute(
      store, "DELETE FROM measurement WHERE NOT stays(hash)", attempt);
  for (int i = 0; i < DFGNN_PART_COUNT && !status; i++) {
    const char *table = dfgnn__fields[i].table;
    snprintf(sql, sizeof sql,
             "DELETE FROM %s WHERE hash NOT IN (SELECT %s FROM measurement)",
             table, table);
    status = dfgnn__store_execute(store, sql, attempt);
  }
  sqlite3_create_function(store->db, "stays", 1, SQLITE_UTF8, NULL, NULL, NULL,
                          NULL);
  return status;
}

dfgnn_status dfgnn__store_prune(dfgnn_store *store, dfgnn_prune_counts *counts,
                                int (*keep)(void *data,
                                            const dfgnn_measurement *row),
                                void *data) {
  prune p = {.keep = keep, .data = data};
  dfgnn_strings *strings = dfgnn__strings_create();
  if (!strings)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", store->path);
  dfgnn__store_begin(store);
  dfgnn_status status =
      dfgnn__store_execute(store, "BEGIN IMMEDIATE", "rows cannot be removed");
  if (!status)
    status =
        dfgnn__store_scan(store, &p.counts.invalid, NULL, strings, visit, &p);
  if (!status && p.failed)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", store->path);
  if (!status)
    status = remove_rows(store, &p);
  if (!status)
    status = dfgnn__store_execute(store, "COMMIT", "rows cannot be removed");
  if (status)
    dfgnn__store_rollback(store);
  else if (p.counts.removed || p.counts.invalid) /* a reader may hinder it */
    sqlite3_exec(store->db, "VACUUM", NULL, NULL, NULL);
  if (!status && counts) {
    counts->kept += p.counts.kept;
    counts->removed += p.counts.removed;
    counts->invalid += p.counts.invalid;
  }
  dfgnn__strings_free(strings);
  free(p.hash);
  return status;
}
