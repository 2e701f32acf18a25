/* load.c - reads rows out of a store, checking each cell and each hash */
#include "db/internal.h"
#include "lib/base/error.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The valid rows of a table that measurements refer to, in order of hash. */
typedef struct parts {
  size_t count, room;
  struct part {
    unsigned char hash[DFGNN_HASH_BYTES];
    dfgnn_measurement row; /* the fields of its group */
  } * part;
} parts;

static const unsigned char *column_hash(sqlite3_stmt *query, int column) {
  return sqlite3_column_type(query, column) == SQLITE_BLOB &&
                 sqlite3_column_bytes(query, column) == DFGNN_HASH_BYTES
             ? sqlite3_column_blob(query, column)
             : NULL;
}

static int column_string(const char **s, sqlite3_stmt *query, int column) {
  if (sqlite3_column_type(query, column) != SQLITE_TEXT)
    return 0;
  *s = (const char *)sqlite3_column_text(query, column);
  return *s && strlen(*s) == (size_t)sqlite3_column_bytes(query, column);
}

static int column_reals(double *reals, sqlite3_stmt *query, int column) {
  if (sqlite3_column_type(query, column) != SQLITE_BLOB ||
      sqlite3_column_bytes(query, column) != 8 * DFGNN_HISTOGRAM_BINS)
    return 0;
  const unsigned char *bytes = sqlite3_column_blob(query, column);
  for (int i = 0; bytes && i < DFGNN_HISTOGRAM_BINS; i++) {
    uint64_t bits = 0;
    for (int j = 0; j < 8; j++)
      bits |= (uint64_t)bytes[8 * i + j] << (8 * j);
    memcpy(&reals[i], &bits, sizeof bits);
  }
  return bytes != NULL;
}

/* 0 if the cell is not of the field's type. */
static int read_field(dfgnn_measurement *row, const dfgnn_field *field,
                      sqlite3_stmt *query, int column) {
  void *slot = dfgnn__field_slot(field, row);
  int type = sqlite3_column_type(query, column);
  int64_t x = type == SQLITE_INTEGER ? sqlite3_column_int64(query, column) : 0;
  switch (field->kind) {
  case DFGNN_FIELD_NAME:
  case DFGNN_FIELD_TEXT:
    return column_string(slot, query, column);
  case DFGNN_FIELD_INT:
    *(int *)slot = (int)x;
    return type == SQLITE_INTEGER && x >= INT_MIN && x <= INT_MAX;
  case DFGNN_FIELD_INT64:
  case DFGNN_FIELD_UINT64:
    *(int64_t *)slot = x;
    return type == SQLITE_INTEGER;
  case DFGNN_FIELD_REAL:
    *(double *)slot = sqlite3_column_double(query, column);
    return type == SQLITE_FLOAT;
  case DFGNN_FIELD_REALS:
    return column_reals(slot, query, column);
  }
  return 0;
}

/* Reads the current row's fields from a column on; 0 if one is not valid. */
static int read_group(dfgnn_measurement *row, dfgnn_field_group group,
                      sqlite3_stmt *query, int column) {
  const dfgnn_fields *fields = &dfgnn__fields[group];
  for (size_t i = 0; i < fields->count; i++)
    if (!read_field(row, &fields->field[i], query, column + (int)i))
      return 0;
  return !dfgnn__group_refusal(group, row, NULL);
}

/* Does the row have the hash that its content gives? */
static int verified(dfgnn_field_group group, const dfgnn_measurement *row,
                    const unsigned char *hash,
                    unsigned char (*part_hashes)[DFGNN_HASH_BYTES]) {
  unsigned char computed[DFGNN_HASH_BYTES];
  dfgnn__group_hash(computed, group, row, part_hashes);
  return memcmp(hash, computed, sizeof computed) == 0;
}

static int keep_strings(dfgnn_strings *strings, dfgnn_field_group group,
                        dfgnn_measurement *row) {
  const dfgnn_fields *fields = &dfgnn__fields[group];
  for (size_t i = 0; i < fields->count; i++) {
    const dfgnn_field *field = &fields->field[i];
    if (field->kind == DFGNN_FIELD_NAME || field->kind == DFGNN_FIELD_TEXT) {
      const char **slot = dfgnn__field_slot(field, row);
      if (!(*slot = dfgnn__strings_add(strings, *slot)))
        return 0;
    }
  }
  return 1;
}

static int prepare(sqlite3_stmt **query, dfgnn_store *store,
                   dfgnn_field_group group) {
  char *sql = dfgnn__select_sql(group);
  int rc =
      sql ? sqlite3_prepare_v2(store->db, sql, -1, query, NULL) : SQLITE_NOMEM;
  sqlite3_free(sql);
  return rc;
}

