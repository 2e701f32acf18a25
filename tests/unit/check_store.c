#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "db/internal.h"
#include "tests/unit/fixture.h"
#include "tests/unit/rows.h"

/* ---- a directory a test ----------------------------------------------------
 */

static char directory[128], path[512];

static void set_up(void) {
  const char *at = getenv("TMPDIR");
  snprintf(directory, sizeof directory, "%s/dfgnn-store-XXXXXX",
           at ? at : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/tuning.db", directory);
}

static void tear_down(void) {
  char command[512];
  snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'",
           directory, directory);
  ck_assert_int_eq(system(command), 0);
}

static dfgnn_store *open_store(dfgnn_store_mode mode) {
  dfgnn_store *store = NULL;
  ck_ok(dfgnn__store_open(&store, path, mode));
  return store;
}

static void ck_refused(dfgnn_store_mode mode, const char *why) {
  dfgnn_store *store = NULL;
  ck_fails(dfgnn__store_open(&store, path, mode), DFGNN_ERROR_STORE, why);
  ck_assert_msg(strstr(dfgnn_last_error(), path) != NULL, "%s",
                dfgnn_last_error());
  ck_assert_ptr_null(store);
}

static void ck_both_refused(const char *why) {
  ck_refused(DFGNN_STORE_READ, why);
  ck_refused(DFGNN_STORE_WRITE, why);
}

static int record(dfgnn_store *store, const dfgnn_measurement *row) {
  int added = -1;
  ck_ok(dfgnn__store_record(store, &added, row));
  return added;
}

