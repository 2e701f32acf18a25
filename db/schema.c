/* schema.c - the tables of a store: created, and compared to the letter
 *
 * Hashes are BLAKE2b of the content as db/hash.c writes it.  fingerprint and
 * seed are unsigned, kept in two's complement; histogram is 24 little-endian
 * doubles. */

#include <stdio.h>
#include <string.h>

#include "db/internal.h"
#include "lib/base/error.h"

static const struct {
  const char *name; /* ascending */
  const char *sql;  /* CREATE TABLE, as SQLite keeps it */
} schema[] = {
    {"ban", "CREATE TABLE ban (\n"
            "  variant TEXT NOT NULL PRIMARY KEY\n"
            "    CHECK (length(variant) BETWEEN 1 AND 255)\n"
            ") STRICT, WITHOUT ROWID"},
    {"device",
     "CREATE TABLE device (\n"
     "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
     "  backend TEXT NOT NULL CHECK (length(backend) BETWEEN 1 AND 32),\n"
     "  arch TEXT NOT NULL CHECK (length(arch) BETWEEN 1 AND 64),\n"
     "  model TEXT NOT NULL CHECK (length(model) <= 255),\n"
     "  units INTEGER NOT NULL CHECK (units >= 0),\n"
     "  cache_bytes INTEGER NOT NULL CHECK (cache_bytes >= 0),\n"
     "  memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),\n"
     "  shared_bytes INTEGER NOT NULL CHECK (shared_bytes >= 0),\n"
     "  driver TEXT NOT NULL CHECK (length(driver) <= 255),\n"
     "  runtime TEXT NOT NULL CHECK (length(runtime) <= 255),\n"
     "  library TEXT NOT NULL CHECK (length(library) <= 255)\n"
     ") STRICT, WITHOUT ROWID"},
    {"graph",
     "CREATE TABLE graph (\n"
     "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
     "  graph TEXT NOT NULL CHECK (length(graph) <= 255),\n"
     "  family TEXT NOT NULL CHECK (length(family) <= 255),\n"
     "  destinations INTEGER NOT NULL CHECK (destinations >= 0),\n"
     "  sources INTEGER NOT NULL CHECK (sources >= 0),\n"
     "  edges INTEGER NOT NULL CHECK (edges >= 0),\n"
     "  max_degree INTEGER NOT NULL CHECK (max_degree >= 0),\n"
     "  mean_degree REAL NOT NULL CHECK (mean_degree >= 0),\n"
     "  p50_degree INTEGER NOT NULL CHECK (p50_degree >= 0),\n"
     "  p90_degree INTEGER NOT NULL CHECK (p90_degree >= 0),\n"
     "  p99_degree INTEGER NOT NULL CHECK (p99_degree >= 0),\n"
     "  degree_cv REAL NOT NULL CHECK (degree_cv >= 0),\n"
     "  isolated REAL NOT NULL CHECK (isolated BETWEEN 0 AND 1),\n"
     "  histogram BLOB NOT NULL CHECK (length(histogram) = 192),\n"
     "  reuse REAL NOT NULL CHECK (reuse BETWEEN 0 AND 1),\n"
     "  locality REAL NOT NULL CHECK (locality BETWEEN 0 AND 1),\n"
     "  graphs INTEGER NOT NULL CHECK (graphs >= 0),\n"
     "  largest_graph INTEGER NOT NULL CHECK (largest_graph >= 0),\n"
     "  density REAL NOT NULL CHECK (density >= 0),\n"
     "  fingerprint INTEGER NOT NULL,\n"
     "  max_source_degree INTEGER NOT NULL CHECK (max_source_degree >= 0),\n"
     "  p50_source_degree INTEGER NOT NULL CHECK (p50_source_degree >= 0),\n"
     "  p99_source_degree INTEGER NOT NULL CHECK (p99_source_degree >= 0),\n"
     "  source_cv REAL NOT NULL CHECK (source_cv >= 0),\n"
     "  isolated_sources REAL NOT NULL\n"
     "    CHECK (isolated_sources BETWEEN 0 AND 1)\n"
     ") STRICT, WITHOUT ROWID"},
    {"measurement",
     "CREATE TABLE measurement (\n"
     "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
     "  device BLOB NOT NULL REFERENCES device (hash),\n"
     "  problem BLOB NOT NULL REFERENCES problem (hash),\n"
     "  graph BLOB NOT NULL REFERENCES graph (hash),\n"
     "  run BLOB NOT NULL REFERENCES run (hash),\n"
     "  variant TEXT NOT NULL CHECK (length(variant) BETWEEN 1 AND 255),\n"
     "  revision INTEGER NOT NULL CHECK (revision >= 0),\n"
     "  time INTEGER NOT NULL CHECK (time >= 0),\n"
     "  status TEXT NOT NULL\n"
     "    CHECK (status IN ('ok', 'wrong', 'failed', 'refused')),\n"
     "  reason TEXT NOT NULL CHECK (length(reason) <= 1023),\n"
     "  anchor TEXT NOT NULL CHECK (length(anchor) <= 255),\n"
     "  anchor_revision INTEGER NOT NULL CHECK (anchor_revision >= 0),\n"
     "  median_ms REAL NOT NULL CHECK (median_ms >= 0),\n"
     "  ci_low_ms REAL NOT NULL CHECK (ci_low_ms >= 0),\n"
     "  ci_high_ms REAL NOT NULL CHECK (ci_high_ms >= ci_low_ms),\n"
     "  ratio REAL NOT NULL CHECK (ratio >= 0),\n"
     "  ratio_low REAL NOT NULL CHECK (ratio_low >= 0),\n"
     "  ratio_high REAL NOT NULL CHECK (ratio_high >= ratio_low),\n"
     "  samples INTEGER NOT NULL CHECK (samples >= 0),\n"
     "  rel_error REAL NOT NULL CHECK (rel_error >= 0),\n"
     "  workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0),\n"
     "  disturbed INTEGER NOT NULL CHECK (disturbed >= 0),\n"
     "  noise TEXT NOT NULL CHECK (length(noise) <= 255)\n"
     ") STRICT, WITHOUT ROWID"},
    {"pin",
     "CREATE TABLE pin (\n"
     "  op TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 32),\n"
     "  pass TEXT NOT NULL CHECK (length(pass) BETWEEN 1 AND 32),\n"
     "  dtype TEXT NOT NULL CHECK (length(dtype) BETWEEN 1 AND 32),\n"
     "  bias INTEGER NOT NULL CHECK (bias IN (0, 1)),\n"
     "  dropout INTEGER NOT NULL CHECK (dropout IN (0, 1)),\n"
     "  fingerprint INTEGER NOT NULL,\n"
     "  variant TEXT NOT NULL CHECK (length(variant) BETWEEN 1 AND 255),\n"
     "  PRIMARY KEY (op, pass, dtype, bias, dropout, fingerprint)\n"
     ") STRICT, WITHOUT ROWID"},
    {"problem",
     "CREATE TABLE problem (\n"
     "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
     "  op TEXT NOT NULL CHECK (length(op) BETWEEN 1 AND 32),\n"
     "  pass TEXT NOT NULL CHECK (length(pass) BETWEEN 1 AND 32),\n"
     "  dtype TEXT NOT NULL CHECK (length(dtype) BETWEEN 1 AND 32),\n"
     "  math TEXT NOT NULL CHECK (length(math) BETWEEN 1 AND 32),\n"
     "  layout TEXT NOT NULL CHECK (length(layout) BETWEEN 1 AND 32),\n"
     "  index_type TEXT NOT NULL CHECK (index_type IN ('i32', 'i64')),\n"
     "  heads INTEGER NOT NULL CHECK (heads >= 1),\n"
     "  dim INTEGER NOT NULL CHECK (dim >= 1),\n"
     "  deterministic INTEGER NOT NULL CHECK (deterministic IN (0, 1)),\n"
     "  weights INTEGER NOT NULL CHECK (weights IN (0, 1)),\n"
     "  bias INTEGER NOT NULL CHECK (bias IN (0, 1)),\n"
     "  dropout INTEGER NOT NULL CHECK (dropout IN (0, 1)),\n"
     "  edge_dim INTEGER NOT NULL CHECK (edge_dim >= -1),\n"
     "  edge_use INTEGER NOT NULL CHECK (edge_use BETWEEN 0 AND 2),\n"
     "  message INTEGER NOT NULL CHECK (message BETWEEN 0 AND 3),\n"
     "  program TEXT NOT NULL CHECK (length(program) <= 16),\n"
     "  program_text TEXT NOT NULL CHECK (length(program_text) <= 16383)\n"
     ") STRICT, WITHOUT ROWID"},
    {"run", "CREATE TABLE run (\n"
            "  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 16),\n"
            "  tool TEXT NOT NULL CHECK (length(tool) <= 255),\n"
            "  host TEXT NOT NULL CHECK (length(host) <= 255),\n"
            "  job TEXT NOT NULL CHECK (length(job) <= 255),\n"
            "  protocol TEXT NOT NULL CHECK (length(protocol) BETWEEN 1 AND "
            "255),\n"
            "  run TEXT NOT NULL CHECK (length(run) = 32),\n"
            "  seed INTEGER NOT NULL,\n"
            "  copy_gbps REAL NOT NULL CHECK (copy_gbps >= 0)\n"
            ") STRICT, WITHOUT ROWID"},
};
enum { TABLES = sizeof schema / sizeof *schema };

