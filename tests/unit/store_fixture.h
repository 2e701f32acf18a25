/* store_fixture.h - a store in a directory of its own, for the tests of db/ */
#ifndef DFGNN_TESTS_STORE_FIXTURE_H
#define DFGNN_TESTS_STORE_FIXTURE_H

#include <sqlite3.h>
#include <sys/wait.h>

#include "db/internal.h"
#include "tests/unit/fixture.h"
#include "tests/unit/rows.h"

static char directory[64], path[512];

static inline void set_up(void) {
  test_folder(directory);
  snprintf(path, sizeof path, "%s/tuning.db", directory);
}

static inline dfgnn_store *open_store(dfgnn_store_mode mode) {
  dfgnn_store *store = NULL;
  ck_ok(dfgnn__store_open(&store, path, mode));
  return store;
}

static inline void ck_refused(dfgnn_store_mode mode, const char *why) {
  dfgnn_store *store = NULL;
  ck_fails(dfgnn__store_open(&store, path, mode), DFGNN_ERROR_STORE, why);
  ck_assert_msg(strstr(dfgnn_last_error(), path) != NULL, "%s",
                dfgnn_last_error());
  ck_assert_ptr_null(store);
}

static inline void ck_both_refused(const char *why) {
  ck_refused(DFGNN_STORE_READ, why);
  ck_refused(DFGNN_STORE_WRITE, why);
}

static inline int record(dfgnn_store *store, const dfgnn_measurement *row) {
  int added = -1;
  ck_ok(dfgnn__store_record(store, &added, row));
  return added;
}

/* Makes a store of `count` rows that differ in their time. */
static inline void make_store(int count) {
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  ck_ok(dfgnn__store_execute(store, "BEGIN", "test"));
  for (int i = 0; i < count; i++) {
    dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
    int added = 0;
    row.time = i;
    ck_ok(dfgnn__store_insert(store, &added, &row));
    ck_assert_int_eq(added, 1);
  }
  ck_ok(dfgnn__store_execute(store, "COMMIT", "test"));
  dfgnn__store_close(store);
}

static inline size_t count_rows(uint64_t *invalid) {
  dfgnn_store *store = open_store(DFGNN_STORE_READ);
  dfgnn_rows *rows = NULL;
  size_t count;
  ck_ok(dfgnn__rows_create(&rows));
  ck_ok(dfgnn__rows_load(rows, invalid, store, NULL));
  dfgnn__rows_get(rows, &count);
  dfgnn__rows_free(rows);
  dfgnn__store_close(store);
  return count;
}

/* Changes the file by SQL, as any program may. */
static inline void execute_raw(const char *sql) {
  sqlite3 *db;
  char *message = NULL;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  sqlite3_exec(db, sql, NULL, NULL, &message);
  ck_assert_msg(message == NULL, "%s: %s", sql, message);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

static inline char *read_file(size_t *size) {
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  char *bytes = zeros_of((int64_t)*size, 1);
  ck_assert_uint_eq(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

static inline void write_file(const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

/* Runs body in a process without privileges; its exit status must be 0. */
static inline void unprivileged(void (*body)(void)) {
  pid_t child = check_fork();
  if (child == 0) {
    if (geteuid() == 0)
      ck_assert(setgid(65534) == 0 && setuid(65534) == 0);
    body();
    exit(0);
  }
  check_waitpid_and_exit(child);
}

typedef struct seen {
  const dfgnn_measurement *wanted;
  size_t count, wanted_count, found;
} seen;

static inline int compare_bits(const dfgnn_measurement *a,
                               const dfgnn_measurement *b) {
  for (int g = 0; g < DFGNN_GROUP_COUNT; g++)
    for (size_t i = 0; i < dfgnn__fields[g].count; i++) {
      const dfgnn_field *f = &dfgnn__fields[g].field[i];
      const void *x = dfgnn__field_get(f, a), *y = dfgnn__field_get(f, b);
      size_t size = f->kind == DFGNN_FIELD_INT     ? sizeof(int)
                    : f->kind == DFGNN_FIELD_REALS ? 8 * DFGNN_HISTOGRAM_BINS
                                                   : 8;
      int text = f->kind == DFGNN_FIELD_NAME || f->kind == DFGNN_FIELD_TEXT;
      if (text ? strcmp(*(char *const *)x, *(char *const *)y)
               : memcmp(x, y, size))
        return 1;
    }
  return 0;
}

static inline int look_for(void *data, const dfgnn_measurement *row) {
  seen *s = data;
  s->count++;
  for (size_t i = 0; i < s->wanted_count; i++)
    if (compare_bits(row, &s->wanted[i]) == 0) {
      s->found++;
      ck_assert_uint_eq(row->signature.struct_size, sizeof(dfgnn_signature));
      ck_assert_int_eq(dfgnn__measurement_compare(row, &s->wanted[i]), 0);
      break;
    }
  return 0;
}

static inline int join_pins(void *data, const dfgnn_pin *pin) {
  char *text = data;
  sprintf(text + strlen(text), "%s %s %s%s%s %llx %s;", pin->op, pin->pass,
          pin->dtype, pin->bias ? " bias" : "", pin->dropout ? " dropout" : "",
          (unsigned long long)pin->fingerprint, pin->variant);
  return 0;
}

#endif