/* A store of `count` rows that differ in their time. */
static void make_store(int count) {
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

static size_t count_rows(uint64_t *invalid) {
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

/* Changes the file by SQL, as anyone may. */
static void execute_raw(const char *sql) {
  sqlite3 *db;
  char *message = NULL;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  sqlite3_exec(db, sql, NULL, NULL, &message);
  ck_assert_msg(message == NULL, "%s: %s", sql, message);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

static char *read_file(size_t *size) {
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*size + 1);
  ck_assert_uint_eq(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

static void write_file(const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

/* Runs body in a process without privileges; its exit status must be 0. */
static void unprivileged(void (*body)(void)) {
  pid_t child = check_fork();
  if (child == 0) {
    if (geteuid() == 0)
      ck_assert(setgid(65534) == 0 && setuid(65534) == 0);
    body();
    exit(0);
  }
  check_waitpid_and_exit(child);
}

/* ---- writing and reading ---------------------------------------------------
 */

static const char *random_text(uint64_t *seed, const dfgnn_field *field,
                               char *buffer) {
  static const char *const letters[] = {"a", "Z", "0", "=", "/", ",", ".", "-"};
  static const char *const more[] = {
      " ", "\"", "\\", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
      "'", "%"};
  if (strcmp(field->name, "run") == 0) {
    snprintf(buffer, 40, "%016llx%016llx",
             (unsigned long long)random_next(seed),
             (unsigned long long)random_next(seed));
    return buffer;
  }
  if (field->choice)
    return field->choice[random_next(seed) % 2];
  size_t length = (size_t)field->low + random_next(seed) % 20, n = 0;
  while (n < length) {
    uint64_t x = random_next(seed);
    const char *c = field->kind == DFGNN_FIELD_TEXT && x % 3 == 0
                        ? more[x / 8 % 8]
                        : letters[x / 8 % 8];
    n += (size_t)sprintf(buffer + n, "%s", c);
  }
  buffer[n] = 0;
  return buffer;
}

static double random_real(uint64_t *seed, const dfgnn_field *field) {
  uint64_t x = random_next(seed);
  if (x % 8 == 0)
    return field->low;
  if (x % 8 == 1)
    return field->high;
  if (x % 8 == 2)
    return DBL_MIN / 64; /* subnormal */
  return field->high * ((double)(x >> 11) / 9007199254740992.);
}

static dfgnn_measurement random_row(uint64_t *seed, char (*buffer)[256]) {
  dfgnn_measurement row;
  memset(&row, 0, sizeof row);
  row.signature.struct_size = sizeof row.signature;
  for (int g = 0; g < DFGNN_GROUP_COUNT; g++)
    for (size_t i = 0; i < dfgnn__fields[g].count; i++) {
      const dfgnn_field *field = &dfgnn__fields[g].field[i];
      void *slot = dfgnn__field_slot(field, &row);
      uint64_t x = random_next(seed);
      int64_t limit = (int64_t)(field->high - field->low);
      int64_t integer = (int64_t)field->low +
                        (limit > 0 ? (int64_t)(x % ((uint64_t)limit + 1)) : 0);
      switch (field->kind) {
      case DFGNN_FIELD_NAME:
      case DFGNN_FIELD_TEXT:
        *(const char **)slot = random_text(seed, field, *buffer++);
        break;
      case DFGNN_FIELD_INT:
        *(int *)slot = (int)integer;
        break;
      case DFGNN_FIELD_INT64:
        *(int64_t *)slot = integer;
        break;
      case DFGNN_FIELD_UINT64:
        *(uint64_t *)slot = x;
        break;
      case DFGNN_FIELD_REAL:
        *(double *)slot = random_real(seed, field);
        break;
      case DFGNN_FIELD_REALS:
        for (int k = 0; k < DFGNN_HISTOGRAM_BINS; k++)
          ((double *)slot)[k] = random_real(seed, field);
        break;
      }
    }
  row.median_ms = fmax(row.median_ms, 1e-9);
  row.ratio = fmax(row.ratio, 1e-9);
  row.ratio_low = fmax(row.ratio_low, 1e-9);
  row.ci_high_ms = fmax(row.ci_low_ms, row.ci_high_ms);
  row.ratio_high = fmax(row.ratio_low, row.ratio_high);
  return row;
}

typedef struct seen {
  const dfgnn_measurement *wanted;
  size_t count, wanted_count, found;
} seen;

static int compare_bits(const dfgnn_measurement *a,
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

static int look_for(void *data, const dfgnn_measurement *row) {
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

START_TEST(every_field_comes_back_bit_for_bit) {
  static char buffers[30][40][256];
  dfgnn_measurement rows[30];
  uint64_t invalid = 0, seed = (uint64_t)time(NULL);
  printf("seed %llu\n", (unsigned long long)seed);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  for (int i = 0; i < 30; i++) {
    rows[i] = random_row(&seed, buffers[i]);
    ck_assert_int_eq(record(store, &rows[i]), 1);
  }
  for (int reopened = 0; reopened < 2; reopened++) {
    seen s = {rows, 0, 30, 0};
    ck_ok(dfgnn__store_each(store, &invalid, NULL, look_for, &s));
    ck_assert_uint_eq(s.count, 30);
    ck_assert_uint_eq(s.found, 30);
    ck_assert_uint_eq(invalid, 0);
    dfgnn__store_close(store);
    store = open_store(DFGNN_STORE_READ);
  }
  ck_assert_str_eq(dfgnn__store_path(store), path);
  dfgnn__store_close(store);
}
END_TEST

START_TEST(a_measurement_is_kept_once) {
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  ck_assert_int_eq(record(store, &row), 1);
  ck_assert_int_eq(record(store, &row), 0);
  row.time++;
  ck_assert_int_eq(record(store, &row), 1);
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), 2);
}
END_TEST

START_TEST(a_store_in_memory_works_alike) {
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  dfgnn_store *store = NULL;
  ck_ok(dfgnn__store_open(&store, ":memory:", DFGNN_STORE_WRITE));
  ck_assert_int_eq(record(store, &row), 1);
  ck_assert_int_eq(record(store, &row), 0);
  seen s = {&row, 0, 1, 0};
  ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
  ck_assert_uint_eq(s.found, 1);
  dfgnn__store_close(store);
  dfgnn__store_close(NULL);
}
END_TEST

START_TEST(free_text_is_cleaned_and_names_are_refused) {
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_measurement row = rejected_of(RUN_A, "x", "wrong");
  char longest[4000];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  row.reason = longest;
  row.host = "a\nb\x1b[31m\xff\xc3\xa9";
  row.job = NULL;
  row.rel_error = INFINITY;
  record(store, &row);
  dfgnn_measurement wanted = row;
  longest[1023] = 0;
  wanted.host = "a?b?[31m?\xc3\xa9";
  wanted.job = "";
  wanted.rel_error = DBL_MAX;
  seen s = {&wanted, 0, 1, 0};
  ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
  ck_assert_uint_eq(s.found, 1);

#define REFUSED(field, assignment)                                             \
  row = row_of(RUN_A, "x", 1.5);                                               \
  row.assignment;                                                              \
  ck_fails(dfgnn__store_record(store, NULL, &row), DFGNN_ERROR_INVALID, field);
  REFUSED("variant", variant = "a b")
  REFUSED("variant", variant = "")
  REFUSED("variant", variant = NULL)
  REFUSED("variant", variant = longest)
  REFUSED("op", op = "g\nt")
  REFUSED("index_type", index = "i16")
  REFUSED("status", status = "good")
  REFUSED("run", run = "abc")
  REFUSED("run", run = "zaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
  REFUSED("median_ms", median_ms = -1)
  REFUSED("median_ms", median_ms = 0)
  REFUSED("median_ms", median_ms = NAN)
  REFUSED("ratio", ratio = INFINITY)
  REFUSED("ratio", ratio = 0)
  REFUSED("ratio_high", ratio_high = 1)
  REFUSED("ci_high_ms", ci_high_ms = 0)
  REFUSED("heads", heads = 0)
  REFUSED("dim", dim = -5)
  REFUSED("edges", signature.edges = -1)
  REFUSED("isolated", signature.isolated = 1.5)
  REFUSED("histogram", signature.histogram[3] = NAN)
  REFUSED("deterministic", deterministic = 2)
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), 1);
}
END_TEST

START_TEST(filters_restrict_what_is_visited) {
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  const uint64_t fingerprint = 7;
  record(store, &row);
  row.signature.fingerprint = fingerprint, row.arch = "sm_80", row.op = "gat";
  row.dim = 16, row.heads = 8, row.protocol = "cold", row.dtype = "bf16";
  record(store, &row);
  row.backend = "cpu", row.status = "failed", row.pass = "backward";
  record(store, &row);
  const dfgnn_store_filter filters[] = {
      {.arch = "sm_90", .heads = -1, .dim = -1},
      {.backend = "cpu", .heads = -1, .dim = -1},
      {.op = "gat", .heads = -1, .dim = -1},
      {.pass = "forward", .heads = -1, .dim = -1},
      {.dtype = "bf16", .heads = -1, .dim = -1},
      {.protocol_prefix = "warm", .heads = -1, .dim = -1},
      {.status = "failed", .heads = -1, .dim = -1},
      {.fingerprint = &fingerprint, .heads = -1, .dim = -1},
      {.heads = 8, .dim = -1},
      {.heads = -1, .dim = 16},
      {.heads = 2, .dim = -1},
      DFGNN_STORE_FILTER_INIT};
  const size_t counts[] = {1, 1, 2, 2, 2, 1, 1, 2, 2, 2, 0, 3};
  for (int i = 0; i < 12; i++) {
    seen s = {NULL, 0, 0, 0};
    ck_ok(dfgnn__store_each(store, NULL, &filters[i], look_for, &s));
    ck_assert_msg(s.count == counts[i], "filter %d gives %zu", i, s.count);
  }
  dfgnn__store_close(store);
}
END_TEST

START_TEST(rows_of_several_stores_are_a_union) {
  dfgnn_store *store[2];
  dfgnn_rows *rows = NULL;
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  ck_ok(dfgnn__rows_create(&rows));
  for (int i = 0; i < 2; i++) {
    ck_ok(dfgnn__store_open(&store[i], ":memory:", DFGNN_STORE_WRITE));
    row.time = 1;
    record(store[i], &row);
    row.time = 2 + i;
    record(store[i], &row);
  }
  for (int i = 0; i < 4; i++)
    ck_ok(dfgnn__rows_load(rows, NULL, store[i & 1], NULL));
  for (int i = 0; i < 2; i++)
    dfgnn__store_close(store[i]);
  size_t count;
  const dfgnn_measurement *loaded = dfgnn__rows_get(rows, &count);
  ck_assert_uint_eq(count, 3);
  for (size_t i = 0; i < count; i++) /* the strings are the rows' own */
    ck_assert_str_eq(loaded[i].variant, "x");
  dfgnn__rows_free(rows);
  dfgnn__rows_free(NULL);
}
END_TEST

/* All hashes of a store, one after the other. */
static int add_hash(void *data, const unsigned char *hash,
                    const dfgnn_measurement *row) {
  unsigned char **end = data;
  (void)row;
  memcpy(*end, hash, DFGNN_HASH_BYTES);
  *end += DFGNN_HASH_BYTES;
  return 0;
}

static size_t hashes_of(dfgnn_store *store, unsigned char *hashes) {
  unsigned char *end = hashes;
  dfgnn_strings *strings = dfgnn__strings_create();
  ck_ok(dfgnn__store_scan(store, NULL, NULL, strings, add_hash, &end));
  dfgnn__strings_free(strings);
  return (size_t)(end - hashes);
}

START_TEST(merging_is_a_union_in_any_order_and_number) {
  static unsigned char hashes[2][200 * DFGNN_HASH_BYTES];
  static const int orders[2][6] = {{0, 1, 2, 2, 0, 1}, {2, 1, 1, 0, 0, 2}};
  dfgnn_store *in[3], *out[2];
  size_t sizes[2];
  for (int i = 0; i < 3; i++) {
    dfgnn_measurement rows[40];
    uint64_t added = 0;
    for (int k = 0; k < 40; k++) {
      rows[k] = row_of(RUN_A, "x", 1.5);
      rows[k].time = 20 * i + k; /* half of them shared with the next */
    }
    ck_ok(dfgnn__store_open(&in[i], ":memory:", DFGNN_STORE_WRITE));
    ck_ok(dfgnn__store_record_all(in[i], &added, rows, 40));
    ck_ok(dfgnn__store_record_all(in[i], &added, rows, 40));
    ck_assert_uint_eq(added, 40);
  }
  for (int i = 0; i < 2; i++) {
    dfgnn_merge_counts counts = {0, 0, 0};
    ck_ok(dfgnn__store_open(&out[i], ":memory:", DFGNN_STORE_WRITE));
    for (int k = 0; k < 6; k++)
      ck_ok(dfgnn__store_merge(out[i], &counts, in[orders[i][k]], NULL));
    ck_assert_uint_eq(counts.added, 80);
    ck_assert_uint_eq(counts.known, 160);
    ck_assert_uint_eq(counts.skipped, 0);
    sizes[i] = hashes_of(out[i], hashes[i]);
  }
  ck_assert_uint_eq(sizes[0], 80 * DFGNN_HASH_BYTES);
  ck_assert_uint_eq(sizes[1], sizes[0]);
  ck_assert(memcmp(hashes[0], hashes[1], sizes[0]) == 0);
  ck_fails(dfgnn__store_merge(out[0], NULL, out[0], NULL), DFGNN_ERROR_INVALID,
           "into itself");
  dfgnn_store_filter none = DFGNN_STORE_FILTER_INIT;
  dfgnn_merge_counts counts = {0, 0, 0};
  none.arch = "sm_70";
  ck_ok(dfgnn__store_merge(out[0], &counts, in[0], &none));
  ck_assert_uint_eq(counts.known, 0);
  for (int i = 0; i < 3; i++)
    dfgnn__store_close(in[i]);
  for (int i = 0; i < 2; i++)
    dfgnn__store_close(out[i]);
}
END_TEST

START_TEST(many_rows_are_recorded_all_or_none) {
  dfgnn_measurement rows[] = {row_of(RUN_A, "x", 1.5), row_of(RUN_A, "y", 1.5),
                              row_of(RUN_A, "a b", 1.5)};
  uint64_t added = 0;
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  ck_fails(dfgnn__store_record_all(store, &added, rows, 3), DFGNN_ERROR_INVALID,
           "variant");
  ck_assert_uint_eq(added, 0);
  ck_ok(dfgnn__store_record_all(store, &added, rows, 2));
  ck_assert_uint_eq(added, 2);
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), 2);
}
END_TEST

static int join_pins(void *data, const char *op, const char *pass,
                     const char *dtype, uint64_t fingerprint,
                     const char *variant) {
  char *text = data;
  sprintf(text + strlen(text), "%s %s %s %llx %s;", op, pass, dtype,
          (unsigned long long)fingerprint, variant);
  return 0;
}

START_TEST(pins_are_set_replaced_and_removed) {
  char text[1024] = "";
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  const uint64_t high = 0xffffffffffffffffu;
  ck_ok(dfgnn__store_pin(store, "gt", "forward", "f32", 0, "a"));
  ck_ok(dfgnn__store_pin(store, "gt", "forward", "f32", high, "b"));
  ck_ok(dfgnn__store_pin(store, "gat", "forward", "f32", 0, "c"));
  ck_ok(dfgnn__store_pin(store, "gt", "forward", "f32", 0, "d"));
  ck_ok(dfgnn__store_pin(store, "gat", "forward", "f32", 0, NULL));
  ck_ok(dfgnn__store_pin(store, "gat", "forward", "f32", 5, NULL));
  ck_assert_int_eq(dfgnn__store_pin(store, "g t", "forward", "f32", 0, "a"),
                   DFGNN_ERROR_INVALID);
  dfgnn__store_close(store);
  store = open_store(DFGNN_STORE_READ);
  ck_ok(dfgnn__store_each_pin(store, join_pins, text));
  ck_assert_str_eq(text, "gt forward f32 ffffffffffffffff b;"
                         "gt forward f32 0 d;");
  ck_assert_int_eq(dfgnn__store_pin(store, "gt", "forward", "f32", 0, "a"),
                   DFGNN_ERROR_STORE);
  dfgnn__store_close(store);
}
END_TEST

/* ---- files that are no store ------------------------------------------------
 */

START_TEST(a_missing_file_is_told_from_a_bad_one) {
  dfgnn_store *store = NULL;
  ck_fails(dfgnn__store_open(&store, path, DFGNN_STORE_READ), DFGNN_ERROR_IO,
           "no such file");
  ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_store_is_created_with_its_directories) {
  snprintf(path, sizeof path, "%s/a b/c?d#e%%20/x.db", directory);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn__store_close(store);
  ck_assert_int_eq(access(path, R_OK), 0);
  ck_assert_uint_eq(count_rows(NULL), 0);
}
END_TEST

START_TEST(a_directory_or_a_pipe_is_refused) {
  snprintf(path, sizeof path, "%s", directory);
  ck_both_refused("is a directory");
  snprintf(path, sizeof path, "%s/pipe", directory);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  ck_both_refused("no regular file");
}
END_TEST

static void expect_unreadable(void) { ck_both_refused("Permission denied"); }
static void expect_read_only(void) {
  ck_refused(DFGNN_STORE_WRITE, "read-only");
}
static void expect_no_place(void) {
  snprintf(path, sizeof path, "%s/new.db", directory);
  ck_refused(DFGNN_STORE_WRITE, "cannot be created");
}

START_TEST(files_without_permission_are_refused) {
  make_store(1);
  ck_assert_int_eq(chmod(directory, 0755), 0);
  ck_assert_int_eq(chmod(path, 0444), 0);
  unprivileged(expect_read_only);
  ck_assert_int_eq(chmod(path, 0), 0);
  unprivileged(expect_unreadable);
  ck_assert_int_eq(chmod(directory, 0555), 0);
  unprivileged(expect_no_place);
}
END_TEST

static void expect_three_rows(void) { ck_assert_uint_eq(count_rows(NULL), 3); }
static void expect_pending(void) {
  ck_refused(DFGNN_STORE_READ, "still in the log");
}

START_TEST(a_store_in_a_read_only_directory_is_readable) {
  char name[600];
  make_store(3);
  for (int i = 0; i < 2; i++) {
    snprintf(name, sizeof name, "%s%s", path, i ? "-shm" : "-wal");
    unlink(name);
  }
  ck_assert_int_eq(chmod(path, 0444), 0);
  ck_assert_int_eq(chmod(directory, 0555), 0);
  unprivileged(expect_three_rows);
  ck_assert_int_eq(chmod(directory, 0755), 0);
  snprintf(name, sizeof name, "%s-wal", path);
  FILE *log = fopen(name, "w");
  fputs("a log that was left behind", log);
  fclose(log);
  ck_assert_int_eq(chmod(name, 0), 0);
  ck_assert_int_eq(chmod(directory, 0555), 0);
  unprivileged(expect_pending);
}
END_TEST

/* Opening must say why and leave the file as it was. */
static void ck_untouched_refusal(const char *why) {
  size_t before, after;
  char *old = read_file(&before);
  ck_both_refused(why);
  char *new = read_file(&after);
  ck_assert_uint_eq(before, after);
  ck_assert(memcmp(old, new, before) == 0);
  free(old);
  free(new);
}

START_TEST(other_files_are_refused_and_left_alone) {
  char garbage[5000];
  uint64_t seed = 1;
  write_file("", 0);
  ck_untouched_refusal("is empty");
  write_file("graph,variant\ncora,x\n", 21);
  ck_untouched_refusal("no SQLite database");
  for (size_t i = 0; i < sizeof garbage; i++)
    garbage[i] = (char)random_next(&seed);
  write_file(garbage, sizeof garbage);
  ck_untouched_refusal("no SQLite database");
  memcpy(garbage, "SQLite format 3", 16);
  write_file(garbage, sizeof garbage);
  ck_untouched_refusal("");
  unlink(path);
  execute_raw("CREATE TABLE mail (subject TEXT)");
  ck_untouched_refusal("another application");
  execute_raw("PRAGMA application_id = 252006675");
  ck_untouched_refusal("another application");
  execute_raw("PRAGMA application_id = 0x6466676e");
  ck_untouched_refusal("the version is 0");
  execute_raw("PRAGMA user_version = 1");
  ck_untouched_refusal("table mail, which is not");
  execute_raw("DROP TABLE mail");
  ck_untouched_refusal("the table device is missing");
}
END_TEST

START_TEST(a_file_above_the_limit_is_refused) {
  make_store(1);
  ck_assert_int_eq(truncate(path, (300ll << 20)), 0);
  ck_both_refused("300 MiB, expected at most 256");
}
END_TEST

START_TEST(a_truncated_file_is_refused_and_left_alone) {
  size_t size;
  make_store(300);
  char *bytes = read_file(&size);
  ck_assert_uint_gt(size, 60000);
  const size_t lengths[] = {1,     15,       16,          99,      100,  511,
                            512,   1024,     4095,        4096,    4097, 8192,
                            40960, size / 2, size - 4096, size - 1};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    write_file(bytes, lengths[i]);
    ck_untouched_refusal(lengths[i] == 1 ? "is empty" : "truncated");
  }
  write_file(bytes, size);
  ck_assert_uint_eq(count_rows(NULL), 300);
  free(bytes);
}
END_TEST

START_TEST(a_foreign_schema_is_refused) {
  static const char *const additions[] = {
      "CREATE TRIGGER t AFTER INSERT ON measurement BEGIN "
      "DELETE FROM measurement; END",
      "CREATE VIEW v AS SELECT * FROM measurement",
      "CREATE TABLE zebra (x)",
      "CREATE INDEX i ON measurement (abs(median_ms))",
      "CREATE VIRTUAL TABLE f USING fts5 (x)",
      "ALTER TABLE run ADD COLUMN extra TEXT",
      "DROP TABLE pin",
      "ANALYZE",
      "DROP TABLE pin; CREATE VIEW pin AS SELECT 1 AS op"};
  static const char *const why[] = {
      "trigger t", "view v",        "table zebra",    "index i",
      "table f",   "the table run", "pin is missing", "table sqlite_stat",
      "view pin"};
  size_t size;
  make_store(1);
  char *bytes = read_file(&size);
  for (int i = 0; i < 9; i++) {
    write_file(bytes, size);
    execute_raw(additions[i]);
    ck_untouched_refusal(why[i]);
  }
  free(bytes);
}
END_TEST

static const char *version_after(const char *sql) {
  static char text[64];
  execute_raw(sql);
  sqlite3 *db;
  sqlite3_stmt *query;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &query, NULL);
  ck_assert_int_eq(sqlite3_step(query), SQLITE_ROW);
  snprintf(text, sizeof text, "%s", sqlite3_column_text(query, 0));
  sqlite3_finalize(query);
  sqlite3_close(db);
  return text;
}

