/* kernel_file.c - the table of compiled kernels in a SQLite file */
#include "kernels/engine/kernel_file.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "lib/base/error.h"

#define VERSION 1

static const char schema[] =
    "CREATE TABLE kernel ("
    "key BLOB NOT NULL PRIMARY KEY CHECK (length(key) = 32),"
    "program BLOB NOT NULL CHECK (length(program) = 32),"
    "target TEXT NOT NULL,"
    "expression TEXT NOT NULL,"
    "symbol TEXT NOT NULL,"
    "ptx INTEGER NOT NULL CHECK (ptx IN (0, 1)),"
    "bytes INTEGER NOT NULL CHECK (bytes > 0)," /* before compression */
    "used INTEGER NOT NULL,"                    /* day it was last used */
    "uses INTEGER NOT NULL,"                    /* how often it was found */
    "digest BLOB NOT NULL CHECK (length(digest) = 32),"
    "code BLOB NOT NULL) STRICT";

static int pragma(sqlite3 *db, const char *name) {
  char sql[64];
  sqlite3_stmt *statement = NULL;
  int value = -1;
  sqlite3_snprintf(sizeof sql, sql, "PRAGMA %s", name);
  if (!sqlite3_prepare_v2(db, sql, -1, &statement, NULL) &&
      sqlite3_step(statement) == SQLITE_ROW)
    value = sqlite3_column_int(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

static void confine(sqlite3 *db) {
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, DFGNN_KERNEL_MAX_BYTES);
  (void)sqlite3_exec(db, "PRAGMA mmap_size = 0; PRAGMA cell_size_check = 1",
                     NULL, NULL, NULL);
}

/* Is the schema ours to the letter? */
static int schema_fits(sqlite3 *db) {
  sqlite3_stmt *statement = NULL;
  int fits = 0, others = 0;
  if (sqlite3_prepare_v2(db,
                         "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL",
                         -1, &statement, NULL))
    return 0;
  while (sqlite3_step(statement) == SQLITE_ROW) {
    const char *sql = (const char *)sqlite3_column_text(statement, 0);
    if (sql && !strcmp(sql, schema))
      fits++;
    else
      others++;
  }
  sqlite3_finalize(statement);
  return fits == 1 && others == 0;
}

static dfgnn_status lay_out(sqlite3 *db, const char *path) {
  char *sql = sqlite3_mprintf("BEGIN IMMEDIATE; PRAGMA application_id = %d;"
                              "PRAGMA user_version = %d; %s; COMMIT",
                              DFGNN_KERNEL_FILE_ID, VERSION, schema);
  int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
  sqlite3_free(sql);
  if (rc)
    (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
  return rc ? dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path, sqlite3_errmsg(db))
            : DFGNN_OK;
}

dfgnn_status dfgnn__kernel_file_start(sqlite3 *db, const char *path, int make) {
  confine(db);
  int tables = pragma(db, "schema_version"), id = pragma(db, "application_id");
  int version = pragma(db, "user_version");
  if (tables < 0)
    return dfgnn__fail(DFGNN_ERROR_IO, "%s: %s", path, sqlite3_errmsg(db));
  if (tables == 0 && id == 0 && make) {
    dfgnn_status status = lay_out(db, path);
    /* Another process may have been faster. */
    return status && schema_fits(db) ? DFGNN_OK : status;
  }
  if (id != DFGNN_KERNEL_FILE_ID)
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "%s: not a file of kernels", path);
  if (version != VERSION)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "%s: kernels of version %d, expected %d", path, version,
                       VERSION);
  return schema_fits(db)
             ? DFGNN_OK
             : dfgnn__fail(DFGNN_ERROR_FORMAT,
                           "%s: the tables are not those of a file of kernels",
                           path);
}

static void digest_of(unsigned char digest[DFGNN_KEY_BYTES],
                      const unsigned char *key, const unsigned char *program,
                      const dfgnn_image *image) {
  crypto_generichash_state state;
  const unsigned char ptx = (unsigned char)image->ptx;
  crypto_generichash_init(&state, NULL, 0, DFGNN_KEY_BYTES);
  crypto_generichash_update(&state, key, DFGNN_KEY_BYTES);
  crypto_generichash_update(&state, program, DFGNN_KEY_BYTES);
  crypto_generichash_update(&state, &ptx, 1);
  crypto_generichash_update(&state, (const unsigned char *)image->symbol,
                            strlen(image->symbol) + 1);
  crypto_generichash_update(&state, image->code, image->bytes);
  crypto_generichash_final(&state, digest, DFGNN_KEY_BYTES);
}

