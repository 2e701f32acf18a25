/* internal.h - the store's inside, for the files of db/ */
#ifndef DFGNN_DB_INTERNAL_H
#define DFGNN_DB_INTERNAL_H

#include "db/field.h"
#include "db/store.h"
#include "lib/base/filesystem.h"

#include <sqlite3.h>

/* ---- the tables of a store ----------------------------------------------- */

/* "dfgn": the application_id of SQLite's header. */
#define DFGNN_APPLICATION_ID 0x6466676e

/* SQLite's user_version.  It goes up with every change of a table; a library
 * reads and writes this version alone. */
#define DFGNN_SCHEMA_VERSION 10

/* ---- a store ------------------------------------------------------------- */

struct dfgnn_store {
  sqlite3 *db;
  char *path;
  int immutable; /* opened without locks: size and time tell of changes */
  int64_t size, modified_ns;
  uint64_t inode;
  uint64_t steps;  /* left to the running query, in thousands */
  unsigned jitter; /* state of the busy handler */
  int waited_ms;
  sqlite3_stmt *insert[DFGNN_GROUP_COUNT];
};

/* DFGNN_ERROR_STORE with the file's name, the attempt and SQLite's message. */
dfgnn_status dfgnn__store_fail(const dfgnn_store *store, int rc,
                               const char *attempt);

/* DFGNN_ERROR_STORE if a file that was opened without locks has changed since:
 * the rows that were read may be of two moments. */
dfgnn_status dfgnn__store_unchanged(const dfgnn_store *store);

/* Called before each query or transaction: fresh budgets of steps and waiting.
 */
void dfgnn__store_begin(dfgnn_store *store);
/* Runs SQL without results. */
dfgnn_status dfgnn__store_execute(dfgnn_store *store, const char *sql,
                                  const char *attempt);
/* Rolls back, and keeps the message that the thread has. */
void dfgnn__store_rollback(dfgnn_store *store);
/* The text "SELECT hash, a, b FROM t ORDER BY hash" over a group's columns.
 * sqlite3_free it; NULL without memory. */
char *dfgnn__select_sql(dfgnn_field_group group);

/* db/connect.c: opens the store's connection anew, with its limits. */
dfgnn_status dfgnn__store_connect(dfgnn_store *store, const char *path,
                                  const char *options, int flags);
/* Sets the pragmas, once the file is known to be ours: SQLite reads it then. */
dfgnn_status dfgnn__store_pragmas(dfgnn_store *store);
/* A bare connection; options are those of a URI, such as "immutable=1", or "".
 */
int dfgnn__connect(sqlite3 **db, const char *path, const char *options,
                   int flags);

/* dfgnn__store_open that asks for no signature. */
dfgnn_status dfgnn__store_open_unsigned(dfgnn_store **store, const char *path,
                                        dfgnn_store_mode mode);

/* db/file.c: creates a store, whole or not at all; success if another process
 * did. */
dfgnn_status dfgnn__store_create(const char *path);
/* db/schema.c: makes the tables of a new store; compares those of an open one.
 */
dfgnn_status dfgnn__schema_create(dfgnn_store *store);
dfgnn_status dfgnn__schema_check(dfgnn_store *store);

#define DFGNN_STORE_CAP_BYTES (256ll << 20)

/* db/record.c: adds a row inside the caller's transaction. */
dfgnn_status dfgnn__store_insert(dfgnn_store *store, int *added,
                                 const dfgnn_measurement *measurement);

/* The same without cleaning and checking the row, for tests of readers. */
dfgnn_status dfgnn__store_insert_raw(dfgnn_store *store, int *added,
                                     const dfgnn_measurement *row);

/* db/load.c: dfgnn__store_each with the hash and with strings that outlive it.
 */
typedef struct dfgnn_strings dfgnn_strings;
dfgnn_strings *dfgnn__strings_create(void);
/* One copy of each text; NULL without memory. */
const char *dfgnn__strings_add(dfgnn_strings *strings, const char *s);
void dfgnn__strings_free(dfgnn_strings *strings);

typedef int (*dfgnn_scan_visit)(void *data,
                                const unsigned char hash[DFGNN_HASH_BYTES],
                                const dfgnn_measurement *row);
dfgnn_status dfgnn__store_scan(dfgnn_store *store, uint64_t *invalid,
                               const dfgnn_store_filter *filter,
                               dfgnn_strings *strings, dfgnn_scan_visit visit,
                               void *data);

#endif
