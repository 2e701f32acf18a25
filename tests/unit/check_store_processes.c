#include <signal.h>

#include "tests/unit/store_fixture.h"

#include <sys/stat.h>
#include <zlib.h>

/* ---- several processes --------------------------------------------------- */

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

#define READERS 64

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
    if (round % 2) /* the kill is while rows are written, else at any time */
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

static const char *network(const char *where) {
  ck_assert_str_eq(where, path);
  return "NFS";
}

static const char *local(const char *where) {
  (void)where;
  return NULL;
}

/* ---- network file systems ------------------------------------------------ */

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

static const char *everywhere(const char *where) {
  (void)where;
  return "Lustre";
}

START_TEST(a_network_file_system_takes_published_stores) {
  char shared[600], side[640];
  dfgnn_store *store = NULL;
  seen s = {NULL, 0, 0, 0};
  make_store(4);
  dfgnn_store *source = open_store(DFGNN_STORE_READ);
  snprintf(shared, sizeof shared, "%s/shared.db", directory);
  dfgnn__network_filesystem = everywhere;
  ck_ok(dfgnn__store_publish(source, shared));
  ck_ok(dfgnn__store_open(&store, shared, DFGNN_STORE_READ));
  ck_assert_int_eq(store->immutable, 1);
  /* publishing anew does not disturb who reads */
  ck_ok(dfgnn__store_publish(source, shared));
  ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
  ck_assert_uint_eq(s.count, 4);
  dfgnn__store_close(store);
  static const char *const suffixes[] = {"-wal", "-shm", "-journal"};
  for (int i = 0; i < 3; i++) {
    snprintf(side, sizeof side, "%s%s", shared, suffixes[i]);
    ck_assert_int_ne(access(side, F_OK), 0);
  }
  dfgnn__store_close(source);
}
END_TEST

START_TEST(a_change_under_a_reader_without_locks_is_noticed) {
  dfgnn_measurement row = row_of(RUN_B, "x", 1.5);
  seen s = {NULL, 0, 0, 0};
  make_store(4);
  dfgnn__network_filesystem = network;
  dfgnn_store *reader = open_store(DFGNN_STORE_READ);
  ck_ok(dfgnn__store_each(reader, NULL, NULL, look_for, &s));
  dfgnn__network_filesystem = local;
  dfgnn_store *writer = open_store(DFGNN_STORE_WRITE);
  record(writer, &row);
  ck_fails(dfgnn__store_each(reader, NULL, NULL, look_for, &s),
           DFGNN_ERROR_STORE, "changed while it was read");
  dfgnn__store_close(writer);
  ck_fails(dfgnn__store_each(reader, NULL, NULL, look_for, &s),
           DFGNN_ERROR_STORE, "changed while it was read");
  dfgnn__store_close(reader);
}
END_TEST

/* ---- migration ----------------------------------------------------------- */

/* The pins of a version after the last, which have a note. */
static const char new_pin[] =
    "CREATE TABLE pin (\n  op TEXT NOT NULL,\n  pass TEXT NOT NULL,\n"
    "  dtype TEXT NOT NULL,\n  bias INTEGER NOT NULL,\n"
    "  dropout INTEGER NOT NULL,\n  fingerprint INTEGER NOT NULL,\n"
    "  variant TEXT NOT NULL,\n  note TEXT NOT NULL,\n"
    "  PRIMARY KEY (op, pass, dtype, bias, dropout, fingerprint)\n"
    ") STRICT, WITHOUT ROWID";

/* The number of today's version plus `more`, as the file has it. */
static const char *version(int more) {
  static char text[2][12];
  snprintf(text[more], sizeof text[more], "%d", dfgnn__schemas.count + more);
  return text[more];
}

static dfgnn_schemas one_more_version(const char *upgrade) {
  enum { MOST = 16 };
  static dfgnn_schema versions[MOST];
  int count = dfgnn__schemas.count;
  ck_assert_int_lt(count, MOST);
  memcpy(versions, dfgnn__schemas.version, (size_t)count * sizeof *versions);
  versions[count] = versions[count - 1];
  versions[count].sql[3] = new_pin;
  versions[count].upgrade = upgrade;
  return (dfgnn_schemas){count + 1, versions};
}

static const char good_upgrade[] =
    "INSERT INTO device SELECT * FROM old_device;"
    "INSERT INTO graph SELECT * FROM old_graph;"
    "INSERT INTO problem SELECT * FROM old_problem;"
    "INSERT INTO run SELECT * FROM old_run;"
    "INSERT INTO measurement SELECT * FROM old_measurement;"
    "INSERT INTO pin SELECT *, '' FROM old_pin;";