START_TEST(a_newer_store_is_read_as_far_as_known_and_never_written) {
  uint64_t invalid = 0;
  make_store(5);
  execute_raw("PRAGMA user_version = 2;"
              "ALTER TABLE measurement ADD COLUMN energy REAL;"
              "CREATE TABLE signature (x)");
  ck_refused(DFGNN_STORE_WRITE, "newer version 2");
  ck_assert_uint_eq(count_rows(&invalid), 5);
  ck_assert_uint_eq(invalid, 0);
  execute_raw("ALTER TABLE measurement RENAME COLUMN median_ms TO median_us");
  ck_both_refused("newer version");
  ck_assert_str_eq(version_after("ALTER TABLE measurement RENAME COLUMN "
                                 "median_us TO median_ms"),
                   "2");
  execute_raw("DROP TABLE device; CREATE VIEW device AS SELECT * FROM graph");
  ck_both_refused("newer version");
}
END_TEST

/* ---- hostile rows
 * ------------------------------------------------------------ */

START_TEST(rows_outside_their_domain_are_skipped_and_counted) {
  uint64_t invalid = 0;
  int bad = 0, added;
  char longest[70000];
  make_store(2);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  ck_ok(dfgnn__store_execute(store, "PRAGMA ignore_check_constraints = 1", ""));
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
#define BAD(assignment)                                                        \
  {                                                                            \
    dfgnn_measurement row = row_of(RUN_B, "x", 1.5);                           \
    row.assignment;                                                            \
    row.time = ++bad;                                                          \
    ck_ok(dfgnn__store_insert_raw(store, &added, &row));                       \
    ck_assert_int_eq(added, 1);                                                \
  }
  BAD(median_ms = -1)
  BAD(median_ms = 0)
  BAD(median_ms = INFINITY)
  BAD(ratio = -INFINITY)
  BAD(ratio_low = 2)
  BAD(samples = -1)
  BAD(variant = "a\nb")
  BAD(variant = "a b")
  BAD(variant = "")
  BAD(reason = "\x1b[2J")
  BAD(reason = "\xff")
  BAD(reason = "\xe2\x80\xae")
  BAD(status = "best")
  BAD(anchor = "\"")
  BAD(model = "GPU\r")
  BAD(graph = longest)
  BAD(op = "")
  BAD(index = "i8")
  BAD(heads = 0)
  BAD(dim = INT64_MAX)
  BAD(units = -1)
  BAD(cache_bytes = INT64_MIN)
  BAD(signature.edges = -3)
  BAD(signature.histogram[0] = NAN)
  BAD(signature.locality = 1.01)
  BAD(run = "not hexadecimal")
  BAD(protocol = "")
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(&invalid), 2);
  ck_assert_uint_eq(invalid, (uint64_t)bad);
}
END_TEST

