#include <signal.h>

#include "tests/unit/store_fixture.h"

/* ---- several processes --------------------------------------------------- */

#define WRITERS 8
#define ROWS_A_WRITER 50

TEST(concurrent_writers_lose_nothing_even_at_creation) {
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

#define READERS 64

TEST(readers_are_not_disturbed_by_writers) {
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

#define KILLS 40

TEST(a_killed_writer_leaves_every_row_it_reported) {
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

static const char *network(const char *where) {
  ck_assert_str_eq(where, path);
  return "NFS";
}

static const char *local(const char *where) {
  (void)where;
  return NULL;
}

/* ---- network file systems ------------------------------------------------ */

TEST(a_network_file_system_is_read_but_not_written) {
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

static const char *everywhere(const char *where) {
  (void)where;
  return "Lustre";
}

TEST(a_network_file_system_takes_published_stores) {
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

TEST(a_change_under_a_reader_without_locks_is_noticed) {
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

TEST_MAIN("store_processes", .setup = set_up, .timeout = 120)
