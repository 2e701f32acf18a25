/* migrate.c - the schema of a store: created, compared to the letter, migrated
 */
#include "db/internal.h"
#include "lib/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dfgnn_status create_tables(dfgnn_store *store, int version,
                                  const char *attempt) {
  const dfgnn_schema *schema = &store->schemas->version[version - 1];
  dfgnn_status status = DFGNN_OK;
  for (int i = 0; i < DFGNN_SCHEMA_TABLES && !status; i++)
    if (schema->sql[i])
      status = dfgnn__store_execute(store, schema->sql[i], attempt);
  return status;
}

static dfgnn_status set_version(dfgnn_store *store, int version,
                                const char *attempt) {
  char sql[96];
  snprintf(sql, sizeof sql,
           "PRAGMA application_id = %d; PRAGMA user_version = %d",
           DFGNN_APPLICATION_ID, version);
  return dfgnn__store_execute(store, sql, attempt);
}

dfgnn_status dfgnn__schema_create(dfgnn_store *store, int version,
                                  const char *attempt) {
  dfgnn_status status = dfgnn__store_execute(store, "BEGIN IMMEDIATE", attempt);
  if (!status)
    status = create_tables(store, version, attempt);
  if (!status)
    status = set_version(store, version, attempt);
  if (!status)
    status = dfgnn__store_execute(store, "COMMIT", attempt);
  if (status)
    dfgnn__store_rollback(store);
  return status;
}

static dfgnn_status read_number(dfgnn_store *store, int64_t *number,
                                const char *sql) {
  sqlite3_stmt *query = NULL;
  int rc = sqlite3_prepare_v2(store->db, sql, -1, &query, NULL);
  if (!rc)
    rc = sqlite3_step(query);
  if (rc == SQLITE_ROW)
    *number = sqlite3_column_int64(query, 0);
  dfgnn_status status = rc == SQLITE_ROW
                            ? DFGNN_OK
                            : dfgnn__store_fail(store, rc, "cannot be read");
  sqlite3_finalize(query);
  return status;
}

static const char *text(sqlite3_stmt *query, int column) {
  const char *s = (const char *)sqlite3_column_text(query, column);
  return s ? s : "";
}

static int is_ours(const dfgnn_schema *schema, const char *name) {
  for (int i = 0; i < DFGNN_SCHEMA_TABLES; i++)
    if (schema->name[i] && strcmp(schema->name[i], name) == 0)
      return 1;
  return 0;
}

/* Every entry must be one of our tables with our text. */
static dfgnn_status compare_schema(dfgnn_store *store, sqlite3_stmt *query,
                                   const dfgnn_schema *schema) {
  int i = 0, rc;
  while ((rc = sqlite3_step(query)) == SQLITE_ROW) {
    const char *type = text(query, 0), *name = text(query, 1);
    while (i < DFGNN_SCHEMA_TABLES && !schema->name[i])
      i++;
    int order = i < DFGNN_SCHEMA_TABLES ? strcmp(name, schema->name[i]) : -1;
    if (order > 0 && is_ours(schema, name))
      break; /* a table before it is missing */
    if (strcmp(type, "table") != 0 || order != 0)
      return dfgnn__fail(DFGNN_ERROR_STORE,
                         "%s: the schema has the %.16s %.64s, which is not of "
                         "a tuning store",
                         store->path, type, name);
    if (strcmp(text(query, 2), schema->sql[i]) != 0)
      return dfgnn__fail(DFGNN_ERROR_STORE,
                         "%s: the table %s is not as this version defines it",
                         store->path, name);
    i++;
  }
  if (rc != SQLITE_ROW && rc != SQLITE_DONE)
    return dfgnn__store_fail(store, rc, "cannot be read");
  while (i < DFGNN_SCHEMA_TABLES && !schema->name[i])
    i++;
  if (i < DFGNN_SCHEMA_TABLES)
    return dfgnn__fail(DFGNN_ERROR_STORE, "%s: the table %s is missing",
                       store->path, schema->name[i]);
  return DFGNN_OK;
}