START_TEST(rows_of_wrong_types_or_with_wrong_hashes_are_skipped_and_counted) {
  static const char *const changes[] = {"median_ms = 'fast'",
                                        "median_ms = NULL",
                                        "median_ms = x'00'",
                                        "time = 1.5",
                                        "samples = 'many'",
                                        "revision = 1 << 40",
                                        "variant = 5",
                                        "variant = x'78'",
                                        "variant = 'y' || char(0)",
                                        "device = x'00'",
                                        "device = 'cpu'",
                                        "device = NULL",
                                        "graph = randomblob(16)",
                                        "run = hash",
                                        "median_ms = 0.001",
                                        "variant = 'y'",
                                        "hash = randomblob(16)",
                                        "hash = randomblob(15)",
                                        "hash = 'x'",
                                        "device = zeroblob(100000)"};
  const int count = sizeof changes / sizeof *changes;
  uint64_t invalid = 0;
  char sql[256];
  make_store(count + 2);
  /* The same tables without types and checks. */
  for (int i = 0; i < DFGNN_GROUP_COUNT; i++) {
    const char *table = dfgnn__fields[i].table;
    snprintf(sql, sizeof sql,
             "CREATE TABLE copy AS SELECT * FROM %s; DROP TABLE %s;"
             "ALTER TABLE copy RENAME TO %s",
             table, table, table);
    execute_raw(sql);
  }
  for (int i = 0; i < count; i++) {
    snprintf(sql, sizeof sql, "UPDATE measurement SET %s WHERE time = %d",
             changes[i], i + 1);
    /* the next row, since time changes once */
    execute_raw(sql);
  }
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  dfgnn_store raw = {.db = db, .path = path, .schemas = &dfgnn__schemas};
  seen s = {NULL, 0, 0, 0};
  ck_ok(dfgnn__store_each(&raw, &invalid, NULL, look_for, &s));
  sqlite3_close(db);
  ck_assert_uint_eq(s.count, 2);
  ck_assert_uint_eq(invalid, (uint64_t)count);
  ck_both_refused("not as this version defines it");
}
END_TEST