START_TEST(an_older_store_is_migrated_with_a_backup) {
  dfgnn_schemas next = one_more_version(good_upgrade);
  dfgnn_store *store = NULL;
  char backup[600], older[400], newer[32];
  make_store(7);
  store = open_store(DFGNN_STORE_WRITE);
  ck_ok(dfgnn__store_pin(store, &(dfgnn_pin){.op = "gt",
                                             .pass = "forward",
                                             .dtype = "f32",
                                             .fingerprint = 3,
                                             .variant = "x"}));
  dfgnn__store_close(store);
  for (int round = 0; round < 2; round++) { /* READ migrates in memory alone */
    seen s = {NULL, 0, 0, 0};
    char pins[256] = "";
    ck_ok(dfgnn__store_open_schemas(
        &store, path, round ? DFGNN_STORE_WRITE : DFGNN_STORE_READ, &next));
    ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
    ck_ok(dfgnn__store_each_pin(store, join_pins, pins));
    dfgnn__store_close(store);
    ck_assert_uint_eq(s.count, 7);
    ck_assert_str_eq(pins, "gt forward f32 3 x;");
    ck_assert_str_eq(version_after(""), version(round));
  }
  /* The new version opens without more ado and the old one does not write it.
   */
  ck_ok(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_WRITE, &next));
  dfgnn__store_close(store);
  snprintf(newer, sizeof newer, "newer version %s", version(1));
  ck_refused(DFGNN_STORE_WRITE, newer);
  snprintf(backup, sizeof backup, "%s.v%s.backup", path, version(0));
  snprintf(older, sizeof older, "%.399s", path);
  snprintf(path, sizeof path, "%.500s", backup);
  ck_assert_str_eq(version_after(""), version(0));
  ck_assert_uint_eq(count_rows(NULL), 7);
  snprintf(backup, sizeof backup, "%s.v%s.backup.2", older, version(0));
  ck_assert_int_ne(access(backup, F_OK), 0);
}
END_TEST

START_TEST(a_migration_that_fails_changes_nothing) {
  dfgnn_schemas next =
      one_more_version("INSERT INTO device SELECT * FROM nowhere");
  dfgnn_store *store = NULL;
  make_store(7);
  ck_fails(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_WRITE, &next),
           DFGNN_ERROR_STORE, "cannot be migrated");
  ck_fails(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_READ, &next),
           DFGNN_ERROR_STORE, "cannot be migrated");
  ck_assert_str_eq(version_after(""), version(0));
  ck_assert_uint_eq(count_rows(NULL), 7);
}
END_TEST

/* tests/data/tuning-v1.db.gz was written by dfgnn 0.1.0 before version 2:
 *   dfgnn-tune run (gt, gat, spmm-sum; forward, backward; weights, cold),
 *   export --best 2, import, pin (gt on any graph, gat on this one) */
#define V1_ROWS 16

static void unpack_v1(void) {
  char name[600];
  static char bytes[1 << 17];
  const char *top = getenv("top_srcdir");
  snprintf(name, sizeof name, "%s/tests/data/tuning-v1.db.gz", top ? top : ".");
  gzFile file = gzopen(name, "rb");
  ck_assert_msg(file != NULL, "%s is missing", name);
  int size = gzread(file, bytes, sizeof bytes);
  ck_assert_int_gt(size, 4096);
  ck_assert_int_lt(size, (int)sizeof bytes);
  gzclose(file);
  write_file(bytes, (size_t)size);
  ck_assert_str_eq(version_after(""), "1");
}

static int count_plain(void *data, const dfgnn_measurement *row) {
  int *count = data;
  ck_assert_int_eq(row->bias, 0);
  ck_assert_int_eq(row->dropout, 0);
  ck_assert_int_eq(row->edge_dim, 0);
  ck_assert_str_eq(row->host, "fixture");
  (*count)++;
  return 0;
}

/* Every row has the hash that version 1 gave it, else it would be skipped. */
static void expect_v1_rows(dfgnn_store_mode mode) {
  char pins[512] = "";
  uint64_t invalid = 0;
  int count = 0;
  dfgnn_store *store = open_store(mode);
  ck_ok(dfgnn__store_each(store, &invalid, NULL, count_plain, &count));
  ck_ok(dfgnn__store_each_pin(store, join_pins, pins));
  dfgnn__store_close(store);
  ck_assert_int_eq(count, V1_ROWS);
  ck_assert_uint_eq(invalid, 0);
  ck_assert_str_eq(pins, "gat forward f32 2729e1dd5d9928ba "
                         "cpu.attention.fwd.reference;"
                         "gt forward f32 0 cpu.attention.fwd.smmf/"
                         "simd=avx512,rows=512,prefetch=0,schedule=dynamic;");
}