dfgnn_status dfgnn__schema_create(dfgnn_store *store) {
  const char *attempt = "cannot be created";
  char sql[96];
  snprintf(sql, sizeof sql,
           "PRAGMA application_id = %d; PRAGMA user_version = %d",
           DFGNN_APPLICATION_ID, DFGNN_SCHEMA_VERSION);
  dfgnn_status status = dfgnn__store_execute(store, "BEGIN IMMEDIATE", attempt);
  for (int i = 0; i < TABLES && !status; i++)
    status = dfgnn__store_execute(store, schema[i].sql, attempt);
  if (!status)
    status = dfgnn__store_execute(store, sql, attempt);
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

static int is_ours(const char *name) {
  for (int i = 0; i < TABLES; i++)
    if (strcmp(schema[i].name, name) == 0)
      return 1;
  return 0;
}

/* Every entry must be one of our tables with our text. */
static dfgnn_status compare_schema(dfgnn_store *store, sqlite3_stmt *query) {
  int i = 0, rc;
  while ((rc = sqlite3_step(query)) == SQLITE_ROW) {
    const char *type = text(query, 0), *name = text(query, 1);
    int order = i < TABLES ? strcmp(name, schema[i].name) : -1;
    if (order > 0 && is_ours(name))
      break; /* a table before it is missing */
    if (strcmp(type, "table") != 0 || order != 0)
      return dfgnn__fail(DFGNN_ERROR_STORE,
                         "%s: the schema has the %.16s %.64s, which is not of "
                         "a tuning store",
                         store->path, type, name);
    if (strcmp(text(query, 2), schema[i].sql) != 0)
      return dfgnn__fail(DFGNN_ERROR_STORE,
                         "%s: the table %s is not as this version defines it",
                         store->path, name);
    i++;
  }
  if (rc != SQLITE_ROW && rc != SQLITE_DONE)
    return dfgnn__store_fail(store, rc, "cannot be read");
  return i < TABLES
             ? dfgnn__fail(DFGNN_ERROR_STORE, "%s: the table %s is missing",
                           store->path, schema[i].name)
             : DFGNN_OK;
}

static dfgnn_status check_version(dfgnn_store *store) {
  const int ours = DFGNN_SCHEMA_VERSION;
  int64_t application = 0, version = 0;
  DFGNN_TRY(read_number(store, &application, "PRAGMA application_id"));
  DFGNN_TRY(read_number(store, &version, "PRAGMA user_version"));
  if (application != DFGNN_APPLICATION_ID)
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: an SQLite database of another application",
                       store->path);
  if (version == ours)
    return DFGNN_OK;
  return dfgnn__fail(
      DFGNN_ERROR_STORE,
      "%s: the schema is of version %lld, expected %d; %s, or name another "
      "store",
      store->path, (long long)version, ours,
      version > ours
          ? "update dfgnn"
          : "export it with the dfgnn that wrote it and import the lines here");
}

dfgnn_status dfgnn__schema_check(dfgnn_store *store) {
  sqlite3_stmt *query = NULL;
  dfgnn_status status = dfgnn__store_execute(store, "BEGIN", "cannot be read");
  if (!status)
    status = check_version(store);
  if (!status) {
    int rc = sqlite3_prepare_v2(
        store->db, "SELECT type, name, sql FROM sqlite_schema ORDER BY name",
        -1, &query, NULL);
    status = rc ? dfgnn__store_fail(store, rc, "cannot be read")
                : compare_schema(store, query);
  }
  sqlite3_finalize(query);
  dfgnn__store_rollback(store); /* it only read */
  return status;
}