START_TEST(damage_anywhere_gives_true_rows_or_an_error) {
  static dfgnn_measurement rows[60];
  uint64_t seed = (uint64_t)time(NULL);
  size_t size, opened = 0, lost = 0;
  printf("seed %llu\n", (unsigned long long)seed);
  make_store(60);
  for (int i = 0; i < 60; i++) {
    rows[i] = row_of(RUN_A, "x", 1.5);
    rows[i].time = i;
  }
  char *bytes = read_file(&size), *changed = malloc(size);
  for (int round = 0; round < 400; round++) {
    memcpy(changed, bytes, size);
    for (uint64_t n = 1 + random_next(&seed) % 8; n > 0; n--)
      changed[random_next(&seed) % size] = (char)random_next(&seed);
    write_file(changed, size);
    dfgnn_store *store = NULL;
    dfgnn_store_mode mode = round % 4 ? DFGNN_STORE_READ : DFGNN_STORE_WRITE;
    if (dfgnn__store_open(&store, path, mode))
      continue;
    seen s = {rows, 0, 60, 0};
    opened++;
    if (dfgnn__store_each(store, NULL, NULL, look_for, &s))
      lost++;
    ck_assert_uint_eq(s.found, s.count);
    dfgnn__store_close(store);
  }
  printf("%zu of 400 opened, %zu of them failed later\n", opened, lost);
  ck_assert_uint_gt(opened, 0);
  free(bytes);
  free(changed);
}
END_TEST

