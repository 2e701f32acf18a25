/* connect.c - a confined connection to SQLite: its limits, its waiting, and its
 * errors as messages */
#include "db/internal.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

#define CAP_BYTES DFGNN_STORE_CAP_BYTES
#define STEPS 400000 /* thousands: a full scan of a file of CAP_BYTES fits */
#define WAIT_MS 60000

dfgnn_status dfgnn__store_fail(const dfgnn_store *store, int rc,
                               const char *attempt) {
  const char *reason = store->db ? sqlite3_errmsg(store->db) : "";
  switch (rc & 0xff) {
  case SQLITE_BUSY:
  case SQLITE_PROTOCOL:
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: %s: other processes held it locked for %d s",
                       store->path, attempt, WAIT_MS / 1000);
  case SQLITE_CORRUPT:
    return dfgnn__fail(DFGNN_ERROR_STORE, "%s: %s: the file is damaged (%s)",
                       store->path, attempt, reason);
  case SQLITE_FULL:
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: %s: the disk is full or the store has reached %lld "
                       "MiB",
                       store->path, attempt, CAP_BYTES >> 20);
  case SQLITE_INTERRUPT:
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: %s: more work than any store of its size needs, so "
                       "it is damaged",
                       store->path, attempt);
  case SQLITE_NOMEM:
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: %s: out of memory", store->path,
                       attempt);
  case SQLITE_CANTOPEN:
  case SQLITE_IOERR: {
    int error = store->db ? sqlite3_system_errno(store->db) : 0;
    return dfgnn__fail(DFGNN_ERROR_STORE, "%s: %s: %s", store->path, attempt,
                       error ? strerror(error) : reason);
  }
  default:
    return dfgnn__fail(DFGNN_ERROR_STORE, "%s: %s: %s", store->path, attempt,
                       reason);
  }
}

static int progress(void *data) {
  dfgnn_store *store = data;
  return store->steps == 0 || --store->steps == 0;
}

/* Sleeps 1 to 25 ms, at random so that waiting processes do not march in step.
 */
static int busy(void *data, int count) {
  dfgnn_store *store = data;
  if (store->waited_ms >= WAIT_MS)
    return 0;
  store->jitter = store->jitter * 1664525u + 1013904223u;
  int most = count < 5 ? 3 : 25;
  int ms = 1 + (int)((store->jitter >> 16) % (unsigned)most);
  store->waited_ms += ms;
  sqlite3_sleep(ms);
  return 1;
}

void dfgnn__store_begin(dfgnn_store *store) {
  store->steps = STEPS;
  store->waited_ms = 0;
}

dfgnn_status dfgnn__store_execute(dfgnn_store *store, const char *sql,
                                  const char *attempt) {
  int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
  return rc ? dfgnn__store_fail(store, rc, attempt) : DFGNN_OK;
}

void dfgnn__store_rollback(dfgnn_store *store) {
  store->steps = STEPS;
  if (!sqlite3_get_autocommit(store->db))
    sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
}

int dfgnn__connect(sqlite3 **db, const char *path, const char *options,
                   int flags) {
  *db = NULL;
  flags |= SQLITE_OPEN_NOMUTEX; /* a store is used by one thread at a time */
  if (strcmp(path, ":memory:") == 0)
    return sqlite3_open_v2(path, db, flags, NULL);
  char *uri = dfgnn__sqlite_uri(path, options);
  if (!uri)
    return SQLITE_NOMEM;
  int rc = sqlite3_open_v2(uri, db, flags | SQLITE_OPEN_URI, NULL);
  free(uri);
  return rc;
}

static int confine(sqlite3 *db) {
  static const struct {
    int option, value;
  } options[] =
      {
          {SQLITE_DBCONFIG_DEFENSIVE, 1},
          {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
          {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
          {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
          {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
          {SQLITE_DBCONFIG_ENABLE_FKEY, 1},
          {SQLITE_DBCONFIG_DQS_DML, 0},
          {SQLITE_DBCONFIG_DQS_DDL, 0},
      },
    limits[] = {
        {SQLITE_LIMIT_LENGTH, (int)CAP_BYTES},
        {SQLITE_LIMIT_SQL_LENGTH, 1 << 16},
        {SQLITE_LIMIT_COLUMN, 128},
        {SQLITE_LIMIT_EXPR_DEPTH, 64},
        {SQLITE_LIMIT_COMPOUND_SELECT, 4},
        {SQLITE_LIMIT_FUNCTION_ARG, 8},
        {SQLITE_LIMIT_ATTACHED, 1},
        {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 256},
        {SQLITE_LIMIT_VARIABLE_NUMBER, 128},
        {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
        {SQLITE_LIMIT_WORKER_THREADS, 0},
    };
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    int rc = sqlite3_db_config(db, options[i].option, options[i].value, NULL);
    if (rc)
      return rc;
  }
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    sqlite3_limit(db, limits[i].option, limits[i].value);
  return SQLITE_OK;
}

dfgnn_status dfgnn__store_pragmas(dfgnn_store *store) {
  return dfgnn__store_execute(store,
                              "PRAGMA mmap_size = 0;"
                              "PRAGMA cell_size_check = 1;"
                              "PRAGMA temp_store = MEMORY;"
                              "PRAGMA synchronous = FULL",
                              "cannot be opened");
}

dfgnn_status dfgnn__store_connect(dfgnn_store *store, const char *path,
                                  const char *options, int flags) {
  sqlite3_close(store->db);
  int rc = dfgnn__connect(&store->db, path, options, flags);
  if (rc)
    return dfgnn__store_fail(store, rc, "cannot be opened");
  sqlite3_extended_result_codes(store->db, 1);
  sqlite3_busy_handler(store->db, busy, store);
  dfgnn__store_begin(store);
  rc = confine(store->db);
  if (rc)
    return dfgnn__store_fail(store, rc, "cannot be opened");
  sqlite3_progress_handler(store->db, 1000, progress, store);
  return DFGNN_OK;
}