/* A newer store must have the columns that this version knows, in true tables.
 */
static dfgnn_status check_newer(dfgnn_store *store, sqlite3_stmt *query) {
  int rc, known = 0;
  while ((rc = sqlite3_step(query)) == SQLITE_ROW)
    for (int i = 0; i < DFGNN_GROUP_COUNT; i++)
      known += strcmp(text(query, 1), dfgnn__fields[i].table) == 0 &&
               strcmp(text(query, 0), "table") == 0 &&
               sqlite3_strnicmp(text(query, 2), "CREATE TABLE ", 13) == 0;
  if (rc != SQLITE_DONE)
    return dfgnn__store_fail(store, rc, "cannot be read");
  for (int i = 0; i < DFGNN_GROUP_COUNT && known == DFGNN_GROUP_COUNT; i++) {
    sqlite3_stmt *select = NULL;
    char *sql = dfgnn__select_sql((dfgnn_field_group)i);
    rc = sql ? sqlite3_prepare_v2(store->db, sql, -1, &select, NULL)
             : SQLITE_NOMEM;
    sqlite3_free(sql);
    sqlite3_finalize(select);
    if (rc)
      known = 0;
  }
  store->newer = 1;
  return known == DFGNN_GROUP_COUNT
             ? DFGNN_OK
             : dfgnn__fail(DFGNN_ERROR_STORE,
                           "%s: the store is of a newer version whose tables "
                           "this library cannot read; update dfgnn",
                           store->path);
}

static dfgnn_status check_version(dfgnn_store *store, int64_t version,
                                  dfgnn_store_mode mode) {
  int ours = store->schemas->count;
  int64_t application = 0;
  dfgnn_status status =
      read_number(store, &application, "PRAGMA application_id");
  if (status)
    return status;
  if (application != DFGNN_APPLICATION_ID)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: an SQLite database of another application",
                       store->path);
  if (version < 1 || version > 1 << 20)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the version is %lld, expected 1 to %d", store->path,
                       (long long)version, ours);
  if (version > ours && mode == DFGNN_STORE_WRITE)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: the store is of the newer version %lld; this "
                       "library writes version %d and can only read it; update "
                       "dfgnn or name another store",
                       store->path, (long long)version, ours);
  return DFGNN_OK;
}

dfgnn_status dfgnn__schema_check(dfgnn_store *store, int *version,
                                 dfgnn_store_mode mode) {
  sqlite3_stmt *query = NULL;
  int64_t found = 0;
  int rc;
  dfgnn_status status = dfgnn__store_execute(store, "BEGIN", "cannot be read");
  if (!status)
    status = read_number(store, &found, "PRAGMA user_version");
  if (!status)
    status = check_version(store, found, mode);
  if (status)
    goto out;
  rc = sqlite3_prepare_v2(
      store->db, "SELECT type, name, sql FROM sqlite_schema ORDER BY name", -1,
      &query, NULL);
  if (rc)
    status = dfgnn__store_fail(store, rc, "cannot be read");
  else if (found > store->schemas->count)
    status = check_newer(store, query);
  else
    status = compare_schema(store, query, &store->schemas->version[found - 1]);
  *version = (int)found;
out:
  sqlite3_finalize(query);
  dfgnn__store_rollback(store); /* it only read */
  return status;
}

/* ---- migration ----------------------------------------------------------- */

/* Migrates to the next version, inside a transaction: the tables are renamed
 * with the prefix old_, the new ones are made with exactly their text and
 * filled, and the old ones are dropped. */