START_TEST(a_store_of_version_1_is_read_as_it_is) {
  size_t size, after;
  unpack_v1();
  char *bytes = read_file(&size);
  expect_v1_rows(DFGNN_STORE_READ);
  char *left = read_file(&after);
  ck_assert_uint_eq(after, size);
  ck_assert_mem_eq(left, bytes, size);
  free(bytes);
  free(left);
}
END_TEST

static void read_v1(void) { expect_v1_rows(DFGNN_STORE_READ); }

START_TEST(a_store_of_version_1_is_read_where_nothing_can_be_written) {
  unpack_v1();
  ck_assert_int_eq(chmod(path, 0444), 0);
  ck_assert_int_eq(chmod(directory, 0555), 0);
  unprivileged(read_v1);
  ck_assert_int_eq(chmod(directory, 0755), 0);
}
END_TEST

START_TEST(a_store_of_version_1_is_migrated_without_losing_a_row) {
  char backup[600];
  unpack_v1();
  expect_v1_rows(DFGNN_STORE_WRITE);
  ck_assert_str_eq(version_after(""), version(0));
  expect_v1_rows(DFGNN_STORE_WRITE);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  row.dropout = 1;
  ck_assert_int_eq(record(store, &row), 1);
  ck_assert_int_eq(record(store, &row), 0);
  row.dropout = 0; /* another row, not the same once more */
  ck_assert_int_eq(record(store, &row), 1);
  dfgnn__store_close(store);
  ck_assert_uint_eq(count_rows(NULL), V1_ROWS + 2);
  snprintf(backup, sizeof backup, "%s.v1.backup", path);
  snprintf(path, sizeof path, "%.500s", backup);
  ck_assert_str_eq(version_after(""), "1");
  expect_v1_rows(DFGNN_STORE_READ);
}
END_TEST

/* SQL that makes the table of measurements one of a version before 8, by its
 * text. */
static const char *without_noise(const char *table) {
  static char sql[4000];
  snprintf(sql, sizeof sql,
           "CREATE TEMP TABLE kept AS SELECT * FROM measurement;"
           "ALTER TABLE kept DROP COLUMN disturbed;"
           "ALTER TABLE kept DROP COLUMN noise;"
           "DROP TABLE measurement; %s;"
           "INSERT INTO measurement SELECT * FROM kept",
           table);
  return sql;
}

/* SQL that makes the table of problems one of a version before 9. */
static const char *without_programs(const char *table) {
  static char sql[4000];
  snprintf(sql, sizeof sql,
           "CREATE TEMP TABLE others AS SELECT * FROM problem;"
           "ALTER TABLE others DROP COLUMN program;"
           "ALTER TABLE others DROP COLUMN program_text;"
           "DROP TABLE problem; %s;"
           "INSERT INTO problem SELECT * FROM others",
           table);
  return sql;
}

START_TEST(a_store_of_version_8_knows_of_no_programs) {
  char sql[4200];
  uint64_t invalid = 0;
  make_store(4);
  snprintf(sql, sizeof sql, "%s; PRAGMA user_version = 8",
           without_programs(dfgnn__schemas.version[8 - 1].sql[4]));
  execute_raw(sql);
  ck_assert_uint_eq(count_rows(&invalid), 4); /* migrated in memory */
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  row.time = 1;
  ck_assert_int_eq(record(store, &row), 0); /* it is there, by its hash */
  row.program = "0123456789abcdef";
  row.program_text = "src x; out = sum_in(x)";
  ck_assert_int_eq(record(store, &row), 1);
  dfgnn__store_close(store);
  ck_assert_str_eq(version_after(""), version(0));
  ck_assert_uint_eq(count_rows(&invalid), 5);
  ck_assert_uint_eq(invalid, 0);
}
END_TEST

static int count_calm(void *data, const dfgnn_measurement *row) {
  int *calm = data;
  *calm += row->disturbed == 0 && !*row->noise;
  return 0;
}

START_TEST(a_store_of_version_7_knows_of_no_noise) {
  char sql[8400];
  int calm = 0;
  uint64_t invalid = 0;
  make_store(4);
  snprintf(sql, sizeof sql, "%s; %s; PRAGMA user_version = 7",
           without_noise(dfgnn__schemas.version[7 - 1].sql[2]),
           without_programs(dfgnn__schemas.version[7 - 1].sql[4]));
  execute_raw(sql);
  ck_assert_uint_eq(count_rows(&invalid), 4); /* migrated in memory */
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  row.time = 1;
  ck_assert_int_eq(record(store, &row), 0); /* it is there, by its hash */
  row.disturbed = 3;
  row.noise = "others keep 1.9 of 2 cores busy";
  ck_assert_int_eq(record(store, &row), 1);
  ck_ok(dfgnn__store_each(store, &invalid, NULL, count_calm, &calm));
  dfgnn__store_close(store);
  ck_assert_str_eq(version_after(""), version(0));
  ck_assert_int_eq(calm, 4);
  ck_assert_uint_eq(invalid, 0);
}
END_TEST

