#include <math.h>
#include <sys/stat.h>

#include "tests/unit/store_fixture.h"

/* ---- files that are no store --------------------------------------------- */

TEST(a_missing_file_is_told_from_a_bad_one) {
  dfgnn_store *store = NULL;
  ck_fails(dfgnn__store_open(&store, path, DFGNN_STORE_READ), DFGNN_ERROR_IO,
           "no such file");
  ck_assert_int_ne(access(path, F_OK), 0);
}

TEST(the_users_own_store_is_created_with_its_directories) {
  snprintf(path, sizeof path, "%s/a b/c?d#e%%20/dfgnn/tuning.db", directory);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn__store_close(store);
  ck_assert_int_eq(access(path, R_OK), 0);
  ck_assert_uint_eq(count_rows(NULL), 0);
}

TEST(another_store_needs_the_directory_it_is_said_to_be_in) {
  snprintf(path, sizeof path, "%s/none/x.db", directory);
  ck_refused(DFGNN_STORE_WRITE, "there is no folder");
  *strrchr(path, '/') = 0;
  ck_assert_int_ne(access(path, F_OK), 0);
}

TEST(a_directory_or_a_pipe_is_refused) {
  snprintf(path, sizeof path, "%s", directory);
  ck_both_refused("is a directory");
  snprintf(path, sizeof path, "%s/pipe", directory);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  ck_both_refused("no regular file");
}

TEST(a_pipe_or_a_link_beside_a_store_is_refused) {
  static const char *const suffixes[] = {"-wal", "-journal", "-shm"};
  char beside[600];
  make_store(1);
  for (int k = 0; k < 3; k++) {
    snprintf(beside, sizeof beside, "%s%s", path, suffixes[k]);
    unlink(beside);
    ck_assert_int_eq(mkfifo(beside, 0600), 0);
    ck_both_refused("is no regular file, expected none or one of SQLite's");
    ck_assert_int_eq(unlink(beside), 0);
    ck_assert_int_eq(symlink("/etc/passwd", beside), 0);
    ck_both_refused("is no regular file, expected none or one of SQLite's");
    ck_assert_int_eq(unlink(beside), 0);
  }
  ck_assert_uint_eq(count_rows(NULL), 1);
}

TEST(a_link_to_a_store_is_followed_to_what_lies_beside_it) {
  char target[600];
  snprintf(target, sizeof target, "%s/target.db", directory);
  snprintf(path, sizeof path, "%s/link.db", directory);
  ck_assert_int_eq(symlink("target.db", path), 0);
  make_store(1); /* where the link leads */
  ck_assert_int_eq(access(target, F_OK), 0);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  const uint64_t stamp = dfgnn__store_stamp(path);
  const dfgnn_measurement row = row_of(RUN_B, "x", 2);
  ck_ok(dfgnn__store_record(store, NULL, &row));
  ck_assert_uint_ne(dfgnn__store_stamp(path), stamp);
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), 2);
}

TEST(a_store_of_two_names_is_read_and_not_written) {
  char other[600];
  make_store(1);
  snprintf(other, sizeof other, "%s/other.db", directory);
  ck_assert_int_eq(link(path, other), 0);
  ck_refused(DFGNN_STORE_WRITE, "has 2 names (hard links), expected one");
  ck_assert_uint_eq(count_rows(NULL), 1);
  ck_assert_int_eq(unlink(other), 0);
  dfgnn__store_close(open_store(DFGNN_STORE_WRITE));
}

static void expect_unreadable(void) { ck_both_refused("Permission denied"); }
static void expect_read_only(void) {
  ck_refused(DFGNN_STORE_WRITE, "read-only");
}
static void expect_no_place(void) {
  snprintf(path, sizeof path, "%s/new.db", directory);
  ck_refused(DFGNN_STORE_WRITE, "cannot be created");
}

TEST(files_without_permission_are_refused) {
  make_store(1);
  ck_assert_int_eq(chmod(directory, 0755), 0);
  ck_assert_int_eq(chmod(path, 0444), 0);
  unprivileged(expect_read_only);
  ck_assert_int_eq(chmod(path, 0), 0);
  unprivileged(expect_unreadable);
  ck_assert_int_eq(chmod(directory, 0555), 0);
  unprivileged(expect_no_place);
}

static void expect_three_rows(void) { ck_assert_uint_eq(count_rows(NULL), 3); }
static void expect_pending(void) {
  ck_refused(DFGNN_STORE_READ, "still in the log");
}