/* ---- several processes
 * --------------------------------------------------------- */

#define WRITERS 8
#define ROWS_A_WRITER 50

START_TEST(concurrent_writers_lose_nothing_even_at_creation) {
  for (int writer = 0; writer < WRITERS; writer++)
    if (check_fork() == 0) {
      dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
      for (int i = 0; i < ROWS_A_WRITER; i++) {
        dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
        row.time = i;
        row.seed = (uint64_t)writer;
        ck_assert_int_eq(record(store, &row), 1);
      }
      dfgnn__store_close(store);
      exit(0);
    }
  for (int writer = 0; writer < WRITERS; writer++) {
    int status;
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
  }
  ck_assert_uint_eq(count_rows(NULL), WRITERS * ROWS_A_WRITER);
  char command[600]; /* nothing half made is left */
  snprintf(command, sizeof command, "ls '%s' | grep -q new-", directory);
  ck_assert_int_ne(system(command), 0);
}
END_TEST

#define READERS 24

START_TEST(readers_are_not_disturbed_by_writers) {
  make_store(10);
  for (int process = 0; process < READERS + WRITERS; process++)
    if (check_fork() == 0) {
      for (int i = 0; i < 5 && process < READERS; i++) {
        uint64_t invalid = 0;
        ck_assert_uint_ge(count_rows(&invalid), 10);
        ck_assert_uint_eq(invalid, 0);
      }
      for (int i = 0; i < 5 && process >= READERS; i++) {
        dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
        dfgnn_measurement row = row_of(RUN_B, "x", 1.5);
        row.time = i;
        row.seed = (uint64_t)process;
        ck_assert_int_eq(record(store, &row), 1);
        dfgnn__store_close(store);
      }
      exit(0);
    }
  for (int process = 0; process < READERS + WRITERS; process++) {
    int status;
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
  }
  ck_assert_uint_eq(count_rows(NULL), 10 + 5 * WRITERS);
}
END_TEST