/* Versions 3 to 6 had queries and keys that are normalised inside. */
START_TEST(rows_of_problems_that_are_gone_are_left_behind) {
  enum { MEASUREMENT = 2, PROBLEM = 4, MOST = 8000 };
  char sql[MOST];
  dfgnn_measurement row = row_of(RUN_A, "x", 1.5);
  make_store(3);
  dfgnn_store *store = open_store(DFGNN_STORE_WRITE);
  row.heads = 77;
  ck_assert_int_eq(record(store, &row), 1);
  dfgnn__store_close(store);
  snprintf(sql, sizeof sql,
           "CREATE TEMP TABLE saved AS SELECT * FROM problem;"
           "DROP TABLE problem; %s;"
           "INSERT INTO problem SELECT hash, op, pass, dtype, math, layout,"
           "  index_type, heads, dim, deterministic, weights, bias, dropout,"
           "  edge_dim, edge_use, heads = 77, message FROM saved;"
           "%s; PRAGMA user_version = 6",
           dfgnn__schemas.version[6 - 1].sql[PROBLEM],
           without_noise(dfgnn__schemas.version[6 - 1].sql[MEASUREMENT]));
  execute_raw(sql);
  ck_assert_uint_eq(count_rows(NULL), 3);
  dfgnn__store_close(open_store(DFGNN_STORE_WRITE));
  ck_assert_str_eq(version_after(""), version(0));
  ck_assert_uint_eq(count_rows(NULL), 3);
}
END_TEST

START_TEST(an_old_store_merges_into_a_new_one_as_the_same_rows) {
  char old[600];
  dfgnn_store *in = NULL, *out = NULL;
  dfgnn_merge_counts counts[2] = {{0, 0, 0}, {0, 0, 0}};
  unpack_v1();
  snprintf(old, sizeof old, "%s.old", path);
  ck_assert_int_eq(rename(path, old), 0);
  unpack_v1();
  out = open_store(DFGNN_STORE_WRITE); /* migrated */
  ck_ok(dfgnn__store_open(&in, old, DFGNN_STORE_READ));
  ck_ok(dfgnn__store_merge(out, &counts[0], in, NULL));
  ck_assert_uint_eq(counts[0].known, V1_ROWS);
  ck_assert_uint_eq(counts[0].added + counts[0].skipped, 0);
  dfgnn__store_close(in);
  dfgnn__store_close(out);
}
END_TEST

START_TEST(processes_that_migrate_at_once_migrate_once) {
  dfgnn_schemas next = one_more_version(good_upgrade);
  dfgnn_store *store = NULL;
  make_store(200);
  for (int i = 0; i < 8; i++)
    if (check_fork() == 0) {
      dfgnn_measurement row = row_of(RUN_B, "x", 1.5);
      row.time = i;
      ck_ok(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_WRITE, &next));
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
  ck_ok(dfgnn__store_open_schemas(&store, path, DFGNN_STORE_READ, &next));
  ck_ok(dfgnn__store_each(store, NULL, NULL, look_for, &s));
  dfgnn__store_close(store);
  ck_assert_uint_eq(s.count, 208);
}
END_TEST

static void add(TCase *cases) {
  tcase_add_test(cases, concurrent_writers_lose_nothing_even_at_creation);
  tcase_add_test(cases, readers_are_not_disturbed_by_writers);
  tcase_add_test(cases, a_killed_writer_leaves_every_row_it_reported);
  tcase_add_test(cases, a_network_file_system_is_read_but_not_written);
  tcase_add_test(cases, a_network_file_system_takes_published_stores);
  tcase_add_test(cases, a_change_under_a_reader_without_locks_is_noticed);
  tcase_add_test(cases, an_older_store_is_migrated_with_a_backup);
  tcase_add_test(cases, a_store_of_version_1_is_read_as_it_is);
  tcase_add_test(cases,
                 a_store_of_version_1_is_read_where_nothing_can_be_written);
  tcase_add_test(cases, a_store_of_version_1_is_migrated_without_losing_a_row);
  tcase_add_test(cases, rows_of_problems_that_are_gone_are_left_behind);
  tcase_add_test(cases, a_store_of_version_8_knows_of_no_programs);
  tcase_add_test(cases, a_store_of_version_7_knows_of_no_noise);
  tcase_add_test(cases, an_old_store_merges_into_a_new_one_as_the_same_rows);
  tcase_add_test(cases, a_migration_that_fails_changes_nothing);
  tcase_add_test(cases, processes_that_migrate_at_once_migrate_once);
}

int main(void) { return run_cases("store_processes", add); }