static int add_part(parts *p, dfgnn_field_group group, sqlite3_stmt *query,
                    dfgnn_strings *strings) {
  if (p->count == p->room) {
    size_t room = p->room ? 2 * p->room : 16;
    struct part *part = realloc(p->part, room * sizeof *part);
    if (!part)
      return SQLITE_NOMEM;
    p->part = part;
    p->room = room;
  }
  struct part *part = &p->part[p->count];
  const unsigned char *hash = column_hash(query, 0);
  memset(&part->row, 0, sizeof part->row);
  if (!hash || !read_group(&part->row, group, query, 1) ||
      !verified(group, &part->row, hash, NULL))
    return SQLITE_OK; /* a measurement that refers to it is found invalid */
  memcpy(part->hash, column_hash(query, 0), DFGNN_HASH_BYTES);
  if (!keep_strings(strings, group, &part->row))
    return SQLITE_NOMEM;
  p->count++;
  return SQLITE_OK;
}

static int load_parts(parts *p, dfgnn_store *store, dfgnn_field_group group,
                      dfgnn_strings *strings) {
  sqlite3_stmt *query = NULL;
  int rc = prepare(&query, store, group);
  while (!rc && (rc = sqlite3_step(query)) == SQLITE_ROW)
    rc = add_part(p, group, query, strings);
  sqlite3_finalize(query);
  return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int compare_part(const void *key, const void *part) {
  return memcmp(key, ((const struct part *)part)->hash, DFGNN_HASH_BYTES);
}

static void copy_group(dfgnn_measurement *to, const dfgnn_measurement *from,
                       dfgnn_field_group group) {
  static const size_t size[] = {[DFGNN_FIELD_NAME] = sizeof(char *),
                                [DFGNN_FIELD_TEXT] = sizeof(char *),
                                [DFGNN_FIELD_INT] = sizeof(int),
                                [DFGNN_FIELD_INT64] = sizeof(int64_t),
                                [DFGNN_FIELD_UINT64] = sizeof(uint64_t),
                                [DFGNN_FIELD_REAL] = sizeof(double),
                                [DFGNN_FIELD_REALS] =
                                    DFGNN_HISTOGRAM_BINS * sizeof(double)};
  const dfgnn_fields *fields = &dfgnn__fields[group];
  for (size_t i = 0; i < fields->count; i++)
    memcpy(dfgnn__field_slot(&fields->field[i], to),
           dfgnn__field_get(&fields->field[i], from),
           size[fields->field[i].kind]);
}

/* Puts a measurement together from its parts; 0 if one is not valid. */
static int read_parts(dfgnn_measurement *row,
                      unsigned char (*hashes)[DFGNN_HASH_BYTES], const parts *p,
                      sqlite3_stmt *query) {
  memset(row, 0, sizeof *row);
  row->signature.struct_size = sizeof row->signature;
  for (int i = 0; i < DFGNN_PART_COUNT; i++) {
    const unsigned char *hash = column_hash(query, 1 + i);
    const struct part *part = hash && p[i].count
                                  ? bsearch(hash, p[i].part, p[i].count,
                                            sizeof *p[i].part, compare_part)
                                  : NULL;
    if (!part)
      return 0;
    memcpy(hashes[i], part->hash, DFGNN_HASH_BYTES);
    copy_group(row, &part->row, (dfgnn_field_group)i);
  }
  return 1;
}

/* Reads the measurement's own fields; 0 if one is not valid. */
static int read_measurement(dfgnn_measurement *row,
                            unsigned char (*hashes)[DFGNN_HASH_BYTES],
                            sqlite3_stmt *query) {
  const unsigned char *hash = column_hash(query, 0);
  return hash &&
         read_group(row, DFGNN_GROUP_MEASUREMENT, query,
                    1 + DFGNN_PART_COUNT) &&
         verified(DFGNN_GROUP_MEASUREMENT, row, hash, hashes);
}

static int same(const char *wanted, const char *found) {
  return !wanted || strcmp(wanted, found) == 0;
}

/* True if the row is of another device, which nobody asked for. */
static int foreign(const dfgnn_store_filter *f, const dfgnn_measurement *row) {
  return f && !(same(f->backend, row->backend) && same(f->arch, row->arch));
}

static int matches(const dfgnn_store_filter *f, const dfgnn_measurement *row) {
  return !f ||
         (same(f->op, row->op) && same(f->pass, row->pass) &&
          same(f->dtype, row->dtype) && same(f->status, row->status) &&
          (!f->protocol_prefix || strncmp(f->protocol_prefix, row->protocol,
                                          strlen(f->protocol_prefix)) == 0) &&
          (!f->fingerprint || *f->fingerprint == row->signature.fingerprint) &&
          (f->heads < 0 || f->heads == row->heads) &&
          (f->dim < 0 || f->dim == row->dim) &&
          (!f->wanted || f->wanted(f->data, row)));
}

dfgnn_status dfgnn__store_scan(dfgnn_store *store, uint64_t *invalid,
                               const dfgnn_store_filter *filter,
                               dfgnn_strings *strings, dfgnn_scan_visit visit,
                               void *data) {
  parts p[DFGNN_PART_COUNT] = {{0, 0, NULL}};
  sqlite3_stmt *query = NULL;
  uint64_t skipped = 0;
  int stop = 0;
  dfgnn__store_begin(store);
  /* One transaction: a measurement's parts are of the same moment. */
  int within = !sqlite3_get_autocommit(store->db);
  DFGNN_TRY(within ? DFGNN_OK
                   : dfgnn__store_execute(store, "BEGIN", "cannot be read"));
  dfgnn_status status = DFGNN_OK;
  int rc = SQLITE_OK;
  for (int i = 0; i < DFGNN_PART_COUNT && !rc; i++)
    rc = load_parts(&p[i], store, (dfgnn_field_group)i, strings);
  if (!rc)
    rc = prepare(&query, store, DFGNN_GROUP_MEASUREMENT);
  while (!rc && !stop && (rc = sqlite3_step(query)) == SQLITE_ROW) {
    unsigned char hashes[DFGNN_PART_COUNT][DFGNN_HASH_BYTES];
    dfgnn_measurement row;
    int whole = read_parts(&row, hashes, p, query);
    rc = SQLITE_OK;
    if (whole && foreign(filter, &row))
      continue;
    if (!whole || !read_measurement(&row, hashes, query))
      skipped++;
    else if (matches(filter, &row))
      stop = visit(data, column_hash(query, 0), &row);
  }
  if (rc && rc != SQLITE_DONE)
    status = dfgnn__store_fail(store, rc, "cannot be read");
  else
    status = dfgnn__store_unchanged(store);
  if (invalid)
    *invalid += skipped;
  sqlite3_finalize(query);
  for (int i = 0; i < DFGNN_PART_COUNT; i++)
    free(p[i].part);
  if (!within)
    dfgnn__store_rollback(store); /* it only read */
  return status;
}

typedef struct each {
  dfgnn_store_visit visit;
  void *data;
} each;

static int visit_row(void *data, const unsigned char *hash,
                     const dfgnn_measurement *row) {
  const each *e = data;
  (void)hash;
  return e->visit(e->data, row);
}

dfgnn_status dfgnn__store_each(dfgnn_store *store, uint64_t *invalid,
                               const dfgnn_store_filter *filter,
                               dfgnn_store_visit visit, void *data) {
  each e = {visit, data};
  dfgnn_strings *strings = dfgnn__strings_create();
  if (!strings)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", store->path);
  dfgnn_status status =
      dfgnn__store_scan(store, invalid, filter, strings, visit_row, &e);
  dfgnn__strings_free(strings);
  return status;
}

/* ---- rows ---------------------------------------------------------------- */

struct dfgnn_rows {
  dfgnn_strings *strings;
  dfgnn_measurement *row;
  unsigned char (*hash)[DFGNN_HASH_BYTES];
  size_t count, room;
  uint32_t *slot; /* hash table of row number + 1 */
  size_t slots;
};

dfgnn_status dfgnn__rows_create(dfgnn_rows **out) {
  dfgnn_rows *rows = calloc(1, sizeof *rows);
  if (rows)
    rows->strings = dfgnn__strings_create();
  if (!rows || !rows->strings) {
    free(rows);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for stored rows");
  }
  *out = rows;
  return DFGNN_OK;
}

void dfgnn__rows_free(dfgnn_rows *rows) {
  if (!rows)
    return;
  dfgnn__strings_free(rows->strings);
  free(rows->row);
  free(rows->hash);
  free(rows->slot);
  free(rows);
}

const dfgnn_measurement *dfgnn__rows_get(const dfgnn_rows *rows,
                                         size_t *count) {
  *count = rows->count;
  return rows->row;
}

/* A part of the content's hash serves as the table's hash. */
static uint32_t *find_slot(const dfgnn_rows *rows, const unsigned char *hash) {
  uint64_t h;
  memcpy(&h, hash, sizeof h);
  size_t i = (size_t)h & (rows->slots - 1);
  while (rows->slot[i] &&
         memcmp(rows->hash[rows->slot[i] - 1], hash, DFGNN_HASH_BYTES) != 0)
    i = (i + 1) & (rows->slots - 1);
  return &rows->slot[i];
}

static int index_rows(dfgnn_rows *rows, size_t slots) {
  uint32_t *slot = calloc(slots, sizeof *slot);
  if (!slot)
    return 0;
  free(rows->slot);
  rows->slot = slot;
  rows->slots = slots;
  for (size_t i = 0; i < rows->count; i++)
    *find_slot(rows, rows->hash[i]) = (uint32_t)i + 1;
  return 1;
}

static int reserve(dfgnn_rows *rows) {
  if (rows->count < rows->room)
    return 1;
  size_t room = rows->room ? 2 * rows->room : 256;
  if (room > UINT32_MAX / 4)
    return 0;
  dfgnn_measurement *row = realloc(rows->row, room * sizeof *row);
  if (row)
    rows->row = row;
  void *hash = realloc(rows->hash, room * sizeof *rows->hash);
  if (hash)
    rows->hash = hash;
  if (!row || !hash)
    return 0;
  rows->room = room;
  return index_rows(rows, 2 * room);
}

typedef struct load {
  dfgnn_rows *rows;
  int failed;
} load;

static int visit_load(void *data, const unsigned char *hash,
                      const dfgnn_measurement *measurement) {
  load *l = data;
  dfgnn_rows *rows = l->rows;
  if (!reserve(rows))
    return l->failed = 1;
  uint32_t *slot = find_slot(rows, hash);
  if (*slot)
    return 0;
  dfgnn_measurement *row = &rows->row[rows->count];
  *row = *measurement;
  if (!keep_strings(rows->strings, DFGNN_GROUP_MEASUREMENT, row))
    return l->failed = 1;
  memcpy(rows->hash[rows->count], hash, DFGNN_HASH_BYTES);
  *slot = (uint32_t)++rows->count;
  return 0;
}

/* Takes back the rows after the first `count`. */
static void shorten(dfgnn_rows *rows, size_t count) {
  rows->count = count;
  memset(rows->slot, 0, rows->slots * sizeof *rows->slot);
  for (size_t i = 0; i < count; i++)
    *find_slot(rows, rows->hash[i]) = (uint32_t)i + 1;
}

dfgnn_status dfgnn__rows_load(dfgnn_rows *rows, uint64_t *invalid,
                              dfgnn_store *store,
                              const dfgnn_store_filter *filter) {
  load l = {rows, 0};
  size_t before = rows->count;
  dfgnn_status status =
      dfgnn__store_scan(store, invalid, filter, rows->strings, visit_load, &l);
  if (l.failed)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: out of memory", store->path);
  if (status && rows->slots)
    shorten(rows, before);
  return status;
}

/* Adds a row of which no string is ours yet. */
static int add_row(dfgnn_rows *rows, const unsigned char *hash,
                   const dfgnn_measurement *measurement) {
  load l = {rows, 0};
  dfgnn_measurement row = *measurement;
  for (int i = 0; i < DFGNN_PART_COUNT; i++)
    if (!keep_strings(rows->strings, (dfgnn_field_group)i, &row))
      return 0;
  visit_load(&l, hash, &row);
  return !l.failed;
}

dfgnn_status dfgnn__rows_copy(dfgnn_rows *rows, const dfgnn_rows *from,
                              const dfgnn_store_filter *filter) {
  size_t before = rows->count;
  int done = 1;
  for (size_t i = 0; i < from->count && done; i++)
    if (matches(filter, &from->row[i]) && !foreign(filter, &from->row[i]))
      done = add_row(rows, from->hash[i], &from->row[i]);
  if (done)
    return DFGNN_OK;
  if (rows->slots)
    shorten(rows, before);
  return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for stored rows");
}

dfgnn_status dfgnn__rows_add(dfgnn_rows *rows,
                             const dfgnn_measurement *measurement) {
  unsigned char hashes[DFGNN_GROUP_COUNT][DFGNN_HASH_BYTES];
  char buffer[DFGNN_CLEAN_BYTES];
  dfgnn_measurement row;
  dfgnn__measurement_clean(&row, measurement, buffer);
  for (int i = 0; i < DFGNN_GROUP_COUNT; i++)
    dfgnn__group_hash(hashes[i], (dfgnn_field_group)i, &row, hashes);
  return add_row(rows, hashes[DFGNN_GROUP_MEASUREMENT], &row)
             ? DFGNN_OK
             : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for stored rows");
}
