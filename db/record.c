/* record.c - rows and pins are written, and pins read */
#include "db/internal.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>

static void add_names(sqlite3_str *sql, const char *table,
                      dfgnn_field_group group) {
  const dfgnn_fields *fields = &dfgnn__fields[group];
  sqlite3_str_appendf(sql, "%shash", table);
  if (group == DFGNN_GROUP_MEASUREMENT)
    for (int i = 0; i < DFGNN_PART_COUNT; i++)
      sqlite3_str_appendf(sql, ", %s%s", table, dfgnn__fields[i].table);
  for (size_t i = 0; i < fields->count; i++)
    sqlite3_str_appendf(sql, ", %s%s", table, fields->field[i].name);
}

char *dfgnn__select_sql(dfgnn_field_group group) {
  sqlite3_str *sql = sqlite3_str_new(NULL);
  sqlite3_str_appendall(sql, "SELECT ");
  add_names(sql, "", group);
  sqlite3_str_appendf(sql, " FROM %s ORDER BY hash",
                      dfgnn__fields[group].table);
  return sqlite3_str_finish(sql);
}

/* A row that has the hash and other content is damaged, and is put right.  Not
 * OR IGNORE, which would also pass over a broken CHECK. */
static char *insert_sql(dfgnn_field_group group) {
  static const char *const clauses[][2] = {
      {") ON CONFLICT (hash) DO UPDATE SET (", ") = ("},
      {") WHERE (", ") IS NOT ("}};
  const size_t parts = group == DFGNN_GROUP_MEASUREMENT ? DFGNN_PART_COUNT : 0;
  sqlite3_str *sql = sqlite3_str_new(NULL);
  sqlite3_str_appendf(sql, "INSERT INTO %s (", dfgnn__fields[group].table);
  add_names(sql, "", group);
  sqlite3_str_appendall(sql, ") VALUES (?");
  for (size_t i = 0; i < parts + dfgnn__fields[group].count; i++)
    sqlite3_str_appendall(sql, ", ?");
  for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++) {
    sqlite3_str_appendall(sql, clauses[i][0]);
    add_names(sql, "", group);
    sqlite3_str_appendall(sql, clauses[i][1]);
    add_names(sql, "excluded.", group);
  }
  sqlite3_str_appendall(sql, ")");
  return sqlite3_str_finish(sql);
}

static int bind_reals(sqlite3_stmt *query, int column, const double *reals) {
  unsigned char bytes[8 * DFGNN_HISTOGRAM_BINS];
  for (int i = 0; i < DFGNN_HISTOGRAM_BINS; i++) {
    uint64_t bits;
    memcpy(&bits, &reals[i], sizeof bits);
    for (int j = 0; j < 8; j++)
      bytes[8 * i + j] = (unsigned char)(bits >> (8 * j));
  }
  return sqlite3_bind_blob(query, column, bytes, sizeof bytes,
                           SQLITE_TRANSIENT);
}

static int bind_field(sqlite3_stmt *query, int column, const dfgnn_field *field,
                      const dfgnn_measurement *row) {
  const void *value = dfgnn__field_get(field, row);
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT:
    return sqlite3_bind_text(query, column, *(const char *const *)value, -1,
                             SQLITE_STATIC);
  case DFGNN_FIELD_INT:
  case DFGNN_FIELD_INT64:
  case DFGNN_FIELD_UINT64:
    return sqlite3_bind_int64(query, column, dfgnn__field_whole(field, value));
  case DFGNN_FIELD_REAL:
    return sqlite3_bind_double(query, column, *(const double *)value);
  case DFGNN_FIELD_REALS:
    return bind_reals(query, column, value);
  }
  return SQLITE_MISUSE;
}

static int insert_group(dfgnn_store *store, int *added, dfgnn_field_group group,
                        const dfgnn_measurement *row,
                        unsigned char hashes[][DFGNN_HASH_BYTES]) {
  const dfgnn_fields *fields = &dfgnn__fields[group];
  int rc = SQLITE_OK, column = 1;
  if (!store->insert[group]) {
    char *sql = insert_sql(group);
    rc = sql ? sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                  &store->insert[group], NULL)
             : SQLITE_NOMEM;
    sqlite3_free(sql);
  }
  sqlite3_stmt *query = store->insert[group];
  if (!rc)
    rc = sqlite3_bind_blob(query, column++, hashes[group], DFGNN_HASH_BYTES,
                           SQLITE_STATIC);
  if (group == DFGNN_GROUP_MEASUREMENT)
    for (int i = 0; i < DFGNN_PART_COUNT && !rc; i++)
      rc = sqlite3_bind_blob(query, column++, hashes[i], DFGNN_HASH_BYTES,
                             SQLITE_STATIC);
  for (size_t i = 0; i < fields->count && !rc; i++)
    rc = bind_field(query, column++, &fields->field[i], row);
  if (rc)
    return rc;
  rc = sqlite3_step(query);
  *added = rc == SQLITE_DONE && sqlite3_changes(store->db) > 0;
  sqlite3_reset(query);
  sqlite3_clear_bindings(query);
  return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Appends what a field has, and its range, to the reason why it is refused. */