static dfgnn_status upgrade(dfgnn_store *store, int to) {
  const char *attempt = "cannot be migrated";
  const dfgnn_schema *from = &store->schemas->version[to - 2];
  dfgnn_status status = DFGNN_OK;
  for (int pass = 0; pass < 2 && !status; pass++) {
    for (int i = 0; i < DFGNN_SCHEMA_TABLES && !status; i++) {
      char sql[128];
      if (!from->name[i])
        continue;
      if (pass == 0)
        snprintf(sql, sizeof sql, "ALTER TABLE %s RENAME TO old_%s",
                 from->name[i], from->name[i]);
      else
        snprintf(sql, sizeof sql, "DROP TABLE old_%s", from->name[i]);
      status = dfgnn__store_execute(store, sql, attempt);
    }
    if (!status && pass == 0)
      status = create_tables(store, to, attempt);
    if (!status && pass == 0)
      status = dfgnn__store_execute(
          store, store->schemas->version[to - 1].upgrade, attempt);
  }
  return status ? status : set_version(store, to, attempt);
}

static dfgnn_status upgrade_all(dfgnn_store *store) {
  const char *attempt = "cannot be migrated";
  int64_t found = 0;
  dfgnn__store_begin(store);
  /* SQLite would change references to a table when it is renamed. */
  sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_FKEY, 0, NULL);
  dfgnn_status status = dfgnn__store_execute(store, "BEGIN IMMEDIATE", attempt);
  if (!status) /* another process may have been first */
    status = read_number(store, &found, "PRAGMA user_version");
  if (!status && found > store->schemas->count)
    status =
        dfgnn__fail(DFGNN_ERROR_STORE,
                    "%s: another process made it a newer version", store->path);
  for (int to = (int)found + 1; to <= store->schemas->count && !status; to++)
    status = upgrade(store, to);
  if (!status)
    status = dfgnn__store_execute(store, "COMMIT", attempt);
  if (status)
    dfgnn__store_rollback(store);
  sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_FKEY, 1, NULL);
  return status;
}

static int copy_database(sqlite3 *to, sqlite3 *from) {
  sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
  if (!backup)
    return sqlite3_errcode(to);
  int rc = sqlite3_backup_step(backup, -1);
  int finished = sqlite3_backup_finish(backup);
  return rc == SQLITE_DONE ? finished : rc;
}

/* Keeps a copy as PATH.vN.backup, or .backup.2 and so on: no backup is ever
 * replaced. */
static dfgnn_status keep_backup(dfgnn_store *store, int version) {
  const char *attempt = "cannot be backed up before its migration";
  dfgnn_status status = DFGNN_OK;
  sqlite3 *copy = NULL;
  int error = EEXIST;
  char *made = dfgnn__temporary_name(store->path);
  if (!made)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", store->path);
  int rc = dfgnn__connect(&copy, made, "",
                          SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (!rc)
    rc = copy_database(copy, store->db);
  if (rc)
    status = dfgnn__fail(DFGNN_ERROR_STORE, "%s: %s: %s", store->path, attempt,
                         sqlite3_errstr(rc));
  sqlite3_close(copy);
  for (int i = 1; i < 1000 && error == EEXIST && !status; i++) {
    char *name = sqlite3_mprintf(i == 1 ? "%s.v%d.backup" : "%s.v%d.backup.%d",
                                 store->path, version, i);
    error = name ? dfgnn__link_new(made, name) : ENOMEM;
    sqlite3_free(name);
  }
  if (error && !status)
    status = dfgnn__fail(DFGNN_ERROR_STORE, "%s: %s: %s", store->path, attempt,
                         strerror(error));
  unlink(made);
  free(made);
  return status;
}

dfgnn_status dfgnn__store_migrate(dfgnn_store *store, int from) {
  dfgnn_status status = keep_backup(store, from);
  return status ? status : upgrade_all(store);
}

dfgnn_status dfgnn__store_migrate_copy(dfgnn_store *store) {
  sqlite3 *memory = NULL;
  int rc = dfgnn__connect(&memory, ":memory:", "",
                          SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (!rc)
    rc = copy_database(memory, store->db);
  if (!rc)
    rc = dfgnn__confine(memory);
  if (rc) {
    sqlite3_close(memory);
    return dfgnn__fail(DFGNN_ERROR_STORE, "%s: cannot be migrated: %s",
                       store->path, sqlite3_errstr(rc));
  }
  sqlite3_close(store->db);
  store->db = memory;
  return upgrade_all(store);
}