/* Columns: key, program, symbol, ptx, bytes, digest, code. */
static int take_row(dfgnn_image *image, sqlite3_stmt *row) {
  unsigned char digest[DFGNN_KEY_BYTES];
  const unsigned char *key = sqlite3_column_blob(row, 0);
  const unsigned char *program = sqlite3_column_blob(row, 1);
  const char *symbol = (const char *)sqlite3_column_text(row, 2);
  const unsigned char *kept = sqlite3_column_blob(row, 5);
  const void *code = sqlite3_column_blob(row, 6);
  sqlite3_int64 bytes = sqlite3_column_int64(row, 4);
  uLongf length = (uLongf)bytes;
  memset(image, 0, sizeof *image);
  if (!key || sqlite3_column_bytes(row, 0) != DFGNN_KEY_BYTES || !program ||
      sqlite3_column_bytes(row, 1) != DFGNN_KEY_BYTES || !kept ||
      sqlite3_column_bytes(row, 5) != DFGNN_KEY_BYTES || !symbol || !code ||
      bytes <= 0 || bytes > DFGNN_KERNEL_MAX_BYTES)
    return 0;
  image->ptx = sqlite3_column_int(row, 3) == 1;
  image->bytes = (size_t)bytes;
  image->symbol = strdup(symbol);
  image->code = malloc((size_t)bytes + 1); /* PTX ends with a 0 */
  if (!image->symbol || !image->code ||
      uncompress(image->code, &length, code,
                 (uLong)sqlite3_column_bytes(row, 6)) != Z_OK ||
      length != (uLongf)bytes) {
    dfgnn__image_free(image);
    return 0;
  }
  ((char *)image->code)[bytes] = 0;
  digest_of(digest, key, program, image);
  if (sodium_memcmp(digest, kept, DFGNN_KEY_BYTES) == 0)
    return 1;
  dfgnn__image_free(image);
  return 0;
}

int dfgnn__kernel_file_find(sqlite3 *db, dfgnn_image *image,
                            const unsigned char *key, int by_program) {
  sqlite3_stmt *row = NULL;
  int rc = sqlite3_prepare_v2(
      db,
      by_program ? "SELECT key, program, symbol, ptx, bytes, digest, code "
                   "FROM kernel WHERE program = ?1 ORDER BY key"
                 : "SELECT key, program, symbol, ptx, bytes, digest, code "
                   "FROM kernel WHERE key = ?1",
      -1, &row, NULL);
  if (rc)
    return rc;
  sqlite3_bind_blob(row, 1, key, DFGNN_KEY_BYTES, SQLITE_STATIC);
  while ((rc = sqlite3_step(row)) == SQLITE_ROW)
    if (take_row(image, row))
      break;
  sqlite3_finalize(row);
  return rc;
}

int dfgnn__kernel_file_store(sqlite3 *db, const dfgnn_keys_of *keys,
                             const dfgnn_image *image, const char *target,
                             const char *expression, int level) {
  unsigned char digest[DFGNN_KEY_BYTES];
  uLongf length = compressBound((uLong)image->bytes);
  void *code = malloc(length);
  sqlite3_stmt *row = NULL;
  int rc = SQLITE_NOMEM;
  if (!code ||
      compress2(code, &length, image->code, (uLong)image->bytes, level) != Z_OK)
    goto out;
  digest_of(digest, keys->full, keys->program, image);
  rc = sqlite3_prepare_v2(
      db,
      "INSERT OR REPLACE INTO kernel VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, "
      "strftime('%s', 'now') / 86400, 0, ?8, ?9)",
      -1, &row, NULL);
  if (rc)
    goto out;
  sqlite3_bind_blob(row, 1, keys->full, DFGNN_KEY_BYTES, SQLITE_STATIC);
  sqlite3_bind_blob(row, 2, keys->program, DFGNN_KEY_BYTES, SQLITE_STATIC);
  sqlite3_bind_text(row, 3, target, -1, SQLITE_STATIC);
  sqlite3_bind_text(row, 4, expression, -1, SQLITE_STATIC);
  sqlite3_bind_text(row, 5, image->symbol, -1, SQLITE_STATIC);
  sqlite3_bind_int(row, 6, image->ptx);
  sqlite3_bind_int64(row, 7, (sqlite3_int64)image->bytes);
  sqlite3_bind_blob(row, 8, digest, DFGNN_KEY_BYTES, SQLITE_STATIC);
  sqlite3_bind_blob64(row, 9, code, length, SQLITE_STATIC);
  rc = sqlite3_step(row);
out:
  sqlite3_finalize(row);
  free(code);
  return rc;
}

int dfgnn__kernel_file_count(sqlite3 *db, dfgnn_kernel_file_info *info) {
  sqlite3_stmt *row = NULL;
  memset(info, 0, sizeof *info);
  int rc = sqlite3_prepare_v2(
      db,
      "SELECT count(*), coalesce(sum(length(code)), 0), coalesce(sum(uses), 0) "
      "FROM kernel",
      -1, &row, NULL);
  if (!rc && (rc = sqlite3_step(row)) == SQLITE_ROW) {
    info->entries = sqlite3_column_int64(row, 0);
    info->bytes = sqlite3_column_int64(row, 1);
    info->uses = sqlite3_column_int64(row, 2);
  }
  sqlite3_finalize(row);
  return rc;
}