TEST(a_store_in_a_read_only_directory_is_readable) {
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

/* Opening must say why and leave the file as it was. */
static void ck_untouched_refusal(const char *why) {
  size_t before, after;
  char *old = read_file(&before);
  ck_both_refused(why);
  char *new = read_file(&after);
  ck_assert_uint_eq(before, after);
  ck_assert(memcmp(old, new, before) == 0);
}

TEST(other_files_are_refused_and_left_alone) {
  char garbage[5000], version[64];
  uint64_t seed = 1;
  snprintf(version, sizeof version, "PRAGMA user_version = %d",
           DFGNN_SCHEMA_VERSION);
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
  ck_untouched_refusal("the schema is of version 0");
  execute_raw(version);
  ck_untouched_refusal("table mail, which is not");
  execute_raw("DROP TABLE mail");
  ck_untouched_refusal("the table ban is missing");
}

TEST(a_file_above_the_limit_is_refused) {
  make_store(1);
  ck_assert_int_eq(truncate(path, (300ll << 20)), 0);
  ck_both_refused("300 MiB, expected at most 256");
}

TEST(a_truncated_file_is_refused_and_left_alone) {
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
}

TEST(a_foreign_schema_is_refused) {
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
}

TEST(a_store_of_another_schema_is_refused_and_left_alone) {
  static const struct {
    int more;
    const char *what_to_do;
  } others[] = {{-1, "export it with the dfgnn that wrote it"},
                {1, "update dfgnn"}};
  make_store(5);
  for (int i = 0; i < 2; i++) {
    char sql[64], words[96];
    const int version = DFGNN_SCHEMA_VERSION + others[i].more;
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", version);
    snprintf(words, sizeof words, "version %d, expected %d; %s", version,
             DFGNN_SCHEMA_VERSION, others[i].what_to_do);
    execute_raw(sql);
    ck_untouched_refusal(words);
  }
}

/* ---- hostile rows -------------------------------------------------------- */

TEST(rows_outside_their_domain_are_skipped_and_counted) {
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
  BAD(disturbed = -1)
  BAD(disturbed = 51)
  BAD(disturbed = INT64_MAX)
  BAD(noise = "others\x1b[2J")
  BAD(noise = longest)
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

TEST(rows_of_wrong_types_or_with_wrong_hashes_are_skipped_and_counted) {
  static const char *const changes[] = {"median_ms = 'fast'",
                                        "median_ms = NULL",
                                        "median_ms = x'00'",
                                        "time = 1.5",
                                        "samples = 'many'",
                                        "disturbed = 'many'",
                                        "disturbed = 1e300",
                                        "noise = NULL",
                                        "noise = x'00'",
                                        "noise = 'loud'",
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
    /* each change is of another row; the first row and the last stay good */
    snprintf(sql, sizeof sql, "UPDATE measurement SET %s WHERE time = %d",
             changes[i], i + 1);
    execute_raw(sql);
  }
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  dfgnn_store raw = {.db = db, .path = path};
  seen s = {NULL, 0, 0, 0};
  ck_ok(dfgnn__store_each(&raw, &invalid, NULL, look_for, &s));
  sqlite3_close(db);
  ck_assert_uint_eq(s.count, 2);
  ck_assert_uint_eq(invalid, (uint64_t)count);
  ck_both_refused("not as this version defines it");
}

TEST(a_damaged_row_is_put_right_when_it_is_stored_again) {
  static const char *const changes[] = {
      "device SET units = units + 1", "problem SET dim = dim + 1",
      "graph SET edges = edges + 1",  "run SET job = 'another'",
      "measurement SET time = 9",     "measurement SET run = zeroblob(16)"};
  const size_t count = sizeof changes / sizeof *changes;
  const dfgnn_measurement row = row_of(RUN_A, "x", 1);
  for (size_t i = 0; i < count; i++) {
    char sql[128];
    int added = -1;
    uint64_t invalid = 0, still = 0;
    unlink(path);
    dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
    ck_ok(dfgnn__store_record(store, NULL, &row));
    dfgnn__store_close(store);
    snprintf(sql, sizeof sql, "UPDATE %s", changes[i]);
    execute_raw(sql);
    ck_assert_uint_eq(count_rows(&invalid), 0);
    ck_assert_uint_eq(invalid, 1);
    store = open_store(DFGNN_STORE_WRITE);
    ck_ok(dfgnn__store_record(store, NULL, &row));
    ck_ok(dfgnn__store_record(store, &added, &row));
    dfgnn__store_close(store);
    ck_assert_int_eq(added, 0);
    ck_assert_uint_eq(count_rows(&still), 1);
    ck_assert_uint_eq(still, 0);
  }
}

TEST(damage_anywhere_gives_true_rows_or_an_error) {
  static dfgnn_measurement rows[60];
  uint64_t seed = (uint64_t)time(NULL);
  size_t size, opened = 0, lost = 0;
  printf("seed %llu\n", (unsigned long long)seed);
  make_store(60);
  for (int i = 0; i < 60; i++) {
    rows[i] = row_of(RUN_A, "x", 1.5);
    rows[i].time = i;
  }
  char *bytes = read_file(&size), *changed = zeros_of((int64_t)size, 1);
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
}

TEST_MAIN("store_files", .setup = set_up, .timeout = 120)
