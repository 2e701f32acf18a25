/* publish.c - a store as one immutable file, for many readers on any file
 * system */
#include "db/internal.h"
#include "lib/base/output.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Messages name the path that is published, not the copy in memory. */
static dfgnn_status vacuum_into(dfgnn_store *store, const char *name,
                                const char *path) {
  dfgnn_store named = {.db = store->db, .path = (char *)path};
  const char *attempt = "cannot be published";
  sqlite3_stmt *query = NULL;
  dfgnn__store_begin(store);
  int rc = sqlite3_prepare_v2(store->db, "VACUUM INTO ?1", -1, &query, NULL);
  if (!rc)
    rc = sqlite3_bind_text(query, 1, name, -1, SQLITE_STATIC);
  if (!rc)
    rc = sqlite3_step(query);
  dfgnn_status status =
      rc == SQLITE_DONE ? DFGNN_OK : dfgnn__store_fail(&named, rc, attempt);
  sqlite3_finalize(query);
  char *journal = status ? sqlite3_mprintf("%s-journal", name) : NULL;
  if (journal)
    unlink(journal); /* on a full disk SQLite leaves it */
  sqlite3_free(journal);
  return status;
}

/* A store that is written to has a log; it may have rows and pins that the new
 * file has not, and another process may be adding some. */
static int is_published(const char *path, const void *data) {
  unsigned char b[72] = {0};
  FILE *in = fopen(path, "rb");
  (void)data;
  if (!in)
    return 0;
  const size_t got = fread(b, 1, sizeof b, in);
  fclose(in);
  return got == sizeof b && b[18] == 1 && b[19] == 1 &&
         !memcmp(b + 68, "dfgn", 4);
}

dfgnn_status dfgnn__store_publish(dfgnn_store *store, const char *path) {
  static const dfgnn_output_kind kind = {.name = "a published tuning store",
                                         .is = is_published};
  dfgnn_store *memory = NULL;
  dfgnn_output output;
  /* A copy in memory has no pins, no log and no traces of removed rows. */
  dfgnn_status status =
      dfgnn__store_open(&memory, ":memory:", DFGNN_STORE_WRITE);
  if (!status)
    status = dfgnn__store_merge(memory, NULL, store, NULL);
  if (!status)
    status = dfgnn__output_open(&output, path, &kind);
  if (!status) {
    status = vacuum_into(memory, output.made, path);
    output.mode = 0444;
    dfgnn_status closed = dfgnn__output_close(&output, !status);
    status = status ? status : closed;
  }
  dfgnn__store_close(memory);
  return status == DFGNN_ERROR_IO ? DFGNN_ERROR_STORE : status;
}