#define KILLS 40

START_TEST(a_killed_writer_leaves_every_row_it_reported) {
  uint64_t seed = (uint64_t)time(NULL);
  int64_t reported = 0;
  printf("seed %llu\n", (unsigned long long)seed);
  for (int round = 0; round < KILLS; round++) {
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
      dfgnn_store *store = NULL;
      if (dfgnn__store_open(&store, path, DFGNN_STORE_WRITE))
        _exit(1);
      for (int64_t i = 0;; i++) {
        dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
        row.time = (int64_t)round * 1000000 + i;
        if (dfgnn__store_record(store, NULL, &row) ||
            write(pipes[1], "+", 1) != 1)
          _exit(1);
      }
    }
    close(pipes[1]);
    char buffer[4096];
    if (round % 2) /* in the middle of writing, else also of creation */
      reported += read(pipes[0], buffer, 1);
    usleep((useconds_t)(random_next(&seed) % (round % 2 ? 10000 : 60000)));
    kill(child, SIGKILL);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
    for (ssize_t n; (n = read(pipes[0], buffer, sizeof buffer)) > 0;)
      reported += n;
    close(pipes[0]);
    if (access(path, F_OK) == 0) {
      uint64_t invalid = 0;
      dfgnn__store_close(open_store(DFGNN_STORE_WRITE));
      ck_assert_int_ge((int64_t)count_rows(&invalid), reported);
      ck_assert_uint_eq(invalid, 0);
    } else {
      ck_assert_int_eq(reported, 0);
    }
  }
  printf("%lld rows reported\n", (long long)reported);
  ck_assert_int_gt(reported, 0);
}
END_TEST

/* ---- network file systems
 * -------------------------------------------------------- */

static const char *network(const char *where) {
  ck_assert_str_eq(where, path);
  return "NFS";
}

START_TEST(a_network_file_system_is_read_but_not_written) {
  make_store(4);
  char name[600];
  snprintf(name, sizeof name, "%s-shm", path);
  unlink(name);
  dfgnn__network_filesystem = network;
  ck_refused(DFGNN_STORE_WRITE, "network file system (NFS)");
  ck_assert_uint_eq(count_rows(NULL), 4);
  ck_assert_int_ne(access(name, F_OK), 0); /* no lock file was made */
  snprintf(path, sizeof path, "%s/new.db", directory);
  ck_refused(DFGNN_STORE_WRITE, "network file system");
  ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

/* ---- migration
 * --------------------------------------------------------------------- */

/* A version 2 that keeps pins with a note. */
static const char new_pin[] =
    "CREATE TABLE pin (\n  op TEXT NOT NULL,\n  pass TEXT NOT NULL,\n"
    "  dtype TEXT NOT NULL,\n  fingerprint INTEGER NOT NULL,\n"
    "  variant TEXT NOT NULL,\n  note TEXT NOT NULL,\n"
    "  PRIMARY KEY (op, pass, dtype, fingerprint)\n) STRICT, WITHOUT ROWID";

static dfgnn_schemas two_versions(const char *upgrade) {
  static dfgnn_schema versions[2];
  versions[0] = versions[1] = dfgnn__schemas.version[0];
  versions[1].sql[3] = new_pin;
  versions[1].upgrade = upgrade;
  return (dfgnn_schemas){2, versions};
}

static const char good_upgrade[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT * FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT *, '' FROM old_pin;";

START_TEST(an_older_store_is_migrated_with_a_backup) {
  dfgnn_schemas two = two_versions(good_upgrade);
  dfgnn_store *store = NULL;
  char backup[600], older[400];
  make_store(7);
  store = open_store(DFGNN_STORE_WRITE);
  ck_ok(dfgnn__store_pin(store, "gt", "forward", "f32", 3, "x"));
  dfgnn__store_close(store);
  for (int round = 0; round < 2; round++) { /* READ: in memory alone */
    seen s = {NULL, 0, 0, 0};
    char pins[256] = "";
    ck_ok(dfgnn__store_open_schemas(
        &store, path, round ? DFGNN_STORE_WRITE : DFGNN_STORE_READ, &two));
    ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
    ck_ok(dfgnn__store_each_pin(store, join_pins, pins));
    dfgnn__store_close(store);
    ck_assert_uint_eq(s.count, 7);
    ck_assert_str_eq(pins, "gt forward f32 3 x;");
    ck_assert_str_eq(version_after(""), round ? "2" : "1");
  }
  /* The new version opens without more ado and the old one does not write it.
   */
  ck_ok(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_WRITE, &two));
  dfgnn__store_close(store);
  ck_refused(DFGNN_STORE_WRITE, "newer version 2");
  snprintf(backup, sizeof backup, "%s.v1.backup", path);
  snprintf(older, sizeof older, "%.399s", path);
  snprintf(path, sizeof path, "%.500s", backup);
  ck_assert_str_eq(version_after(""), "1");
  ck_assert_uint_eq(count_rows(NULL), 7);
  snprintf(backup, sizeof backup, "%s.v1.backup.2", older);
  ck_assert_int_ne(access(backup, F_OK), 0);
}
END_TEST

START_TEST(a_migration_that_fails_changes_nothing) {
  dfgnn_schemas two = two_versions("INSERT INTO device SELECT * FROM nowhere");
  dfgnn_store *store = NULL;
  make_store(7);
  ck_fails(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_WRITE, &two),
           DFGNN_ERROR_STORE, "cannot be migrated");
  ck_fails(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_READ, &two),
           DFGNN_ERROR_STORE, "cannot be migrated");
  ck_assert_str_eq(version_after(""), "1");
  ck_assert_uint_eq(count_rows(NULL), 7);
}
END_TEST