static void describe(char *text, size_t size, const dfgnn_fields *fields,
                     const char *name, const dfgnn_measurement *row) {
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    const void *value = dfgnn__field_get(field, row);
    if (strcmp(field->name, name))
      continue;
    if (field->kind == DFGNN_FIELD_NAME || field->kind == DFGNN_FIELD_TEXT)
      snprintf(text, size, "found '%.40s'", *(const char *const *)value);
    else if (field->kind == DFGNN_FIELD_REAL)
      snprintf(text, size, "found %g, expected %g to %g",
               *(const double *)value, field->low, field->high);
    else if (field->kind == DFGNN_FIELD_INT || field->kind == DFGNN_FIELD_INT64)
      snprintf(text, size, "found %lld, expected %.15g to %.15g",
               (long long)dfgnn__field_whole(field, value), field->low,
               field->high);
  }
}

static dfgnn_status validate(const dfgnn_measurement *row) {
  for (int group = 0; group < DFGNN_GROUP_COUNT; group++) {
    const char *field;
    const char *refusal =
        dfgnn__group_refusal((dfgnn_field_group)group, row, &field);
    char found[128] = "";
    if (!refusal)
      continue;
    describe(found, sizeof found, &dfgnn__fields[group], field, row);
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "a measurement of %.200s cannot be recorded: %s: %s%s%s",
                       row->variant, field, refusal, *found ? ": " : "", found);
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__measurement_check(const dfgnn_measurement *measurement) {
  char buffer[DFGNN_CLEAN_BYTES];
  dfgnn_measurement row;
  dfgnn__measurement_clean(&row, measurement, buffer);
  return validate(&row);
}

dfgnn_status dfgnn__store_insert_raw(dfgnn_store *store, int *added,
                                     const dfgnn_measurement *row) {
  unsigned char hashes[DFGNN_GROUP_COUNT][DFGNN_HASH_BYTES];
  for (int i = 0; i < DFGNN_GROUP_COUNT; i++) {
    dfgnn_field_group group = (dfgnn_field_group)i;
    dfgnn__group_hash(hashes[group], group, row, hashes);
    int rc = insert_group(store, added, group, row, hashes);
    if (rc)
      return dfgnn__store_fail(store, rc, "a measurement cannot be written");
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__store_insert(dfgnn_store *store, int *added,
                                 const dfgnn_measurement *measurement) {
  char buffer[DFGNN_CLEAN_BYTES];
  dfgnn_measurement row;
  dfgnn__measurement_clean(&row, measurement, buffer);
  dfgnn_status status = validate(&row);
  if (status)
    return dfgnn__fail_prefix(status, "%s: ", store->path);
  return dfgnn__store_insert_raw(store, added, &row);
}

dfgnn_status dfgnn__store_record(dfgnn_store *store, int *added,
                                 const dfgnn_measurement *measurement) {
  int fresh = 0;
  dfgnn__store_begin(store);
  dfgnn_status status = dfgnn__store_execute(store, "BEGIN IMMEDIATE",
                                             "a measurement cannot be written");
  if (!status)
    status = dfgnn__store_insert(store, &fresh, measurement);
  if (!status)
    status = dfgnn__store_execute(store, "COMMIT",
                                  "a measurement cannot be written");
  if (status)
    dfgnn__store_rollback(store);
  else if (added)
    *added = fresh;
  return status;
}

/* ---- pins ---------------------------------------------------------------- */

/* Ends a query whose last step gave rc. */
static dfgnn_status end_query(dfgnn_store *store, sqlite3_stmt *query, int rc,
                              const char *fault) {
  dfgnn_status status =
      rc == SQLITE_DONE ? DFGNN_OK : dfgnn__store_fail(store, rc, fault);
  sqlite3_finalize(query);
  return status;
}

static const dfgnn_field *problem_field(const char *name) {
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  for (size_t i = 0; i < fields->count; i++)
    if (strcmp(fields->field[i].name, name) == 0)
      return &fields->field[i];
  return NULL;
}

static int pin_valid(const dfgnn_pin *pin) {
  static const char *const names[] = {"op", "pass", "dtype", "bias", "dropout"};
  dfgnn_measurement row = {.op = pin->op,
                           .pass = pin->pass,
                           .dtype = pin->dtype,
                           .bias = pin->bias,
                           .dropout = pin->dropout,
                           .variant = pin->variant};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (dfgnn__field_refusal(problem_field(names[i]), &row))
      return 0;
  return !dfgnn__field_refusal(&dfgnn__fields[DFGNN_GROUP_MEASUREMENT].field[0],
                               &row);
}

dfgnn_status dfgnn__store_pin(dfgnn_store *store, const dfgnn_pin *pin) {
  dfgnn_pin named = *pin;
  if (!named.variant)
    named.variant = "-";
  if (!pin_valid(&named))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: a pin needs names of printable ASCII, and 0 or 1 "
                       "for bias and dropout, found %.32s %.32s %.32s %d %d "
                       "%.200s",
                       store->path, pin->op, pin->pass, pin->dtype, pin->bias,
                       pin->dropout, pin->variant ? pin->variant : "");
  sqlite3_stmt *query = NULL;
  dfgnn__store_begin(store);
  int rc = sqlite3_prepare_v2(
      store->db,
      pin->variant
          ? "INSERT OR REPLACE INTO pin (op, pass, dtype, bias, dropout, "
            "fingerprint, variant) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
          : "DELETE FROM pin WHERE op = ?1 AND pass = ?2 AND dtype = ?3 "
            "AND bias = ?4 AND dropout = ?5 AND fingerprint = ?6",
      -1, &query, NULL);
  if (!rc) {
    sqlite3_bind_text(query, 1, pin->op, -1, SQLITE_STATIC);
    sqlite3_bind_text(query, 2, pin->pass, -1, SQLITE_STATIC);
    sqlite3_bind_text(query, 3, pin->dtype, -1, SQLITE_STATIC);
    sqlite3_bind_int(query, 4, pin->bias);
    sqlite3_bind_int(query, 5, pin->dropout);
    sqlite3_bind_int64(query, 6, (sqlite3_int64)pin->fingerprint);
    if (pin->variant)
      sqlite3_bind_text(query, 7, pin->variant, -1, SQLITE_STATIC);
    rc = sqlite3_step(query);
  }
  return end_query(store, query, rc, "a pin cannot be kept");
}

/* The text of a column; NULL if it is no text or has a byte 0 in it. */
static const char *column_name(sqlite3_stmt *query, int column) {
  const char *s = (const char *)sqlite3_column_text(query, column);
  return s && strlen(s) == (size_t)sqlite3_column_bytes(query, column) ? s
                                                                       : NULL;
}

dfgnn_status dfgnn__store_each_pin(dfgnn_store *store,
                                   dfgnn_store_visit_pin visit, void *data) {
  sqlite3_stmt *query = NULL;
  dfgnn__store_begin(store);
  int rc = sqlite3_prepare_v2(
      store->db,
      "SELECT op, pass, dtype, bias, dropout, fingerprint, variant FROM pin "
      "ORDER BY op, pass, dtype, bias, dropout, fingerprint",
      -1, &query, NULL);
  int stop = 0;
  while (!rc && !stop && (rc = sqlite3_step(query)) == SQLITE_ROW) {
    dfgnn_pin pin = {.op = column_name(query, 0),
                     .pass = column_name(query, 1),
                     .dtype = column_name(query, 2),
                     .bias = sqlite3_column_int(query, 3),
                     .dropout = sqlite3_column_int(query, 4),
                     .fingerprint = (uint64_t)sqlite3_column_int64(query, 5),
                     .variant = column_name(query, 6)};
    rc = SQLITE_OK;
    if (pin_valid(&pin))
      stop = visit(data, &pin);
  }
  return end_query(store, query, stop ? SQLITE_DONE : rc, "cannot be read");
}

/* ---- bans ---------------------------------------------------------------- */

static int ban_valid(const char *name) {
  const dfgnn_measurement row = {.variant = name};
  return name && !dfgnn__field_refusal(
                     &dfgnn__fields[DFGNN_GROUP_MEASUREMENT].field[0], &row);
}

dfgnn_status dfgnn__store_ban(dfgnn_store *store, const char *name, int ban) {
  sqlite3_stmt *query = NULL;
  if (!ban_valid(name))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s: a ban needs a name of printable ASCII, found "
                       "%.200s",
                       store->path, name ? name : "none");
  dfgnn__store_begin(store);
  int rc = sqlite3_prepare_v2(
      store->db,
      ban ? "INSERT OR REPLACE INTO ban (variant) VALUES (?1)"
          : "DELETE FROM ban WHERE variant = ?1",
      -1, &query, NULL);
  if (!rc) {
    sqlite3_bind_text(query, 1, name, -1, SQLITE_STATIC);
    rc = sqlite3_step(query);
  }
  return end_query(store, query, rc, "a ban cannot be kept");
}

dfgnn_status dfgnn__store_each_ban(dfgnn_store *store,
                                   dfgnn_store_visit_ban visit, void *data) {
  sqlite3_stmt *query = NULL;
  int stop = 0;
  dfgnn__store_begin(store);
  int rc = sqlite3_prepare_v2(
      store->db, "SELECT variant FROM ban ORDER BY variant", -1, &query, NULL);
  while (!rc && !stop && (rc = sqlite3_step(query)) == SQLITE_ROW) {
    const char *name = column_name(query, 0);
    rc = SQLITE_OK;
    if (ban_valid(name))
      stop = visit(data, name);
  }
  return end_query(store, query, stop ? SQLITE_DONE : rc, "cannot be read");
}