START_TEST(processes_that_migrate_at_once_migrate_once) {
  dfgnn_schemas two = two_versions(good_upgrade);
  dfgnn_store *store = NULL;
  make_store(200);
  for (int i = 0; i < 8; i++)
    if (check_fork() == 0) {
      dfgnn_measurement row = row_of(RUN_B, "x", 1.5);
      row.time = i;
      ck_ok(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_WRITE, &two));
      ck_assert_int_eq(record(store, &row), 1);
      dfgnn__store_close(store);
      exit(0);
    }
  for (int i = 0; i < 8; i++) {
    int status;
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
  }
  seen s = {NULL, 0, 0, 0};
  ck_ok(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_READ, &two));
  ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
  dfgnn__store_close(store);
  ck_assert_uint_eq(s.count, 208);
}
END_TEST

START_TEST(the_hash_is_what_the_documentation_says) {
  /* BLAKE2b-128 by Python's hashlib of the bytes that db/hash.c describes. */
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  unsigned char hash[DFGNN_GROUP_COUNT][DFGNN_HASH_BYTES];
  char text[2 * DFGNN_HASH_BYTES + 1];
  static const char *const expected[] = {
      "016d260e75ca4657d97570e3f9342710", "4031a530e6240206b0a53a3f563f1bec",
      "8b35f7b19a9f440433c9bdf4f39123da", "bb22c7a50851dc62de0debccd4e29e7b",
      "1de08e239e887e0aa92704721213c2f0"};
  for (int i = 0; i < DFGNN_GROUP_COUNT; i++) {
    dfgnn__group_hash(hash[i], (dfgnn_field_group)i, &row, hash);
    for (int k = 0; k < DFGNN_HASH_BYTES; k++)
      sprintf(text + 2 * k, "%02x", hash[i][k]);
    ck_assert_str_eq(text, expected[i]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("store");
  TCase *cases = tcase_create("store");
  tcase_set_timeout(cases, 120);
  tcase_add_checked_fixture(cases, set_up, tear_down);
  tcase_add_test(cases, every_field_comes_back_bit_for_bit);
  tcase_add_test(cases, a_measurement_is_kept_once);
  tcase_add_test(cases, a_store_in_memory_works_alike);
  tcase_add_test(cases, free_text_is_cleaned_and_names_are_refused);
  tcase_add_test(cases, filters_restrict_what_is_visited);
  tcase_add_test(cases, rows_of_several_stores_are_a_union);
  tcase_add_test(cases, merging_is_a_union_in_any_order_and_number);
  tcase_add_test(cases, many_rows_are_recorded_all_or_none);
  tcase_add_test(cases, pins_are_set_replaced_and_removed);
  tcase_add_test(cases, a_missing_file_is_told_from_a_bad_one);
  tcase_add_test(cases, a_store_is_created_with_its_directories);
  tcase_add_test(cases, a_directory_or_a_pipe_is_refused);
  tcase_add_test(cases, files_without_permission_are_refused);
  tcase_add_test(cases, a_store_in_a_read_only_directory_is_readable);
  tcase_add_test(cases, other_files_are_refused_and_left_alone);
  tcase_add_test(cases, a_file_above_the_limit_is_refused);
  tcase_add_test(cases, a_truncated_file_is_refused_and_left_alone);
  tcase_add_test(cases, a_foreign_schema_is_refused);
  tcase_add_test(cases,
                 a_newer_store_is_read_as_far_as_known_and_never_written);
  tcase_add_test(cases, rows_outside_their_domain_are_skipped_and_counted);
  tcase_add_test(
      cases, rows_of_wrong_types_or_with_wrong_hashes_are_skipped_and_counted);
  tcase_add_test(cases, damage_anywhere_gives_true_rows_or_an_error);
  tcase_add_test(cases, concurrent_writers_lose_nothing_even_at_creation);
  tcase_add_test(cases, readers_are_not_disturbed_by_writers);
  tcase_add_test(cases, a_killed_writer_leaves_every_row_it_reported);
  tcase_add_test(cases, a_network_file_system_is_read_but_not_written);
  tcase_add_test(cases, an_older_store_is_migrated_with_a_backup);
  tcase_add_test(cases, a_migration_that_fails_changes_nothing);
  tcase_add_test(cases, processes_that_migrate_at_once_migrate_once);
  tcase_add_test(cases, the_hash_is_what_the_documentation_says);
  suite_add_tcase(suite, cases);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? 1 : 0;
}
